# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.State(groups="round"): tensors in groups are sent once per step, with the last bucket.

A frame costs about as much as a few thousand values. Most of DDP's buckets contain some small tensors, so groups per
bucket would need a few frames per bucket. With groups="round" each bucket holds its grouped tensors back, and with the
last bucket of the step the session receives all of them as one bucket.
"""

from collections.abc import Mapping
from typing import Any

import torch

from tithe import _core

_CHOICES = ("bucket", "round")


def over_round(options: Mapping[str, Any]) -> bool:
    """Returns True if groups="round" is set. ValueError for a wrong value of groups=."""
    groups = options.get("groups", "bucket")
    if groups not in _CHOICES:
        raise ValueError(f"groups={groups!r}: must be 'bucket' or 'round'")
    if groups == "round" and options.get("device", "off") != "off":
        raise ValueError("groups='round' needs device='off': a bucket that stays on its GPU is handed over as a whole")
    return groups == "round"


class Split:
    """The layout of a bucket with tensors that wait or are not exchanged.

    `rest` (or None) is handed over at once, and `held` (or None) with the last bucket. Other values do not change.
    """

    __slots__ = ("held", "rest")

    def __init__(self, layout: _core.Layout, now: list[int], later: list[int]) -> None:
        self.rest = layout.pick(now) if now else None
        self.held = layout.pick(later) if later else None


class RoundGroups:
    """The grouped tensors that the buckets of one step hold back. Used by the thread that hands buckets over."""

    def __init__(self, options: _core.Options) -> None:
        self._options = options
        self._held: list[tuple[_core.Layout, torch.Tensor]] = []

    def in_groups(self, keys: list[str], sizes: list[int]) -> list[int]:
        """Returns the positions of the tensors that wait for the last bucket."""
        return _core.in_groups(self._options, keys, sizes)

    def hold(self, layout: _core.Layout, values: torch.Tensor) -> None:
        self._held.append((layout, values))

    def sync(self, session: _core.Session) -> None:
        """Hands over the tensors that were held back, after the last bucket of a step. The commit waits for them."""
        held, self._held = self._held, []
        if held:
            session.sync_some(held)
