# SPDX-License-Identifier: Apache-2.0
"""Sessions between ranks, without any framework."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tithe import _core
from tithe._choices import Choices, choices_text
from tithe._schedule import Evaluations
from tithe._stats import by_tensor, summed_up

OPTIONS = tuple(name for name in dir(_core.Options) if not name.startswith("_"))


def refuse_unknown(given: Iterable[str], *more: str) -> None:
    """ValueError with the nearest name for a keyword that is no option. more: keywords that the caller takes beside."""
    known = [*OPTIONS, "transport", *more]
    for name in given:
        if name not in known:
            raise ValueError(f"unknown option '{name}': {_core.suggest(name, known)}")


def make_options(given: Mapping[str, Any]) -> _core.Options:
    """Session options from keyword arguments; ValueError names a wrong one."""
    options = _core.Options()
    refuse_unknown(given)
    for name, value in given.items():
        if name == "choices":
            value = choices_text(value)
        try:
            setattr(options, name, value)
        except TypeError:
            raise ValueError(f"{name}={value!r}: not a value for this option") from None
    _core.check_codec(options.codec)
    _core.schedule_follows(options.schedule, options.codec)
    known = ["auto", *_core.strategies()]
    if options.strategy not in known:
        raise ValueError(f"unknown strategy '{options.strategy}': {_core.suggest(options.strategy, known)}")
    _core.check_choices(options)
    if options.timeout <= 0:
        raise ValueError(f"timeout={options.timeout}: must be more than 0 seconds")
    if options.patience < options.timeout:
        raise ValueError(
            f"patience={options.patience} is shorter than timeout={options.timeout}: raise patience, which is for "
            "ranks that answer"
        )
    if options.lanes is not None and options.lanes < 0:
        raise ValueError(f"lanes={options.lanes}: must not be negative")
    return options


def transport_text(given: dict[str, Any]) -> str:
    """Takes transport out of keyword arguments; ValueError says what is wrong with it."""
    text = given.pop("transport", "")
    if not isinstance(text, str):
        raise ValueError(f"transport={text!r}: must be a string")
    _core.check_transport(text)
    return text


def transports() -> list[str]:
    """The names of the transports of this build."""
    return _core.transports()


def _offsets(bounds: Mapping[str, Sequence[int]] | None) -> dict[str, list[int]]:
    found = {key: [operator.index(offset) for offset in offsets] for key, offsets in (bounds or {}).items()}
    for key, offsets in found.items():
        if any(offset < 0 for offset in offsets):
            raise ValueError(f"bounds of '{key}' are {offsets}: an offset must not be negative")
    return found


class Session:
    """Averages named arrays over all ranks, keeps what was not sent, can be saved.

    Open one with `from_environment` (torchrun, mpirun, Slurm), `open` (an exchange of addresses that you provide) or
    `loop` (ranks as threads of this process). transport="ucx:transports=tcp,devices=eth0" names what moves the bytes,
    as `tithe transports` lists it. Options are those of include/tithe/session.h:
    codec="fp8", strategy="auto", choices=None, link="", hosts="", servers=0, schedule="none",
    lanes=None (compute threads: by the cores that the ranks of this machine leave free), average=True,
    min_values=4096, part_values=2**22, timeout=30.0, patience=1800.0 (seconds), seed=0, run=0,
    force_reference=False, authenticate="auto", checksum="frames" (or "headers": docs/card.md),
    pacer="off" (or "window=16384": docs/pacing.md), device="off" (or "on": docs/device.md; no GPU has run
    it), members=[] (names of ranks), epoch=0, undo=False and stragglers="share=0.25" (who is late, and whether rounds
    go on without it: docs/elastic.md), trace="" (a file for the trace; TITHE_TRACE otherwise), measure=100 (which
    rounds stats() has norms of).
    choices says what happens to which tensor (docs/choices.md): a dict such as {"*.bias": "fp32"}, JSON text, or the
    path of a file that holds it. link="10Gb/s" says what is known of the network, and sizes follow from it.
    hosts="4x2" says which ranks share a host (4 hosts of 2 ranks), where the transport does not find it itself.
    servers=2 makes the last 2 ranks sum for the others (docs/strategies.md).
    codec="auto", or "auto:allow=onebit+fp8" with what may be used beside fp32, bf16 and zip, measures and plans while
    the job runs (docs/plan.md); said() tells what it found.

        with tithe.Session.from_environment(codec="dgc:ratio=0.01") as session:
            session.wait(session.sync({"w": gradient}))    # in place: now the mean over ranks
            session.commit()                               # end of the step

    Calls of one session come from one thread at a time, but for sync(), wait(), poll(), commit(), propose() and
    proposal(), which take turns; only a sync() during a commit() of another thread is refused.
    Caller's mistakes raise ValueError or TypeError; a failed peer raises tithe.Error with `peer`. Arrays are kept alive
    until commit(). Ctrl-C on the main thread ends what waits, and the session with it. A session does not survive
    fork().
    """

    def __init__(self, core: _core.Session, evaluations: Evaluations) -> None:
        self._core = core
        self._evaluations = evaluations

    @classmethod
    def loop(cls, world: int, **options: Any) -> list[Session]:
        """One session per rank, all in this process, for tests: drive each from a thread of its own."""
        chosen = make_options(options)
        return [cls(core, Evaluations(chosen)) for core in _core.open_loop(world, chosen)]

    @classmethod
    def open(cls, rank: int, world: int, all_gather: Callable[[bytes], list[bytes]], **options: Any) -> Session:
        """A session between processes. Collective.

        all_gather(mine) returns the blobs of all ranks in rank order; it is called once.
        """
        transport = transport_text(options)
        chosen = make_options(options)
        return cls(_core.open(transport, rank, world, all_gather, chosen), Evaluations(chosen))

    @classmethod
    def from_environment(cls, **options: Any) -> Session:
        """As `open`, with rank, world and meeting point read from what torchrun, mpirun or Slurm set. Collective."""
        transport = transport_text(options)
        chosen = make_options(options)
        return cls(_core.open_environment(transport, chosen), Evaluations(chosen))

    @property
    def rank(self) -> int:
        """This session's number, 0 to world - 1."""
        return self._core.rank

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return self._core.world

    def sync(self, tensors: Mapping[str, Any]) -> int:
        """Starts to average the arrays in place; returns a ticket for wait().

        tensors: key to array (numpy, or anything with DLPack: float32, float16, bfloat16; C-contiguous, writable; all
        in host memory, or all on one CUDA GPU, as its default stream will find them). Keys, shapes and order are the
        same on all ranks.
        """
        return self._core.sync(list(tensors.items()))

    def reduce_scatter(self, tensors: Mapping[str, Any], bounds: Mapping[str, Sequence[int]] | None = None) -> int:
        """Starts to average the range of each array that this rank owns, in place; returns a ticket for wait().

        bounds: key to world + 1 offsets into the flat array: rank r owns [bounds[r], bounds[r + 1]), maybe empty.
        Keys without bounds are cut as torch.chunk cuts dimension 0 (a flat array: by values). Other ranks' ranges stay
        as they were handed over. Tensors are those that sync() takes; the bounds are the same on all ranks
        (docs/sharded_rounds.md).
        """
        return self._core.reduce_scatter(list(tensors.items()), _offsets(bounds))

    def all_gather(self, tensors: Mapping[str, Any], bounds: Mapping[str, Sequence[int]] | None = None) -> int:
        """Starts to fill each array with the ranges of their owners, in place; returns a ticket for wait().

        This rank's own range is read, and holds after wait() what all other ranks decode. bounds: as in
        reduce_scatter().
        """
        return self._core.all_gather(list(tensors.items()), _offsets(bounds))

    def wait(self, ticket: int) -> None:
        """Returns when the bucket holds its result."""
        self._core.wait(ticket)

    def poll(self, ticket: int) -> bool:
        """True where the bucket holds its result, so that wait() would not block. Raises what ended the session."""
        return self._core.poll(ticket)

    def commit(self) -> None:
        """Ends the round: what was left unsent becomes the next round's residual."""
        self._core.commit()

    def evaluated(
        self, *, loss: float | None = None, accuracy: float | None = None, learning_rate: float | None = None
    ) -> None:
        """Tells the schedule of an evaluation, at the end of a step: the next rounds' ratio may change.

        All ranks give the same numbers: a rank that gives others is named in the next round. accuracy lies in 0..1.
        ValueError where the schedule follows something that was not given; what it does not follow is ignored.
        """
        measured, rate = self._evaluations.read(loss, accuracy, learning_rate)
        self._evaluations.tell(self._core, measured, rate)

    def propose(self, choices: Choices, round: int = 0) -> None:
        """Other choices from round `round` on, on all ranks; 0: as soon as all are ready (docs/choices.md).

        On rank 0 alone, at any time; the other ranks call nothing. choices as at open; None: none. Nothing that is owed
        is lost. ValueError for choices that a session would not take, for a round that has begun, on other ranks, and
        while a proposal is under way.
        """
        self._core.propose(choices_text(choices), round)

    def proposal(self) -> dict[str, Any]:
        """What became of the last one, as this rank knows it.

        state: none, under_way, agreed, switched or refused; round: the first with the new choices, else None; why they
        were refused, and the rank that could not serve them, else None.
        """
        return self._core.proposal()

    @property
    def choices(self) -> str:
        """The rules of the next round, as JSON; "" where there are none."""
        return self._core.choices

    def said(self) -> list[str]:
        """What has happened since the last call, a line each.

        What codec "auto" has found and decided, on rank 0; residuals that were let go, on the rank whose they were.
        """
        return self._core.said()

    @property
    def ratio(self) -> float | None:
        """The fraction of values that the next round sends; None without a schedule."""
        return self._core.ratio or None

    @property
    def last_round_dropped(self) -> bool:
        """True if the last committed round was dropped because some rank's gradient was not finite."""
        return self._core.last_round_dropped

    def state(self) -> bytes:
        """Residuals and counters of this rank (docs/format.md); of the last commit after a failure or close()."""
        return self._core.state()

    def common_state(self) -> bytes:
        """state() without what this rank has left unsent: enough for a rank that is new."""
        return self._core.common_state()

    def restore(self, state: bytes | Iterable[bytes], *, lost: str = "spread") -> None:
        """Continues from state(), with the choices of its last commit.

        A list of states is for a world in which ranks have gone or come since (docs/elastic.md): this rank's own, if it
        was there, or any one; and those of lost ranks, given to all ranks, whose unsent values are spread over all, or
        with lost="book" given up and booked in stats().
        ValueError for another codec, a single state of another rank or world size, and where the session was opened
        with other choices than that one; nothing changes then.
        """
        if lost not in ("spread", "book"):
            raise ValueError(f"lost={lost!r}: 'spread' or 'book'")
        if isinstance(state, bytes):
            self._core.restore(state)
        else:
            self._core.restore_states(list(state), lost == "book")

    def undo(self) -> None:
        """Takes back the round that was committed last: residuals, counters and state() are as before it.

        On all ranks, after commit() and before the next sync(), of a session that was opened with undo=True. ValueError
        where there is no such round. What the arrays hold stays.
        """
        self._core.undo()

    def reform(
        self,
        rank: int,
        world: int,
        all_gather: Callable[[bytes], list[bytes]],
        members: Iterable[str],
        epoch: int,
        *,
        transport: str = "",
        timeout: float | None = None,
    ) -> None:
        """Goes on with other ranks, after a failure or between two rounds, from the last commit. Collective over them.

        all_gather is called once, as in open(); members are the names of the ranks, in their order, this rank's own
        among them; epoch counts up, the same on all. timeout: seconds to meet, None: the session's own. What lost
        ranks had left unsent is booked in stats(). A ValueError for an argument changes nothing; after another failure
        it may be called again. docs/elastic.md says how ranks agree on members.
        """
        self._core.reform(transport, rank, world, all_gather, list(members), epoch, timeout)

    def residual(self, key: str, n: int) -> npt.NDArray[np.float32]:
        """What rank-local encoding left unsent of the tensor `key`, n values."""
        out = np.empty(n, dtype=np.float32)
        self._core.residual(key, out)
        return out

    def stats(self) -> dict[str, Any]:
        """What this rank did since the session was opened, and how much of it is unsent.

        Sums: rounds, rounds_dropped, values, frames_sent, bytes_sent, gradient_bytes (handed over), dense_bytes (what a
        ring all-reduce of them sends), bytes_saved (the difference); times of lanes: encode_ns, merge_ns, send_ns; of
        callers: wait_ns; of rounds: exchange_ns (first sync() to the end of commit()), exposed_ns (of it, after the
        last sync()), hidden_ns (before it). lanes: how many compute threads there are.
        Of the last measured round, this rank's L2 norms over all gradients: gradient_norm, residual_norm (of the
        residuals after it); measured_round is its number, from 1. Rounds 1, 2, 4, 8, ... are measured, and every
        hundredth: measure=100 at open. groups: the same norms for each codec's tensors, by the codec's name, and the
        relative_error, residual over gradient. relative_error alone: of all compressed tensors together.
        values_let_go, sum_let_go: of residuals beyond 2^63, which no later round could send (docs/footguns.md, "One
        spike"). sum_forgotten: by feedback=decay, of all that it took from residuals. rounds_undone: see undo(). epoch,
        ranks_lost (with what they had left unsent, which nobody knows), values_lost and sum_lost (that was given up,
        where it is known, booked on this rank): docs/elastic.md.
        late_rank (-1: none), late_share (how much longer than the median it took), late_ns (that the others waited for
        it, per round): of the last 32 rounds, the same on all ranks. rounds_missed went on without this rank's program,
        rounds_behind of them wait for it: docs/stragglers.md.
        """
        return summed_up(self._core)

    def tensor_stats(self) -> dict[str, dict[str, Any]]:
        """By key: values, codec, strategy, and the norms, relative_error, values_lost and sum_lost as in stats().

        side: true for a tensor that an optimizer of tithe.torch averages beside the gradients.
        """
        return by_tensor(self._core)

    def plan_text(self) -> str:
        """What happens to each part and tensor of each bucket seen so far, and why."""
        return self._core.plan_text()

    def trace(self, on: bool = True) -> None:
        """Keeps the last 65,536 events while on: docs/trace.md."""
        self._core.trace(on)

    def mark(self, op: str, begin_ns: int, end_ns: int) -> None:
        """An event of your own in the trace, such as a backward pass: times of time.monotonic_ns()."""
        self._core.mark(op, begin_ns, end_ns)

    def write_trace(self) -> None:
        """Writes the file of trace= or TITHE_TRACE as far as it goes; close() does it too."""
        self._core.write_trace()

    def take_trace(self) -> list[dict[str, Any]]:
        """The events kept so far, and forgets them."""
        return self._core.take_trace()

    def close(self) -> None:
        """Cancels what is in flight and lets go of the network. Peers see this rank leave."""
        self._core.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
