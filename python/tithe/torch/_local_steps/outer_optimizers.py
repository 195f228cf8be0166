# SPDX-License-Identifier: Apache-2.0
"""Outer optimizers: they step the outer parameters along the ranks' mean drift.

Each multiplication and each addition is rounded separately, so that all kinds of processors compute the same bits.
"""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from tithe.torch._local_steps.drift import Entry

Factory = Callable[[list[torch.Tensor]], torch.optim.Optimizer]


class Mean:
    """outer -= rate * drift. With rate 1 the result is the mean of the ranks' parameters (local SGD)."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def step(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if self._rate != 1.0:
                entry.out.mul_(self._rate)
            entry.outer.sub_(entry.out)

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Does nothing: this optimizer has no state."""


class Nesterov:
    """SGD with Nesterov momentum, as in torch.optim.SGD: v = mu v + d; outer -= rate * (d + mu v)."""

    MU = 0.9

    def __init__(self, rate: float, entries: Iterable[Entry]) -> None:
        self._rate = rate
        self._velocity = {entry.key: torch.zeros_like(entry.outer) for entry in entries}

    def step(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            velocity = self._velocity[entry.key]
            velocity.mul_(self.MU).add_(entry.out)
            entry.outer.sub_((velocity * self.MU).add_(entry.out).mul_(self._rate))

    def state(self) -> dict[str, Any]:
        return {"velocity": {key: v.clone() for key, v in self._velocity.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        for key, velocity in self._velocity.items():
            velocity.copy_(state["velocity"][key])


class FactoryOptimizer:
    """An optimizer of torch's over the outer values of a fragment, made by the user's function."""

    def __init__(self, factory: Factory, entries: Sequence[Entry]) -> None:
        self._parameters = [torch.nn.Parameter(entry.outer, requires_grad=True) for entry in entries]
        self._optimizer = factory(self._parameters)
        if not isinstance(self._optimizer, torch.optim.Optimizer):
            raise ValueError(
                f"outer= gave a {type(self._optimizer).__name__}: give a function of a list of parameters that returns "
                "a torch.optim.Optimizer, such as lambda p: torch.optim.SGD(p, lr=0.7, momentum=0.9, nesterov=True)"
            )

    def step(self, entries: Sequence[Entry]) -> None:
        for parameter, entry in zip(self._parameters, entries, strict=True):
            parameter.grad = entry.out
        self._optimizer.step()
        for parameter in self._parameters:
            parameter.grad = None

    def state(self) -> dict[str, Any]:
        return copy.deepcopy(self._optimizer.state_dict())

    def restore(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state)


def check_outer(outer: Any, rate: float | None) -> None:
    """Raises ValueError for a wrong outer= or outer_rate=."""
    if not (outer in ("mean", "nesterov") if isinstance(outer, str) else callable(outer)):
        raise ValueError(
            f"outer={outer!r}: give 'mean', 'nesterov', or a function that makes a torch.optim.Optimizer of a list of "
            "parameters"
        )
    if rate is None:
        return
    if not isinstance(outer, str):
        raise ValueError(f"outer_rate={rate!r} stands beside an outer optimizer of your own: give it the rate there")
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
        raise ValueError(f"outer_rate={rate!r}: must be a finite number above 0")


def make_outer(
    outer: str | Factory, rate: float | None, entries: Sequence[Entry]
) -> Mean | Nesterov | FactoryOptimizer:
    if outer == "mean":
        return Mean(1.0 if rate is None else float(rate))
    if outer == "nesterov":
        return Nesterov(0.7 if rate is None else float(rate), entries)
    return FactoryOptimizer(outer, entries)
