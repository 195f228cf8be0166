# SPDX-License-Identifier: Apache-2.0
"""Sessions between ranks, without a training framework."""

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
    """Raises ValueError, with the nearest name, for an unknown option. more: further keywords that the caller
    accepts."""
    known = [*OPTIONS, "transport", *more]
    for name in given:
        if name not in known:
            raise ValueError(f"unknown option '{name}': {_core.suggest(name, known)}")


def make_options(given: Mapping[str, Any]) -> _core.Options:
    """Returns session options made from keyword arguments. ValueError names a wrong one."""
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
    """Removes transport= from the keyword arguments and returns it. ValueError for a wrong one."""
    text = given.pop("transport", "")
    if not isinstance(text, str):
        raise ValueError(f"transport={text!r}: must be a string")
    _core.check_transport(text)
    return text


def transports() -> list[str]:
    """Returns the names of the transports of this build."""
    return _core.transports()


def _offsets(bounds: Mapping[str, Sequence[int]] | None) -> dict[str, list[int]]:
    found = {key: [operator.index(offset) for offset in offsets] for key, offsets in (bounds or {}).items()}
    for key, offsets in found.items():
        if any(offset < 0 for offset in offsets):
            raise ValueError(f"bounds of '{key}' are {offsets}: an offset must not be negative")
    return found


class Session:
    """Averages named arrays over all ranks, and keeps a residual of each array on each rank.

    Open one with `from_environment` (torchrun, mpirun, Slurm), `open` (with your own exchange of addresses) or `loop`
    (ranks as threads of this process). transport="ucx:transports=tcp,devices=eth0" names a transport of `tithe
    transports`. Other options, with their defaults: docs/reference/session_options.md. The most used are codec="fp8",
    strategy="auto", choices=None, link="", hosts="", lanes=None, average=True and timeout=30.0 (seconds).
    choices has rules for single tensors (docs/guide/choices.md): a dict such as {"*.bias": "fp32"}, JSON text, or the
    path of a file with either. link="10Gb/s" describes the network, from which tithe derives sizes.
    hosts="4x2" states which ranks share a host (4 hosts of 2 ranks), if the transport cannot detect it.
    servers=2 makes the last 2 ranks sum for the others (docs/reference/strategies.md).
    codec="auto" measures and plans while the job runs (docs/guide/plan_auto.md), and messages() returns its decisions.
    "auto:allow=onebit+fp8" lists the codecs that auto may use beside fp32, bf16 and zip.

        with tithe.Session.from_environment(codec="dgc:ratio=0.01") as session:
            session.wait(session.sync({"w": gradient}))    # in place: now the mean over ranks
            session.commit()                               # end of the step

    Several threads may call sync(), wait(), poll(), commit(), propose() and proposal() at once; only a sync() during a
    commit() of another thread is refused. All other calls must come from one thread at a time.
    Wrong arguments raise ValueError or TypeError; a failed peer raises tithe.Error with `peer`. The session keeps
    arrays alive until commit(). Ctrl-C on the main thread ends a wait, and the session with it. A session does not
    survive fork().
    """

    def __init__(self, core: _core.Session, evaluations: Evaluations) -> None:
        self._core = core
        self._evaluations = evaluations

    @classmethod
    def loop(cls, world: int, **options: Any) -> list[Session]:
        """Returns one session per rank, all in this process, for tests. Drive each session from its own thread."""
        chosen = make_options(options)
        return [cls(core, Evaluations(chosen)) for core in _core.open_loop(world, chosen)]

    @classmethod
    def open(cls, rank: int, world: int, all_gather: Callable[[bytes], list[bytes]], **options: Any) -> Session:
        """Opens a session between processes. Collective.

        all_gather(mine) returns the blobs of all ranks in rank order; it is called once.
        """
        transport = transport_text(options)
        chosen = make_options(options)
        return cls(_core.open(transport, rank, world, all_gather, chosen), Evaluations(chosen))

    @classmethod
    def from_environment(cls, **options: Any) -> Session:
        """Does the same as `open`, with rank, world and rendezvous from the environment of torchrun, mpirun or Slurm.
        Collective."""
        transport = transport_text(options)
        chosen = make_options(options)
        return cls(_core.open_environment(transport, chosen), Evaluations(chosen))

    @property
    def rank(self) -> int:
        """The rank of this session, 0 to world - 1."""
        return self._core.rank

    @property
    def world(self) -> int:
        """The number of ranks."""
        return self._core.world

    def sync(self, tensors: Mapping[str, Any]) -> int:
        """Starts to average the arrays in place; returns a ticket for wait().

        tensors: key to array (numpy, or any object with DLPack: float32, float16, bfloat16; C-contiguous, writable; all
        in host memory, or all on one CUDA GPU, valid after the work already queued on its default stream). Keys, shapes
        and order must be the same on all ranks.
        """
        return self._core.sync(list(tensors.items()))

    def reduce_scatter(self, tensors: Mapping[str, Any], bounds: Mapping[str, Sequence[int]] | None = None) -> int:
        """Starts to average the range of each array that this rank owns, in place; returns a ticket for wait().

        bounds: key to world + 1 offsets into the flat array: rank r owns [bounds[r], bounds[r + 1]), which may be
        empty. Without bounds an array is split as torch.chunk splits dimension 0, and a flat array by values. The
        ranges of other ranks do not change. Tensors as in sync(); the bounds must be the same on all ranks
        (docs/reference/sharded_rounds.md).
        """
        return self._core.reduce_scatter(list(tensors.items()), _offsets(bounds))

    def all_gather(self, tensors: Mapping[str, Any], bounds: Mapping[str, Sequence[int]] | None = None) -> int:
        """Starts to fill each array with the ranges of their owners, in place; returns a ticket for wait().

        Reads this rank's own range. After wait() the range has the values that all other ranks decode. bounds: as in
        reduce_scatter().
        """
        return self._core.all_gather(list(tensors.items()), _offsets(bounds))

    def wait(self, ticket: int) -> None:
        """Returns when the bucket of this ticket contains its result."""
        self._core.wait(ticket)

    def poll(self, ticket: int) -> bool:
        """Returns True if the bucket contains its result, so that wait() would not block. Raises the error that ended
        the session."""
        return self._core.poll(ticket)

    def commit(self) -> None:
        """Ends the round. The codec's error of this round becomes the residual of the next round."""
        self._core.commit()

    def evaluated(
        self, *, loss: float | None = None, accuracy: float | None = None, learning_rate: float | None = None
    ) -> None:
        """Reports an evaluation to the schedule, at the end of a step. The ratio of the next rounds may change.

        All ranks pass the same numbers; the next round names a rank that passed other numbers. accuracy is in 0..1.
        ValueError if the schedule follows a number that is missing. The schedule ignores all other numbers.
        """
        measured, rate = self._evaluations.read(loss, accuracy, learning_rate)
        self._evaluations.report(self._core, measured, rate)

    def propose(self, choices: Choices, round: int = 0) -> None:
        """Proposes new choices for all ranks from round `round` on; 0: as soon as all ranks are ready
        (docs/guide/choices.md).

        Call it on rank 0 only, at any time; the other ranks call nothing. choices: as in open(); None: no rules.
        Residuals are kept. ValueError for choices that a session would refuse, for a round that has begun, on other
        ranks, and while another proposal is under way.
        """
        self._core.propose(choices_text(choices), round)

    def proposal(self) -> dict[str, Any]:
        """Returns the state of the last proposal, from this rank's messages so far.

        state: none, under_way, agreed, switched or refused. round: the first with the new choices, else None. why and
        rank: the reason of a refusal and the rank that refused, else None.
        """
        return self._core.proposal()

    @property
    def choices(self) -> str:
        """The rules of the next round, as JSON; "" without rules."""
        return self._core.choices

    def messages(self) -> list[str]:
        """Returns the messages since the last call, one line each.

        On rank 0: the results and decisions of codec "auto". On each rank: its residuals that were dropped.
        """
        return self._core.messages()

    @property
    def ratio(self) -> float | None:
        """The fraction of values that the next round sends; None without a schedule."""
        return self._core.ratio or None

    @property
    def last_round_dropped(self) -> bool:
        """True if the last committed round was dropped because a gradient on some rank was not finite."""
        return self._core.last_round_dropped

    def state(self) -> bytes:
        """Returns the residuals and counters of this rank (docs/reference/format_state.md).

        After a failure or close(): those of the last commit.
        """
        return self._core.state()

    def common_state(self) -> bytes:
        """Returns state() without this rank's residuals, which is sufficient for a new rank."""
        return self._core.common_state()

    def restore(self, state: bytes | Iterable[bytes], *, lost: str = "spread") -> None:
        """Continues from state(), with the choices of its last commit.

        A list of states is for another set of ranks (docs/guide/elastic.md). It contains this rank's own state, or that
        of any rank if this rank is new, and the states of lost ranks, which all ranks pass. lost: "spread" adds the
        residuals of lost ranks to those of all ranks; "book" drops them and counts them in stats().
        ValueError, before anything has changed, for another codec, for a single state of another rank or world size,
        and for a session that was opened with other choices.
        """
        if lost not in ("spread", "book"):
            raise ValueError(f"lost={lost!r}: 'spread' or 'book'")
        if isinstance(state, bytes):
            self._core.restore(state)
        else:
            self._core.restore_states(list(state), lost == "book")

    def undo(self) -> None:
        """Reverts the last committed round: residuals, counters and state() have their values from before the round.

        Call it on all ranks, after commit() and before the next sync(), of a session that was opened with undo=True.
        ValueError if there is no such round. The arrays do not change.
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
        """Continues with other ranks from the last commit, after a failure or between two rounds. Collective over them.

        all_gather: called once, as in open(). members: the names of all ranks, in rank order. epoch: larger than
        before, the same on all ranks. timeout: seconds for the rendezvous; None: the session's own. stats() counts the
        residuals of lost ranks. A ValueError for an argument changes nothing; after another failure reform() may be
        called again. docs/guide/elastic.md describes how ranks agree on members.
        """
        self._core.reform(transport, rank, world, all_gather, list(members), epoch, timeout)

    def residual(self, key: str, n: int) -> npt.NDArray[np.float32]:
        """Returns this rank's residual of the tensor `key`, float32, 1-D. n: the number of values of the tensor."""
        out = np.empty(n, dtype=np.float32)
        self._core.residual(key, out)
        return out

    def stats(self) -> dict[str, Any]:
        """Returns the sums of this rank since the session was opened, and the norms of its gradients and residuals.

        docs/reference/session_options.md lists the keys. Times are in nanoseconds.
        """
        return summed_up(self._core)

    def tensor_stats(self) -> dict[str, dict[str, Any]]:
        """Returns, by key: values, codec, strategy, and the norms, relative_error, values_lost and sum_lost as in
        stats().

        side: true for a tensor that an optimizer of tithe.torch averages beside the gradients.
        """
        return by_tensor(self._core)

    def plan_text(self) -> str:
        """Returns the codec and strategy of each part and tensor of the buckets so far, and the reasons, as text."""
        return self._core.plan_text()

    def trace(self, on: bool = True) -> None:
        """Records the last 65,536 events while `on` is true: docs/guide/trace.md."""
        self._core.trace(on)

    def mark(self, op: str, begin_ns: int, end_ns: int) -> None:
        """Adds an event of your own to the trace, such as a backward pass. Times are those of time.monotonic_ns()."""
        self._core.mark(op, begin_ns, end_ns)

    def write_trace(self) -> None:
        """Writes the events so far to the file of trace= or TITHE_TRACE. close() does this too."""
        self._core.write_trace()

    def take_trace(self) -> list[dict[str, Any]]:
        """Returns the recorded events, and clears the record."""
        return self._core.take_trace()

    def close(self) -> None:
        """Cancels open rounds and closes the connections. Peers detect that this rank has left."""
        self._core.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
