# SPDX-License-Identifier: Apache-2.0
"""The part of each parameter that this rank exchanges, for the optimizer that steps the parameter.

The state of an optimizer has the shape of its parameters. A bucket may hold a shard of a parameter, or some of its
rows. An optimizer adapter stores its values in the layout of buckets, and the classes of this module convert between
the two layouts. Ids are those of the parameters that the optimizer steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from tithe.torch._common.state_fit import flat_of, laid_out_like
from tithe.torch._device.route import HostExchange

Names = Mapping[int, tuple[str, torch.nn.Parameter]]  # by id


class ParameterViews:
    """Whole parameters, as in DDP's buckets."""

    part = ""  # the API that divides parameters, for error texts, if buckets have a part of each parameter

    def __init__(self, names: Names) -> None:
        self.names = names

    def id_of(self, view: torch.Tensor) -> int:
        """Returns the id of the parameter of a view in a bucket."""
        return id(view)

    def view_of(self, number: int) -> torch.Tensor:
        """Returns the part of the parameter that buckets have."""
        return self.names[number][1]

    def count(self, number: int) -> int:
        return self.view_of(number).numel()

    def flat_values(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a float32 copy on the host of a parameter-shaped tensor's values, in the order of the bucket."""
        return flat_of(tensor, self.names[number][1])

    def gathering(self, numbers: Sequence[int], values: torch.Tensor) -> HostExchange | None:
        """Returns the exchange that unflatten() needs for averaged `values`, which are the views of `numbers` back to
        back."""
        return None

    def unflatten(
        self, numbers: Sequence[int], values: torch.Tensor, gathered: HostExchange | None
    ) -> dict[int, torch.Tensor]:
        """Returns tensors like the parameters, by id, from averaged values: the reverse of flat_values()."""
        out = {}
        for number, part in zip(numbers, values.split([self.count(n) for n in numbers]), strict=True):
            p = self.names[number][1]
            shaped, flat = laid_out_like(p)
            flat.copy_(part)
            out[number] = shaped.to(p.device, p.dtype)
        return out

    def finite(self, values: torch.Tensor, gathered: HostExchange | None) -> bool:
        """Returns True if the round of the averaged values counted. The same on all ranks that step the same
        parameters."""
        return bool(values[:1].isfinite().all())

    def any_rank(self, mine: bool) -> bool:
        """Returns True if `mine` is true on some rank that steps the same parameters through another session."""
        return mine


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns this rank's values of a DTensor, in the same memory; any other tensor unchanged."""
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else to_local()
