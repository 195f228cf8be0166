# SPDX-License-Identifier: Apache-2.0
"""What this rank exchanges of each parameter that an optimizer steps.

An optimizer's state has the shape of its parameters; what stands in buckets may be a shard of one, or some rows. Ties
keep what is theirs as it stands in buckets, and ask here for the way between the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from tithe.torch._common.state_fit import flat_of, laid_out_like

if TYPE_CHECKING:
    from tithe.torch._hook.job import Way

Names = Mapping[int, tuple[str, torch.nn.Parameter]]  # by id


class Pieces:
    """Whole parameters, as in DDP's buckets. numbers: ids of what the optimizer steps."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def number(self, seen: torch.Tensor) -> int:
        """Which parameter something in a bucket is a piece of."""
        return id(seen)

    def seen(self, number: int) -> torch.Tensor:
        """The piece as buckets have it."""
        return self.names[number][1]

    def count(self, number: int) -> int:
        return self.seen(number).numel()

    def flat(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        """Float32 copies on the host of a parameter-shaped tensor's values, as the piece lies in its bucket."""
        return flat_of(tensor, self.names[number][1])

    def way(self, numbers: Sequence[int], values: torch.Tensor) -> Way | None:
        """For values that are averaged: pieces back to back. None where shaped() needs no other rank."""
        return None

    def shaped(self, numbers: Sequence[int], values: torch.Tensor, way: Way | None) -> dict[int, torch.Tensor]:
        """The other way, from averaged values: tensors like the parameters, by number."""
        out = {}
        for number, part in zip(numbers, values.split([self.count(n) for n in numbers]), strict=True):
            p = self.names[number][1]
            shaped, flat = laid_out_like(p)
            flat.copy_(part)
            out[number] = shaped.to(p.device, p.dtype)
        return out

    def finite(self, values: torch.Tensor, way: Way | None) -> bool:
        """Whether the round counted in which the values were averaged. Alike on all ranks that step alike."""
        return bool(values[:1].isfinite().all())

    def any(self, mine: bool) -> bool:
        """Whether it is so on some rank that steps what this one steps, by another session. Alike on all of them."""
        return mine


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's values of a DTensor, in the same memory; anything else as it is."""
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else to_local()
