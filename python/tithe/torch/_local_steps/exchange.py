# SPDX-License-Identifier: Apache-2.0
"""One exchange of LocalSteps: a round of its session, which averages the drift of a fragment.

With the drift each rank sends a row of numbers about itself. All other ranks have zeros in this row, so the sum has the
rows of all ranks. The rows are sent uncompressed, and their numbers are small integers, so the sum is exact.
"""

import threading

import torch

from tithe._session import Session
from tithe.torch._local_steps.drift import RESERVED_KEYS, Fragment, digest

_ROWS = f"{RESERVED_KEYS}told"
_HALF = 1 << 12  # the base of the two halves of a digest: float32 holds its product with 4,096 ranks exactly
WINDOW, CLOSING = 0, 1  # the kinds of an exchange: between windows, or at the end


class Exchange:
    """A round under way, or its result."""

    def __init__(self, fragment: Fragment, rows: torch.Tensor) -> None:
        self.fragment = fragment
        self.rows = rows  # per rank: kind, round, two halves of a digest, weight
        self._session: Session | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._ticket = -1

    @classmethod
    def begin(
        cls, session: Session, fragment: Fragment, kind: int, number: int, weight: float, behind: bool
    ) -> "Exchange":
        """Starts to average `out` of the fragment. behind: a separate thread waits for the result."""
        high, low = divmod(digest(fragment.entries), _HALF)
        rows = torch.zeros(session.world, 5, dtype=torch.float32)
        rows[session.rank] = torch.tensor([kind, number % _HALF, high, low, weight])
        rows.mul_(session.world)  # cancels the session's division by world
        exchange = cls(fragment, rows)
        exchange._session = session
        exchange._ticket = session.sync({**{entry.key: entry.out for entry in fragment.entries}, _ROWS: rows})
        if behind:
            exchange._thread = threading.Thread(target=exchange._run, name="tithe-exchange", daemon=True)
            exchange._thread.start()
        return exchange

    def _run(self) -> None:
        try:
            self._session.wait(self._ticket)
            self._session.commit()
        except BaseException as error:  # raised by wait(), on the thread that steps
            self._error = error

    def wait(self) -> None:
        """Returns when `out` has the mean of the ranks. Each call raises the error of a failed round."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        elif self._ticket >= 0:
            self._run()
        self._ticket = -1
        if self._error is not None:
            raise self._error

    @property
    def closing(self) -> bool:
        return float(self.rows[0, 0]) == CLOSING

    def weight(self) -> float:
        """Returns the mean weight of the ranks."""
        weights = self.rows[:, 4].tolist()
        return sum(weights) / len(weights)
