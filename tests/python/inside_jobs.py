# SPDX-License-Identifier: Apache-2.0
"""Shared by tests of attach(inside=): a model whose rows ranks cannot share evenly, and its loss."""

import torch
from torch import nn

OPTIONS = {"min_values": 0, "timeout": 30.0}


def net(dtype=torch.float32):
    """Returns a model with rows that ranks cannot share evenly, and with fewer rows than ranks."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Unflatten(1, (3, 4, 4)), nn.Conv2d(3, 7, 3), nn.Flatten(), nn.Linear(28, 41), nn.Tanh(), nn.Linear(41, 2)
    ).to(dtype)


def loss_of(model, rank, step, dtype=torch.float32):
    return model(torch.randn(6, 48, generator=torch.Generator().manual_seed(100 * step + rank)).to(dtype)).pow(2).mean()
