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

from tithe._torch_fit import flat_of, laid_out_like
from tithe._torch_tie import Names, Tie, groups_of, steps_done

if TYPE_CHECKING:
    from tithe._torch_adamw import AdamW

EVERY = 100  # steps between two exchanges, once training is under way
LEAST = 0.05  # part: below it, the codec's error would lead the steps


def is_due(step: int) -> bool:
    """Whether parts are exchanged with this step: 2, 4, 8 and so on, then every so many."""
    return step % EVERY == 0 if step >= EVERY else step > 1 and step & (step - 1) == 0


class Squares(Tie):
    """This rank's mean products, float32, on the host, flat as in DDP's buckets."""

    kind, suffix, codec = "squares", " (squares)", "fp8:feedback=none"
    optimizer: "AdamW"

    def __init__(self, optimizer: "AdamW", names: Names) -> None:
        self.means: dict[int, torch.Tensor] = {}  # by id; from a parameter's first step on
        self._products: dict[int, torch.Tensor] = {}  # of the open step
        self._travelling: torch.Tensor | None = None
        super().__init__(optimizer, names)

    def opened(self, live: Any) -> None:
        self.optimizer._squares = self

    def detach(self, average: Any) -> None:
        self.optimizer._squares = None

    # ---- A step, as Live goes through it

    def leaves(self) -> tuple[Any, torch.Tensor] | None:
        self._travelling = None
        exact = self.optimizer._exact
        if exact is not None and exact.is_exact():  # parts are not used then
            return None
        if not is_due(steps_done(self.optimizer) + 1) or not self.means:
            return None
        self._travelling = torch.cat([self._part(number, p) for number, (_, p) in self.names.items()])
        return self.layout("float32"), self._travelling

    def _part(self, number: int, p: torch.Tensor) -> torch.Tensor:
        """What this rank has of them, of Adam's mean of squares; 1 where nothing was sent so far."""
        if number not in self.means:
            return torch.ones(p.numel())
        sent = flat_of(self.optimizer.state[p]["exp_avg_sq"], p)
        # A rank's part is the number of ranks at most, where it alone has a gradient.
        return torch.where(sent > 0, self.means[number] / sent, 1).nan_to_num_(1).clamp_(-1e4, 1e4)

    def gives(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        for number, part in self.own(parameters, values):
            if number not in self._products:
                self._products[number] = torch.empty(part.numel())
            self._products[number].copy_(part)

    def gets(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        for number, part in self.own(parameters, values):
            self._products[number].mul_(part)

    # ---- The optimizer's step

    def arrived(self) -> dict[int, torch.Tensor]:
        """By id: the parts, the same on all ranks, in the parameter's shape.

        Empty where none were exchanged, or where the round was dropped: then they are due again.
        """
        mean, self._travelling = self._travelling, None
        if mean is None or not bool(mean[0].isfinite()):
            return {}
        out = {}
        for (number, (_, p)), part in zip(self.names.items(), self.split(mean), strict=True):
            shaped, flat = laid_out_like(p)
            flat.copy_(part.clamp(LEAST, 1))
            out[number] = shaped
        return out

    def add(self, factor: float) -> None:
        """Books the open step's products, before the optimizer steps with gradients that were scaled by the factor."""
        groups = groups_of(self.optimizer)
        for number, (_, p) in self.names.items():
            if p.grad is None or number not in self._products:
                continue
            beta = groups[number]["betas"][1]
            if number not in self.means:  # all of what was squared so far counts as the gradient's own
                before = self.optimizer.state[p].get("exp_avg_sq")
                self.means[number] = torch.zeros(p.numel()) if before is None else flat_of(before, p)
            self.means[number].mul_(beta).add_(self._products[number], alpha=(1 - beta) * factor**2)

    # ---- Checkpoints

    def state_dict(self) -> dict[str, Any]:
        """By name."""
        return {self.names[number][0]: mean.clone() for number, mean in self.means.items()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self.means = {number: saved[name].clone() for number, (name, _) in self.names.items() if name in saved}
