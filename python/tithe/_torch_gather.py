# SPDX-License-Identifier: Apache-2.0
"""All ranks' states in one, for checkpoints that one rank writes."""

import io
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from tithe._exchange import gather_bytes


def gather_states(mine: Mapping[str, Any], group: dist.ProcessGroup, timeout: float, doing: str) -> dict[str, Any]:
    """{"world", "ranks": one state per rank} on rank 0, the same without ranks on the others. Collective."""
    stream = io.BytesIO()
    torch.save(dict(mine), stream)
    blobs = gather_bytes(stream.getvalue(), group, timeout, doing)
    states = [torch.load(io.BytesIO(blob), weights_only=True) for blob in blobs]
    return {"format": mine["format"], "world": mine["world"], "ranks": states}


def own_state(gathered: Mapping[str, Any], rank: int, world: int) -> Mapping[str, Any]:
    """This rank's part. ValueError where there is none."""
    states = gathered["ranks"]
    if not states:
        raise ValueError("this gathered state holds no rank's: load what rank 0 saved, on all ranks")
    if len(states) != gathered["world"] or any(state.get("rank") != r for r, state in enumerate(states)):
        raise ValueError("not a gathered state of this version of tithe.torch.State")
    # Of another number of ranks: State says what to do, or takes any of them where nothing is ever unsent.
    return states[rank] if len(states) == world else states[0]
