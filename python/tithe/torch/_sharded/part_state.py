# SPDX-License-Identifier: Apache-2.0
"""A State whose residuals are of a part of each parameter. Its saved state names the part."""

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist

from tithe.torch._common.rank_states import labelled
from tithe.torch._hook.state import State


class PartState(State):
    """A State of parts. `rank` and `world` in stats and states are those among the ranks that have the same part."""

    __slots__ = ()

    def _parts(self) -> dict[str, str]:
        """Returns this rank's part of each parameter, as text, by name."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's residuals and counters: save one per rank, or give the State to
        torch.distributed.checkpoint."""
        return labelled(self._whole_state(), dist.get_rank(), dist.get_world_size())

    def skip(self) -> None:
        """Raises ValueError: other ranks average with this rank outside tithe."""
        raise ValueError(
            "skip() is for a DistributedDataParallel without inside=: here the process group averages gradients with "
            "ranks of the same host or of other shards, which wait for this rank's backward"
        )

    def gathered_state_dict(self) -> dict[str, Any]:
        """Raises ValueError: the ranks have different parts, and rank 0 would need memory for all of them."""
        raise ValueError(
            "each rank's residuals are of its own part of the parameters: save state_dict() on each rank, or give the "
            "State to torch.distributed.checkpoint"
        )

    def _whole_state(self) -> dict[str, Any]:
        return {**super()._whole_state(), "parts": self._parts()}

    def _check_saved(self, state: Mapping[str, Any], rank: int, world: int) -> None:
        super()._check_saved(state, rank, world)
        mine, saved = self._parts(), state.get("parts", {})
        for name in mine:
            if not self._no_residuals(state) and saved.get(name, mine[name]) != mine[name]:
                raise ValueError(
                    f"the state has {saved[name]} of '{name}', and this rank has {mine[name]}: start with the mesh, or "
                    "the hosts, that it was saved with, and load each rank's own state"
                )

    def __deepcopy__(self, memo: dict[int, Any]) -> State:
        """Returns a plain State without residuals: the copied model begins with empty residuals."""
        twin = super().__deepcopy__(memo)
        twin._saved = None
        return twin
