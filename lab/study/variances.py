# SPDX-License-Identifier: Apache-2.0
"""Other divisors for AdamW with compressed gradients, to compare with tithe.torch.optim.AdamW. All ranks are in this
process, so each rule can read the values that it would exchange."""

from collections.abc import Callable

import torch

import tithe
from tithe.torch._optimizer.squares import Squares, is_due

Gradients = list[list[torch.Tensor]]  # by rank, by parameter: the values before the exchange


class Rule(torch.optim.AdamW):
    """AdamW with its own step, without clipping and differing groups. `bytes_sent`: bytes of the rule beside the
    gradients."""

    bytes_sent = 0.0

    def sees(self, gradients: Gradients) -> None:
        """Reads the gradients before the exchange of a step."""
        self.steps = getattr(self, "steps", 0) + 1
        for p, mine in zip(self.parameters(), zip(*gradients, strict=True), strict=True):
            self.take(self.state[p], torch.stack(mine))

    def take(self, state: dict, gradients: torch.Tensor) -> None:
        raise NotImplementedError

    def square(self, state: dict, mean: torch.Tensor) -> torch.Tensor:
        """Returns the square whose root is the divisor. mean: Adam's mean of gradients, corrected."""
        raise NotImplementedError

    def parameters(self) -> list[torch.nn.Parameter]:
        return self.param_groups[0]["params"]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        group = self.param_groups[0]
        beta, rate = group["betas"][0], group["lr"]
        for p in self.parameters():
            state = self.state[p]
            mean = state.setdefault("exp_avg", torch.zeros_like(p)).lerp_(p.grad, 1 - beta)
            mean = mean / (1 - beta**self.steps)
            p.mul_(1 - rate * group["weight_decay"])
            p.addcdiv_(mean, self.square(state, mean).sqrt_().add_(group["eps"]), value=-rate)


class Refreshed(Rule):
    """Squares of exact mean gradients, of some steps only: those steps send gradients uncompressed."""

    def due(self) -> bool:
        raise NotImplementedError

    def sees(self, gradients: Gradients) -> None:
        super().sees(gradients)
        if self.due():
            self.bytes_sent += 4 * sum(p.numel() for p in self.parameters())

    def take(self, state: dict, gradients: torch.Tensor) -> None:
        beta = self.param_groups[0]["betas"][1]
        if self.due():
            square = state.setdefault("square", torch.zeros_like(gradients[0]))
            square.mul_(beta).addcmul_(gradients.mean(0), gradients.mean(0), value=1 - beta)
            state["refreshed"] = state.get("refreshed", 0) + 1

    def square(self, state: dict, mean: torch.Tensor) -> torch.Tensor:
        return state["square"] / (1 - self.param_groups[0]["betas"][1] ** state["refreshed"])


class Frozen(Refreshed):
    """The square of the first steps, constant afterwards, as in the 1-bit Adam of Tang et al. (2021)."""

    FIRST = 100

    def due(self) -> bool:
        return self.steps <= self.FIRST


class Growing(Refreshed):
    """A square refreshed at intervals that double after a number of refreshes, as in the 0/1 Adam of Lu et al.
    (2022)."""

    EACH = 16

    def due(self) -> bool:
        at, gap = 0, 1
        while at < self.steps:
            many = min(self.EACH, (self.steps - at) // gap)
            at += gap * many
            if many < self.EACH:
                break
            gap *= 2
        return at == self.steps


class Local(Rule):
    """((W - 1) m^2 + mean of the ranks' own squares) / W. The mean is exchanged in the same steps as the parts of
    tithe's AdamW, and by fp8 as well."""

    def due(self) -> bool:
        return self.steps == 1 or is_due(self.steps)

    def take(self, state: dict, gradients: torch.Tensor) -> None:
        beta, self.ranks = self.param_groups[0]["betas"][1], len(gradients)
        own = state.setdefault("own", torch.zeros_like(gradients[0]))
        own.mul_(beta).add_(gradients.square().mean(0), alpha=1 - beta)
        if self.due():
            frame = tithe.encode(Squares.codec, (own / (1 - beta**self.steps)).numpy())
            state["shared"] = torch.from_numpy(tithe.decode(frame)).view_as(own)
            self.bytes_sent += len(frame)

    def square(self, state: dict, mean: torch.Tensor) -> torch.Tensor:
        return ((self.ranks - 1) * mean.square() + state["shared"]) / self.ranks


RULES = {"AdamW frozen": Frozen, "AdamW growing": Growing, "AdamW local": Local}
