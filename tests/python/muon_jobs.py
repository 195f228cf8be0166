# SPDX-License-Identifier: Apache-2.0
"""A model whose matrices Muon steps, its optimizers and a loop, for tests of tithe.torch.optim.Muon."""

import torch
from small_jobs import backward
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe.torch

OPTIONS = {"min_values": 0, "timeout": 20.0}


def net():
    torch.manual_seed(3)
    widths = (24, 40, 32, 48)
    layers = [
        torch.nn.Sequential(torch.nn.Linear(a, b), torch.nn.Tanh()) for a, b in zip(widths, widths[1:], strict=False)
    ]
    return torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], 6))


def parts_of(model):
    """Returns the matrices, and the parameters of the other optimizer: biases and the head."""
    *named, head, bias = model.parameters()
    matrices = [p for p in named if p.dim() == 2]
    return matrices, [*(p for p in named if p.dim() != 2), head, bias]


def optimizers_of(model, ours, **settings):
    matrices, others = parts_of(model)
    kind = tithe.torch.optim.Muon if ours else torch.optim.Muon
    settings = {"lr": 0.02, **settings}
    groups = [{"params": matrices[:1], "lr": 0.01, "weight_decay": 0.3}, {"params": matrices[1:]}]
    return [kind(groups, **settings), torch.optim.AdamW(others, lr=1e-2)]


def attached(codec, settings=None, **options):
    model = DDP(net())
    optimizers = optimizers_of(model, True, **(settings or {}))
    state = tithe.torch.attach(model, codec, optimizer=optimizers, **{**OPTIONS, **options})
    return model, optimizers, state


def train(model, optimizers, rank, steps, touch=None):
    for step in steps:
        for each in optimizers:
            each.zero_grad()
        backward(model, rank, step)
        if touch is not None:
            touch(step)
        for each in optimizers:
            each.step()


def momentum(optimizer):
    return {k: s["momentum_buffer"] for k, s in optimizer.state_dict()["state"].items()}
