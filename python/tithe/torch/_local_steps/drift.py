# SPDX-License-Identifier: Apache-2.0
"""What a model has moved by since all ranks were alike, and how the ranks' common step comes back into it.

An entry is one parameter or buffer. It stands here three times:

    outer   as all ranks have it: float32, on the host, the same bits everywhere; it changes at exchanges alone
    live    the model's own tensor, which this rank's optimizer moves
    out     float32, on the host: the drift that travels, in whose place the ranks' mean comes back

The drift is what live would have to lose to stand where the window began, outer - live: so it points as a gradient
does, and an outer optimizer descends along it. A live value of a shorter type began as outer rounded to that type, and
the drift is measured from there: what rounding took is no step of anybody's.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch

BESIDE = "tithe/"  # so begin the keys of what is no parameter: it travels raw


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Its values in float32, row by row; the tensor's own memory where it is like that already."""
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
        self.base: torch.Tensor | None = None  # where live stood at sending, if it has gone on from there

    def begin(self) -> None:
        """Outer is what live is."""
        self.outer.copy_(on_host(self.live))
        self.base = None

    def has_moved(self) -> bool:
        return not torch.equal(self.anchor(), on_host(self.live))

    def anchor(self) -> torch.Tensor:
        """Outer, as live can hold it."""
        return self.outer if self.live.dtype == torch.float32 else self.outer.to(self.live.dtype).to(torch.float32)

    def measure(self, weight: float) -> None:
        """Writes the weighted drift to out."""
        self.out.copy_(self._difference(self.anchor(), on_host(self.live)))
        if weight != 1.0:
            self.out.mul_(weight)

    def _difference(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """a - b; a buffer may hold infinities that stay, such as a mask, and they have not moved."""
        return a - b if self.trained else (a - b).masked_fill_(a == b, 0.0)

    def merge(self) -> None:
        """Live becomes outer, and keeps what it has moved since base."""
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
    """Entries that travel together, and the steps that they have taken since they last did."""

    def __init__(self, number: int, entries: list[Entry], outer: Any) -> None:
        self.number = number
        self.entries = entries
        self.outer = outer  # the outer optimizer of its parameters
        self.steps = 0  # of the inner optimizer since the last sending
        self.planned = 0  # iterations that the plan has for them
        self.late = False  # what travels is nothing, and what was moved stays for the next time

    @property
    def values(self) -> int:
        return sum(entry.outer.numel() for entry in self.entries if entry.trained)

    def send(self, weight: float, goes_on: bool) -> bool:
        """Makes out of every entry. False, and nothing is done, where a drift is not finite."""
        for entry in self.entries:
            entry.measure(weight)
        if not all(bool(torch.isfinite(entry.out).all()) for entry in self.entries):
            return False
        for entry in self.entries:
            entry.base = on_host(entry.live).clone() if goes_on else None
        self.late = False
        return True

    def send_nothing(self, keep: bool) -> None:
        """Zeros. keep: what live has moved stays with it, and is part of the next drift; else it is dropped."""
        for entry in self.entries:
            entry.out.zero_()
            if not keep:
                entry.put(entry.outer)
            entry.base = entry.anchor().clone()
        self.late = keep

    def restore(self) -> None:
        """Live becomes outer: what it has moved by is lost, but for what travels."""
        for entry in self.entries:
            entry.put(entry.outer)
            if entry.base is not None:
                entry.base = entry.anchor().clone()

    def step(self, divisor: float, closing: bool) -> None:
        """The outer step along what has arrived. divisor: the mean weight of the ranks; 0 where nobody sent any.

        closing: what is left at the end is averaged, whatever the outer optimizer: its momentum is of whole windows.
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
    """Runs of entries, in order, as even in values as whole entries allow; none is empty."""
    total = sum(entry.outer.numel() for entry in entries)
    runs: list[list[Entry]] = [[]]
    done = 0
    for place, entry in enumerate(entries):
        left = len(entries) - place  # entries, this one among them
        full = done + entry.outer.numel() / 2 > total * len(runs) / fragments
        if runs[-1] and len(runs) < fragments and (full or left <= fragments - len(runs)):
            runs.append([])
        runs[-1].append(entry)
        done += entry.outer.numel()
    return runs


def digest(entries: Iterable[Entry]) -> int:
    """24 bits of the outer values, for a comparison between ranks."""
    sums = [int(entry.outer.view(torch.int32).sum(dtype=torch.int64)) for entry in entries]
    return int.from_bytes(hashlib.blake2b(repr(sums).encode(), digest_size=3).digest(), "little")
