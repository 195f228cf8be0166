# SPDX-License-Identifier: Apache-2.0
"""The running part of tithe.torch.State: a session, its threads, and the keys of the parameters."""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from tithe import _core
from tithe._schedule import Evaluations
from tithe._stats import by_tensor, plan_text, summed_up
from tithe.torch._common.checks import DTYPES
from tithe.torch._common.parameter_keys import NO_WALK, ParameterKeys
from tithe.torch._device.device import check_device, cuda_stream, device_of
from tithe.torch._device.route import BucketRoute, DeviceRoute, HostExchange, LossScale, PinnedRoute
from tithe.torch._hook.adapter import OptimizerAdapter
from tithe.torch._hook.backward_times import BackwardTimes
from tithe.torch._hook.job import Job, WeightJob
from tithe.torch._hook.reducer import Reducer, backward_is_running, in_backward
from tithe.torch._hook.report import Report
from tithe.torch._hook.round_groups import RoundGroups, Split
from tithe.torch._hook.session_end import clear_frames, end_session, left
from tithe.torch._hook.weights import RoundWeight
from tithe.torch._hook.workers import BackwardEnded, Barrier, WorkerPool

_GONE = ("peer_lost", "timeout", "cancelled")  # codes of errors after which the ranks do not connect again


class RunningSession:
    """The running part of a State. It is never pickled and never copied."""

    def __init__(
        self,
        session: _core.Session,
        evaluations: Evaluations,
        keys: ParameterKeys,
        opened_choices: str,
        options: _core.Options,
        over_round: bool = False,
        logs: bool = False,
    ) -> None:
        """Takes over an open session, and starts its threads."""
        self.session = session
        self.on_gpu = options.device != "off"
        self.opened_choices = opened_choices
        self.rank, self.world = session.rank, session.world
        self.evaluations = evaluations
        self.keys = keys
        self.over_round, self.options = over_round, options
        self.groups: RoundGroups | None = None  # the groups of the open step
        # Layouts of buckets, by bucket number
        self.layouts: dict[int, tuple[list[int], torch.dtype, int, _core.Layout | Split]] = {}
        self.reducer = Reducer(keys)
        self.report = Report(options, session, logs)
        waits = options.patience, options.timeout
        self.workers = WorkerPool(session, waits, self.reducer.missing_bucket, self.report.committed)
        self.walk = NO_WALK  # the last backward pass whose end is watched
        self.last: dict[Callable[..., Any], Any] = {}  # the last figures, set when the session is closed
        self.open = False  # whether a step is open: from its first bucket to the end of its backward
        self.backward: BackwardTimes | None = None  # set while the session traces
        self.adapters: Sequence[OptimizerAdapter] = ()
        self.weigh: Callable[[], float] | None = None  # returns the weight of this rank's step, if steps have weights
        self.weight: RoundWeight | None = None  # of the open or the last step
        self.skips = False  # whether this rank skips the step that begins now
        self.forward_begun = False  # whether a forward of the open step has begun
        self.local: frozenset[int] = frozenset()  # ids of parameters whose gradients are not exchanged
        # Runs when the State is collected or the interpreter exits, whichever is first.
        self.stop = weakref.finalize(self, self.workers.stop, False)

    def close(self) -> None:
        """Closes the session. The state of the last commit stays available."""
        if self.backward is not None:
            self.backward.end()
        if self.stop.detach() is not None:
            with contextlib.suppress(ValueError):  # the session of a forked child
                self.last = {of: self.figure(of) for of in (summed_up, by_tensor, plan_text)}
            self.workers.stop(True)

    @property
    def last_round_dropped(self) -> bool:
        return self.session.last_round_dropped or (self.weight is not None and self.weight.dropped)

    def figure(self, of: Callable[[_core.Session], Any]) -> Any:
        """Returns summed_up, by_tensor or plan_text of the session, or its last result if the session is closed."""
        if self.last:
            return self.last[of]
        return self.report.sums(self.session) if of is summed_up else of(self.session)

    def device(self) -> contextlib.AbstractContextManager[None]:
        """Makes the parameters' accelerator the current device, if they are on one."""
        return device_of(parameter for _, parameter in self.keys.names.values())

    def drain(self) -> None:
        """Returns when the worker has finished all jobs."""
        barrier = Barrier()
        self.workers.put(barrier)
        with self.workers.waiting():
            while not barrier.reached.wait(0.2):
                if not self.workers.worker.is_alive():
                    return

    @contextlib.contextmanager
    def between_steps(self) -> Iterator[None]:
        """Encloses work between two steps. Waits for another thread's step, for `timeout` at most.

        If a step is open and no backward runs, the step was abandoned. It must not count, since no optimizer applies
        it, so the session ends, and the other ranks get an error.
        """
        if in_backward():
            raise ValueError("this call needs a moment between two steps, and it comes from inside a backward pass")
        with self.workers.between(self._no_step, self.options.timeout):
            self.drain()
            yield

    def _no_step(self) -> bool:
        if self.open and not self.workers.causes:
            if backward_is_running():
                return False
            end_session(self.session, self.workers.causes, left())
        return True

    def continue_with(self, reform: Callable[[], None]) -> None:
        """Connects the session to other ranks by `reform`, after a failure or between two steps.

        Ends all jobs, and abandons an open step.
        """
        if not self.workers.causes:
            end_session(self.session, self.workers.causes, left())
        self.drain()
        reform()
        self.workers.causes.clear()
        self.keys.step, self.keys.places = set(), set()
        self.open = False

    def check(self) -> None:
        """Raises the error that ended the session, on any rank. Names a rank that has ended without an error."""
        self.workers.check()
        self.session.present()

    def failed(self) -> bool:
        """Returns True if the session has ended, or a step was abandoned."""
        try:
            self.check()
        except (ValueError, _core.Error):
            return True
        return self.open

    def check_ranks_present(self) -> None:
        """Raises, between steps, the error that ended the session if some rank cannot take part again."""
        try:
            self.check()
        except _core.Error as verdict:
            if verdict.code in _GONE:
                raise
        except ValueError:  # the session is closed, and the state is still available
            pass

    # ---- one step

    def start(self, bucket: dist.GradBucket, loss_scale: LossScale, inside: HostExchange | None = None) -> Job:
        """Starts the exchange of a bucket. An error closes the session, so that the other ranks get an error at
        once."""
        try:
            return self.start_bucket(bucket, loss_scale, inside)
        except BaseException as error:  # including Ctrl-C
            self.open = False
            self.close()
            clear_frames(error)
            raise

    def start_bucket(self, bucket: dist.GradBucket, loss_scale: LossScale, inside: HostExchange | None = None) -> Job:
        """Does the same as start(), for a caller that ends the session itself."""
        self.workers.check()
        buffer = bucket.buffer()
        if buffer.layout != torch.strided:
            raise ValueError("sparse gradients are not supported: use nn.Embedding(sparse=False)")
        with self.workers.starting():
            first = not self.open
            if first and self.over_round:
                self.groups = RoundGroups(self.options)
            parameters = bucket.parameters()
            layout = self.layout(bucket, parameters, buffer)
            route = self._route(bucket, buffer, loss_scale, inside)
            if first:
                self._send_side_tensors(bucket.index())
                self._send_weight(bucket.index())
            self._mark_backward(bucket.is_last())
            last, groups = bucket.is_last(), self.groups
            job = Job(bucket.index(), layout, route, last, self.adapters, parameters, groups, self.weight)
            self.send(job)
        return job

    def _route(
        self, bucket: dist.GradBucket, buffer: torch.Tensor, loss_scale: LossScale, inside: HostExchange | None
    ) -> BucketRoute:
        if inside is not None:
            self.workers.start_feeder()
        if buffer.is_cpu:
            return BucketRoute(buffer, loss_scale, inside)
        stays = self.on_gpu and inside is None and not self.adapters
        stream = cuda_stream(buffer.device) if stays else None
        if stream is not None and loss_scale is None:
            return DeviceRoute(buffer, stream)
        self.workers.start_feeder()
        pinned = self.workers.pinned
        if stream is not None:
            return DeviceRoute(buffer, stream, loss_scale, pinned.side_stream(buffer.device))
        copy = pinned.start_copy(bucket.index(), bucket.is_last(), buffer)
        return PinnedRoute(buffer, copy, loss_scale, inside)

    def _send_side_tensors(self, number: int) -> None:
        if self.adapters and self.reducer.joins():
            own = type(self.adapters[0].optimizer).__name__
            raise ValueError(
                f"tithe.torch.optim.{own} steps on all ranks together, and a rank without data makes none (Join): "
                f"take torch.optim.{own}, or leave Join out and skip() these steps (docs/guide/steps.md)"
            )
        for adapter in self.adapters:
            adapter.refresh_parameters()
            if (side := adapter.side_tensors()) is not None:
                layout, values, gathering = side
                if layout is not None:
                    layout.side = True
                self.send(Job(number, layout, BucketRoute(values, inside=gathering)))

    def _send_weight(self, number: int) -> None:
        if self.weigh is not None:
            without_data = self.reducer.joins() and not in_backward()
            mine = 0.0 if self.skips or without_data else self.weigh()
            self.weight = RoundWeight(mine, self.options.average)
            self.workers.start_feeder()  # the exchange of weights waits for all ranks, and must not block backward
            self.send(WeightJob(number, self.weight))

    def _mark_backward(self, last: bool) -> None:
        if self.backward is not None and (passed := self.backward.bucket(last)):
            self.session.mark("backward", *passed)

    def send(self, job: Job) -> None:
        if self.workers.feeder is None:
            job.sync(self.session)
        self.workers.put(job)

    def finish(self, job: Job) -> None:
        """Returns when the step that ends with this job is over. Raises the job's error.

        Ctrl-C on the main thread ends the wait and the session: the step must not count later, since no optimizer
        applies it.
        """
        with self.workers.waiting():
            job.wait()
        self.open = self.forward_begun = False
        self.workers.step_ended()
        if job.error is not None:
            raise job.error
        self.reducer.check_unfrozen()

    def expect_end(self, job: Job) -> None:
        """Prepares for a backward that ends without another bucket. Called after a bucket that is not the last.

        The autograd engine runs a callback at the end of the pass in which it was queued, and a pass may run inside
        another one (reentrant checkpoints). DDP's own callback, which waits for all futures, runs after this one, since
        DDP queues it with the last gradient.
        """
        walk = torch._C._current_graph_task_id()
        if walk == NO_WALK or torch._C._current_autograd_node() is None:
            # DDP hands over all buckets without a break (Join; the first step of a static graph), and then waits for
            # them.
            self.workers.put(BackwardEnded())
        elif walk != self.walk:
            self.walk = walk
            ended = functools.partial(self._walk_ended, job.tensor)
            torch.autograd.Variable._execution_engine.queue_callback(ended)

    def _walk_ended(self, buffer: torch.Tensor) -> None:
        if not self.open or not self.keys.places:  # the last bucket was handed over
            return
        if self.reducer.has_all():
            self.end(buffer)
        elif torch._C._current_autograd_node() is None:  # else this pass ran inside another one, which continues
            self.workers.put(BackwardEnded())

    def end(self, buffer: torch.Tensor) -> None:
        """Ends a step without a last bucket: it consists of the buckets so far. buffer: of one of them."""
        self._mark_backward(True)
        self.keys.end(NO_WALK)
        end = Job(
            -1,
            None,
            BucketRoute(buffer[:0]),
            last=True,
            adapters=self.adapters,
            groups=self.groups,
            weight=self.weight,
        )
        with self.workers.starting():
            self.send(end)
        self.finish(end)

    def average(self, layout: _core.Layout | None, values: torch.Tensor, inside: HostExchange | None) -> None:
        """Replaces values by their mean over the ranks, in a round of its own between two steps. Collective."""
        job = Job(0, layout, BucketRoute(values, inside=inside), last=True)
        with self.workers.starting():
            self.send(job)
        with self.workers.waiting():
            job.wait()
        if job.error is not None:
            raise job.error

    def keep_local(self, numbers: Iterable[int]) -> None:
        """Excludes the gradients of these parameters, by id, from the exchange. Called between steps."""
        self.local = frozenset(numbers)
        self.layouts.clear()

    # ---- layouts

    def layout(
        self, bucket: dist.GradBucket, parameters: list[torch.Tensor], buffer: torch.Tensor
    ) -> _core.Layout | Split | None:
        """Returns the keys and sizes of a bucket. DDP makes new buckets after the first step; the cache then misses."""
        walk = torch._C._current_graph_task_id()
        if self.keys.begin(bucket.index(), parameters, walk):
            raise left()
        self.open = True
        layout = self._layout(bucket.index(), parameters, buffer) if parameters else None
        if bucket.is_last():
            self.keys.end(walk)
        return layout

    def _layout(self, number: int, parameters: list[torch.Tensor], buffer: torch.Tensor) -> _core.Layout | Split:
        ids = [id(p) for p in parameters]
        cached = self.layouts.get(number)
        memory = buffer.data_ptr()  # DDP lays out the views again if it makes a new buffer
        if cached is not None and cached[:3] == (ids, buffer.dtype, memory):
            return cached[3]
        self.keys.check_orders(parameters)
        if cached is not None and cached[:2] == (ids, buffer.dtype):  # the hook of a wrapper makes a buffer per step
            self.layouts[number] = (*cached[:2], memory, cached[3])
            return cached[3]
        _refuse_unsupported(buffer, parameters)
        keys = [self.keys.of(p) for p in parameters]
        # A parameter without rows is a vector, which is one row.
        rows = [p[0].numel() if p.dim() > 1 and p.numel() > 0 else p.numel() for p in parameters]
        sizes = [p.numel() for p in parameters]
        layout = _core.Layout(keys, sizes, DTYPES[buffer.dtype], rows)
        exchanged = [place for place, number in enumerate(ids) if number not in self.local]
        grouped = set(self.groups.in_groups(keys, sizes)) if self.groups is not None else set()
        if grouped or len(exchanged) < len(keys):
            now = [place for place in exchanged if place not in grouped]
            layout = Split(layout, now, [place for place in exchanged if place in grouped])
        self.layouts[number] = (ids, buffer.dtype, memory, layout)
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
