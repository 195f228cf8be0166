# SPDX-License-Identifier: Apache-2.0
"""The threads of a session: one hands buckets over, one waits for their results. Neither knows a State."""

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd.profiler import record_function

from tithe import _core
from tithe.torch._device.device import Passages
from tithe.torch._hook.job import Job
from tithe.torch._hook.session_end import busy, give_up, interrupted, lighten

_log = logging.getLogger("tithe.torch")

Waits = tuple[float, float]
NeverCame = Callable[[list[int], float, bool], Exception]
Report = Callable[[_core.Session, torch.device], None]

_LOOK = 0.1  # seconds between looks at whether another thread has left its step
_NEWS, _TROUBLE = ("auto: ", "device: "), "auto: trouble: "  # so lines begin: include/tithe/session.h


class BackwardEnded:
    """Tells the worker that this rank's backward has ended without the last bucket: it waits for `timeout` at most."""

    def sync(self, session: _core.Session) -> None:
        """Hands over nothing."""


class Mark:
    """Tells who waits for it that all jobs before it have been waited for."""

    __slots__ = ("reached",)

    def __init__(self) -> None:
        self.reached = threading.Event()

    def sync(self, session: _core.Session) -> None:
        """A mark only comes after the jobs before it."""


Work = Job | BackwardEnded | Mark | None
Jobs = queue.SimpleQueue[Work]


def _commit(session: _core.Session, step: list[Job]) -> None:
    session.commit()
    for line in session.said():
        news = line.startswith(_NEWS) and not line.startswith(_TROUBLE)
        _log.log(logging.INFO if news else logging.WARNING, "%s", line)
    dropped = session.last_round_dropped
    for job in step:
        job.settle(dropped)


def _work(
    session: _core.Session,
    jobs: Jobs,
    causes: list[BaseException],
    waits: Waits,
    never_came: NeverCame,
    report: Report,
) -> None:
    """The worker: completes futures in the order of their tickets. Knows no State, so that one can be collected.

    Those of a step are completed together, after its commit: whether a step counts is decided for all its buckets
    at once, and until then their values may change. causes: what cancelled the session, if it was not the world.
    waits: seconds that buckets wait for the next one of their step, in a backward and after its end. never_came: the
    error of a step that waited in vain. report: is called after each commit.
    """
    step: list[Job] = []
    over = False  # this rank's backward has ended, and the step has not
    while True:
        try:
            job = jobs.get(timeout=waits[over] if step else None)
        except queue.Empty:
            late = never_came(sorted({each.place for each in step}), waits[over], over)
            give_up(session, causes, late)
            _end(step, late)
            continue
        if job is None:
            break
        with record_function("tithe::wait"):
            try:
                over = isinstance(job, BackwardEnded) or (over and not isinstance(job, Job))
                if isinstance(job, Job):
                    step.append(job)
                    if job.error is not None:
                        raise job.error
                    if job.ticket >= 0:
                        session.wait(job.ticket)
                        job.come_back()
                    if job.last:
                        _commit(session, step)
                        report(session, job.tensor.device)
                        _end(step, None)
                elif causes:
                    raise causes[0]
            except Exception as failed:
                lighten(failed)
                if not causes and not isinstance(failed, _core.Error):  # it is this rank's: without it no step counts
                    give_up(session, causes, failed)
                _end(step, causes[0] if causes else failed)
        if isinstance(job, Mark):
            job.reached.set()
        del job  # it holds a bucket, which DDP may be about to replace by another one
    _end(step, ValueError("the State was closed in the middle of a step"))


def _end(step: list[Job], error: BaseException | None) -> None:
    for job in step:
        job.end(error)
    step.clear()


def _feed(session: _core.Session, arriving: Jobs, jobs: Jobs, causes: list[BaseException]) -> None:
    """The feeder: hands buckets to the session once they are on the host, in the order of the hook's calls.

    That order is the same on all ranks; the one in which copies end would not be.
    """
    while (job := arriving.get()) is not None:
        try:
            job.sync(session)
        except Exception as error:
            lighten(error)
            job.error = error
            give_up(session, causes, error)
        jobs.put(job)
        del job
    jobs.put(None)


class Crew:
    """The threads of a session. Knows no State, so that one can be collected."""

    def __init__(self, session: _core.Session, waits: Waits, never_came: NeverCame, report: Report) -> None:
        self.session = session
        self.jobs: Jobs = queue.SimpleQueue()
        self.causes: list[BaseException] = []
        self.worker = self._start(_work, session, self.jobs, self.causes, waits, never_came, report)
        self.arriving: Jobs | None = None  # the feeder's, from the first bucket on an accelerator on
        self.feeder: threading.Thread | None = None
        self.passages = Passages()
        self._pid = os.getpid()
        self._stopped = False
        self._starting = threading.Condition(threading.RLock())

    @staticmethod
    def _start(does: Callable[..., None], *given: Any) -> threading.Thread:
        thread = threading.Thread(target=does, args=given, name="tithe", daemon=True)
        thread.start()
        return thread

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """stop() of another thread waits until this is left, or is noticed here.

        A bucket that came after stop() would be read by nobody, and its pinned memory kept.
        """
        with self._starting:
            if self._stopped:
                raise ValueError("this State is closed")
            yield

    @contextlib.contextmanager
    def between(self, ready: Callable[[], bool], seconds: float) -> Iterator[None]:
        """In the body no bucket starts, once ready() is true, which is asked again after each step."""
        deadline = time.monotonic() + seconds
        with self._starting:
            while not ready():
                if (left := deadline - time.monotonic()) <= 0:
                    raise busy(seconds)
                self._starting.wait(min(left, _LOOK))
            yield

    def step_ended(self) -> None:
        with self._starting:
            self._starting.notify_all()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a wait that raises nothing of its own: what is raised in it, as by Ctrl-C, ends the session."""
        try:
            yield
        except BaseException as why:
            give_up(self.session, self.causes, interrupted(why))
            raise

    def check(self) -> None:
        """Raises what ended the session, if this process did."""
        if self.causes:
            raise self.causes[0]

    def feed(self) -> None:
        """From now on all that is put goes through the feeder, so that nothing overtakes a bucket that is copied."""
        if self.feeder is None:
            self.arriving = queue.SimpleQueue()
            self.feeder = self._start(_feed, self.session, self.arriving, self.jobs, self.causes)

    def put(self, job: Work) -> None:
        (self.jobs if self.arriving is None else self.arriving).put(job)

    def stop(self, keep_state: bool) -> None:
        if os.getpid() != self._pid:  # a forked child has no threads and no streams to wait for
            self.session.close(keep_state)
            return
        with self._starting:
            self._stopped = True
        self.put(None)
        with contextlib.suppress(ValueError):  # closed already
            self.session.cancel()  # what the worker waits for
        for thread in (self.feeder, self.worker):
            if thread is not None and thread is not threading.current_thread():
                thread.join()
        self.session.close(keep_state)
        self.causes.clear()  # their tracebacks hold buckets
        self.passages.close()
