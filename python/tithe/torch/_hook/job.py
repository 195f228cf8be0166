# SPDX-License-Identifier: Apache-2.0
"""One bucket of one step: from the hook to the session, and back to DDP."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence

import torch
from torch.autograd.profiler import record_function

from tithe import _core
from tithe.torch._device.route import BucketRoute
from tithe.torch._hook.adapter import OptimizerAdapter
from tithe.torch._hook.round_groups import RoundGroups, Split
from tithe.torch._hook.weights import RoundWeight

_POLL_SECONDS = 0.1  # between two checks for Ctrl-C


class Job:
    """A bucket and its route. A job without a layout exchanges nothing: it ends a step, or is an empty share."""

    __slots__ = (
        "adapters", "done", "error", "future", "groups", "last", "layout", "number", "parameters", "result", "returned",
        "route", "tensor", "ticket", "weight",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        layout: _core.Layout | Split | None,
        route: BucketRoute,
        last: bool = False,
        adapters: Sequence[OptimizerAdapter] = (),
        parameters: Sequence[torch.Tensor] = (),
        groups: RoundGroups | None = None,
        weight: RoundWeight | None = None,
    ) -> None:
        """number: of the bucket. last: whether the bucket ends its step. adapters: read the parameters' values before
        and after the exchange. weight: of this rank in the round; the adapters read weighted values."""
        self.number = number
        self.layout = layout
        self.route: BucketRoute | None = route
        self.tensor = route.tensor
        self.result = route.tensor if route.inside is None else route.inside.whole  # for DDP
        self.last = last
        self.adapters = adapters
        self.parameters = parameters
        self.groups = groups
        self.weight = weight
        self.ticket = -1
        self.returned = False  # whether the copy back has been started
        self.future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=route.devices)
        self.done = threading.Event()
        self.error: BaseException | None = None

    def sync(self, session: _core.Session) -> None:
        """Hands the values to the session, after the copy to the host and the exchange inside it."""
        if self.route.inside is not None:
            self.route.inside.wait()
        if self.layout is not None:
            self._sync(session)
        if not self.last:
            return
        if self.groups is not None:
            self.groups.sync(session)
        for adapter in self.adapters:
            adapter.end_hand_over(session)

    def _sync(self, session: _core.Session) -> None:
        values = self.route.load()
        if self.weight is not None:
            self.weight.apply(values)
        for adapter in self.adapters:
            adapter.before_exchange(self.parameters, values)
        layout = self.layout
        with record_function("tithe::sync"):
            if isinstance(layout, Split):
                if layout.held is not None:
                    self.groups.hold(layout.held, values.detach())
                layout = layout.rest
            if layout is not None:
                self.ticket = self.route.sync(session, layout)

    def return_early(self) -> None:
        """Copies the bucket back before the commit, if its values are complete after the bucket's own exchange."""
        if not self.adapters and not isinstance(self.layout, Split):
            self.returned = self.route.return_early()

    def finish_round(self, dropped: bool, skipped: bool = False) -> None:
        """Completes the result after the commit. dropped: the session has set the values to NaN. skipped: the round was
        dropped because a rank skipped it, so the gradients are 0."""
        if self.returned and not dropped:
            return
        values = self.route.open_result()
        for adapter in self.adapters if self.layout is not None else ():
            adapter.after_exchange(self.parameters, values)
        if skipped:
            values.zero_()
        self.route.store()

    def end(self, error: BaseException | None) -> None:
        self.error = error
        try:
            # Runs on the thread of finish_round(): its stream is that of the copy back, and the future records its
            # event.
            self.future.set_result(self.result if error is None else None)
        except Exception as failed:
            self.error = failed
        self.route = None  # a future that the caller still holds must not keep pinned memory allocated
        self.done.set()

    def wait(self) -> None:
        """Returns when the step is over. Raises only the exception of a signal handler."""
        if self.tensor.is_cpu or not _main_thread_waits():
            self.done.wait()
        else:
            _core.hold_interrupt()
            try:
                while not self.done.wait(_POLL_SECONDS) and not _core.held_interrupt():
                    pass
            finally:
                interrupted = _core.release_interrupt()
            if interrupted:
                raise KeyboardInterrupt

    def value(self, _: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
        """Returns the result, or raises the job's error. Called in Future.then(), so that DDP receives the error."""
        if self.error is not None:
            raise self.error
        return self.result


class WeightJob(Job):
    """The exchange of weights. It precedes the buckets of its round on the thread that hands them over."""

    __slots__ = ()

    def __init__(self, number: int, weight: RoundWeight) -> None:
        super().__init__(number, None, BucketRoute(torch.empty(0)), weight=weight)

    def sync(self, session: _core.Session) -> None:
        self.weight.exchange(session)


def _main_thread_waits() -> bool:
    """Returns True if the main thread waits in backward for this thread, so that Ctrl-C would be handled too late.

    For an accelerator, PyTorch ends backward on a thread of its own. The main thread waits in C++, where Python runs no
    signal handler. Always False if the program has a handler of its own for SIGINT.
    """
    main = threading.main_thread()
    if threading.current_thread() is main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    frame = sys._current_frames().get(main.ident)
    return frame is not None and frame.f_code is torch.autograd.graph._engine_run_backward.__code__
