# SPDX-License-Identifier: Apache-2.0
"""The running part of LocalSteps: the schedule by which fragments are sent and merged.

The window of a fragment, from one sending to the next, with every=6, fragments=2, delay=1 (iterations):

    fragment 0     . . S M . . S M      S  the drift is sent, at the end of the third iteration
    fragment 1     . . . . . S M .      M  the mean arrives one iteration later: outer step, then merge
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from tithe._session import Session
from tithe.torch._common.parameter_keys import fingerprint
from tithe.torch._local_steps.checks import Named, check_loaded, check_ranks_agree, check_unchanged
from tithe.torch._local_steps.dense_start import Averaging
from tithe.torch._local_steps.drift import Entry, Fragment
from tithe.torch._local_steps.exchange import CLOSING, WINDOW, Exchange
from tithe.torch._local_steps.settings import Settings

_log = logging.getLogger("tithe.torch")

STATE_FORMAT = 1


class Windows:
    """Counts iterations, and exchanges each fragment at the end of its window."""

    def __init__(
        self,
        settings: Settings,
        fragments: list[Fragment],
        session: Session,
        averaging: Averaging | None,
        parameters: Callable[[], Named],
        optimizers: Iterable[torch.optim.Optimizer],
    ) -> None:
        self.settings = settings
        self.fragments = fragments
        self.session = session
        # The averaging of the dense start; None if DDP averages it, or without a dense start
        self.averaging = averaging
        self.iterations = 0  # iterations of the loop since the beginning of the run
        self.exchanges = 0  # exchanges that were merged
        self.booked = {"steps": 0, "steps_dropped": 0.0, "windows_lost": 0, "windows_late": 0, "start_bytes_sent": 0}
        self._parameters = parameters  # returns the parameters that are trained now
        self._known = {name: id(p) for name, p in parameters()}
        self._optimizers = list(optimizers)
        self._since = 0  # iterations since the last exchange began
        self._began = time.monotonic()  # the time when the window began
        self._begun = 0  # exchanges that were started
        self._pending: Exchange | None = None

    @property
    def in_start(self) -> bool:
        return self.iterations < self.settings.start_length

    def entries(self) -> list[Entry]:
        return [entry for fragment in self.fragments for entry in fragment.entries]

    # ---- the loop

    def stepped(self) -> None:
        self.booked["steps"] += 1
        if not self.in_start:
            for fragment in self.fragments:
                fragment.steps += 1

    def iterated(self) -> bool:
        """Counts the end of an iteration. Returns True at the end of the dense start."""
        self.iterations += 1
        if self.iterations <= self.settings.start_length:
            return not self.in_start
        self._since += 1
        if self._since == self.settings.delay:
            self.merge()
        late = self.settings.deadline is not None and time.monotonic() - self._began >= self.settings.deadline
        if self._since == self.settings.slot or late:
            self.merge()
            self._send(WINDOW)
            if self.settings.delay == 0:
                self.merge()
            self._began = time.monotonic()  # the wait for other ranks is not part of a window
        return False

    def start_over(self) -> None:
        """Ends the dense start, when all ranks have the same parameters: they become the outer parameters."""
        for entry in self.entries():
            entry.begin()
        if self.averaging is not None:
            self.booked["start_bytes_sent"] += self.averaging.session.stats()["bytes_sent"]
            self.averaging.session.close()
            self.averaging = None
        self._began = time.monotonic()

    def finish(self) -> None:
        """Exchanges the rest of all windows, so that all ranks end with the same parameters."""
        self.merge()
        if self._since > 0 or len(self.fragments) > 1 or self.settings.deadline is not None:
            # One fragment at a time, in the order that a continuing rank expects: it then detects the rank that ends.
            for _ in self.fragments:
                self._send(CLOSING)
                self.merge()

    def wait(self) -> None:
        """Waits for the exchange under way. It is merged at the end of its delay."""
        if self._pending is not None:
            self._pending.wait()

    # ---- an exchange

    def _send(self, kind: int) -> None:
        check_unchanged(self._known, self._parameters())
        fragment = self.fragments[self._begun % len(self.fragments)]
        short = self._since < self.settings.slot and kind == WINDOW
        for each in self.fragments:
            each.planned += self.settings.slot if kind == WINDOW else self._since
        self.booked["windows_late"] += short
        goes_on = self.settings.delay > 0 and kind == WINDOW
        weight = 0.0
        if short and self.settings.late != "send":
            if self.settings.late == "drop":
                self._drop(fragment)
            fragment.send_nothing(keep=self.settings.late == "next")
        else:
            weight = self.settings.weight(fragment.steps, fragment.planned)
            if not fragment.send(weight, goes_on):
                weight = 0.0
                self._discard(fragment)
            elif weight == 0.0:
                self._drop(fragment)
        if not fragment.late:
            fragment.steps = 0
        fragment.planned = 0
        self._since = 0
        self._pending = Exchange.begin(self.session, fragment, kind, self._begun, weight, goes_on)
        self._begun += 1

    def merge(self) -> None:
        """Waits for the exchange under way, and merges it into the model."""
        if self._pending is None:
            return
        self._pending.wait()
        exchange, self._pending = self._pending, None
        check_ranks_agree(exchange.rows.tolist(), self.session.rank)
        fragment, replace = exchange.fragment, self.settings.merge == "replace"
        fragment.step(exchange.weight(), exchange.closing)
        if replace and not fragment.late:
            self._drop(fragment)
            fragment.planned -= self._since
        fragment.merge(replace)
        self.exchanges += 1

    def _discard(self, sending: Fragment) -> None:
        """Resets all fragments to the outer parameters, because this rank's parameters are not finite."""
        self.booked["windows_lost"] += 1
        for fragment in self.fragments:
            self._drop(fragment)
            fragment.restore()
        sending.send_nothing(keep=False)
        begun_anew = 0
        for optimizer in self._optimizers:
            for parameter, kept in list(optimizer.state.items()):
                if any(torch.is_tensor(v) and not bool(torch.isfinite(v).all()) for v in kept.values()):
                    del optimizer.state[parameter]
                    begun_anew += 1
        _log.warning(
            "rank %d: its change of the weights is not finite, so its window of exchange %d is lost; it goes on from "
            "the outer parameters, with the optimizer's state of %d parameters begun anew",
            self.session.rank, self._begun, begun_anew,
        )  # fmt: skip

    def _drop(self, fragment: Fragment) -> None:
        """Counts the fragment's steps as dropped, weighted by the fragment's share of the model."""
        self.booked["steps_dropped"] += fragment.steps * fragment.values / sum(f.values for f in self.fragments)
        fragment.steps = 0

    def residual(self, parameter: torch.nn.Parameter) -> torch.Tensor | None:
        self.wait()
        for fragment in self.fragments:
            for entry in fragment.entries:
                if entry.live is not parameter:
                    continue
                if fragment.number >= self._begun:  # it was never sent
                    return torch.zeros_like(entry.outer)
                return torch.from_numpy(self.session.residual(entry.key, entry.out.numel())).view_as(entry.outer)
        return None

    # ---- checkpoints

    def state(self) -> dict[str, Any]:
        """Returns the state for load(): only tensors, numbers and strings."""
        self.wait()
        pending = self._pending
        session = torch.frombuffer(bytearray(self.session.state()), dtype=torch.uint8)
        start = None
        if self.averaging is not None and self.in_start:
            start = torch.frombuffer(bytearray(self.averaging.session.state()), dtype=torch.uint8)
        return {
            "format": STATE_FORMAT,
            "rank": self.session.rank,
            "world": self.session.world,
            "settings": self.settings.alike(),
            "counts": {
                "iterations": self.iterations, "exchanges": self.exchanges, "since": self._since, "begun": self._begun
            },
            "booked": dict(self.booked),
            "fragments": [
                {"steps": f.steps, "planned": f.planned, "late": f.late, "outer": f.outer.state()}
                for f in self.fragments
            ],
            "outer": {entry.key: entry.outer.clone() for entry in self.entries()},
            "live": {entry.key: fingerprint(entry.live) for entry in self.entries()},
            "base": {entry.key: entry.base.clone() for entry in self.entries() if entry.base is not None},
            "arrived": None if pending is None else {
                "fragment": pending.fragment.number,
                "rows": pending.rows.clone(),
                "out": {entry.key: entry.out.clone() for entry in pending.fragment.entries},
            },
            "session": session,
            "start": start,
        }  # fmt: skip

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores a state. ValueError, before anything has changed, for the state of another run."""
        check_loaded(state, STATE_FORMAT, self.settings.alike(), self.session, self.entries())
        self.session.restore(state["session"].numpy().tobytes())
        if state["start"] is not None:
            self.averaging.session.restore(state["start"].numpy().tobytes())
        counts = state["counts"]
        self.iterations, self.exchanges = counts["iterations"], counts["exchanges"]
        self._since, self._begun = counts["since"], counts["begun"]
        self.booked = dict(state["booked"])
        for fragment, saved in zip(self.fragments, state["fragments"], strict=True):
            fragment.steps, fragment.planned, fragment.late = saved["steps"], saved["planned"], saved["late"]
            fragment.outer.restore(saved["outer"])
        for entry in self.entries():
            entry.outer.copy_(state["outer"][entry.key])
            base = state["base"].get(entry.key)
            entry.base = None if base is None else base.clone()
        arrived = state["arrived"]
        if arrived is not None:
            self._pending = Exchange(self.fragments[arrived["fragment"]], arrived["rows"].clone())
            for entry in self._pending.fragment.entries:
                entry.out.copy_(arrived["out"][entry.key])
