# SPDX-License-Identifier: Apache-2.0
"""The squares of the mean gradient, from what every rank knows of its own gradient.

An optimizer that squares what a codec sent squares the codec's error as well. Here each rank multiplies its own
gradient, which it knows exactly, by the mean that all ranks got. The mean of these products over the ranks is the true
mean gradient times the one that was sent: an error is in it once, with either sign, and not squared. Products are
summed over a window of steps, and their mean travels in bf16 with the first bucket of a step.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tithe import _core
from tithe._torch_fit import laid_out_like
from tithe._torch_tie import Names, Tie, steps_done

WINDOW = 100  # steps between two exchanges, once training is under way
_MOST = 1e30  # an overflow would drop the round


def is_due(step: int) -> bool:
    """Whether a window ends before this step: 2, 4, 8 and so on, then every WINDOW steps."""
    return step % WINDOW == 0 if step >= WINDOW else step > 1 and step & (step - 1) == 0


class Squares(Tie):
    """What this rank adds to them. Sums and products are float32, on the host, flat as in DDP's buckets."""

    kind, suffix, codec = "squares", " (squares)", "bf16:feedback=none"

    def __init__(self, optimizer: torch.optim.Optimizer, names: Names) -> None:
        super().__init__(optimizer, names)
        self.sums: dict[int, torch.Tensor] = {}  # since the last exchange, by id
        self.counts: dict[int, int] = {}  # of steps in them
        self._products: dict[int, torch.Tensor] = {}  # of the open step
        self._travelling: torch.Tensor | None = None
        for number, (_, p) in self.names.items():
            self._include(number, p)

    def _include(self, number: int, p: torch.Tensor) -> None:
        self.sums[number], self._products[number] = torch.zeros(2, p.numel()).unbind()
        self.counts[number] = 0

    def opened(self, live: Any) -> None:
        self.optimizer._squares = self

    # ---- A step, as Live goes through it

    def leaves(self) -> tuple[_core.Layout, torch.Tensor] | None:
        self._travelling = None
        if not is_due(steps_done(self.optimizer) + 1) or not any(self.counts.values()):
            return None
        means = [(s / max(1, self.counts[number])).clamp_(-_MOST, _MOST) for number, s in self.sums.items()]
        self._travelling = torch.cat(means).bfloat16()
        return self.layout("bfloat16"), self._travelling

    def gives(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        for number, part in self.own(parameters, values):
            self._products[number].copy_(part)

    def gets(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        for number, part in self.own(parameters, values):
            self._products[number].mul_(part)

    # ---- The optimizer's step

    def arrived(self) -> dict[int, tuple[torch.Tensor, int]]:
        """By id: the mean over ranks and steps of a window, in the parameter's shape, and how many steps it had.

        Empty where no window ended, or where its round was dropped: then it is due again.
        """
        mean, self._travelling = self._travelling, None
        if mean is None or not bool(mean[0].isfinite()):
            return {}
        out = {}
        parts = mean.split([len(s) for s in self.sums.values()])
        for (number, (_, p)), part in zip(self.names.items(), parts, strict=True):
            if self.counts[number] > 0:
                shaped, flat = laid_out_like(p)
                flat.copy_(part)
                out[number] = (shaped.clamp_(min=0), self.counts[number])
                self.counts[number] = 0
                self.sums[number].zero_()
        return out

    def add(self, parameter: torch.Tensor, factor: float) -> None:
        """Books the open step's products: the optimizer uses this gradient, times a factor."""
        number = id(parameter)
        if number in self.names:
            self.sums[number].add_(self._products[number], alpha=factor * factor)
            self.counts[number] += 1

    # ---- Checkpoints

    def state_dict(self) -> dict[str, Any]:
        """By name: steps, and the sum of their products."""
        return {name: (self.counts[n], self.sums[n].clone()) for n, (name, _) in self.names.items()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        for number, (name, _) in self.names.items():
            if name in saved:
                self.counts[number] = saved[name][0]
                self.sums[number].copy_(saved[name][1])

    def detach(self, average: Any) -> None:
        self.optimizer._squares = None
