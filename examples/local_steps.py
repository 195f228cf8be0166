# SPDX-License-Identifier: Apache-2.0
"""Thirty steps on each rank, then one exchange of the change of the parameters, on made-up data.

torchrun --nproc-per-node 2 examples/local_steps.py
"""

import torch
import torch.distributed as dist
from torch import nn

import tithe.torch

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)
torch.manual_seed(0)

truth = torch.randn(256, 10)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))  # not in DistributedDataParallel
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(1 + rank)
losses = []

with tithe.torch.LocalSteps(model, optimizer, every=30, delay=5, steps=300) as local:
    for _ in range(300):
        data = torch.randn(64, 256)
        loss = nn.functional.cross_entropy(model(data), (data @ truth).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

if rank == 0:
    stats = local.stats()
    dense = 4 * sum(p.numel() for p in model.parameters())
    print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}, {stats['exchanges']} exchanges")
    print(f"{stats['bytes_sent'] / 270:,.0f} bytes per step after the dense start, instead of {dense:,} as fp32")
dist.destroy_process_group()
