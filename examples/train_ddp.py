# SPDX-License-Identifier: Apache-2.0
"""A small DDP training job with tithe's two lines, on made-up data.

torchrun --nproc-per-node 2 examples/train_ddp.py
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tithe.torch

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)
torch.manual_seed(0)

model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)))
options = {"codec": os.environ["CODEC"]} if "CODEC" in os.environ else {}  # none: the default, for any optimizer
state = tithe.torch.attach(model, **options)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

truth = torch.randn(256, 10)
torch.manual_seed(1 + rank)
losses = []
for _ in range(60):
    data = torch.randn(64, 256)
    loss = nn.functional.cross_entropy(model(data), (data @ truth).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

if rank == 0:
    dense = 4 * sum(p.numel() for p in model.parameters())
    sent = state.stats()["bytes_sent"] / len(losses)
    print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}; {sent:,.0f} bytes per step instead of {dense:,} as fp32")
state.close()
dist.destroy_process_group()
