# SPDX-License-Identifier: Apache-2.0
"""The running part of tithe.torch.State: a session, a worker thread that completes futures, and who is who."""

import contextlib
import queue
import threading
import weakref

import torch
import torch.distributed as dist
from torch.autograd.profiler import record_function

from tithe import _core
from tithe._schedule import Evaluations
from tithe._torch_keys import Keys

_DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


class Job:
    """One bucket on its way."""

    __slots__ = ("done", "error", "future", "last", "scale", "tensor", "ticket")

    def __init__(self, ticket: int, tensor: torch.Tensor, last: bool, scale: float) -> None:
        self.ticket = ticket
        self.tensor = tensor
        self.last = last
        self.scale = scale
        self.future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        self.done = threading.Event()
        self.error: BaseException | None = None

    def end(self, error: BaseException | None) -> None:
        self.error = error
        self.done.set()
        if error is None:
            self.future.set_result(self.tensor)
        else:
            self.future.set_exception(error)


class Mark:
    """Tells who waits for it that all jobs before it have been waited for."""

    __slots__ = ("ends_step", "error", "reached")

    def __init__(self, ends_step: bool = False) -> None:
        self.ends_step = ends_step  # a step that was left before its last bucket is committed as it stands
        self.reached = threading.Event()
        self.error: BaseException | None = None


Jobs = queue.SimpleQueue["Job | Mark | None"]


def _commit(session: _core.Session, step: list[Job]) -> BaseException | None:
    try:
        session.commit()
        for job in step:
            if job.scale != 1.0:
                job.tensor.mul_(job.scale)
    except Exception as error:
        return error
    return None


def _work(session: _core.Session, jobs: Jobs) -> None:
    """The worker: completes futures in the order of their tickets. Knows no State, so that one can be collected.

    Those of a step are completed together, after its commit: whether a step counts is decided for all its buckets
    at once, and until then their values may change.
    """
    step: list[Job] = []
    while (job := jobs.get()) is not None:
        error: BaseException | None = None
        with record_function("tithe::wait"):
            if isinstance(job, Mark):
                over = job.ends_step
                error = _commit(session, step) if over else None
                job.error = error
            else:
                step.append(job)
                over = job.last
                try:
                    session.wait(job.ticket)
                except Exception as failed:
                    error = failed
                if over and error is None:
                    error = _commit(session, step)
        if over or error is not None:
            for each in step:
                each.end(error)
            step = []
        if isinstance(job, Mark):
            job.reached.set()
    for job in step:
        job.end(ValueError("the State was closed in the middle of a step"))


def _stop(session: _core.Session, jobs: Jobs, worker: threading.Thread, keep_state: bool) -> None:
    jobs.put(None)
    with contextlib.suppress(ValueError):  # closed already, or in a forked child, which has no worker either
        session.cancel()  # what the worker waits for
    if worker is not threading.current_thread():
        worker.join()
    session.close(keep_state)


class Live:
    """The running part of a State: session, worker, and who is who. Never pickled, never copied."""

    def __init__(self, session: _core.Session, evaluations: Evaluations, keys: Keys) -> None:
        self.session = session
        self.rank, self.world = session.rank, session.world
        self.evaluations = evaluations
        self.keys = keys
        self.layouts: dict[int, tuple[list[int], torch.dtype, _core.Layout]] = {}
        self.jobs: Jobs = queue.SimpleQueue()
        self.worker = threading.Thread(target=_work, args=(session, self.jobs), name="tithe", daemon=True)
        self.worker.start()
        # Runs when the State goes away or the interpreter exits, whichever is first.
        self.stop = weakref.finalize(self, _stop, session, self.jobs, self.worker, False)

    def close(self) -> None:
        """The state of the last commit can still be had."""
        if self.stop.detach() is not None:
            _stop(self.session, self.jobs, self.worker, True)

    def drain(self, ends_step: bool = False) -> None:
        """Returns when the worker has nothing left to do; raises what the end of a step that was left raised."""
        mark = Mark(ends_step)
        self.jobs.put(mark)
        while not mark.reached.wait(0.2):
            if not self.worker.is_alive():
                return
        if mark.error is not None:
            raise mark.error

    def layout(self, bucket: dist.GradBucket, buffer: torch.Tensor) -> _core.Layout:
        """Keys and sizes of a bucket. DDP rebuilds its buckets after the first step: the cache notices."""
        parameters = bucket.parameters()
        walk = torch._C._current_graph_task_id()
        if self.keys.begin(bucket.index(), parameters, walk):
            self.drain(ends_step=True)
        layout = self._layout(bucket.index(), parameters, buffer)
        if bucket.is_last():
            self.keys.end(walk)
        return layout

    def _layout(self, place: int, parameters: list[torch.Tensor], buffer: torch.Tensor) -> _core.Layout:
        ids = [id(p) for p in parameters]
        cached = self.layouts.get(place)
        if cached is not None and cached[0] == ids and cached[1] == buffer.dtype:
            return cached[2]
        _refuse_unsupported(buffer, parameters)
        keys = [self.keys.of(p) for p in parameters]
        # A parameter without rows is a vector, which is one.
        rows = [p[0].numel() if p.dim() > 1 and p.numel() > 0 else p.numel() for p in parameters]
        layout = _core.Layout(keys, [p.numel() for p in parameters], _DTYPES[buffer.dtype], rows)
        self.layouts[place] = (ids, buffer.dtype, layout)
        return layout


def _refuse_unsupported(buffer: torch.Tensor, parameters: list[torch.Tensor]) -> None:
    if buffer.dtype not in _DTYPES:
        raise ValueError(
            f"gradients of type {buffer.dtype} are not supported: use float32, bfloat16 or float16 parameters"
        )
    if not buffer.is_cpu:
        raise ValueError(f"gradients on {buffer.device} are not supported yet: tithe runs on the CPU")
    if sum(p.numel() for p in parameters) != buffer.numel():
        raise ValueError("the bucket does not hold its parameters' gradients back to back")
