# SPDX-License-Identifier: Apache-2.0
"""States as checkpoints hold them: a rank's own, under a name of its own, and all ranks' in one."""

import io
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from tithe._exchange import gather_bytes


def labelled(mine: Mapping[str, Any], rank: int | None = None, world: int | None = None) -> dict[str, Any]:
    """A rank's state under a key that no other rank has. rank, world: of the job, where the state is of some of it.

    torch.distributed.checkpoint takes what stands under one key on several ranks for the same and saves it once; it
    looks into dicts and lists, and loads a tensor only into one of its size, which is not known before the first step.
    A tuple it saves and loads as it is.
    """
    rank = mine["rank"] if rank is None else rank
    return {f"rank {rank} of {mine['world'] if world is None else world}": (dict(mine),)}


def unlabelled(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """What labelled() was given; anything else as it is."""
    values = list(state.values())
    if len(values) == 1 and isinstance(values[0], tuple | list) and len(values[0]) == 1:
        return values[0][0]
    return state


def gather_states(
    mine: Mapping[str, Any], group: dist.ProcessGroup, timeout: float, doing: str, check: Callable[[], None]
) -> dict[str, Any]:
    """{"world", "ranks": one state per rank} on rank 0, the same without ranks on the others. Collective.

    check: as _exchange.together() takes it.
    """
    stream = io.BytesIO()
    torch.save(dict(mine), stream)
    blobs = gather_bytes(stream.getvalue(), group, timeout, doing, check)
    states = [torch.load(io.BytesIO(blob), weights_only=True) for blob in blobs]
    return {"format": mine["format"], "world": mine["world"], "ranks": states}


def own_state(gathered: Mapping[str, Any], rank: int, world: int) -> Mapping[str, Any]:
    """This rank's part. ValueError where there is none."""
    states = gathered["ranks"]
    if not states:
        raise ValueError("this gathered state holds no rank's: load what rank 0 saved, on all ranks")
    if len(states) != gathered["world"] or any(state.get("rank") != r for r, state in enumerate(states)):
        raise ValueError("not a gathered state of this version of tithe.torch.State")
    if len(states) == world:
        return states[rank]
    # The state is of another number of ranks: all that was left unsent goes by the rule of docs/elastic.md.
    mine = dict(states[rank] if rank < len(states) else states[0])
    return {**mine, "sessions": [state["session"] for state in states]}
