# SPDX-License-Identifier: Apache-2.0
"""OptimizerAdapter connects a State and an optimizer: it reads the gradients of a step before and after their
exchange."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from tithe import _core
from tithe.torch._device.route import HostExchange
from tithe.torch._hook.parameter_views import ParameterViews

SideTensors = tuple[_core.Layout | None, torch.Tensor, HostExchange | None]
Average = Callable[[_core.Layout | None, torch.Tensor, HostExchange | None], None]


class OptimizerAdapter:
    """The base class, which does nothing.

    Values are flat, on the host and in the order of the bucket, without the loss scale. If a rank exchanges a part of
    each parameter, the values are of this part only.
    """

    kind = ""  # its key in a saved state
    suffix = ""  # the suffix of the keys of its side tensors; "" if it has none
    codec = ""  # the codec for the side tensors
    local: Collection[int] = ()  # ids of parameters whose gradients are not exchanged in backward

    def __init__(self, optimizer: torch.optim.Optimizer, views: ParameterViews) -> None:
        """views: of the model's parameters. The adapter serves the parameters that the optimizer steps and that
        train."""
        self.optimizer = optimizer
        self.views = views
        self._mine: set[int] = set()
        self.names: dict[int, tuple[str, torch.nn.Parameter]] = {}
        self.refresh_parameters()

    def refresh_parameters(self) -> None:
        """Called before each step: the optimizer may have new parameter groups."""
        mine = {id(p) for p in parameters_of(self.optimizer)}
        if mine != self._mine:
            self._mine = mine
            of_views = self.views.names.items()
            # A parameter that was frozen meanwhile keeps its values.
            self.names = {
                n: (name, p) for n, (name, p) in of_views if n in mine and (p.requires_grad or n in self.names)
            }

    def rules(self) -> dict[str, str]:
        """Returns choices for the side tensors (docs/guide/choices.md)."""
        return {f"*{self.suffix}": self.codec} if self.suffix else {}

    def side_views(self) -> list[tuple[str, torch.Tensor]]:
        """Returns the keys of the side tensors, each with a view of the same size."""
        if not self.suffix:
            return []
        seen = [(name + self.suffix, self.views.view_of(number)) for number, (name, _) in self.names.items()]
        return [(key, view) for key, view in seen if view.numel() > 0]

    def opened(self, running: Any) -> None:
        """Called after the State has connected, with its RunningSession."""

    def side_tensors(self) -> SideTensors | None:
        """Returns tensors to average beside the gradients, in place. Called at the first bucket of a round. Must be
        identical on all ranks.

        One optimizer step is one round; under FSDP2 it can be several.
        """
        return None

    def before_exchange(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        """Reads and may change this rank's gradients of a bucket. The session sends the changed values."""

    def end_hand_over(self, session: _core.Session) -> None:
        """May hand over more tensors, the same on all ranks. Called after the last bucket of a round was handed
        over."""

    def after_exchange(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        """Reads the mean over the ranks. Called after the commit."""

    def undo(self) -> None:
        """Reverts the adapter's state by one round, before the optimizer has stepped."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the part of the state that only this rank has."""
        return {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restores state_dict(), on the same rank."""

    def detach(self, average: Average) -> None:
        """Restores torch's behaviour of the optimizer. Collective. average() replaces values by the mean over ranks."""

    def own(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """Yields the ids and values of the adapter's parameters in a bucket."""
        numbers = map(self.views.id_of, parameters)
        parts = values.detach().split([p.numel() for p in parameters])
        return ((number, part) for number, part in zip(numbers, parts, strict=True) if number in self.names)

    def pack_side_tensors(self, values: Sequence[torch.Tensor]) -> SideTensors:
        """Returns side tensors made of one value per value of the adapter's views, in their order."""
        whole = torch.cat([*values, torch.empty(0)])
        named = [(name + self.suffix, self.views.count(number)) for number, (name, _) in self.names.items()]
        sizes = [size for _, size in named if size]
        layout = _core.Layout([name for name, size in named if size], sizes, "float32", sizes) if sizes else None
        return layout, whole, self.views.gathering(list(self.names), whole)


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def groups_of(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Any]]:
    """Returns the group of each parameter, by the parameter's id."""
    return {id(p): group for group in optimizer.param_groups for p in group["params"]}


def steps_done(optimizer: torch.optim.Optimizer) -> int:
    """Returns the number of steps of an optimizer of Adam's kind, which counts them per parameter."""
    return max((int(state["step"]) for state in optimizer.state.values() if "step" in state), default=0)
