# SPDX-License-Identifier: Apache-2.0
"""States in checkpoints: one rank's state under a key of the rank, and the gathered states of all ranks."""

import io
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from tithe._exchange import gather_bytes


def labelled(mine: Mapping[str, Any], rank: int | None = None, world: int | None = None) -> dict[str, Any]:
    """Returns a rank's state under a key that no other rank has. rank, world: of the job, if the state has those of a
    part.

    torch.distributed.checkpoint saves a key only once if several ranks have it. It traverses dicts and lists, and loads
    a tensor only into a tensor of the same size, which is unknown before the first step. It saves and loads a tuple
    unchanged, so the state is in a tuple.
    """
    rank = mine["rank"] if rank is None else rank
    return {f"rank {rank} of {mine['world'] if world is None else world}": (dict(mine),)}


def unlabelled(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Reverses labelled(). Any other state is returned unchanged."""
    values = list(state.values())
    if len(values) == 1 and isinstance(values[0], tuple | list) and len(values[0]) == 1:
        return values[0][0]
    return state


def gather_states(
    mine: Mapping[str, Any], group: dist.ProcessGroup, timeout: float, doing: str, check: Callable[[], None]
) -> dict[str, Any]:
    """Returns {"format", "world", "ranks"}: "ranks" has one state per rank on rank 0, and is empty elsewhere.
    Collective.

    check: see _exchange.together().
    """
    stream = io.BytesIO()
    torch.save(dict(mine), stream)
    blobs = gather_bytes(stream.getvalue(), group, timeout, doing, check)
    states = [torch.load(io.BytesIO(blob), weights_only=True) for blob in blobs]
    return {"format": mine["format"], "world": mine["world"], "ranks": states}


def own_state(gathered: Mapping[str, Any], rank: int, world: int) -> Mapping[str, Any]:
    """Returns this rank's part of a gathered state. ValueError if there is none."""
    states = gathered["ranks"]
    if not states:
        raise ValueError("this gathered state holds no rank's: load what rank 0 saved, on all ranks")
    if len(states) != gathered["world"] or any(state.get("rank") != r for r, state in enumerate(states)):
        raise ValueError("not a gathered state of this version of tithe.torch.State")
    if len(states) == world:
        return states[rank]
    # Another number of ranks: the session spreads all residuals by the rule of docs/guide/elastic.md.
    mine = dict(states[rank] if rank < len(states) else states[0])
    return {**mine, "sessions": [state["session"] for state in states]}
