# SPDX-License-Identifier: Apache-2.0
"""Collectives of a sharded model as rounds of one session, in the order in which FSDP2 issues them.

Each collective is a round: a thread starts it, waits for its result and commits it before it starts the next one. A
round keeps its tensors until the commit, so one round per collective needs the memory of one module, not of the model.
Reduce-scatters and all-gathers share the session. If ranks issue different collectives, they take part in the same
round and get a `mismatch` error that names both, instead of waiting for each other.

Tensors on an accelerator are copied through pinned host memory, on a stream of all-gathers and one of reduce-scatters:

    caller          queues the copy to the host (Round._host)
    round thread    waits for that copy (load), runs the round in host memory, queues the copy back (_copy_back)
    wait()          returns when the copy back is queued, and makes the caller's current stream wait for it
"""

from __future__ import annotations

import logging
import math
import os
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.profiler import record_function

from tithe import _core
from tithe._exchange import error
from tithe._stats import by_tensor, plan_text, summed_up
from tithe.torch._common.checks import some
from tithe.torch._device.device import PinnedCopy, PinnedPool
from tithe.torch._hook.round_thread import RoundThread
from tithe.torch._hook.session_end import clear_frames, end_session, interrupted

_log = logging.getLogger("tithe.torch")

_LOOK = 0.2  # seconds between two checks for Ctrl-C


class Tally:
    """Collectives, bytes, waiting time and pinned memory of one kind of collective."""

    def __init__(self) -> None:
        self.pinned = PinnedPool()
        self.rounds = 0
        self.bytes_handed_over = 0
        self.bytes_sent = 0
        self.waited_ns = 0


class Round(dist.Work):
    """One collective. Its result is valid after wait(), which FSDP2 calls for an all-gather."""

    def __init__(self, rounds: Rounds, tally: Tally, handed_over: int) -> None:
        super().__init__()
        self._rounds, self.tally, self.handed_over = rounds, tally, handed_over
        self._done = threading.Event()
        self._copies: list[PinnedCopy] = []  # borrowed
        self._returned: torch.Event | None = None  # the copy back to an accelerator
        self.error: BaseException | None = None

    def start(self, session: _core.Session) -> int:
        """Hands the tensors to the session. Returns the ticket."""
        raise NotImplementedError

    def describe(self) -> str:
        """Returns the name of the collective, for errors."""
        return "a round"

    def _host(self, tensor: torch.Tensor, filled: slice) -> torch.Tensor:
        """Returns the tensor, or its copy in pinned host memory: the values `filled` are valid after load()."""
        if tensor.is_cpu:
            return tensor
        copy = self._borrow(tensor)
        copy.start(tensor, filled)
        tensor.record_stream(copy.stream)  # the caller may delete it before the copy
        return copy.host

    def _borrow(self, tensor: torch.Tensor) -> PinnedCopy:
        copy = self.tally.pinned.borrow(tensor)
        self._copies.append(copy)
        return copy

    def load(self) -> None:
        """Waits for values that are copied to the host."""
        for copy in self._copies:
            copy.wait()

    def _copy_back(self, tensor: torch.Tensor) -> None:
        """Queues the copy of the last borrowed copy to a tensor on an accelerator."""
        self._copies[-1].copy_back(tensor.detach())  # here, since the caller may be in inference mode
        self._returned = self._copies[-1].stream.record_event()

    def received(self) -> None:
        """Called after the exchange and before the commit."""

    def committed(self) -> None:
        """Called after the commit."""

    def end(self, error: BaseException | None) -> None:
        self.error = self.error or error
        while self._copies:
            self.tally.pinned.give_back(self._copies.pop())
        self._done.set()

    def hold(self, most: float = math.inf) -> None:
        """Returns when the round is over or has failed, or after `most` seconds."""
        begin = time.monotonic_ns()
        try:
            while not self._done.wait(_LOOK) and time.monotonic_ns() - begin < 1e9 * most:
                pass
        except BaseException as why:  # including Ctrl-C
            end_session(self._rounds.session, self._rounds.causes, interrupted(why))
            raise
        finally:
            self.tally.waited_ns += time.monotonic_ns() - begin

    def wait(self, timeout: Any = None) -> bool:
        self.hold()
        if self.error is not None:
            raise self.error
        if self._returned is not None:
            torch.accelerator.current_stream(self._returned.device).wait_event(self._returned)
        return True

    def is_completed(self) -> bool:
        return self._done.is_set()


class AllGatherRound(Round):
    """Fills `output`, in which this rank's part is already set. Values are valid before the commit."""

    def __init__(self, rounds: Rounds, key: str, output: torch.Tensor, world: int) -> None:
        super().__init__(rounds, rounds.gathers, output.numel() * output.element_size())
        part = output.numel() // world
        self._key, self._bounds = key, [part * rank for rank in range(world + 1)]
        self._given = output.detach()
        self._output = self._host(self._given, slice(part * rounds.rank, part * (rounds.rank + 1)))

    def start(self, session: _core.Session) -> int:
        return session.all_gather([(self._key, self._output)], {self._key: self._bounds})

    def describe(self) -> str:
        return f"the all-gather of {self._key}"

    def received(self) -> None:
        if self._output is not self._given:
            self._copy_back(self._given)
        self._done.set()


class ReduceScatterRound(Round):
    """Sums the rows of `given`, a row per owner, into `output`, the row of this rank.

    A row holds a piece of each parameter. The session receives one tensor per parameter, so that the rules of choices=
    and the blocks of a codec are those of single parameters. A copy, on the device of the rows, makes the pieces of a
    parameter contiguous.
    """

    def __init__(
        self,
        rounds: Rounds,
        names: list[str],
        pieces: list[int],
        given: torch.Tensor,
        output: torch.Tensor,
        before: float,
        divisor: int,
    ) -> None:
        super().__init__(rounds, rounds.scatters, given.numel() * given.element_size())
        world, self._rank = rounds.world, rounds.rank
        flat, sizes = torch.empty_like(given), [world * piece for piece in pieces]
        rows = [tensor.view(world, -1) for tensor in flat.split(sizes)]
        torch.split_with_sizes_copy(given.view(world, -1), pieces, dim=1, out=rows)
        self._tensors = list(self._host(flat, slice(None)).split(sizes))
        self._parts = [tensor.view(world, -1) for tensor in self._tensors]
        self._names, self._pieces = names, pieces
        self._output, self._before, self._divisor = output.detach(), before, divisor

    def start(self, session: _core.Session) -> int:
        if self._before != 1.0:
            for tensor in self._tensors:
                tensor.mul_(self._before)
        world = session.world
        bounds = {
            name: [piece * rank for rank in range(world + 1)]
            for name, piece in zip(self._names, self._pieces, strict=True)
        }
        return session.reduce_scatter(list(zip(self._names, self._tensors, strict=True)), bounds)

    def describe(self) -> str:
        return f"the reduce-scatter of {some(self._names)}"

    def committed(self) -> None:
        result = self._output
        if not result.is_cpu:
            copy = self._borrow(result)
            copy.synchronize()  # an earlier result may be under way from the same memory
            result = copy.host
        for place, part in zip(result.split(self._pieces), self._parts, strict=True):
            place.copy_(part[self._rank])
        if self._divisor != 1:
            result.div_(self._divisor)
        if result is not self._output:
            self._copy_back(self._output)
        self._tensors, self._parts = [], []


class Rounds(RoundThread):
    """The rounds of one model."""

    def __init__(self, session: _core.Session, timeout: float) -> None:
        super().__init__(session, _serve)
        self.timeout = timeout
        self.rank, self.world = session.rank, session.world
        self.scatters, self.gathers = Tally(), Tally()
        # threads for parts of an all-gather; they start at the first use, and end with this object
        self.decoders = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "tithe decoder")
        self._last: dict[Any, Any] = {}  # figures and state, set when the session is closed

    def issue(self, each: Round) -> None:
        self.put(each, "this State is closed: attach() again, or detach() before close() for FSDP2's own")

    def figure(self, of: Any) -> Any:
        """Returns summed_up, by_tensor or plan_text of the session, or its last result if the session is closed."""
        return self._last[of] if self._last else of(self.session)

    def state(self) -> bytes:
        """Returns the session's state of the last commit, between steps."""
        self.drain()
        return self._last[_core.Session.state] if self._last else self.session.state()

    def drain(self, most: float = math.inf) -> None:
        """Returns when the thread has finished all rounds, or after `most` seconds."""
        if self.stop.alive:
            mark = _Mark(self, Tally(), 0)
            self.issue(mark)
            mark.hold(most)

    def close(self) -> None:
        if self.stop.alive:
            self.drain(self.timeout)  # includes the last commit, for which other ranks wait too
            last = (summed_up, by_tensor, plan_text, _core.Session.state)
            self._last = {of: of(self.session) for of in last}
            self.stop()
            self.decoders.shutdown()
            for tally in (self.scatters, self.gathers):
                tally.pinned.close()


class _Mark(Round):
    """Ends after the rounds before it."""


def _serve(session: _core.Session, jobs: queue.SimpleQueue[Round | None], causes: list[BaseException]) -> None:
    while (job := jobs.get()) is not None:
        try:
            if not isinstance(job, _Mark):
                if causes:
                    raise causes[0]
                _run(session, job)
            job.end(None)
        except Exception as failed:
            clear_frames(failed)
            if not causes and not isinstance(failed, _core.Error):  # the other ranks have no notice of this failure
                end_session(session, causes, failed)
            job.end(causes[0] if causes else _explained(failed, job))
        del job  # the job refers to tensors


def _explained(failed: Exception, job: Round) -> Exception:
    """Adds this rank's collective to a `mismatch` error: FSDP2's order follows from the order in which modules are
    used."""
    if getattr(failed, "code", "") != "mismatch":
        return failed
    return error(
        "mismatch",
        failed.peer,
        f"{failed}. This rank came with {job.describe()}: all ranks must use the same modules in the same order, and "
        "have gradients of the same parameters (set_reduce_scatter_unused_params(True) sends zeros for the others)",
    )


def _run(session: _core.Session, job: Round) -> None:
    sent = session.stats()["bytes_sent"]
    with record_function("tithe::round"):
        job.load()
        session.wait(job.start(session))
        job.received()
        session.commit()
        job.committed()
    job.tally.rounds += 1
    job.tally.bytes_handed_over += job.handed_over
    job.tally.bytes_sent += session.stats()["bytes_sent"] - sent
    for line in session.messages():
        _log.warning("%s", line)
