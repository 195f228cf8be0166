# SPDX-License-Identifier: Apache-2.0
"""A model sharded inside hosts by fully_shard() and replicated between them, with tithe between the replicas.

torchrun --nproc-per-node 4 examples/train_hsdp.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import tithe.torch

dist.init_process_group("gloo")
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard"))
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
state = tithe.torch.attach(model)
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
    sent, dense = state.stats()["bytes_sent"], state.stats()["dense_bytes"]
    print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}; {sent:,} bytes to the other replica instead of {dense:,}")
state.close()
dist.destroy_process_group()
