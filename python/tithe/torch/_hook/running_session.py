# SPDX-License-Identifier: Apache-2.0
"""The running part of tithe.torch.State: a session, the threads that feed it and wait for it, and who is who."""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from tithe import _core
from tithe._schedule import Evaluations
from tithe._stats import by_tensor, plan_text, summed_up
from tithe.torch._common.checks import DTYPES
from tithe.torch._common.parameter_keys import NO_WALK, Keys
from tithe.torch._device.device import check_device, cuda_stream
from tithe.torch._hook.adapter import Tie
from tithe.torch._hook.backward_times import Backward
from tithe.torch._hook.job import Job, Way
from tithe.torch._hook.reducer import Reducer, backward_is_running, in_backward
from tithe.torch._hook.report import Report
from tithe.torch._hook.round_groups import RoundGroups, Split
from tithe.torch._hook.session_end import give_up, left, lighten
from tithe.torch._hook.workers import BackwardEnded, Crew, Mark

_GONE = ("peer_lost", "timeout", "cancelled")  # codes of an end after which ranks do not meet again


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
        logs: bool = False,
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
        self.reducer = Reducer(keys)
        self.report = Report(options, session, logs)
        waits = options.patience, options.timeout
        self.crew = Crew(session, waits, self.reducer.never_came, self.report.committed)
        self.walk = NO_WALK  # the last backward pass whose end is watched
        self.last: dict[Callable[..., Any], Any] = {}  # figures, once the session is closed
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
            with contextlib.suppress(ValueError):  # a forked child's
                self.last = {figure: figure(self.session) for figure in (summed_up, by_tensor, plan_text)}
            self.crew.stop(True)

    def figure(self, of: Callable[[_core.Session], Any]) -> Any:
        """summed_up, by_tensor or plan_text of the session now, or as it was when the session was closed."""
        return self.last[of] if self.last else of(self.session)

    def drain(self) -> None:
        """Returns when the worker has nothing left to do."""
        mark = Mark()
        self.crew.put(mark)
        with self.crew.waiting():
            while not mark.reached.wait(0.2):
                if not self.crew.worker.is_alive():
                    return

    @contextlib.contextmanager
    def between_steps(self) -> Iterator[None]:
        """Around work between two steps. A step of another thread is waited for, for `timeout` at most.

        A step that is open while no backward runs was left, and must never count: nobody applies it. The session is
        over then, and the other ranks hear of it.
        """
        if in_backward():
            raise ValueError("this call needs a moment between two steps, and it comes from inside a backward pass")
        with self.crew.between(self._no_step, self.options.timeout):
            self.drain()
            yield

    def _no_step(self) -> bool:
        if self.open and not self.crew.causes:
            if backward_is_running():
                return False
            give_up(self.session, self.crew.causes, left())
        return True

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
            lighten(error)
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
                    if leaves[0] is not None:
                        leaves[0].side = True
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
        self.crew.step_ended()
        if job.error is not None:
            raise job.error
        self.reducer.check_unfrozen()

    def expect_end(self, job: Job) -> None:
        """After a bucket that is not the last: this rank's backward may end without another one.

        The engine runs a callback at the end of the pass in which it was queued, and a pass may run inside another one
        (reentrant checkpoints). DDP's own callback, which waits for all futures, comes after this one: DDP queues it
        with the last gradient.
        """
        walk = torch._C._current_graph_task_id()
        if walk == NO_WALK or torch._C._current_autograd_node() is None:
            # DDP hands over all buckets in a row (Join; the first step of a static graph), and then waits for them.
            self.crew.put(BackwardEnded())
        elif walk != self.walk:
            self.walk = walk
            ended = functools.partial(self._walk_ended, job.tensor)
            torch.autograd.Variable._execution_engine.queue_callback(ended)

    def _walk_ended(self, buffer: torch.Tensor) -> None:
        if not self.open or not self.keys.places:  # its last bucket has come
            return
        if self.reducer.has_all():
            self.end(buffer)
        elif torch._C._current_autograd_node() is None:  # else this pass ran inside another one, which goes on
            self.crew.put(BackwardEnded())

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
