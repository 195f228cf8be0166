# SPDX-License-Identifier: Apache-2.0
"""A stand-in in torch for a rotated codec of few bits, until the codec is there: random signs and a Hadamard transform
per block of 1,024, the levels of Lloyd and Max for a Gaussian, a scale by least squares, the rest as residual (after
Vargaftik et al., DRIVE, NeurIPS 2021, and EDEN, ICML 2022). Nothing travels; bytes are counted."""

import math

import numpy as np
import torch

NAME = "torch-eden"  # `torch-eden:2`: 2 bits; `torch-eden:1.6`: three levels, five to a byte
BLOCK = 1024
SMALLEST = 4096  # values of a tensor that is compressed
LEVELS = {
    "1": (0.7979,),
    "1.6": (0.0, 1.2240),
    "2": (0.4528, 1.5104),
    "3": (0.2451, 0.7560, 1.3439, 2.1520),
    "4": (0.1284, 0.3881, 0.6568, 0.9424, 1.2562, 1.6181, 2.0690, 2.7326),
}


def hadamard(n: int) -> torch.Tensor:
    h = torch.ones(1, 1)
    while len(h) < n:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return h / math.sqrt(n)


class Ranks:
    """As study_cells.Ranks."""

    def __init__(self, codec: str, ranks: int):
        self.bits = codec.partition(":")[2]
        if self.bits not in LEVELS:
            raise ValueError(f"{codec}: bits are {', '.join(LEVELS)}")
        up = torch.tensor(LEVELS[self.bits])
        self.levels = torch.cat([-up.flip(0), up]).unique()
        self.middles = (self.levels[1:] + self.levels[:-1]) / 2
        self.h = hadamard(32)
        self.ranks, self.round, self.sent = ranks, 0, 0.0
        self.residuals: dict[str, torch.Tensor] = {}

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        return (self.h @ x.view(-1, 32, 32) @ self.h).view(x.shape)

    def average(self, buckets: list[dict[str, np.ndarray]]) -> None:
        self.round += 1
        for place, name in enumerate(buckets[0]):
            whole = torch.stack([torch.from_numpy(bucket[name]).flatten() for bucket in buckets])
            n = whole.shape[1]
            shares = 2 * (self.ranks - 1) / self.ranks
            if n < SMALLEST:
                self.sent += shares * 4 * n
            else:
                whole = self.sent_of(name, place, whole)
                self.sent += shares * (float(self.bits) / 8 * n + 4 * math.ceil(n / BLOCK))
            mean = whole.mean(0).numpy()
            for bucket in buckets:
                bucket[name][...] = mean.reshape(bucket[name].shape)

    def sent_of(self, name: str, place: int, gradients: torch.Tensor) -> torch.Tensor:
        taken = gradients + self.residuals.get(name, 0)
        padded = torch.nn.functional.pad(taken, (0, -taken.shape[1] % BLOCK)).view(self.ranks, -1, BLOCK)
        signs = torch.from_numpy(np.random.default_rng([self.round, place]).choice(np.float32([-1, 1]), BLOCK))
        turned = self.rotate(padded * signs)
        size = turned.square().mean(-1, keepdim=True).sqrt_().clamp_(min=1e-30)
        codes = self.levels[torch.bucketize(turned / size, self.middles)]
        scale = (turned * codes).sum(-1, keepdim=True) / codes.square().sum(-1, keepdim=True).clamp_(min=1e-30)
        sent = (self.rotate(codes * scale) * signs).view(self.ranks, -1)[:, : taken.shape[1]]
        self.residuals[name] = taken - sent
        return sent

    def bytes_sent(self) -> float:
        return self.sent

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *exc: object) -> None:
        pass
