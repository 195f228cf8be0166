# SPDX-License-Identifier: Apache-2.0
"""Pieces of what fully_shard() made: an optimizer steps this rank's shards, and its state is of these alone."""

from collections.abc import Sequence
from typing import Any

import torch

from tithe.torch._hook.parameter_views import Pieces, local_of
from tithe.torch._sharded.groups import Group


class Shards(Pieces):
    """Shards lie in their group's gradients with padding, of which the optimizer knows nothing."""

    def __init__(self, groups: Sequence[Group]) -> None:
        triples = [triple for group in groups for triple in group.stepped()]
        super().__init__({id(p): (name, p) for name, p, _ in triples})
        self._seen = {id(p): seen for _, p, seen in triples}
        self._numbers = {id(seen): id(p) for _, p, seen in triples}

    def number(self, seen: torch.Tensor) -> int:
        return self._numbers[id(seen)]

    def seen(self, number: int) -> torch.Tensor:
        return self._seen[number]

    def flat(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(self._seen[number].shape, dtype=torch.float32)
        _without_padding(out, local_of(tensor)).copy_(local_of(tensor))
        return out.view(-1)

    def shaped(self, numbers: Sequence[int], values: torch.Tensor, way: Any) -> dict[int, torch.Tensor]:
        out = {}
        for number, part in zip(numbers, values.split([self.count(n) for n in numbers]), strict=True):
            out[number] = torch.zeros_like(self.names[number][1], requires_grad=False)
            local = local_of(out[number])
            local.copy_(_without_padding(part.view(self._seen[number].shape), local))
        return out


def _without_padding(padded: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    return padded[tuple(slice(n) for n in local.shape)]
