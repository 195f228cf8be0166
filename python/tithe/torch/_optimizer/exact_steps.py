# SPDX-License-Identifier: Apache-2.0
"""First steps that send gradients by another codec: the State opens with it, and rank 0 proposes the codec that was
asked for once the optimizer has done so many steps. All ranks take it at the same step (docs/choices.md)."""

import logging
from typing import Any

from tithe.torch._hook.adapter import Tie, steps_done
from tithe.torch._hook.parameter_views import Pieces
from tithe.torch._hook.running_session import Live
from tithe.torch._optimizer.adamw import AdamW

_log = logging.getLogger("tithe.torch")


class Exact(Tie):
    """final: the choices from then on, as text."""

    kind = "exact"

    def __init__(self, optimizer: AdamW, pieces: Pieces, final: str) -> None:
        super().__init__(optimizer, pieces)
        self.steps = optimizer.exact
        self._final = final
        self._live: Live | None = None
        self._told = False
        self._now = True  # whether the open step is one of them

    def opened(self, live: Live) -> None:
        self._live = live
        self.optimizer._exact = self

    def detach(self, average: Any) -> None:
        self.optimizer._exact = None

    def leaves(self) -> None:
        live = self._live
        mine = self._now and live.session.choices == live.opened_choices
        self._now = self._now and self.pieces.any(mine)
        if live.rank != 0 or self._told or not live.keys.whole or not mine or self.is_early():
            return
        proposal = live.session.proposal()
        if proposal["state"] == "refused":
            self._told = True
            _log.warning("the exact steps are over, and gradients go on as in them: %s", proposal["why"])
        elif proposal["state"] not in ("under_way", "agreed"):
            live.session.propose(self._final)

    def is_early(self) -> bool:
        return steps_done(self.optimizer) < self.steps

    def is_exact(self) -> bool:
        """Whether the open step is one. Alike on all ranks: of several sessions in a host, the last one counts."""
        return self._now
