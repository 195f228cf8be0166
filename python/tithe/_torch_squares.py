# SPDX-License-Identifier: Apache-2.0
"""Which part of Adam's mean of squares is the gradient's own, and not the error of a codec.

Adam squares what was sent, and so the codec's error as well. Here each rank multiplies its own gradient, which it knows
exactly, by the mean that all ranks got, and keeps the mean of these products with the weights of Adam's own. Averaged
over the ranks they are the true mean gradient times the one that was sent: an error is in it once, with either sign,
and not squared. What that is of Adam's mean of squares is exchanged now and then, as fp8, with the first bucket of a
step. With a codec that loses nothing it is all of it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tithe._torch_pieces import Pieces, local_of
from tithe._torch_tie import Leaves, Tie, groups_of, steps_done

if TYPE_CHECKING:
    from tithe._torch_adamw import AdamW

EVERY = 100  # steps between two exchanges, once training is under way
LEAST = 0.05  # part: below it, the codec's error would lead the steps


def is_due(step: int) -> bool:
    """Whether parts are exchanged with this step: 2, 4, 8 and so on, then every so many."""
    return step % EVERY == 0 if step >= EVERY else step > 1 and step & (step - 1) == 0


class Squares(Tie):
    """This rank's mean products, float32, on the host, flat as in buckets."""

    kind, suffix, codec = "squares", " (squares)", "fp8:feedback=none"
    optimizer: "AdamW"

    def __init__(self, optimizer: "AdamW", pieces: Pieces) -> None:
        self.means: dict[int, torch.Tensor] = {}  # by id; from a parameter's first step on
        self._products: dict[int, torch.Tensor] = {}  # of the open step
        self._travelling: tuple[list[int], torch.Tensor, Any] | None = None  # numbers, values, and their way
        self._with = 0  # the step that they travel with
        self._begun = False  # whether there was a round, after which there may be means; alike on all ranks
        super().__init__(optimizer, pieces)

    def opened(self, live: Any) -> None:
        self.optimizer._squares = self

    def detach(self, average: Any) -> None:
        self.optimizer._squares = None

    # ---- A step, as Live goes through it

    def leaves(self) -> Leaves | None:
        begun, self._begun = self._begun, True
        step = steps_done(self.optimizer) + 1
        if self._travelling is not None and self._with == step and self.pieces.finite(*self._travelling[1:]):
            return None  # an earlier round of this step has brought them
        self._travelling = None
        exact = self.optimizer._exact
        if exact is not None and exact.is_exact():  # parts are not used then
            return None
        if not is_due(step) or not begun:
            return None
        leaves = self.leaving([self._part(number, p) for number, (_, p) in self.names.items()])
        self._travelling, self._with = (list(self.names), *leaves[1:]), step
        return leaves

    def _part(self, number: int, p: torch.Tensor) -> torch.Tensor:
        """What this rank has of them, of Adam's mean of squares; 1 where nothing was sent so far."""
        if number not in self.means:
            return torch.ones(self.pieces.count(number))
        sent = self.pieces.flat(number, self.optimizer.state[p]["exp_avg_sq"])
        # A rank's part is the number of ranks at most, where it alone has a gradient.
        return torch.where(sent > 0, self.means[number] / sent, 1).nan_to_num_(1).clamp_(-1e4, 1e4)

    def gives(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        for number, part in self.own(parameters, values):
            if number not in self._products:
                self._products[number] = torch.empty(part.numel())
            self._products[number].copy_(part)

    def gets(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        for number, part in self.own(parameters, values):
            self._products[number].mul_(part).mul_(self.pieces.unit(number) ** 2)

    # ---- The optimizer's step

    def arrived(self) -> dict[int, torch.Tensor]:
        """By id: the parts, the same on all ranks, like the parameter.

        Empty where none were exchanged, or where the round was dropped: then they are due again.
        """
        came, self._travelling = self._travelling, None
        if came is None or not self.pieces.finite(*came[1:]):
            return {}
        parts = self.pieces.shaped(*came)
        for part in parts.values():
            local_of(part).clamp_(LEAST, 1)
        return parts

    def add(self, factor: float) -> None:
        """Books the open step's products, before the optimizer steps with gradients that were scaled by the factor."""
        groups = groups_of(self.optimizer)
        for number, (_, p) in self.names.items():
            count = self.pieces.count(number)
            if p.grad is None or (count and number not in self._products):
                continue
            beta = groups[number]["betas"][1]
            if number not in self.means:  # all of what was squared so far counts as the gradient's own
                before = self.optimizer.state[p].get("exp_avg_sq")
                self.means[number] = torch.zeros(count) if before is None else self.pieces.flat(number, before)
            if count:
                self.means[number].mul_(beta).add_(self._products[number], alpha=(1 - beta) * factor**2)

    # ---- Checkpoints

    def state_dict(self) -> dict[str, Any]:
        """By name."""
        return {self.names[number][0]: mean.clone() for number, mean in self.means.items()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self.means = {number: saved[name].clone() for number, (name, _) in self.names.items() if name in saved}
        self._begun = bool(self.means)
