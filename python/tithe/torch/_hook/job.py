# SPDX-License-Identifier: Apache-2.0
"""One bucket on its way: from the hook to the session, and back to DDP."""

import math
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch.autograd.profiler import record_function

from tithe import _core
from tithe.torch._common.checks import scale_of
from tithe.torch._device.device import Passage, Stay, cuda_stream
from tithe.torch._hook.adapter import Tie
from tithe.torch._hook.round_groups import RoundGroups, Split

_LOOK = 0.1  # seconds between looks for Ctrl-C


class Way(Protocol):
    """What happens to a bucket before the session has it, and after."""

    whole: torch.Tensor  # for DDP

    def come(self) -> None:
        """Returns when the values may be handed over."""

    def back(self) -> None:
        """After the commit: makes `whole` of them."""


class Job:
    """One bucket on its way. Without a layout nothing is handed over: it ends its step, or is an empty share."""

    __slots__ = (
        "done", "error", "future", "groups", "last", "layout", "loss_scale", "parameters", "passage", "place",
        "returned", "scale", "stay", "stream", "tensor", "ticket", "ties", "way"
    )  # fmt: skip

    def __init__(
        self,
        place: int,
        layout: _core.Layout | Split | None,
        tensor: torch.Tensor,
        last: bool,
        loss_scale: Callable[[], float] | None,
        passage: Passage | None,
        ties: Sequence[Tie] = (),
        parameters: Sequence[torch.Tensor] = (),
        way: Way | None = None,
        stream: int | None = None,
        groups: RoundGroups | None = None,
        stay: Stay | None = None,
    ) -> None:
        self.place = place
        self.layout = layout
        self.tensor = tensor
        self.last = last
        self.loss_scale = loss_scale
        self.scale = 1.0
        self.passage = passage  # of a bucket on an accelerator
        self.stream = stream  # or what fills it there, where the session takes it as it is
        self.stay = stay  # of one that is to be divided there
        self.ties = ties  # which see the parameters' values, before and after
        self.parameters = parameters
        self.way = way
        self.groups = groups
        self.ticket = -1
        self.returned = False  # it is where it was, or on its way there
        devices = [] if passage is None and stream is None else [tensor.device]
        self.future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
        self.done = threading.Event()
        self.error: BaseException | None = None

    def sync(self, session: _core.Session) -> None:
        """Hands the values to the session. Those of an accelerator, and of other ranks, are waited for."""
        self._sync(session)
        if self.last and self.groups is not None:
            self.groups.leave(session)

    def _sync(self, session: _core.Session) -> None:
        if self.way is not None:
            self.way.come()
        if self.layout is None:
            return
        if self.stay is not None:
            values = self.stay.come()
            self.scale = scale_of(self.loss_scale)
            if math.frexp(self.scale)[0] == 0.5 and abs(math.log2(self.scale)) <= 100:  # nothing is rounded
                self.stream = cuda_stream(values.device)
            else:
                self.stream, values = None, self.stay.go()
        else:
            values = self.tensor if self.passage is None else self.passage.come()
            self.scale = scale_of(self.loss_scale)
        if self.scale != 1.0:
            values.div_(self.scale)
        if self.stream is not None:
            place = self.tensor.data_ptr(), self.tensor.device.index, self.stream
            with record_function("tithe::sync"):
                self.ticket = session.sync_on(self.layout, *place, self.tensor.detach())
            return
        for tie in self.ties:
            tie.gives(self.parameters, values)
        with record_function("tithe::sync"):
            if self.groups is None:
                self.ticket = session.sync_at(self.layout, values.detach())
            else:
                self.ticket = self.groups.hand_over(session, self.layout, values.detach())

    def come_back(self) -> None:
        """After its own exchange, while others go on: a bucket of an accelerator is copied back, if it is whole."""
        if self.passage is None or self.ties or self.way is not None or isinstance(self.layout, Split):
            return
        if self.scale != 1.0:
            self.passage.host.mul_(self.scale)
        self.passage.back(self.tensor)
        self.returned = True

    def settle(self, dropped: bool) -> None:
        """After the commit: brings the values back to where and what they were. dropped: they are NaN since then."""
        if self.returned and not dropped:
            return
        if self.stay is not None:
            self.stay.open()
        place = self.passage or self.stay
        values = self.tensor if place is None else place.host
        for tie in self.ties:
            tie.gets(self.parameters, values)
        if self.scale != 1.0:
            values.mul_(self.scale)
        if place is not None:
            place.back(self.tensor)
        if self.way is not None:
            self.way.back()

    def _result(self) -> torch.Tensor:
        return self.tensor if self.way is None else self.way.whole

    def end(self, error: BaseException | None) -> None:
        self.error = error
        try:
            # On the thread that called settle(): its stream is that of the copy back, and the future takes its event.
            self.future.set_result(self._result() if error is None else None)
        except Exception as failed:
            self.error = failed
        self.passage = self.stay = None  # who keeps the future keeps no pinned memory
        self.done.set()

    def wait(self) -> None:
        """Returns when the step is over. Raises only what the handler of a signal does."""
        if self.tensor.is_cpu or not _for_main_thread():
            self.done.wait()
        else:
            _core.hold_interrupt()
            try:
                while not self.done.wait(_LOOK) and not _core.held_interrupt():
                    pass
            finally:
                came = _core.release_interrupt()
            if came:
                raise KeyboardInterrupt

    def value(self, _: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
        """For Future.then(): raises there what went wrong, so that it reaches DDP as an error."""
        if self.error is not None:
            raise self.error
        return self._result()


def _for_main_thread() -> bool:
    """Whether the main thread waits in backward for this one, so that Ctrl-C would come when all is over.

    For an accelerator PyTorch ends backward on a thread of its own. The main one is in C++ meanwhile, where Python
    runs no handler. A program that handles SIGINT by itself is left alone.
    """
    main = threading.main_thread()
    if threading.current_thread() is main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    frame = sys._current_frames().get(main.ident)
    return frame is not None and frame.f_code is torch.autograd.graph._engine_run_backward.__code__
