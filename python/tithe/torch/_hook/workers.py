# SPDX-License-Identifier: Apache-2.0
"""The threads of a session: the feeder hands buckets over, the worker waits for their results.

Neither thread refers to a State, so a State can be collected while they run.
"""

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
from tithe.torch._device.device import PinnedPool
from tithe.torch._hook.job import Job
from tithe.torch._hook.session_end import clear_frames, end_session, interrupted, step_timeout

_log = logging.getLogger("tithe.torch")

Waits = tuple[float, float]
MissingBucket = Callable[[list[int], float, bool], Exception]
Report = Callable[[_core.Session, torch.device, bool], None]

_POLL_SECONDS = 0.1  # between two checks whether another thread has abandoned its step
# Prefixes of the session's messages: include/tithe/session.h
_INFO, _TROUBLE = ("auto: ", "device: "), "auto: trouble: "


class BackwardEnded:
    """Signals to the worker that this rank's backward ended without the last bucket. The worker then waits for
    `timeout` at most."""

    def sync(self, session: _core.Session) -> None:
        """Hands over nothing."""


class Barrier:
    """`reached` is set once the worker has waited for all jobs before it."""

    __slots__ = ("reached",)

    def __init__(self) -> None:
        self.reached = threading.Event()

    def sync(self, session: _core.Session) -> None:
        """Hands over nothing."""


Work = Job | BackwardEnded | Barrier | None  # None ends a thread
Jobs = queue.SimpleQueue[Work]


def _commit(session: _core.Session, step: list[Job]) -> bool:
    """Returns True if another round followed, in which the ranks learned why this one was dropped."""
    session.commit()
    for line in session.messages():
        info = line.startswith(_INFO) and not line.startswith(_TROUBLE)
        _log.log(logging.INFO if info else logging.WARNING, "%s", line)
    dropped = session.last_round_dropped
    weight = step[-1].weight if dropped else None
    skipped = weight is not None and weight.skipped_by_a_rank(session)
    for job in step:
        job.finish_round(dropped, skipped)
    return weight is not None


def _work(
    session: _core.Session,
    jobs: Jobs,
    causes: list[BaseException],
    waits: Waits,
    missing_bucket: MissingBucket,
    report: Report,
) -> None:
    """The worker: completes the futures of a step together, in the order of their tickets, after the step's commit.

    The commit decides for all buckets at once whether the step counts, and values may change until then. causes: the
    errors for which this process cancelled the session. waits: seconds to wait for the next bucket of a step, during
    backward and after its end. missing_bucket: makes the error of a step whose next bucket is missing. report: is
    called after each commit.
    """
    step: list[Job] = []
    over = False  # this rank's backward has ended, and the step has not
    while True:
        try:
            job = jobs.get(timeout=waits[over] if step else None)
        except queue.Empty:
            late = missing_bucket(sorted({each.number for each in step}), waits[over], over)
            end_session(session, causes, late)
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
                        job.return_early()
                    if job.last:
                        report(session, job.tensor.device, _commit(session, step))
                        _end(step, None)
                elif causes:
                    raise causes[0]
            except Exception as failed:
                clear_frames(failed)
                if not causes and not isinstance(failed, _core.Error):  # a failure of this rank only: no step may count
                    end_session(session, causes, failed)
                _end(step, causes[0] if causes else failed)
        if isinstance(job, Barrier):
            job.reached.set()
        del job  # the job refers to a bucket that DDP may be about to replace
    _end(step, ValueError("the State was closed in the middle of a step"))


def _end(step: list[Job], error: BaseException | None) -> None:
    for job in step:
        job.end(error)
    step.clear()


def _feed(session: _core.Session, incoming: Jobs, jobs: Jobs, causes: list[BaseException]) -> None:
    """The feeder: hands buckets to the session after their copy to the host, in the order of the hook's calls.

    All ranks call the hook in the same order; copies may end in another order.
    """
    while (job := incoming.get()) is not None:
        try:
            job.sync(session)
        except Exception as error:
            clear_frames(error)
            job.error = error
            end_session(session, causes, error)
        jobs.put(job)
        del job
    jobs.put(None)


class WorkerPool:
    """The threads of a session, their queues and the pinned memory of the buckets."""

    def __init__(self, session: _core.Session, waits: Waits, missing_bucket: MissingBucket, report: Report) -> None:
        self.session = session
        self.jobs: Jobs = queue.SimpleQueue()
        self.causes: list[BaseException] = []
        self.worker = self._start(_work, session, self.jobs, self.causes, waits, missing_bucket, report)
        self.incoming: Jobs | None = None  # the feeder's queue, after start_feeder()
        self.feeder: threading.Thread | None = None
        self.pinned = PinnedPool()
        self._pid = os.getpid()
        self._stopped = False
        self._starting = threading.Condition(threading.RLock())

    @staticmethod
    def _start(target: Callable[..., None], *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, name="tithe", daemon=True)
        thread.start()
        return thread

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Encloses the start of a bucket: stop() waits until the body ends. ValueError after stop().

        No thread would read a bucket that is started after stop(), and its pinned memory would stay allocated.
        """
        with self._starting:
            if self._stopped:
                raise ValueError("this State is closed")
            yield

    @contextlib.contextmanager
    def between(self, ready: Callable[[], bool], seconds: float) -> Iterator[None]:
        """Waits until ready() is true, and lets no bucket start in the body. ready() is called after each step."""
        deadline = time.monotonic() + seconds
        with self._starting:
            while not ready():
                if (left := deadline - time.monotonic()) <= 0:
                    raise step_timeout(seconds)
                self._starting.wait(min(left, _POLL_SECONDS))
            yield

    def step_ended(self) -> None:
        with self._starting:
            self._starting.notify_all()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Encloses a wait that itself raises nothing: an exception in the body, such as Ctrl-C, ends the session."""
        try:
            yield
        except BaseException as why:
            end_session(self.session, self.causes, interrupted(why))
            raise

    def check(self) -> None:
        """Raises the error for which this process ended the session, if it did."""
        if self.causes:
            raise self.causes[0]

    def start_feeder(self) -> None:
        """Passes all further work through the feeder, so that no bucket overtakes one that is being copied."""
        if self.feeder is None:
            self.incoming = queue.SimpleQueue()
            self.feeder = self._start(_feed, self.session, self.incoming, self.jobs, self.causes)

    def put(self, job: Work) -> None:
        (self.jobs if self.incoming is None else self.incoming).put(job)

    def stop(self, keep_state: bool) -> None:
        if os.getpid() != self._pid:  # a forked child has neither these threads nor their streams
            self.session.close(keep_state)
            return
        with self._starting:
            self._stopped = True
        self.put(None)
        with contextlib.suppress(ValueError):  # closed already
            self.session.cancel()  # ends the worker's wait
        for thread in (self.feeder, self.worker):
            if thread is not None and thread is not threading.current_thread():
                thread.join()
        self.session.close(keep_state)
        self.causes.clear()  # their tracebacks hold buckets
        self.pinned.close()
