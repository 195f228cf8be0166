# SPDX-License-Identifier: Apache-2.0
"""One exchange of LocalSteps: a round of its session, in which the drift of a fragment travels.

Beside the drift goes what each rank tells of itself, as a row of numbers in a place of its own: the others put zeros
there, so that the sum is every rank's row. It travels raw, and the numbers are whole and small, so they arrive exactly.
"""

import threading

import torch

from tithe._session import Session
from tithe.torch._local_steps.drift import BESIDE, Fragment, digest

_TOLD = f"{BESIDE}told"
_HALF = 1 << 12  # of a digest; times 4,096 ranks it is a whole number that float32 has
WINDOW, CLOSING = 0, 1  # what a rank exchanges for: the next steps, or to end


class Exchange:
    """A round under way, or what came of it."""

    def __init__(self, fragment: Fragment, rows: torch.Tensor) -> None:
        self.fragment = fragment
        self.rows = rows  # one per rank: kind, round, digest in two halves, weight
        self._session: Session | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._ticket = -1

    @classmethod
    def begin(
        cls, session: Session, fragment: Fragment, kind: int, number: int, weight: float, behind: bool
    ) -> "Exchange":
        """Hands over what the fragment has in out. behind: a thread of its own waits."""
        high, low = divmod(digest(fragment.entries), _HALF)
        rows = torch.zeros(session.world, 5, dtype=torch.float32)
        rows[session.rank] = torch.tensor([kind, number % _HALF, high, low, weight])
        rows.mul_(session.world)  # the mean comes back
        made = cls(fragment, rows)
        made._session = session
        made._ticket = session.sync({**{entry.key: entry.out for entry in fragment.entries}, _TOLD: rows})
        if behind:
            made._thread = threading.Thread(target=made._run, name="tithe-exchange", daemon=True)
            made._thread.start()
        return made

    def _run(self) -> None:
        try:
            self._session.wait(self._ticket)
            self._session.commit()
        except BaseException as error:  # raised by wait(), on the thread that steps
            self._error = error

    def wait(self) -> None:
        """Returns when out holds the ranks' mean. Raises what went wrong, each time."""
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
        """The mean weight of the ranks."""
        weights = self.rows[:, 4].tolist()
        return sum(weights) / len(weights)
