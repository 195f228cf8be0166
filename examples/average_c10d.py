# SPDX-License-Identifier: Apache-2.0
"""A training loop that averages its gradients by torch.distributed.all_reduce, through a process group of backend
"tithe".

torchrun --nproc-per-node 2 examples/average_c10d.py
"""

import torch
import torch.distributed as dist
from torch import nn

import tithe.c10d

dist.init_process_group("gloo")
everyone = list(range(dist.get_world_size()))
group = dist.new_group(everyone, backend="tithe", pg_options=tithe.c10d.Options(codec="fp8"))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

truth = torch.randn(256, 10)
torch.manual_seed(1 + dist.get_rank())
losses = []
for _ in range(40):
    data = torch.randn(64, 256)
    loss = nn.functional.cross_entropy(model(data), (data @ truth).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, dist.ReduceOp.AVG, group=group)  # Gloo averages small tensors
    optimizer.step()
    dist.all_reduce(loss.detach(), dist.ReduceOp.AVG)  # the default group: never compressed
    losses.append(loss.item())
if dist.get_rank() == 0:
    stats = tithe.c10d.stats(group)
    print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}; {stats['bytes_sent']:,} bytes, not {stats['dense_bytes']:,}")
dist.destroy_process_group()
