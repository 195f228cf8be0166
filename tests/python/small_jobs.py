# SPDX-License-Identifier: Apache-2.0
"""A model, its batches and a loop, for tests of optimizers."""

import torch

OPTIONS = {"min_values": 0, "timeout": 20.0}


def net(width=24):
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(width, 40), torch.nn.Tanh(), torch.nn.Linear(40, 6))


def batch(rank, step, width=24):
    draws = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(16, width, generator=draws), torch.randint(6, (16,), generator=draws)


def backward(model, rank, step):
    inputs, targets = batch(rank, step)
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    return loss.item()


def gradient_of(model, data):
    """Runs a backward pass. Returns copies of the gradients."""
    model.zero_grad()
    torch.nn.functional.cross_entropy(model(data[0]), data[1]).backward()
    return [p.grad.clone() for p in model.parameters()]


def train(model, optimizer, rank, steps):
    for step in steps:
        optimizer.zero_grad()
        backward(model, rank, step)
        optimizer.step()


def bits(values):
    return [v.detach().numpy().tobytes() for v in values]
