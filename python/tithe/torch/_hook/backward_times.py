# SPDX-License-Identifier: Apache-2.0
"""The begin and end of backward, for the trace. The part of the exchange that runs during backward costs the step no
time."""

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle


class BackwardTimes:
    """The backward passes of one model.

    A pass begins when a gradient reaches the model's output, and ends when DDP hands over the last bucket. If the
    output cannot be watched (the State does not know its model, or torch.compile), it begins with the first bucket.
    """

    __slots__ = ("_began", "_watched")

    def __init__(self) -> None:
        self._began: int | None = None
        self._watched: RemovableHandle | None = None

    def watch(self, module: torch.nn.Module) -> None:
        """Hooks the outputs of every forward pass. Called only while the session traces."""
        if self._watched is None:
            self._watched = module.register_forward_hook(self._forward)

    def end(self) -> None:
        """Removes the hook from the model."""
        if self._watched is not None:
            self._watched.remove()
            self._watched = None

    def bucket(self, last: bool) -> tuple[int, int] | None:
        """Records a bucket. Returns begin and end of backward with the last bucket, else None."""
        now = time.monotonic_ns()
        if self._began is None:
            self._began = now
        if not last:
            return None
        began, self._began = self._began, None
        return began, now

    def _forward(self, module: torch.nn.Module, given: Any, out: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._began = None  # set by a pass without buckets (no_sync())
        hook_outputs(out, self._reached)

    def _reached(self, gradient: torch.Tensor) -> None:
        if self._began is None:
            self._began = time.monotonic_ns()


def hook_outputs(out: Any, reached: Any) -> None:
    """Calls `reached` with the gradient of every tensor of a forward's result."""
    if isinstance(out, torch.Tensor):
        if out.requires_grad:
            out.register_hook(reached)
    elif isinstance(out, Mapping):
        for each in out.values():
            hook_outputs(each, reached)
    elif isinstance(out, list | tuple):
        for each in out:
            hook_outputs(each, reached)
