# SPDX-License-Identifier: Apache-2.0
"""A tie joins a State and an optimizer: it sees a step's gradients before and after their exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tithe import _core

if TYPE_CHECKING:
    from tithe._torch_live import Live

Names = Mapping[int, tuple[str, torch.nn.Parameter]]  # by id


class Tie:
    """One that does nothing. Values lie flat on the host, as in DDP's buckets, and are not scaled."""

    kind = ""  # its key in a saved state
    suffix = ""  # of the keys of what it sends beside the gradients; none: nothing
    codec = ""  # for that

    def __init__(self, optimizer: torch.optim.Optimizer, names: Names) -> None:
        """names: the model's parameters; those of the optimizer that train are the tie's."""
        self.optimizer = optimizer
        self._model, self._mine = names, set()
        self.names: dict[int, tuple[str, torch.nn.Parameter]] = {}
        self.meet()

    def meet(self) -> None:
        """Before each step, since groups may be added: the parameters that the optimizer has now."""
        mine = {id(p) for p in parameters_of(self.optimizer)}
        if mine != self._mine:
            self._mine = mine
            self.names = {n: (name, p) for n, (name, p) in self._model.items() if n in mine and p.requires_grad}

    def rules(self) -> dict[str, str]:
        """Choices for what it sends beside the gradients (docs/choices.md)."""
        return {f"*{self.suffix}": self.codec} if self.suffix else {}

    def sends(self) -> list[tuple[str, torch.nn.Parameter]]:
        """The same as keys with the parameters that they are like."""
        return [(name + self.suffix, p) for name, p in self.names.values()] if self.suffix else []

    def opened(self, live: Live) -> None:
        """The State has connected."""

    def leaves(self) -> tuple[_core.Layout, torch.Tensor] | None:
        """At a step's first bucket: what travels with it, averaged in place. Alike on all ranks."""
        return None

    def gives(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        """This rank's gradients of a bucket; what is written there is what is sent."""

    def gets(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        """Their mean over the ranks, once the step counts."""

    def state_dict(self) -> dict[str, Any]:
        """What this rank alone knows."""
        return {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """From state_dict(), on the same rank."""

    def detach(self, average: Callable[[_core.Layout, torch.Tensor], None]) -> None:
        """Gives the optimizer back as torch has it. Collective: average() takes all ranks' values to their mean."""

    def own(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """Of a bucket the tie's parameters by id, and their values."""
        parts = values.detach().split([p.numel() for p in parameters])
        return ((id(p), part) for p, part in zip(parameters, parts, strict=True) if id(p) in self.names)

    def split(self, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Values that lie as layout() says, by parameter."""
        return values.split([p.numel() for _, p in self.names.values()])

    def layout(self, dtype: str) -> _core.Layout:
        """Of one value per value of its parameters, in their order."""
        sizes = [p.numel() for _, p in self.names.values()]
        return _core.Layout([name + self.suffix for name, _ in self.names.values()], sizes, dtype, sizes)


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def groups_of(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Any]]:
    """The group of each parameter, by the parameter's id."""
    return {id(p): group for group in optimizer.param_groups for p in group["params"]}


def steps_done(optimizer: torch.optim.Optimizer) -> int:
    """By an optimizer of Adam's kind, which counts them by parameter."""
    return max((int(state["step"]) for state in optimizer.state.values() if "step" in state), default=0)
