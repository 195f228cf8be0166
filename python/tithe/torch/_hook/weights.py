# SPDX-License-Identifier: Apache-2.0
"""Weighted means: attach(weight=) and State.skip().

Before the first bucket of a round is encoded, the ranks exchange their weights, one float32 per rank, uncompressed.
Each rank then multiplies its gradient by

    f_r = w_r N / sum(w)

and the mean over the N ranks is sum(w_r g_r) / sum(w). The factors are known before the codec runs, so residuals have
the unit of the weighted mean in every round, and no correction follows the exchange. A rank that skips the step has the
weight 0.

A rank that skips in the middle of backward has already sent a part of its gradient. It sends NaN in the other buckets,
so that all ranks drop the round and no residual changes. After a dropped round the ranks exchange whether one of them
skipped. If so, the gradients are 0 instead of NaN.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tithe import _core

RULES = {"* (step)": "fp32"}  # for the keys of the exchanged weights
WEIGHTS = "weights (step)"
_VOID = "void (step)"
_LEAST, _MOST = 2.0**-64, 2.0**64  # float32 holds a sum of such weights without overflow or underflow


def weight_of(weight: Callable[[], float] | None) -> float:
    """Returns the weight of this rank's step. ValueError except for 0 and numbers between 2**-64 and 2**64."""
    returned: Any = weight() if weight is not None else 1.0
    try:
        value = float(returned)
    except (TypeError, ValueError, RuntimeError):
        value = math.nan
    if value != 0 and not _LEAST <= value <= _MOST:
        raise ValueError(
            f"weight() gave {returned!r}: must be a number above 0, such as the tokens of this rank's batch, or 0 to "
            "skip the step"
        )
    return value


def check_weight(weight: Any, codec: str, options: Mapping[str, Any]) -> None:
    """ValueError if weight= is no function, or is combined with an option that does not work with it."""
    if weight is None:
        return
    if not callable(weight):
        raise ValueError(f"weight={weight!r}: must be a function, since the weight is another in each step")
    if options.get("device", "off") != "off":
        raise ValueError("weight= needs device='off': on a GPU the bucket is encoded without weights")
    if "without=" in str(options.get("stragglers", "")):
        raise ValueError("weight= needs all ranks in every round: leave without= out of stragglers=")
    if _core.is_auto(codec) and "min_values" in options:
        raise ValueError(
            "weight= with codec='auto' needs the default of min_values=, which leaves weights uncompressed"
        )


@functools.cache
def _side(key: str, values: int) -> _core.Layout:
    layout = _core.Layout([key], [values], "float32", [values])
    layout.side = True
    return layout


class RoundWeight:
    """The weights of one round. void: this rank skips the round after it has handed over a part of its gradient."""

    def __init__(self, mine: float, average: bool) -> None:
        self.mine = mine
        self.void = False
        self.dropped = False  # whether the round was dropped
        self._average = average
        self._factor = math.nan

    def exchange(self, session: _core.Session) -> None:
        """Computes the factor of this rank. Returns when all ranks have begun the round."""
        weights = torch.zeros(session.world)
        weights[session.rank] = self.mine
        session.wait(session.sync_at(_side(WEIGHTS, session.world), weights))
        # All values come from the exchange, this rank's too: they are rounded alike, so equal weights have factor 1.
        total = math.fsum(weights.tolist())
        mean = total / session.world if self._average else 1.0
        self._factor = weights[session.rank].item() / mean if self.mine else 0.0

    def apply(self, values: torch.Tensor) -> None:
        """Multiplies a bucket of this rank's gradient by the factor."""
        if self.void:
            values.fill_(math.nan)
        elif self._factor == 0.0:
            values.zero_()  # not a multiplication by 0, because the values may be NaN
        elif self._factor != 1.0:
            values.mul_(self._factor)

    def skipped_by_a_rank(self, session: _core.Session) -> bool:
        """Returns True if a rank dropped the round by skip(). A round of its own, the same on all ranks, after a
        dropped round."""
        self.dropped = True
        void = torch.full((1,), float(self.void))
        session.wait(session.sync_at(_side(_VOID, 1), void))
        session.commit()
        return void.item() > 0
