# SPDX-License-Identifier: Apache-2.0
"""Sends the gradients of the first steps by another codec (AdamW(exact=...)).

The State opens with the warmup codec. When the optimizer has done its exact steps, rank 0 proposes the user's choices,
and all ranks switch at the same step (docs/guide/choices.md).
"""

import logging
from typing import Any

from tithe.torch._hook.adapter import OptimizerAdapter, steps_done
from tithe.torch._hook.parameter_views import ParameterViews
from tithe.torch._hook.running_session import RunningSession
from tithe.torch._optimizer.adamw import AdamW

_log = logging.getLogger("tithe.torch")


class ExactSteps(OptimizerAdapter):
    """Switches from the warmup codec to `final`, the choices after the exact steps, as text."""

    kind = "exact"

    def __init__(self, optimizer: AdamW, views: ParameterViews, final: str) -> None:
        super().__init__(optimizer, views)
        self.steps = optimizer.exact
        self._final = final
        self._running: RunningSession | None = None
        self._warned = False
        self._now = True  # whether the open step is exact

    def opened(self, running: RunningSession) -> None:
        self._running = running
        self.optimizer._exact = self

    def detach(self, average: Any) -> None:
        self.optimizer._exact = None

    def side_tensors(self) -> None:
        running = self._running
        mine = self._now and running.session.choices == running.opened_choices
        self._now = self._now and self.views.any_rank(mine)
        if running.rank != 0 or self._warned or not running.keys.whole or not mine or self.is_early():
            return
        proposal = running.session.proposal()
        if proposal["state"] == "refused":
            self._warned = True
            _log.warning("the exact steps are over, and gradients go on as in them: %s", proposal["why"])
        elif proposal["state"] not in ("under_way", "agreed"):
            running.session.propose(self._final)

    def is_early(self) -> bool:
        return steps_done(self.optimizer) < self.steps

    def is_exact(self) -> bool:
        """Returns True if the open step is exact. The same on all ranks: of several sessions in a host, the last one
        decides."""
        return self._now
