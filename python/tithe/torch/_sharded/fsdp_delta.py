# SPDX-License-Identifier: Apache-2.0
"""All-gathers that send the lossless difference from the previously gathered weights.

Every rank keeps the 16-bit weights of the group's last gather, 2 bytes per parameter of the whole model. The owner of a
part encodes the difference of the new bits (src/codec/shared/delta/delta.h); its payload identifies the previous bits
by a checksum. The first gather has no previous weights and sends the weights themselves.
"""

from __future__ import annotations

import torch

from tithe import _core
from tithe.torch._common.checks import DTYPES
from tithe.torch._sharded.fsdp_rounds import AllGatherRound, Rounds

# With fewer weights per rank no difference is sent: the last block of zip takes up to 3.3 kB, this number of
# uncompressed weights 8 kB.
MIN_VALUES = 4096

_PARALLEL = 1 << 16  # parts of fewer weights are decoded sooner than threads wake up

Previous = dict[torch.dtype, torch.Tensor]  # the bits of one group's last gather


class DeltaRound(AllGatherRound):
    """Fills `output`, of which this rank's part holds its values already."""

    def __init__(
        self, rounds: Rounds, key: str, delta_key: str, output: torch.Tensor, world: int, previous: Previous
    ) -> None:
        super().__init__(rounds, key, output, world)
        self._delta_key, self._previous, self._rank, self._world = delta_key, previous, rounds.rank, world
        self._dtype = DTYPES[output.dtype]
        self._words: torch.Tensor | None = None  # the payloads of all ranks, as float32 words

    def start(self, session: _core.Session) -> int:
        before = self._previous.get(self._output.dtype)
        if before is None:
            return super().start(session)
        part = self._output.numel() // self._world
        count = _core.delta_words(part)
        self._words = torch.empty(self._world * count)
        mine = slice(self._rank * part, (self._rank + 1) * part)
        now = _bits(self._output)[mine]
        words = self._words.view(self._world, count)[self._rank]
        _core.delta_encode(self._dtype, _array(before[mine]), _array(now), words.numpy())
        before[mine].copy_(now)
        bounds = [count * rank for rank in range(self._world + 1)]
        return session.all_gather([(self._delta_key, self._words)], {self._delta_key: bounds})

    def received(self) -> None:
        bits = _bits(self._output)
        if self._words is None:
            self._previous[self._output.dtype] = bits.clone()
        else:
            before = self._previous[self._output.dtype]
            parts, words = before.view(self._world, -1), self._words.view(self._world, -1)
            others = [(rank, parts[rank], words[rank]) for rank in range(self._world) if rank != self._rank]
            at_once = self._rounds.decoders.map if parts.shape[1] >= _PARALLEL else map
            list(at_once(lambda other: self._decode(*other), others))  # raises the first error
            bits.copy_(before)
            self._words = None
        super().received()

    def _decode(self, rank: int, part: torch.Tensor, words: torch.Tensor) -> None:
        bits = _array(part)
        try:
            _core.delta_decode(self._dtype, bits, words.numpy(), bits)
        except _core.Error as why:  # not a session error, so the other ranks have no notice of it
            raise RuntimeError(f"{self.describe()}: the weights of rank {rank} cannot be decoded: {why}") from why


def _bits(weights: torch.Tensor) -> torch.Tensor:
    return weights.view(torch.int16)


def _array(bits: torch.Tensor) -> object:
    return bits.numpy().view("uint16")
