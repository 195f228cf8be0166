# SPDX-License-Identifier: Apache-2.0
"""Estimates how much of Adam's mean square is the gradient's own, and how much is the error of the codec.

Adam squares the gradient that it gets, and with it the square of the codec's error. The error of one rank is known to
that rank: e = M - g, where g is its own gradient and M the mean that every rank received. If the loop rescales the
gradient after the exchange or adds to it, the optimizer gets G = c M + d, and the same gradient without the codec's
error is G - c e on that rank. The mean over steps and ranks of (G - c e) G holds the error once, with either sign, and
not squared. Divided by Adam's mean of G^2 it is the gradient's own part: 1 for a codec without loss.

G and M are compared in the optimizer's step, so a scale that the loop applies cancels: it may differ between steps and
between parameters. The parts are exchanged as fp8 in a few steps (is_due), with the first bucket.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tithe.torch._hook.adapter import Leaves, Tie, groups_of, steps_done
from tithe.torch._hook.parameter_views import Pieces, local_of

if TYPE_CHECKING:
    from tithe.torch._optimizer.adamw import AdamW

EVERY = 100  # steps between two exchanges, once training is under way
FIRST = 8  # step of the first exchange: parts of fewer products are too noisy to divide by
LEAST = 0.05  # smallest part: below it, the codec's error would lead the steps
_SAMPLES = 4096  # values of a parameter that the scale is taken from


def is_due(step: int) -> bool:
    """Whether parts are exchanged with this step: 8, 16, 32, 64, and then every hundredth."""
    return step % EVERY == 0 if step >= EVERY else step >= FIRST and step & (step - 1) == 0


class Squares(Tie):
    """This rank's mean products (G - c e) G, float32, on the host, flat as in buckets."""

    kind, suffix, codec = "squares", " (squares)", "fp8:feedback=none"
    optimizer: "AdamW"

    def __init__(self, optimizer: "AdamW", pieces: Pieces) -> None:
        self.means: dict[int, torch.Tensor] = {}  # by id; from a parameter's first step on
        self._errors: dict[int, torch.Tensor] = {}  # e of the last round
        self._samples: dict[int, torch.Tensor] = {}  # values of M in that round, every so many
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
        """This rank's products as parts of Adam's mean of squares; 1 where that mean is 0."""
        if number not in self.means:
            return torch.ones(self.pieces.count(number))
        square = self.pieces.flat(number, self.optimizer.state[p]["exp_avg_sq"])
        # A rank's part is the number of ranks at most, where it alone has a gradient.
        return torch.where(square > 0, self.means[number] / square, 1).nan_to_num_(1).clamp_(-1e4, 1e4)

    def gives(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        for number, part in self.own(parameters, values):
            if number not in self._errors:
                self._errors[number] = torch.empty(part.numel())
            self._errors[number].copy_(part)

    def gets(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        finite = bool(values[:1].isfinite().all())  # else the round was dropped, and no step follows
        for number, part in self.own(parameters, values):
            if not finite:
                self._errors.pop(number, None)
                continue
            error = self._errors[number]
            torch.sub(part.float(), error, out=error)
            self._samples[number] = _sampled(part).float().clone()

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

    def add(self) -> None:
        """Adds the products of the gradients that the optimizer is about to step with."""
        groups = groups_of(self.optimizer)
        for number, (_, p) in self.names.items():
            if p.grad is None:
                continue
            gradient = self.pieces.flat(number, p.grad)
            if number not in self.means:  # all of what was squared so far counts as the gradient's own
                before = self.optimizer.state[p].get("exp_avg_sq")
                self.means[number] = torch.zeros_like(gradient) if before is None else self.pieces.flat(number, before)
            beta = groups[number]["betas"][1]
            own = self._without_error(number, gradient)
            self.means[number].mul_(beta).addcmul_(own, gradient, value=1 - beta)

    def _without_error(self, number: int, gradient: torch.Tensor) -> torch.Tensor:
        """G - c e, with the c that fits G = c M + d best; all of G where no round brought the parameter."""
        error = self._errors.get(number)
        if error is None or error.numel() == 0:
            return gradient
        received, now = self._samples[number], _sampled(gradient)
        square = torch.dot(received, received)
        scale = torch.dot(received, now) / square if square > 0 else square
        return torch.addcmul(gradient, error, scale, value=-1)

    # ---- Checkpoints

    def state_dict(self) -> dict[str, Any]:
        """By name."""
        return {self.names[number][0]: mean.clone() for number, mean in self.means.items()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self.means = {number: saved[name].clone() for number, (name, _) in self.names.items() if name in saved}
        self._begun = bool(self.means)


def _sampled(flat: torch.Tensor) -> torch.Tensor:
    """At most about _SAMPLES values, evenly spaced."""
    return flat[:: max(1, flat.numel() // _SAMPLES)]
