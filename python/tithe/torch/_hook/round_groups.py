# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.State(groups="round"): tensors that travel in groups leave once, with the last bucket of a step.

A frame costs about as much as some thousand values, and small tensors come in most of DDP's buckets: by themselves
they are a few frames for each. So each bucket keeps them back, and the last one hands over those of all as one bucket.
"""

from collections.abc import Mapping
from typing import Any

import torch

from tithe import _core

_WAYS = ("bucket", "round")


def over_round(options: Mapping[str, Any]) -> bool:
    """ValueError for what groups= may not be."""
    groups = options.get("groups", "bucket")
    if groups not in _WAYS:
        raise ValueError(f"groups={groups!r}: must be 'bucket' or 'round'")
    if groups == "round" and options.get("device", "off") != "off":
        raise ValueError("groups='round' needs device='off': a bucket that stays on its GPU is handed over as a whole")
    return groups == "round"


class Split:
    """A bucket's layout in two: what is handed over at once, and what is kept back."""

    __slots__ = ("held", "rest")

    def __init__(self, layout: _core.Layout, grouped: list[int], count: int) -> None:
        alone = sorted(set(range(count)) - set(grouped))
        self.rest = layout.pick(alone) if alone else None
        self.held = layout.pick(grouped)


class RoundGroups:
    """What the buckets of a step keep back, on the thread that hands them over."""

    def __init__(self, options: _core.Options) -> None:
        self._options = options
        self._held: list[tuple[_core.Layout, torch.Tensor]] = []

    def split(self, layout: _core.Layout, keys: list[str], sizes: list[int]) -> _core.Layout | Split:
        grouped = _core.in_groups(self._options, keys, sizes)
        return Split(layout, grouped, len(keys)) if grouped else layout

    def hand_over(self, session: _core.Session, layout: _core.Layout | Split, values: torch.Tensor) -> int:
        """A ticket; -1 where there is nothing to wait for yet."""
        if not isinstance(layout, Split):
            return session.sync_at(layout, values)
        self._held.append((layout.held, values))
        return -1 if layout.rest is None else session.sync_at(layout.rest, values)

    def leave(self, session: _core.Session) -> None:
        """After the last bucket of a step. The commit waits for them."""
        held, self._held = self._held, []
        if held:
            session.sync_some(held)
