# SPDX-License-Identifier: Apache-2.0
"""Who takes part in a job that goes on when ranks are lost or come."""

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
    """Where ranks leave word for each other, and which outlives them: the first to write under a key counts."""

    def put_first(self, key: str, value: bytes) -> bytes:
        """Writes where nothing stands under the key yet; what stands there now."""

    def get(self, key: str) -> bytes | None:
        """What stands under the key; None: nothing yet."""


class StoreBoard:
    """A torch.distributed.Store as a board: let it live where no rank that may be lost does."""

    def __init__(self, store: Any, prefix: str = "tithe") -> None:
        self._store, self._prefix = store, prefix

    def put_first(self, key: str, value: bytes) -> bytes:
        """As Board. An empty value could not be told from none, so each has a letter in front."""
        stands = self._store.compare_set(f"{self._prefix}/{key}", "", "=" + value.hex())
        return bytes.fromhex(stands.decode()[1:])

    def get(self, key: str) -> bytes | None:
        """As Board."""
        name = f"{self._prefix}/{key}"
        return bytes.fromhex(self._store.get(name).decode()[1:]) if self._store.check([name]) else None


def _check(options: dict[str, Any], join_timeout: float) -> None:
    """ValueError before anybody is met: others would wait for a rank that cannot open its session."""
    for ours in ("members", "epoch"):
        if ours in options:
            raise ValueError(f"{ours}: a membership sets it; leave it out of the session's options")
    if not 0 < join_timeout <= 1e9:
        raise ValueError(f"join_timeout={join_timeout}: must be more than 0 seconds, and at most 1e9")
    rest = dict(options)
    transport_text(rest)
    make_options(rest)


class Membership:
    """Opens a session, and makes it go on with those that are left and those that come (docs/membership.md).

    board: a folder that all ranks reach and nobody else may write to, new for each start of the job; a torch Store; or
    an object with put_first(key, value) and get(key).
    me: this rank's name, one line of at most 200 bytes. members: the names of all that begin, in the order of their
    ranks; a rank that comes later leaves it out.
    min_world, max_world: with fewer ranks nobody goes on; who comes beyond it is left out. Nobody goes on either
    without a quorum: more than half of the members of before, or half of them with the first one.
    window: seconds that those are waited for whom anybody has reason to believe lost, where a quorum is there; others,
    who may compute still, are waited for half of join_timeout. join_timeout: seconds for all of the meeting.
    options: transport and the session's own (timeout among them), as Session.open takes them. ValueError for a wrong
    one, and for members and epoch, which the membership sets.
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
        self.epoch = 0  # how often they have changed
        self.given: bytes | None = None  # to this rank, when it came later
        self._session_members: list[str] = []  # of the session as it is
        self._session_epoch = 0
        self._missed: set[str] = set()  # names of those that this rank has reason to believe lost
        self._limits = (min_world, max_world, window, join_timeout)
        self._options = options
        self._session: Session | None = None

    def open(self) -> Session:
        """Meets the others. Collective: of all that begin; for a rank that comes later, with their next reform()."""
        came_later = not self.members
        met = self._reunite(0)
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
            self.given = self._await("given")
            session.restore([self._await("state")])
        return session

    def somebody_waits(self) -> bool:
        """Whether a rank that is new would be taken in by reform(): ask between two rounds, on any rank.

        Not on one that is behind: results of rounds that went on without it wait for it (stragglers= of the session).
        """
        with contextlib.suppress(ValueError):  # closed
            if self._session is not None and self._session._core.stats()["rounds_behind"]:
                return False
        return _core.somebody_waits(self._board, self.epoch + 1, self.members, self._limits[1])

    def reform(self, session: Session, *, give: Callable[[], bytes] | None = None) -> None:
        """The session goes on with those that are left, and with those that wait, from the last commit.

        After a tithe.Error on all survivors; or between two rounds, on any rank: the others get a tithe.Error then, and
        do the same. The round that was open is done anew, by all.
        give: what a rank that comes needs beside tithe's own state, as bytes (parameters, the number of the step): one
        survivor is asked, and it is `given` of the new one.
        tithe.Error where there is no quorum, or a member is lost meanwhile: in the latter case it may be called again.
        Where all named this rank since it differs from them (another round, other options) it stays out, with an error.
        """
        self._note_failure(session)
        missed = "\n".join(sorted(self._missed)).encode()
        self._board.put_first(f"{self.epoch + 1}.come.{self.me}", missed)
        session._core.cancel()  # who waits for this rank hears of it, and finds that it has come
        # A member that went on from there in an epoch that failed is gone, and not lost.
        watch = session._core.watch(self._session_members) if self._session_epoch == self.epoch else None
        met = self._reunite(self.epoch + 1, watch)
        if met["joined"] and met["rank"] == 0:
            self._board.put_first(f"{self.epoch}.given", give() if give is not None else b"")
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
        except _core.Error as failure:  # who did not come to the exchange is not waited for again
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
            self._missed.update(session._core.watch(self._session_members).lost())

    def _reunite(self, epoch: int, watch: _core.Watch | None = None) -> dict[str, Any]:
        met = _core.reunite(
            *(self._board, self.me, epoch, self.members, sorted(self._missed), *self._limits),
            taken=self._session_members,
            watch=watch,
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
                giver = f"{self.members[0]!r}, which was to give it"
                raise error("timeout", 0, f"{giver}, has not put '{what}' on the board")
            time.sleep(_PAUSE)
