# SPDX-License-Identifier: Apache-2.0
"""The thread of a session whose collectives are rounds of their own."""

from __future__ import annotations

import contextlib
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

from tithe import _core


class RoundThread:
    """Runs jobs one after the other, in the order of put(), so the rounds have one order on all ranks.

    serve: receives the session, the queue of jobs, which ends with None, and `causes`. It must not refer to an object
    that should end with this one: the thread stops when the last reference to this object is deleted, or at stop().
    """

    def __init__(
        self, session: _core.Session, serve: Callable[[_core.Session, queue.SimpleQueue[Any], list[Any]], None]
    ) -> None:
        self.session = session
        self.causes: list[BaseException] = []  # the errors for which this process ended the session
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        thread = threading.Thread(target=serve, args=(session, self._jobs, self.causes), name="tithe", daemon=True)
        thread.start()
        self.stop = weakref.finalize(self, _stop, session, self._jobs, thread)

    def put(self, job: Any, closed: str) -> None:
        """Appends a job. ValueError with the text `closed` after stop()."""
        if not self.stop.alive:
            raise ValueError(closed)
        self._jobs.put(job)


def _stop(session: _core.Session, jobs: queue.SimpleQueue[Any], thread: threading.Thread) -> None:
    jobs.put(None)
    with contextlib.suppress(ValueError):  # closed already
        session.cancel()
    if thread is not threading.current_thread():
        thread.join()
    session.close()
