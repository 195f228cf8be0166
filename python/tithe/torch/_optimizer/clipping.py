# SPDX-License-Identifier: Apache-2.0
"""Clips gradients by the norm over all of them, and the residuals by the same factor.

The norm is known after all gradients are exchanged, when the codec has already stored a part of them as residuals. If
only the gradients were scaled down, the following steps would send the rest of a spike. So each rank scales its
residuals by the same factor. All ranks know the factor, and a residual is reduced through the gradient of the next
step: with factor f and residual r, the gradient g becomes g + (f - 1) r.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tithe.torch._hook.adapter import OptimizerAdapter
from tithe.torch._hook.parameter_views import ParameterViews
from tithe.torch._hook.running_session import RunningSession


class Clipping(OptimizerAdapter):
    """Scales residuals. factors: the pending factor of each residual, by id."""

    kind = "clips"

    def __init__(self, optimizer: torch.optim.Optimizer, views: ParameterViews) -> None:
        super().__init__(optimizer, views)
        self.factors: dict[int, float] = {}
        self._before: dict[int, float] = {}  # the factors at the beginning of the last round
        self._running: RunningSession | None = None

    def opened(self, running: RunningSession) -> None:
        self._running = running
        self.optimizer._clips = self

    def detach(self, average: Any) -> None:
        self.optimizer._clips = None

    def clipped(self, factor: float) -> None:
        """Records that the gradients of a step were scaled by the factor, the same on all ranks."""
        if 0 <= factor < 1:
            self.factors = dict.fromkeys(self.names, factor)

    def side_tensors(self) -> None:
        self._before = dict(self.factors)

    def undo(self) -> None:
        self.factors = self._before

    def before_exchange(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        for number, part in self.own(parameters, values):
            if (factor := self.factors.get(number)) is not None:
                residual = torch.empty(part.numel())
                self._running.session.residual(self.names[number][0], residual.numpy())
                part.add_(residual.to(part.dtype), alpha=factor - 1)

    def after_exchange(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        if self.factors and bool(values[:1].isfinite()):  # a dropped round does not change the residuals
            for number, _ in self.own(parameters, values):
                self.factors.pop(number, None)

    def state_dict(self) -> dict[str, Any]:
        """Returns the pending factors by name."""
        return {self.names[number][0]: factor for number, factor in self.factors.items()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self.factors = {number: saved[name] for number, (name, _) in self.names.items() if name in saved}
