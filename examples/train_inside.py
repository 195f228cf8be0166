# SPDX-License-Identifier: Apache-2.0
"""DDP on hosts of two ranks: the process group sums inside a host, and each rank exchanges its half between hosts.

torchrun --nproc-per-node 4 examples/train_inside.py     # both hosts on one machine: omit hosts= on real ones
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tithe.torch

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)))
state = tithe.torch.attach(model, inside="auto", hosts=f"{dist.get_world_size() // 2}x2")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

truth = torch.randn(256, 10)
torch.manual_seed(1 + dist.get_rank())
losses = []
for _ in range(40):
    data = torch.randn(64, 256)
    loss = nn.functional.cross_entropy(model(data), (data @ truth).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
if dist.get_rank() == 0:
    sent = state.stats()["bytes_sent"] / len(losses)
    dense = 4 * sum(p.numel() for p in model.parameters())
    print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}; {sent:,.0f} bytes per step from this rank, of {dense:,} as fp32")
state.close()
dist.destroy_process_group()
