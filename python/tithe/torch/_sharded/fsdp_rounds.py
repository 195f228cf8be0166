# SPDX-License-Identifier: Apache-2.0
"""Collectives of a sharded model as rounds of one session, in the order in which FSDP2 issues them.

Each collective is a round: a thread starts it, waits for its result and commits it before it starts the next one. A
round keeps its tensors until the commit, so one round per collective needs the memory of one module, not of the model.
Reduce-scatters and all-gathers share the session. If ranks issue different collectives, they take part in the same
round and get a `mismatch` error that names both, instead of waiting for each other.
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
from tithe.torch._hook.round_thread import RoundThread
from tithe.torch._hook.session_end import clear_frames, end_session, interrupted

_log = logging.getLogger("tithe.torch")

_LOOK = 0.2  # seconds between two checks for Ctrl-C


class Tally:
    """Collectives, bytes and waiting time of one kind of collective."""

    def __init__(self) -> None:
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
        self.error: BaseException | None = None

    def start(self, session: _core.Session) -> int:
        """Hands the tensors to the session. Returns the ticket."""
        raise NotImplementedError

    def describe(self) -> str:
        """Returns the name of the collective, for errors."""
        return "a round"

    def received(self) -> None:
        """Called after the exchange and before the commit."""

    def committed(self) -> None:
        """Called after the commit."""

    def end(self, error: BaseException | None) -> None:
        self.error = self.error or error
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
        return True

    def is_completed(self) -> bool:
        return self._done.is_set()


class AllGatherRound(Round):
    """Fills `output`, in which this rank's part is already set. Values are valid before the commit."""

    def __init__(self, rounds: Rounds, key: str, output: torch.Tensor, world: int) -> None:
        super().__init__(rounds, rounds.gathers, output.numel() * output.element_size())
        self._key, self._output = key, output.detach()
        part = output.numel() // world
        self._bounds = [part * rank for rank in range(world + 1)]

    def start(self, session: _core.Session) -> int:
        return session.all_gather([(self._key, self._output)], {self._key: self._bounds})

    def describe(self) -> str:
        return f"the all-gather of {self._key}"

    def received(self) -> None:
        self.end(None)


class ReduceScatterRound(Round):
    """Sums the rows of `given`, a row per owner, into `output`, the row of this rank.

    A row holds a piece of each parameter. The session receives one tensor per parameter, so that the rules of choices=
    and the blocks of a codec are those of single parameters. A copy makes the pieces of a parameter contiguous.
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
        flat = torch.empty_like(given)
        self._tensors = list(flat.split([world * piece for piece in pieces]))
        self._parts = [tensor.view(world, -1) for tensor in self._tensors]
        torch.split_with_sizes_copy(given.view(world, -1), pieces, dim=1, out=self._parts)
        if before != 1.0:
            flat.mul_(before)
        self._names, self._pieces = names, pieces
        self._output, self._divisor = output.detach(), divisor

    def start(self, session: _core.Session) -> int:
        world = session.world
        bounds = {
            name: [piece * rank for rank in range(world + 1)]
            for name, piece in zip(self._names, self._pieces, strict=True)
        }
        return session.reduce_scatter(list(zip(self._names, self._tensors, strict=True)), bounds)

    def describe(self) -> str:
        return f"the reduce-scatter of {some(self._names)}"

    def committed(self) -> None:
        for place, part in zip(self._output.split(self._pieces), self._parts, strict=True):
            place.copy_(part[self._rank])
        if self._divisor != 1:
            self._output.div_(self._divisor)
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
        session.wait(job.start(session))
        job.received()
        session.commit()
        job.committed()
    job.tally.rounds += 1
    job.tally.bytes_handed_over += job.handed_over
    job.tally.bytes_sent += session.stats()["bytes_sent"] - sent
    for line in session.messages():
        _log.warning("%s", line)
