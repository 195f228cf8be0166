# SPDX-License-Identifier: Apache-2.0
"""The running part of tithe.torch.State: a session, a worker thread that completes futures, and who is who."""

import queue
import threading
import weakref

import torch
import torch.distributed as dist
from torch.autograd.profiler import record_function

from tithe import _core
from tithe._schedule import Evaluations

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


def _work(session: _core.Session, jobs: "queue.SimpleQueue[Job | None]") -> None:
    """The worker: completes futures in the order of their tickets. Knows no State, so that one can be collected."""
    while (job := jobs.get()) is not None:
        try:
            with record_function("tithe::wait"):
                session.wait(job.ticket)
                if job.last:
                    session.commit()
            if job.scale != 1.0:
                job.tensor.mul_(job.scale)
        except Exception as error:
            job.error = error
        job.done.set()
        if job.error is None:
            job.future.set_result(job.tensor)
        else:
            job.future.set_exception(job.error)


def _stop(session: _core.Session, jobs: "queue.SimpleQueue[Job | None]", worker: threading.Thread) -> None:
    jobs.put(None)
    session.close()  # cancels what the worker waits for
    if worker is not threading.current_thread():
        worker.join()


class Live:
    """The running part of a State: session, worker, and who is who. Never pickled, never copied."""

    def __init__(
        self,
        session: _core.Session,
        evaluations: Evaluations,
        names: dict[int, tuple[str, torch.nn.Parameter]],
        loaded: dict[str, int],
    ) -> None:
        self.session = session
        self.evaluations = evaluations
        self.names = names  # by id, where the model is known
        self.loaded = loaded  # key -> values, of the state that was loaded; empty if none was
        self.keys: dict[int, tuple[str, torch.nn.Parameter]] = {}  # by id, in the order of first sight
        self.layouts: dict[int, tuple[list[int], torch.dtype, _core.Layout]] = {}
        self.last: Job | None = None  # the newest job
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.worker = threading.Thread(target=_work, args=(session, self.jobs), name="tithe", daemon=True)
        self.worker.start()
        # Runs when the State goes away or the interpreter exits, whichever is first.
        self.stop = weakref.finalize(self, _stop, session, self.jobs, self.worker)

    def drain(self) -> None:
        if self.last is not None:
            self.last.done.wait()

    def parameters(self) -> dict[str, int]:
        return {key: p.numel() for key, p in self.keys.values()} or dict(self.loaded)

    def layout(self, bucket: dist.GradBucket, buffer: torch.Tensor) -> _core.Layout:
        """Keys and sizes of a bucket. DDP rebuilds its buckets after the first step: the cache notices."""
        parameters = bucket.parameters()
        ids = [id(p) for p in parameters]
        cached = self.layouts.get(bucket.index())
        if cached is not None and cached[0] == ids and cached[1] == buffer.dtype:
            return cached[2]
        _refuse_unsupported(buffer, parameters)
        keys = [self.key(p) for p in parameters]
        # A parameter without rows is a vector, which is one.
        rows = [p[0].numel() if p.dim() > 1 and p.numel() > 0 else p.numel() for p in parameters]
        layout = _core.Layout(keys, [p.numel() for p in parameters], _DTYPES[buffer.dtype], rows)
        self.layouts[bucket.index()] = (ids, buffer.dtype, layout)
        return layout

    def key(self, parameter: torch.nn.Parameter) -> str:
        if id(parameter) in self.keys:
            return self.keys[id(parameter)][0]
        number = len(self.keys)
        if id(parameter) in self.names:
            key = self.names[id(parameter)][0]
        else:
            known = list(self.loaded)
            key = known[number] if number < len(known) and not self.names else f"#{number}"
        if self.loaded and self.loaded.get(key) != parameter.numel():
            raise ValueError(
                f"the loaded state has {self.loaded.get(key, 'no')} values of parameter '{key}', the model has "
                f"{parameter.numel()}: load the state that was saved with this model"
            )
        self.keys[id(parameter)] = (key, parameter)
        return key


def _refuse_unsupported(buffer: torch.Tensor, parameters: list[torch.Tensor]) -> None:
    if buffer.dtype not in _DTYPES:
        raise ValueError(
            f"gradients of type {buffer.dtype} are not supported: use float32, bfloat16 or float16 parameters"
        )
    if not buffer.is_cpu:
        raise ValueError(f"gradients on {buffer.device} are not supported yet: tithe runs on the CPU")
    if sum(p.numel() for p in parameters) != buffer.numel():
        raise ValueError("the bucket does not hold its parameters' gradients back to back")
