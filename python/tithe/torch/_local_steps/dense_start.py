# SPDX-License-Identifier: Apache-2.0
"""The dense start of LocalSteps: gradients are averaged in every step, as DistributedDataParallel does.

They are averaged before the optimizer steps: after its closure, if it has one, and before a GradScaler searches for
values that are not finite. So all ranks skip the same steps.
"""

from collections.abc import Callable
from typing import Any

import torch

from tithe._session import Session
from tithe.torch._local_steps.drift import RESERVED_KEYS, Entry, on_host

_USED = f"{RESERVED_KEYS}used"


class Averaging:
    """Averages the gradients of parameters through a session of its own."""

    def __init__(self, session: Session, entries: list[Entry]) -> None:
        self.session = session
        self._entries = entries
        self._used = torch.empty(len(entries), dtype=torch.float32)

    def average(self) -> None:
        """Replaces gradients by their mean over the ranks. A parameter without a gradient on all ranks keeps none."""
        for place, entry in enumerate(self._entries):
            gradient = entry.live.grad
            self._used[place] = 0.0 if gradient is None else 1.0
            if gradient is None:
                entry.out.zero_()
            elif gradient.layout != torch.strided:
                raise ValueError(f"'{entry.key}' has a sparse gradient: use nn.Embedding(sparse=False)")
            else:
                entry.out.copy_(on_host(gradient))
        bucket = {entry.key: entry.out for entry in self._entries}
        self.session.wait(self.session.sync({**bucket, _USED: self._used}))
        self.session.commit()
        for entry, used in zip(self._entries, self._used.tolist(), strict=True):
            if used == 0.0:  # a dropped round leaves NaN
                continue
            if entry.live.grad is None:
                entry.live.grad = torch.zeros_like(entry.live)
            entry.live.grad.copy_(entry.out)

    def before_step(self, arguments: tuple[Any, ...], given: dict[str, Any]) -> tuple[Any, Any] | None:
        """A step hook: averages now, or after the closure of step().

        arguments: those of step(), after the optimizer.
        """
        closure = given.get("closure", arguments[1] if len(arguments) > 1 else None)
        if closure is None:
            self.average()
            return None

        def averaged() -> Any:
            loss = closure()
            self.average()
            return loss

        if "closure" in given:
            return arguments, {**given, "closure": averaged}
        return (arguments[0], averaged, *arguments[2:]), given


class ScalerHooks:
    """Wraps methods of a GradScaler, whose update() ends an iteration even without a step, until remove()."""

    def __init__(
        self, scaler: Any, optimizers: list[Any], unscale: Callable[[], None], updated: Callable[[], None]
    ) -> None:
        self._scaler = scaler
        inner_unscale, inner_step, inner_update = scaler.unscale_, scaler.step, scaler.update

        def ours(which: Any) -> bool:
            return any(which is one for one in optimizers)

        def unscale_(which: Any) -> None:
            if ours(which):
                unscale()
            inner_unscale(which)

        def step(which: Any, *arguments: Any, **given: Any) -> Any:
            if ours(which):  # a fused optimizer does not call unscale_()
                unscale()
            return inner_step(which, *arguments, **given)

        def update(*arguments: Any, **given: Any) -> None:
            inner_update(*arguments, **given)
            updated()

        scaler.unscale_, scaler.step, scaler.update = unscale_, step, update

    def remove(self) -> None:
        for name in ("unscale_", "step", "update"):
            self._scaler.__dict__.pop(name, None)
