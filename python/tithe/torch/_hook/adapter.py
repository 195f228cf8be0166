# SPDX-License-Identifier: Apache-2.0
"""A tie joins a State and an optimizer: it sees a step's gradients before and after their exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tithe import _core
from tithe.torch._hook.parameter_views import Pieces

if TYPE_CHECKING:
    from tithe.torch._hook.job import Way
    from tithe.torch._hook.running_session import Live

Leaves = tuple[_core.Layout | None, torch.Tensor, "Way | None"]
Average = Callable[[_core.Layout | None, torch.Tensor, "Way | None"], None]


class Tie:
    """One that does nothing. Values lie flat on the host, as in buckets, and are not scaled; where a rank exchanges a
    piece of each parameter, they are of its pieces alone."""

    kind = ""  # its key in a saved state
    suffix = ""  # of the keys of what it sends beside the gradients; none: nothing
    codec = ""  # for that

    def __init__(self, optimizer: torch.optim.Optimizer, pieces: Pieces) -> None:
        """pieces: of the model's parameters; those of the optimizer that train are the tie's."""
        self.optimizer = optimizer
        self.pieces = pieces
        self._mine: set[int] = set()
        self.names: dict[int, tuple[str, torch.nn.Parameter]] = {}
        self.meet()

    def meet(self) -> None:
        """Before each step, since groups may be added: the parameters that the optimizer has now."""
        mine = {id(p) for p in parameters_of(self.optimizer)}
        if mine != self._mine:
            self._mine = mine
            self.names = {n: (name, p) for n, (name, p) in self.pieces.names.items() if n in mine and p.requires_grad}

    def rules(self) -> dict[str, str]:
        """Choices for what it sends beside the gradients (docs/choices.md)."""
        return {f"*{self.suffix}": self.codec} if self.suffix else {}

    def sends(self) -> list[tuple[str, torch.Tensor]]:
        """The same as keys with the pieces of parameters that they are like."""
        if not self.suffix:
            return []
        seen = [(name + self.suffix, self.pieces.seen(number)) for number, (name, _) in self.names.items()]
        return [(key, piece) for key, piece in seen if piece.numel() > 0]

    def opened(self, live: Live) -> None:
        """The State has connected."""

    def leaves(self) -> Leaves | None:
        """At the first bucket of a round: what travels with it, averaged in place. Alike on all ranks.

        A step of an optimizer is a round, or several where FSDP2 does not wait for the end of backward.
        """
        return None

    def gives(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        """This rank's gradients of a bucket; what is written there is what is sent."""

    def gets(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        """Their mean over the ranks, once the step counts."""

    def undo(self) -> None:
        """The last round is taken back, before the optimizer has stepped."""

    def state_dict(self) -> dict[str, Any]:
        """What this rank alone knows."""
        return {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """From state_dict(), on the same rank."""

    def detach(self, average: Average) -> None:
        """Gives the optimizer back as torch has it. Collective: average() takes all ranks' values to their mean."""

    def own(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """Of a bucket the tie's parameters by id, and their values."""
        numbers = map(self.pieces.number, parameters)
        parts = values.detach().split([p.numel() for p in parameters])
        return ((number, part) for number, part in zip(numbers, parts, strict=True) if number in self.names)

    def leaving(self, values: Sequence[torch.Tensor]) -> Leaves:
        """One value per value of its parameters' pieces, in their order."""
        whole = torch.cat([*values, torch.empty(0)])
        named = [(name + self.suffix, self.pieces.count(number)) for number, (name, _) in self.names.items()]
        sizes = [size for _, size in named if size]
        layout = _core.Layout([name for name, size in named if size], sizes, "float32", sizes) if sizes else None
        return layout, whole, self.pieces.way(list(self.names), whole)


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def groups_of(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Any]]:
    """The group of each parameter, by the parameter's id."""
    return {id(p): group for group in optimizer.param_groups for p in group["params"]}


def steps_done(optimizer: torch.optim.Optimizer) -> int:
    """By an optimizer of Adam's kind, which counts them by parameter."""
    return max((int(state["step"]) for state in optimizer.state.values() if "step" in state), default=0)
