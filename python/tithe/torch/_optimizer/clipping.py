# SPDX-License-Identifier: Apache-2.0
"""Clipping by the norm of what came, and what waits with it.

The norm over all gradients is known when all have come, and by then the codec has kept a part of them. Were only what
came scaled down, a spike would be let through bit by bit in the steps that follow. So the residual is scaled by the
same factor, which all ranks know: what is taken off it is sent as a gradient, with the next step's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tithe.torch._hook.adapter import Tie
from tithe.torch._hook.parameter_views import Pieces
from tithe.torch._hook.running_session import Live


class Clips(Tie):
    """factors: by id, of residuals that are still to be scaled."""

    kind = "clips"

    def __init__(self, optimizer: torch.optim.Optimizer, pieces: Pieces) -> None:
        super().__init__(optimizer, pieces)
        self.factors: dict[int, float] = {}
        self._before: dict[int, float] = {}  # the factors that the last round began with
        self._live: Live | None = None

    def opened(self, live: Live) -> None:
        self._live = live
        self.optimizer._clips = self

    def detach(self, average: Any) -> None:
        self.optimizer._clips = None

    def clipped(self, factor: float) -> None:
        """A step's gradients were scaled by it. Alike on all ranks."""
        if 0 <= factor < 1:
            self.factors = dict.fromkeys(self.names, factor)

    def leaves(self) -> None:
        self._before = dict(self.factors)

    def undo(self) -> None:
        self.factors = self._before

    def gives(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        for number, part in self.own(parameters, values):
            if (factor := self.factors.get(number)) is not None:
                waits = torch.empty(part.numel())
                self._live.session.residual(self.names[number][0], waits.numpy())
                part.add_(waits.to(part.dtype), alpha=factor - 1)

    def gets(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        if self.factors and bool(values[:1].isfinite()):  # else the round was dropped, and residuals are as they were
            for number, _ in self.own(parameters, values):
                self.factors.pop(number, None)

    def state_dict(self) -> dict[str, Any]:
        """By name."""
        return {self.names[number][0]: factor for number, factor in self.factors.items()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self.factors = {number: saved[name] for number, (name, _) in self.names.items() if name in saved}
