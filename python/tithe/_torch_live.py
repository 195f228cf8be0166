# SPDX-License-Identifier: Apache-2.0
"""The running part of tithe.torch.State: a session, the threads that feed it and wait for it, and who is who."""

import contextlib
import logging
import os
import queue
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.profiler import record_function

from tithe import _core
from tithe._schedule import Evaluations
from tithe._torch_checks import DTYPES
from tithe._torch_device import Passages, check_device, cuda_stream
from tithe._torch_giving_up import give_up, interrupted, left, never_came
from tithe._torch_job import Job, Way
from tithe._torch_keys import NO_WALK, Keys
from tithe._torch_round_groups import RoundGroups, Split
from tithe._torch_tie import Tie
from tithe._torch_trace import Backward

_log = logging.getLogger("tithe.torch")

_NEWS, _TROUBLE = ("auto: ", "device: "), "auto: trouble: "  # so lines begin: include/tithe/session.h
_GONE = ("peer_lost", "timeout", "cancelled")  # codes of an end after which ranks do not meet again


class Mark:
    """Tells who waits for it that all jobs before it have been waited for."""

    __slots__ = ("reached",)

    def __init__(self) -> None:
        self.reached = threading.Event()

    def sync(self, session: _core.Session) -> None:
        """A mark only comes after the jobs before it."""


Jobs = queue.SimpleQueue["Job | Mark | None"]


def _lighten(error: BaseException) -> None:
    """An error holds the frames that it came through, and these hold pinned memory: who keeps it keeps none."""
    traceback.clear_frames(error.__traceback__)


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
    patience: float,
    unseen: Callable[[], list[str]],
) -> None:
    """The worker: completes futures in the order of their tickets. Knows no State, so that one can be collected.

    Those of a step are completed together, after its commit: whether a step counts is decided for all its buckets
    at once, and until then their values may change. causes: what cancelled the session, if it was not the world.
    patience: seconds that buckets wait for the next one of their step. unseen: names of what that step still lacks.
    """
    step: list[Job] = []
    while True:
        try:
            job = jobs.get(timeout=patience if step else None)
        except queue.Empty:
            late = never_came(sorted({each.place for each in step}), unseen(), patience)
            give_up(session, causes, late)
            _end(step, late)
            continue
        if job is None:
            break
        with record_function("tithe::wait"):
            try:
                if isinstance(job, Job):
                    step.append(job)
                    if job.error is not None:
                        raise job.error
                    if job.ticket >= 0:
                        session.wait(job.ticket)
                        job.come_back()
                    if job.last:
                        _commit(session, step)
                        _end(step, None)
                elif causes:
                    raise causes[0]
            except Exception as failed:
                _lighten(failed)
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
            _lighten(error)
            job.error = error
            give_up(session, causes, error)
        jobs.put(job)
        del job
    jobs.put(None)


class Crew:
    """The threads of a session. Knows no State, so that one can be collected."""

    def __init__(self, session: _core.Session, patience: float, unseen: Callable[[], list[str]]) -> None:
        self.session = session
        self.jobs: Jobs = queue.SimpleQueue()
        self.causes: list[BaseException] = []
        self.worker = self._start(_work, session, self.jobs, self.causes, patience, unseen)
        self.arriving: Jobs | None = None  # the feeder's, from the first bucket on an accelerator on
        self.feeder: threading.Thread | None = None
        self.passages = Passages()
        self._pid = os.getpid()
        self._stopped = False
        self._starting = threading.RLock()

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

    def put(self, job: "Job | Mark | None") -> None:
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


class Live:
    """The running part of a State: session, worker, and who is who. Never pickled, never copied."""

    def __init__(
        self,
        session: _core.Session,
        evaluations: Evaluations,
        keys: Keys,
        opened_choices: str,
        options: _core.Options,
        over_round: bool = False,
    ) -> None:
        self.session = session
        self.on_gpu = options.device != "off"
        self.opened_choices = opened_choices
        self.rank, self.world = session.rank, session.world
        self.evaluations = evaluations
        self.keys = keys
        self.over_round, self.options = over_round, options
        self.groups: RoundGroups | None = None  # of the open step
        self.layouts: dict[int, tuple[list[int], torch.dtype, int, _core.Layout | Split]] = {}  # by bucket number
        self.crew = Crew(session, options.patience, keys.unseen)
        self.open = False  # a step is: its first bucket has come, and its backward has not come to its end
        self.backward: Backward | None = None  # while something is traced
        self.ties: Sequence[Tie] = ()
        # Runs when the State goes away or the interpreter exits, whichever is first.
        self.stop = weakref.finalize(self, self.crew.stop, False)

    def close(self) -> None:
        """The state of the last commit can still be had."""
        if self.backward is not None:
            self.backward.end()
        if self.stop.detach() is not None:
            self.crew.stop(True)

    def drain(self) -> None:
        """Returns when the worker has nothing left to do."""
        mark = Mark()
        self.crew.put(mark)
        with self.crew.waiting():
            while not mark.reached.wait(0.2):
                if not self.crew.worker.is_alive():
                    return

    def between_steps(self) -> None:
        """Before what is asked for between steps. A step that is open was left, and must never count: nobody applies
        it. The session is over then, and the other ranks hear of it."""
        if self.open and not self.crew.causes:
            give_up(self.session, self.crew.causes, left())
        self.drain()

    def go_on(self, reform: Callable[[], None]) -> None:
        """`reform` makes the session go on with other ranks, after a failure or between two steps.

        What is under way ends, and a step that is open is given up.
        """
        if not self.crew.causes:
            give_up(self.session, self.crew.causes, left())
        self.drain()
        reform()
        self.crew.causes.clear()
        self.keys.step, self.keys.places = set(), set()
        self.open = False

    def check(self) -> None:
        """Raises what ended the session, by whom ever, and names a rank that has gone without a word."""
        self.crew.check()
        self.session.present()

    def check_all_are_there(self) -> None:
        """Raises what ended the session where some rank will not come again, or this one left. Between steps."""
        try:
            self.check()
        except _core.Error as verdict:
            if verdict.code in _GONE:
                raise
        except ValueError:  # closed; the state is there
            pass

    def start(self, bucket: dist.GradBucket, loss_scale: Callable[[], float] | None, way: Way | None = None) -> Job:
        """Sends a bucket on its way. On an error the other ranks hear that this one leaves."""
        try:
            return self._start(bucket, loss_scale, way)
        except BaseException as error:  # Ctrl-C among them
            self.open = False
            self.close()  # so that the other ranks hear of it now, not after their timeout
            _lighten(error)
            raise

    def _start(self, bucket: dist.GradBucket, loss_scale: Callable[[], float] | None, way: Way | None) -> Job:
        self.crew.check()
        buffer = bucket.buffer()
        if buffer.layout != torch.strided:
            raise ValueError("sparse gradients are not supported: use nn.Embedding(sparse=False)")
        with self.crew.starting():
            first = not self.open
            if first and self.over_round:
                self.groups = RoundGroups(self.options)
            parameters = bucket.parameters()
            layout = self.layout(bucket, parameters, buffer)
            passage = stay = stream = None
            if way is not None:
                self.crew.feed()
            if not buffer.is_cpu and self.on_gpu and way is None and not self.ties:
                stream = cuda_stream(buffer.device)
            if stream is not None and loss_scale is not None:
                self.crew.feed()
                stay = self.crew.passages.stay(buffer)
            if not buffer.is_cpu and stream is None:
                self.crew.feed()
                passage = self.crew.passages.leave(bucket.index(), bucket.is_last(), buffer)
            for tie in self.ties if first else ():
                tie.meet()
                if (leaves := tie.leaves()) is not None:
                    self._send(Job(bucket.index(), *leaves[:2], False, None, None, way=leaves[2]))
            if self.backward is not None and (passed := self.backward.bucket(bucket.is_last())):
                self.session.mark("backward", *passed)
            what = bucket.index(), layout, buffer, bucket.is_last(), loss_scale, passage, self.ties, parameters, way
            self._send(job := Job(*what, stream, self.groups, stay))
        return job

    def _send(self, job: Job) -> None:
        if self.crew.feeder is None:
            job.sync(self.session)
        self.crew.put(job)

    def finish(self, job: Job) -> None:
        """Returns when the step is over whose last bucket the job is; raises what went wrong.

        Ctrl-C on the main thread ends it, and the session: the step must not count later, when nobody applies it.
        """
        with self.crew.waiting():
            job.wait()
        self.open = False
        if job.error is not None:
            raise job.error

    def end(self, buffer: torch.Tensor) -> None:
        """The same for a step of which no bucket is known to be the last: all that were handed over are it.

        buffer: one of them.
        """
        if self.backward is not None and (passed := self.backward.bucket(True)):
            self.session.mark("backward", *passed)
        self.keys.end(NO_WALK)
        end = Job(-1, None, buffer[:0], True, None, None, groups=self.groups)
        with self.crew.starting():
            self._send(end)
        self.finish(end)

    def average(self, layout: _core.Layout | None, values: torch.Tensor, way: Way | None) -> None:
        """All ranks' values to their mean, in place: a round of its own, between steps. Collective."""
        job = Job(0, layout, values, True, None, None, way=way)
        with self.crew.starting():
            self._send(job)
        with self.crew.waiting():
            job.wait()
        if job.error is not None:
            raise job.error

    def layout(
        self, bucket: dist.GradBucket, parameters: list[torch.Tensor], buffer: torch.Tensor
    ) -> _core.Layout | Split | None:
        """Keys and sizes of a bucket. DDP rebuilds its buckets after the first step: the cache notices."""
        walk = torch._C._current_graph_task_id()
        if self.keys.begin(bucket.index(), parameters, walk):
            raise left()
        self.open = True
        layout = self._layout(bucket.index(), parameters, buffer) if parameters else None
        if bucket.is_last():
            self.keys.end(walk)
        return layout

    def _layout(self, place: int, parameters: list[torch.Tensor], buffer: torch.Tensor) -> _core.Layout | Split:
        ids = [id(p) for p in parameters]
        cached = self.layouts.get(place)
        memory = buffer.data_ptr()  # DDP lays out views anew where it makes a new buffer
        if cached is not None and cached[:3] == (ids, buffer.dtype, memory):
            return cached[3]
        self.keys.check_orders(parameters)
        if cached is not None and cached[:2] == (ids, buffer.dtype):  # a wrapper's hook makes one for every step
            self.layouts[place] = (*cached[:2], memory, cached[3])
            return cached[3]
        _refuse_unsupported(buffer, parameters)
        keys = [self.keys.of(p) for p in parameters]
        # A parameter without rows is a vector, which is one.
        rows = [p[0].numel() if p.dim() > 1 and p.numel() > 0 else p.numel() for p in parameters]
        sizes = [p.numel() for p in parameters]
        layout = _core.Layout(keys, sizes, DTYPES[buffer.dtype], rows)
        if self.groups is not None:
            layout = self.groups.split(layout, keys, sizes)
        self.layouts[place] = (ids, buffer.dtype, memory, layout)
        return layout


def _refuse_unsupported(buffer: torch.Tensor, parameters: list[torch.Tensor]) -> None:
    if buffer.dtype not in DTYPES:
        raise ValueError(
            f"gradients of type {buffer.dtype} are not supported: use float32, bfloat16 or float16 parameters"
        )
    if not buffer.is_cpu:
        check_device(buffer.device)
    if sum(p.numel() for p in parameters) != buffer.numel():
        raise ValueError("the bucket does not hold its parameters' gradients back to back")
