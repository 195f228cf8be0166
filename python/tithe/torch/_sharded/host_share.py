# SPDX-License-Identifier: Apache-2.0
"""Parameter views for attach(inside=): every rank steps whole parameters and exchanges some of their rows.

An adapter stores the values of a row on the rank that owns the row. The optimizer needs all rows, so averaged values
are gathered inside the host.
"""

from collections.abc import Sequence
from typing import Any

import torch

from tithe.torch._common.state_fit import flat_of, laid_out_like
from tithe.torch._hook.parameter_views import Names, ParameterViews
from tithe.torch._sharded.inside import InsideState, gathered_inside


class HostShare(ParameterViews):
    """This rank's rows. names: of the model's parameters. state: has the split of the parameters."""

    part = "attach(inside=)"

    def __init__(self, names: Names, state: InsideState) -> None:
        super().__init__(names)
        self.group = state._inside
        self.patience = state._session_options()[1].patience
        self._splits = state._splits
        self._shares = {number: share for number, (_, share) in state._shares.items()}
        self._ids = {id(share): number for number, share in self._shares.items()}
        self._device = next(iter(self._shares.values())).device

    def id_of(self, view: torch.Tensor) -> int:
        return self._ids[id(view)]

    def view_of(self, number: int) -> torch.Tensor:
        return self._shares[number]

    def flat_values(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        whole = flat_of(tensor, self.names[number][1])
        return whole.split(self._splits[number].sizes)[self.group.rank()].clone()

    def gathering(self, numbers: Sequence[int], values: torch.Tensor) -> "ShareGathering":
        return ShareGathering(self, [self._splits[n].sizes for n in numbers], values)

    def unflatten(self, numbers: Sequence[int], values: torch.Tensor, gathered: Any) -> dict[int, torch.Tensor]:
        out = {}
        for number, shares in zip(numbers, gathered.shares, strict=True):
            p = self.names[number][1]
            shaped, flat = laid_out_like(p)
            torch.cat(shares, out=flat)
            out[number] = shaped.to(p.device, p.dtype)
        return out

    def finite(self, values: torch.Tensor, gathered: Any) -> bool:
        return all(bool(row[:1].isfinite().all()) for row in gathered.rows)

    def any_rank(self, mine: bool) -> bool:
        return bool(self.gather(torch.tensor([float(mine)])).any())

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        """Returns the values of each rank of the host, back to back. Collective in the host; sizes must be the same."""
        return gathered_inside(values.to(self._device), self.group, self.patience).cpu()


class ShareGathering:
    """The HostExchange of side tensors: each rank sends its own values between hosts, and then needs all of them."""

    def __init__(self, views: HostShare, sizes: list[list[int]], values: torch.Tensor) -> None:
        self.whole = values
        self._views, self._sizes = views, sizes
        self.rows: Sequence[torch.Tensor] = []  # the values of each rank of the host
        self.shares: list[list[torch.Tensor]] = []  # the shares of each parameter, in the order of ranks

    def wait(self) -> None:
        """Returns at once: the values are this rank's already."""

    def gather(self) -> None:
        ranks = self._views.group.size()
        counts = [sum(sizes[j] for sizes in self._sizes) for j in range(ranks)]
        padded = torch.zeros(max(counts), dtype=self.whole.dtype)
        padded[: self.whole.numel()] = self.whole
        gathered = self._views.gather(padded).view(ranks, -1)
        self.rows = [row[:count] for row, count in zip(gathered, counts, strict=True)]
        split = [row.split([sizes[j] for sizes in self._sizes]) for j, row in enumerate(self.rows)]
        self.shares = [list(shares) for shares in zip(*split, strict=True)]
