# SPDX-License-Identifier: Apache-2.0
"""Parameter views of a model that fully_shard() made: an optimizer steps this rank's shards, and stores their state."""

from collections.abc import Sequence
from typing import Any

import torch

from tithe.torch._hook.parameter_views import ParameterViews, local_of
from tithe.torch._sharded.groups import Group


class ShardViews(ParameterViews):
    """Views of shards. Shards have padding in the gradients of their group, and none in the optimizer."""

    part = "fully_shard()"

    def __init__(self, groups: Sequence[Group]) -> None:
        triples = [triple for group in groups for triple in group.stepped()]
        super().__init__({id(p): (name, p) for name, p, _ in triples})
        self._views = {id(p): view for _, p, view in triples}
        self._ids = {id(view): id(p) for _, p, view in triples}

    def id_of(self, view: torch.Tensor) -> int:
        return self._ids[id(view)]

    def view_of(self, number: int) -> torch.Tensor:
        return self._views[number]

    def flat_values(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(self._views[number].shape, dtype=torch.float32)
        _without_padding(out, local_of(tensor)).copy_(local_of(tensor))
        return out.view(-1)

    def unflatten(self, numbers: Sequence[int], values: torch.Tensor, gathered: Any) -> dict[int, torch.Tensor]:
        out = {}
        for number, part in zip(numbers, values.split([self.count(n) for n in numbers]), strict=True):
            out[number] = torch.zeros_like(self.names[number][1], requires_grad=False)
            local = local_of(out[number])
            local.copy_(_without_padding(part.view(self._views[number].shape), local))
        return out


def _without_padding(padded: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    return padded[tuple(slice(n) for n in local.shape)]
