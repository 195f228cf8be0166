# SPDX-License-Identifier: Apache-2.0
"""Pieces with attach(inside=): every rank steps whole parameters and exchanges some of their rows.

What a tie keeps of a row stands with the row's owner alone; what the optimizer needs of it is gathered in the host.
"""

from collections.abc import Sequence
from typing import Any

import torch

from tithe.torch._common.state_fit import flat_of, laid_out_like
from tithe.torch._hook.parameter_views import Names, Pieces
from tithe.torch._sharded.inside import InsideState, gathered_inside


class Shares(Pieces):
    """names: of the model's parameters; how they are cut, the state knows."""

    def __init__(self, names: Names, state: InsideState) -> None:
        super().__init__(names)
        self.group = state._inside
        self.patience = state._session_options()[1].patience
        self._cuts = state._cuts
        self._shares = {number: share for number, (_, share) in state._shares.items()}
        self._numbers = {id(share): number for number, share in self._shares.items()}
        self._device = next(iter(self._shares.values())).device

    def number(self, seen: torch.Tensor) -> int:
        return self._numbers[id(seen)]

    def seen(self, number: int) -> torch.Tensor:
        return self._shares[number]

    def flat(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        whole = flat_of(tensor, self.names[number][1])
        return whole.split(self._cuts[number].sizes)[self.group.rank()].clone()

    def way(self, numbers: Sequence[int], values: torch.Tensor) -> "Gathering":
        return Gathering(self, [self._cuts[n].sizes for n in numbers], values)

    def shaped(self, numbers: Sequence[int], values: torch.Tensor, way: Any) -> dict[int, torch.Tensor]:
        out = {}
        for number, pieces in zip(numbers, way.pieces, strict=True):
            p = self.names[number][1]
            shaped, flat = laid_out_like(p)
            torch.cat(pieces, out=flat)
            out[number] = shaped.to(p.device, p.dtype)
        return out

    def finite(self, values: torch.Tensor, way: Any) -> bool:
        return all(bool(row[:1].isfinite().all()) for row in way.rows)

    def any(self, mine: bool) -> bool:
        return bool(self.told(torch.tensor([float(mine)])).any())

    def told(self, values: torch.Tensor) -> torch.Tensor:
        """As many of each rank of the host, back to back. Collective in it."""
        return gathered_inside(values.to(self._device), self.group, self.patience).cpu()


class Gathering:
    """The way of values that are averaged between hosts and needed by every rank of them (a job.Way)."""

    def __init__(self, shares: Shares, sizes: list[list[int]], values: torch.Tensor) -> None:
        self.whole = values
        self._shares, self._sizes = shares, sizes
        self.rows: Sequence[torch.Tensor] = []  # of each rank of the host
        self.pieces: list[list[torch.Tensor]] = []  # of each parameter, in the order of ranks

    def come(self) -> None:
        """They are this rank's."""

    def back(self) -> None:
        ranks = self._shares.group.size()
        counts = [sum(sizes[j] for sizes in self._sizes) for j in range(ranks)]
        row = torch.zeros(max(counts), dtype=self.whole.dtype)
        row[: self.whole.numel()] = self.whole
        told = self._shares.told(row).view(ranks, -1)
        self.rows = [row[:count] for row, count in zip(told, counts, strict=True)]
        split = [row.split([sizes[j] for sizes in self._sizes]) for j, row in enumerate(self.rows)]
        self.pieces = [list(pieces) for pieces in zip(*split, strict=True)]
