# SPDX-License-Identifier: Apache-2.0
"""Warns once if a training loop discards the gradients of a round.

A round delivers this step's gradients and the residuals of earlier rounds. If the loop then clears the gradients
without optimizer.step(), the share of earlier steps is lost, unless State.undo() reverts the round.
"""

import contextlib
import logging
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from tithe.torch._hook.parameter_views import local_of
from tithe.torch._hook.running_session import RunningSession

_log = logging.getLogger("tithe.torch")

_TEXT = (
    "the gradients of round %d were cleared without a step() of the optimizer that attach() was given. The round also "
    "delivered residuals of earlier steps, and these are lost now. If the loop computes gradients that it does not "
    "apply (SAM), run that backward inside state.without_residual(). If it skips a step, call state.undo() on every "
    "rank before it clears the gradients (attach(..., undo=True)). If another optimizer steps the model, attach() must "
    "be given that one (docs/guide/footguns.md)"
)


class UnappliedRounds:
    """Compares a session's rounds with the steps of its optimizers."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], trained: Iterable[torch.nn.Parameter]) -> None:
        """trained: the model's parameters in its own order."""
        self._running: RunningSession | None = None
        self._applied = 0  # rounds that were complete at the last step() or undo()
        trained = [p for p in trained if p.requires_grad and p.numel() > 0]
        # Backward reaches the last parameter first, before any other gradient of the step exists.
        self._watched = next((p for p in reversed(trained) if p.dim() > 1), trained[-1] if trained else None)
        # Optimizers and parameters outlive a State: they must not keep it alive.
        me = weakref.ref(self)

        def stepped(*_: Any) -> None:
            if (it := me()) is not None:
                it.applied()

        def reached(_: torch.Tensor) -> None:
            if (it := me()) is not None:
                it.check()

        self._hooks = [optimizer.register_step_post_hook(stepped) for optimizer in optimizers]
        if self._watched is not None:  # a hook of a parameter's gradient runs before the gradient is accumulated
            self._hooks.append(self._watched.register_hook(reached))

    def opened(self, running: RunningSession) -> None:
        self._running = running
        self.applied()

    def applied(self) -> None:
        """Records that all rounds so far were applied or reverted."""
        if self._running is not None:
            with contextlib.suppress(ValueError):  # an error has closed the session
                self._applied = self._running.session.round()

    def check(self) -> None:
        """Warns, at the beginning of backward, if the last round's gradients were cleared without a step."""
        if self._running is None or self._watched is None:
            return
        try:
            rounds = self._running.session.round()
        except ValueError:  # an error has closed the session
            return
        if rounds <= self._applied or self._running.last_round_dropped:
            return
        gradient = self._watched.grad
        local = None if gradient is None else local_of(gradient)  # a rank may have an empty shard
        if local is not None and (local.numel() == 0 or bool(local.any())):
            return  # the loop accumulates: the gradients are part of the next round
        _log.warning(_TEXT, rounds - 1)
        self.remove()

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._running = None
