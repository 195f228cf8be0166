# SPDX-License-Identifier: Apache-2.0
"""The members of a job that continues when ranks are lost or join."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from tithe import _core
from tithe._error import error
from tithe._session import Session, make_options, transport_text

_PAUSE = 0.01


class Board(Protocol):
    """A key-value store that outlives the ranks. The first value that is written under a key stays."""

    def put_first(self, key: str, value: bytes) -> bytes:
        """Writes the value unless the key has one. Returns the value of the key."""

    def get(self, key: str) -> bytes | None:
        """The value of the key, or None."""


class StoreBoard:
    """Adapts a torch.distributed.Store to Board. The store's process must survive the ranks that may be lost."""

    def __init__(self, store: Any, prefix: str = "tithe") -> None:
        self._store, self._prefix = store, prefix

    def put_first(self, key: str, value: bytes) -> bytes:
        """See Board. A letter precedes each value, so that an empty value differs from a missing one."""
        stands = self._store.compare_set(f"{self._prefix}/{key}", "", "=" + value.hex())
        return bytes.fromhex(stands.decode()[1:])

    def get(self, key: str) -> bytes | None:
        """See Board."""
        name = f"{self._prefix}/{key}"
        return bytes.fromhex(self._store.get(name).decode()[1:]) if self._store.check([name]) else None


def _check(options: dict[str, Any], join_timeout: float) -> None:
    """Raises ValueError before the rendezvous, so that the other ranks do not wait for a rank that cannot open its
    session."""
    for ours in ("members", "epoch"):
        if ours in options:
            raise ValueError(f"{ours}: a membership sets it; leave it out of the session's options")
    if not 0 < join_timeout <= 1e9:
        raise ValueError(f"join_timeout={join_timeout}: must be more than 0 seconds, and at most 1e9")
    rest = dict(options)
    transport_text(rest)
    make_options(rest)


class Membership:
    """Opens a session, and continues it with the surviving ranks and new ones (docs/guide/membership.md).

    board: a folder, new for each start of the job, that all ranks can reach and no other user can write to; a torch
    Store; or an object with put_first(key, value) and get(key).
    me: this rank's name, one line of at most 200 bytes. members: the names of the first ranks, in rank order. A rank
    that joins later omits it.
    min_world, max_world: the job does not continue with fewer ranks, and refuses further ones. It needs a quorum: more
    than half of the earlier members, or half of them including the first member.
    window: once there is a quorum, seconds to wait for members that a rank considers lost. Other members may still
    compute; the rendezvous waits for them for half of join_timeout. join_timeout: seconds for the whole rendezvous.
    options: transport and the session's own options (timeout among them), as Session.open takes them. ValueError for a
    wrong one, and for members and epoch, which the membership sets.
    """

    def __init__(
        self,
        board: str | os.PathLike[str] | Board | Any,
        me: str,
        members: Iterable[str] = (),
        *,
        min_world: int = 1,
        max_world: int = 1 << 16,
        window: float = 0.3,
        join_timeout: float = 60.0,
        **options: Any,
    ) -> None:
        _check(options, join_timeout)
        if isinstance(board, str | os.PathLike):
            self._board = _core.board_in(os.fspath(board))
        else:
            self._board = _core.board_of(StoreBoard(board) if hasattr(board, "compare_set") else board)
        self.me = me
        self.members = list(members)  # by rank, in this epoch
        self.epoch = 0  # the number of changes of the members
        self.received_state: bytes | None = None  # the bytes of state(), on a rank that joined later
        self._session_members: list[str] = []  # the members in the session's present epoch
        self._session_epoch = 0
        self._missed: set[str] = set()  # names of members that this rank considers lost
        self._limits = (min_world, max_world, window, join_timeout)
        self._options = options
        self._session: Session | None = None

    def open(self) -> Session:
        """Connects the first ranks. Collective over them. A later rank joins at the next reform() of the running
        ranks."""
        came_later = not self.members
        met = self._rejoin(0)
        session = Session.open(
            met["rank"],
            len(self.members),
            met["all_gather"],
            members=self.members,
            epoch=self.epoch,
            **self._options,
        )
        self._session = session
        self._session_members, self._session_epoch = self.members, self.epoch
        if came_later and self.epoch > 0:
            self.received_state = self._await("given")
            session.restore([self._await("state")])
        return session

    def new_ranks_waiting(self) -> bool:
        """Returns True if a new rank waits for reform(). Call it between two rounds, on any rank.

        Always False on a rank that lacks the results of some rounds (stragglers= of the session).
        """
        with contextlib.suppress(ValueError):  # the session is closed
            if self._session is not None and self._session._core.stats()["rounds_behind"]:
                return False
        return _core.new_ranks_waiting(self._board, self.epoch + 1, self.members, self._limits[1])

    def reform(self, session: Session, *, state: Callable[[], bytes] | None = None) -> None:
        """Continues the session with the surviving ranks and the waiting ones, from the last commit.

        Call it after a tithe.Error, on all survivors. Or call it between two rounds on any rank: the other ranks then
        get a tithe.Error and call it too. All ranks repeat the open round.
        state: returns the bytes that a new rank needs beside tithe's own state (parameters, the step number). One
        survivor calls it, and the new rank finds the result in `received_state`.
        Raises tithe.Error without a quorum, and if a member is lost during the call; reform() may then be called again.
        If all other ranks reject this rank because it differs from them (another round, other options), it is excluded
        with an error.
        """
        self._note_failure(session)
        missed = "\n".join(sorted(self._missed)).encode()
        self._board.put_first(f"{self.epoch + 1}.come.{self.me}", missed)
        session._core.cancel()  # ranks that wait for this one get an error, and find its name on the board
        # After an epoch that failed, a missing member may have continued elsewhere and is not lost.
        monitor = session._core.member_monitor(self._session_members) if self._session_epoch == self.epoch else None
        met = self._rejoin(self.epoch + 1, monitor)
        if met["joined"] and met["rank"] == 0:
            self._board.put_first(f"{self.epoch}.given", state() if state is not None else b"")
            self._board.put_first(f"{self.epoch}.state", session.common_state())
        try:
            session.reform(
                met["rank"],
                len(self.members),
                met["all_gather"],
                self.members,
                self.epoch,
                transport=self._options.get("transport", ""),
            )
        except _core.Error as failure:  # the next reform() does not wait for the rank that failed to arrive
            if failure.peer is not None and 0 <= failure.peer < len(self.members):
                self._missed.add(self.members[failure.peer])
            raise
        self._session_members, self._session_epoch = self.members, self.epoch
        self._missed.clear()

    def _note_failure(self, session: Session) -> None:
        try:
            session._core.present()
        except _core.Error as failure:
            if failure.peer is not None and failure.peer >= 0:
                self._missed.add(self._session_members[failure.peer])
            if failure.code == "mismatch" and failure.peer == session.rank:
                raise error(
                    "mismatch",
                    session.rank,
                    f"{failure}; the others go on without this rank, which may come again as one that is new",
                ) from None
        if self._session_epoch == self.epoch:
            self._missed.update(session._core.member_monitor(self._session_members).lost())

    def _rejoin(self, epoch: int, monitor: _core.MemberMonitor | None = None) -> dict[str, Any]:
        met = _core.rejoin(
            *(self._board, self.me, epoch, self.members, sorted(self._missed), *self._limits),
            taken=self._session_members,
            monitor=monitor,
        )
        self.members, self.epoch = met["members"], met["epoch"]
        return met

    def _await(self, what: str) -> bytes:
        until = time.monotonic() + self._limits[3]
        while True:
            there = self._board.get(f"{self.epoch}.{what}")
            if there is not None:
                return there
            if time.monotonic() >= until:
                late = f"{self.members[0]!r} has not put '{what}' on the board in {self._limits[3]:g} s"
                raise error("timeout", 0, f"{late}; if it needs more time, raise join_timeout")
            time.sleep(_PAUSE)
