# SPDX-License-Identifier: Apache-2.0
"""Replicas under torchft that may be killed and restarted, with tithe between them; docs/guide/elastic.md.

torchft_lighthouse --min_replicas 2 --join_timeout_ms 2000     # must keep running; it prints its address
TORCHFT_LIGHTHOUSE=http://... python examples/train_torchft.py 0    # and 1, and 2: kill one, start it again
"""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torchft
from torch import nn

import tithe.torchft

me, steps = int(sys.argv[1]), int(os.environ.get("STEPS", "200"))
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # of this replica, which is one process
torch.manual_seed(me)
net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
inner = torch.optim.AdamW(net.parameters(), lr=3e-3)
group = tithe.torchft.ProcessGroup(codec="topk:ratio=0.05")
manager = torchft.Manager(
    pg=group,
    min_replica_size=2,
    load_state_dict=lambda saved: (net.load_state_dict(saved["model"]), inner.load_state_dict(saved["optimizer"])),
    state_dict=lambda: {"model": net.state_dict(), "optimizer": inner.state_dict()},  # without residuals
    replica_id=f"replica_{me}",
    store_addr="127.0.0.1",
    store_port=store.port,
    rank=0,
    world_size=1,
    timeout=timedelta(seconds=20),
)
model = tithe.torchft.DistributedDataParallel(manager, net)
optimizer = torchft.Optimizer(manager, inner)
truth = torch.randn(256, 10, generator=torch.Generator().manual_seed(7))
while manager.current_step() < steps:
    data = torch.randn(64, 256)
    optimizer.zero_grad()  # starts the quorum
    loss = nn.functional.cross_entropy(model(data), (data @ truth).argmax(1))
    loss.backward()
    optimizer.step()  # steps only if the step counts
    if manager.current_step() % 20 == 0:
        print(
            f"replica {me}: step {manager.current_step()} of {manager.num_participants()}, loss {loss.item():.2f}",
            flush=True,
        )
stats = group.stats()
print(f"replica {me}: {stats['bytes_sent']:,} bytes instead of {stats['dense_bytes']:,}, {stats['ranks_lost']} lost")
manager.shutdown()
group.shutdown()
