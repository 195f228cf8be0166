# SPDX-License-Identifier: Apache-2.0
"""The drift: the change of a model's parameters since the last exchange, and how the ranks' mean is merged.

An entry is one parameter or buffer. It has three tensors:

    outer   the common values, float32 on the host, the same bits on all ranks; only exchanges change them
    live    the model's own tensor, which this rank's optimizer steps
    out     float32 on the host: the drift to send, then the mean of the ranks

The drift is outer - live: it has the sign of a gradient, so an outer optimizer descends along it. A live value of a
shorter type starts as outer rounded to that type, and the drift is measured from the rounded value, so that a rounding
error does not count as a step.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch

RESERVED_KEYS = "tithe/"  # the prefix of keys that are not parameters, which are sent uncompressed


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the values in float32 and row by row; the tensor's own memory if it has this form already."""
    return tensor.detach().to("cpu", torch.float32).contiguous()


class Entry:
    """One parameter or buffer."""

    __slots__ = ("base", "key", "live", "out", "outer", "trained")

    def __init__(self, key: str, live: torch.Tensor, trained: bool) -> None:
        self.key = key
        self.live = live
        self.trained = trained
        self.outer = on_host(live).clone()
        self.out = torch.empty_like(self.outer)
        self.base: torch.Tensor | None = None  # the value of live when it was sent, if steps follow before the merge

    def begin(self) -> None:
        """Copies live to outer."""
        self.outer.copy_(on_host(self.live))
        self.base = None

    def has_moved(self) -> bool:
        return not torch.equal(self.anchor(), on_host(self.live))

    def anchor(self) -> torch.Tensor:
        """Returns outer, rounded to the type of live."""
        return self.outer if self.live.dtype == torch.float32 else self.outer.to(self.live.dtype).to(torch.float32)

    def measure(self, weight: float) -> None:
        """Writes the weighted drift to out."""
        self.out.copy_(self._difference(self.anchor(), on_host(self.live)))
        if weight != 1.0:
            self.out.mul_(weight)

    def _difference(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Returns a - b. Equal infinities of a buffer, such as a mask, give 0 and not NaN."""
        return a - b if self.trained else (a - b).masked_fill_(a == b, 0.0)

    def merge(self) -> None:
        """Sets live to outer, plus the change of live since base."""
        if self.base is None:
            self.put(self.outer)
            return
        since = self._difference(on_host(self.live), self.base)
        self.base = None
        self.put(since.add_(self.outer))

    @torch.no_grad()
    def put(self, values: torch.Tensor) -> None:
        self.live.copy_(values)


class Fragment:
    """A set of entries that are exchanged together."""

    def __init__(self, number: int, entries: list[Entry], outer: Any) -> None:
        self.number = number
        self.entries = entries
        self.outer = outer  # the outer optimizer of the fragment's parameters
        self.steps = 0  # steps of the inner optimizer since the last exchange began
        self.planned = 0  # iterations in the schedule since the last exchange began
        self.late = False  # whether zeros are sent, and the drift is kept for the next exchange

    @property
    def values(self) -> int:
        return sum(entry.outer.numel() for entry in self.entries if entry.trained)

    def send(self, weight: float, goes_on: bool) -> bool:
        """Writes the weighted drift to `out`. Returns False, and changes no other state, if a drift is not finite."""
        for entry in self.entries:
            entry.measure(weight)
        if not all(bool(torch.isfinite(entry.out).all()) for entry in self.entries):
            return False
        for entry in self.entries:
            entry.base = on_host(entry.live).clone() if goes_on else None
        self.late = False
        return True

    def send_nothing(self, keep: bool) -> None:
        """Sends zeros. keep: whether the drift is kept for the next exchange; else it is dropped."""
        for entry in self.entries:
            entry.out.zero_()
            if not keep:
                entry.put(entry.outer)
            entry.base = entry.anchor().clone()
        self.late = keep

    def restore(self) -> None:
        """Sets live to outer, and discards the drift that is not being sent."""
        for entry in self.entries:
            entry.put(entry.outer)
            if entry.base is not None:
                entry.base = entry.anchor().clone()

    def step(self, divisor: float, closing: bool) -> None:
        """Makes the outer step along the mean of the exchange. divisor: the mean weight of the ranks; 0 if no rank sent
        a drift.

        closing: whether this is the last exchange. Then the drift is averaged without the outer optimizer, whose
        momentum is of whole windows.
        """
        if divisor == 0.0:
            return
        if divisor != 1.0:
            for entry in self.entries:
                entry.out.div_(divisor)
        by_optimizer = [entry for entry in self.entries if entry.trained and not closing]
        if by_optimizer:
            self.outer.step(by_optimizer)
        for entry in self.entries:
            if closing or not entry.trained:
                entry.outer.sub_(entry.out)

    def merge(self, replace: bool) -> None:
        for entry in self.entries:
            if replace and not self.late:
                entry.base = None
            entry.merge()


def cut(entries: Sequence[Entry], fragments: int) -> list[list[Entry]]:
    """Splits the entries, in order, into runs of about equal size. No run is empty."""
    total = sum(entry.outer.numel() for entry in entries)
    runs: list[list[Entry]] = [[]]
    done = 0
    for place, entry in enumerate(entries):
        left = len(entries) - place  # including this entry
        full = done + entry.outer.numel() / 2 > total * len(runs) / fragments
        if runs[-1] and len(runs) < fragments and (full or left <= fragments - len(runs)):
            runs.append([])
        runs[-1].append(entry)
        done += entry.outer.numel()
    return runs


def digest(entries: Iterable[Entry]) -> int:
    """Returns a hash of the outer values in 24 bits, to compare between ranks."""
    sums = [int(entry.outer.view(torch.int32).sum(dtype=torch.int64)) for entry in entries]
    return int.from_bytes(hashlib.blake2b(repr(sums).encode(), digest_size=3).digest(), "little")
