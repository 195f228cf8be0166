# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the accelerator: a small DDP model on the stand-in or the CPU, and its training."""

import standin
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

OPTIONS = {"min_values": 0, "timeout": 20.0}


class Net(nn.Module):
    def __init__(self, *devices):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 64), nn.Linear(64, 64), nn.Linear(64, 32), nn.Linear(32, 4)])
        self.devices = [devices[len(devices) * i // 4] for i in range(4)]
        for layer, device in zip(self.layers, self.devices, strict=True):
            layer.to(device)

    def forward(self, x):
        for layer, device in zip(self.layers, self.devices, strict=True):
            x = torch.relu(layer(x.to(device)))
        return x


def on_standin(*delays):
    """Returns a process group for the stand-in's tensors only, as NCCL's is for a GPU's. delays: of copies."""
    standin.load()
    standin.delay(*delays or (0.002, 0.001))
    return dist.new_group(backend="standin")


def make(device, group=None, dtype=torch.float32, **kwargs):
    """Returns a DDP model with one bucket in the first step, and several later."""
    torch.manual_seed(0)
    devices = (device,) if isinstance(device, str) else device
    return DDP(Net(*devices).to(dtype), process_group=group, **{"bucket_cap_mb": 0.005, **kwargs})


def train(model, rank, steps, dtype=torch.float32, scale=1.0):
    """Trains. Returns the gradients of each step, flat, on the host."""
    found = []
    for step in steps:
        generator = torch.Generator().manual_seed(1000 * rank + step)
        data = torch.randn(8, 8, generator=generator).to(dtype)
        model.zero_grad()
        (model(data).pow(2).sum() * scale).backward()
        found.append(torch.cat([p.grad.reshape(-1).cpu() for p in model.parameters()]))
        with torch.no_grad():
            for p in model.parameters():
                p -= p.grad * (0.01 / scale)
    return found


def same_bits(one, other):
    return all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(one, other, strict=True))
