# SPDX-License-Identifier: Apache-2.0
"""Estimates how much of Adam's mean square is the gradient's own, and how much is the error of the codec.

Adam squares the gradient that it receives, and so the codec's error in it. Each rank can compute its own error: e = M -
g, where g is the rank's gradient and M the mean that every rank received. If the training loop rescales the gradient
after the exchange or adds to it, the optimizer receives G = c M + d, and G - c e is the same gradient without the
rank's error. The mean of (G - c e) G over steps and ranks contains the error once, with either sign, and not squared.
Divided by Adam's mean of G^2 it is the gradient's own part, which is 1 for a lossless codec.

The optimizer's step compares G and M. So a scale that the loop applies cancels, and it may differ between steps and
between parameters. In a few steps (is_due) the parts are exchanged as fp8, with the first bucket.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tithe.torch._hook.adapter import OptimizerAdapter, SideTensors, groups_of, steps_done
from tithe.torch._hook.parameter_views import ParameterViews, local_of

if TYPE_CHECKING:
    from tithe.torch._optimizer.adamw import AdamW

EVERY = 100  # steps between two exchanges, after the first hundred
FIRST = 8  # the step of the first exchange: parts of fewer products are too noisy to divide by
MIN_PART = 0.05  # the smallest part: below it, the codec's error would dominate the steps
_SAMPLES = 4096  # values of a parameter from which the scale c is estimated


def is_due(step: int) -> bool:
    """Returns True if the parts are exchanged in this step: 8, 16, 32, 64, and then every hundredth step."""
    return step % EVERY == 0 if step >= EVERY else step >= FIRST and step & (step - 1) == 0


class Squares(OptimizerAdapter):
    """This rank's mean products (G - c e) G, float32, on the host, flat and in the order of buckets."""

    kind, suffix, codec = "squares", " (squares)", "fp8:feedback=none"
    optimizer: "AdamW"

    def __init__(self, optimizer: "AdamW", views: ParameterViews) -> None:
        self.means: dict[int, torch.Tensor] = {}  # by id, from a parameter's first step on
        self._errors: dict[int, torch.Tensor] = {}  # e of the last round, by id
        self._samples: dict[int, torch.Tensor] = {}  # evenly spaced values of M in that round
        # The values under way: ids, values, and their gathering
        self._sent: tuple[list[int], torch.Tensor, Any] | None = None
        self._step = 0  # the step in which they were sent
        # Whether a round was begun, the same on all ranks; there are no means before the first round
        self._begun = False
        super().__init__(optimizer, views)

    def opened(self, running: Any) -> None:
        self.optimizer._squares = self

    def detach(self, average: Any) -> None:
        self.optimizer._squares = None

    # ---- the exchange

    def side_tensors(self) -> SideTensors | None:
        begun, self._begun = self._begun, True
        step = steps_done(self.optimizer) + 1
        if self._sent is not None and self._step == step and self.views.finite(*self._sent[1:]):
            return None  # an earlier round of this step has averaged them
        self._sent = None
        exact = self.optimizer._exact
        if exact is not None and exact.is_exact():  # the step will not use the parts
            return None
        if not is_due(step) or not begun:
            return None
        side = self.pack_side_tensors([self._part(number, p) for number, (_, p) in self.names.items()])
        self._sent, self._step = (list(self.names), *side[1:]), step
        return side

    def _part(self, number: int, p: torch.Tensor) -> torch.Tensor:
        """Returns this rank's products divided by Adam's mean of squares; 1 if that mean is 0."""
        if number not in self.means:
            return torch.ones(self.views.count(number))
        square = self.views.flat_values(number, self.optimizer.state[p]["exp_avg_sq"])
        # A part is at most the number of ranks, if only one rank has a gradient.
        return torch.where(square > 0, self.means[number] / square, 1).nan_to_num_(1).clamp_(-1e4, 1e4)

    def before_exchange(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        for number, part in self.own(parameters, values):
            if number not in self._errors:
                self._errors[number] = torch.empty(part.numel())
            self._errors[number].copy_(part)

    def after_exchange(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        finite = bool(values[:1].isfinite().all())  # else the round was dropped, and no step follows it
        for number, part in self.own(parameters, values):
            if not finite:
                self._errors.pop(number, None)
                continue
            error = self._errors[number]
            torch.sub(part.float(), error, out=error)
            self._samples[number] = _sampled(part).float().clone()

    # ---- the optimizer's step

    def arrived(self) -> dict[int, torch.Tensor]:
        """Returns the averaged parts by id, shaped like the parameters and the same on all ranks.

        Empty if no parts were exchanged, or if the round was dropped: then they are due again.
        """
        sent, self._sent = self._sent, None
        if sent is None or not self.views.finite(*sent[1:]):
            return {}
        parts = self.views.unflatten(*sent)
        for part in parts.values():
            local_of(part).clamp_(MIN_PART, 1)
        return parts

    def add(self) -> None:
        """Adds the products of the gradients of the step that the optimizer is about to make."""
        groups = groups_of(self.optimizer)
        for number, (_, p) in self.names.items():
            if p.grad is None:
                continue
            gradient = self.views.flat_values(number, p.grad)
            if number not in self.means:  # all earlier squares count as the gradient's own
                before = self.optimizer.state[p].get("exp_avg_sq")
                self.means[number] = (
                    torch.zeros_like(gradient) if before is None else self.views.flat_values(number, before)
                )
            beta = groups[number]["betas"][1]
            own = self._without_error(number, gradient)
            self.means[number].mul_(beta).addcmul_(own, gradient, value=1 - beta)

    def _without_error(self, number: int, gradient: torch.Tensor) -> torch.Tensor:
        """Returns G - c e, with the least-squares c of G = c M + d; G itself if no round had the parameter."""
        error = self._errors.get(number)
        if error is None or error.numel() == 0:
            return gradient
        received, now = self._samples[number], _sampled(gradient)
        square = torch.dot(received, received)
        scale = torch.dot(received, now) / square if square > 0 else square
        return torch.addcmul(gradient, error, scale, value=-1)

    # ---- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Returns the mean products by name."""
        return {self.names[number][0]: mean.clone() for number, mean in self.means.items()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self.means = {number: saved[name].clone() for number, (name, _) in self.names.items() if name in saved}
        self._begun = bool(self.means)


def _sampled(flat: torch.Tensor) -> torch.Tensor:
    """Returns about _SAMPLES values, evenly spaced."""
    return flat[:: max(1, flat.numel() // _SAMPLES)]
