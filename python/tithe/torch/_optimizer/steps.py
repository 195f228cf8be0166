# SPDX-License-Identifier: Apache-2.0
"""Shared by the optimizers of tithe.torch.optim: the beginning of step(), and torch's step() without its hooks."""

import logging
from collections.abc import Callable
from typing import Any

import torch

from tithe._choices import is_lossless
from tithe.torch._hook.adapter import parameters_of
from tithe.torch._hook.state_registry import opened

_log = logging.getLogger("tithe.torch")


def without_hooks(step: Any) -> Any:
    """Returns the step without torch's wrapper, which calls the hooks and already encloses a subclass's own step."""
    return step.__wrapped__ if getattr(step, "hooked", False) else step


def begin_step(optimizer: Any, closure: Callable[[], Any] | None) -> Any:
    """Runs the closure and returns its loss; warns in the first step if attach() did not receive the optimizer."""
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    if not optimizer._known:
        _warn_if_not_attached(optimizer)
    optimizer._known = True
    return loss


def _warn_if_not_attached(optimizer: torch.optim.Optimizer) -> None:
    """Warns if a State compresses the gradients of this optimizer and attach() did not receive it."""
    mine = {id(p) for p in parameters_of(optimizer)}
    for state in list(opened.values()):
        if not mine.isdisjoint(state._names) and not is_lossless(state.codec, state._choices()):
            if state._running.rank == 0:
                name = type(optimizer).__name__
                _log.warning(
                    "tithe.torch.optim.%s steps as torch.optim.%s, since attach() was not given it: "
                    "tithe.torch.attach(model, optimizer=optimizer)",
                    name,
                    name,
                )
            return
