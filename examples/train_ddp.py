# SPDX-License-Identifier: Apache-2.0
"""A small DDP training job with tithe's two lines, on made-up data. It ends with its step time beside DDP's own.

torchrun --nproc-per-node 2 examples/train_ddp.py
"""

import copy
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tithe.torch

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)
torch.manual_seed(0)

network = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
plain = DistributedDataParallel(copy.deepcopy(network))  # for comparison: DDP's own all-reduce
model = DistributedDataParallel(network)
options = {"codec": os.environ["CODEC"]} if "CODEC" in os.environ else {}  # unset: the default, for any optimizer
state = tithe.torch.attach(model, **options)

truth = torch.randn(256, 10)
torch.manual_seed(1 + rank)


def step(model, optimizer):
    """Makes one training step. Returns its loss and its seconds."""
    data = torch.randn(64, 256)
    began = time.perf_counter()
    loss = nn.functional.cross_entropy(model(data), (data @ truth).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item(), 1e3 * (time.perf_counter() - began)


optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
losses = [step(model, optimizer)[0] for _ in range(60)]
stats = state.stats()
if rank == 0:
    sent, dense = (stats[name] / len(losses) for name in ("bytes_sent", "dense_bytes"))
    print(
        f"loss {losses[0]:.2f} -> {losses[-1]:.2f}; {sent:,.0f} bytes per step, an fp32 all-reduce sends {dense:,.0f}"
    )
    print(f"unsent: {stats['relative_error']:.1%} of the compressed gradients' norm (docs/guide/diagnose.md)")

# Both have run a few steps. They alternate, so that other load on the machine slows both.
other = torch.optim.SGD(plain.parameters(), lr=0.5)
turns = [(step(model, optimizer)[1], step(plain, other)[1]) for _ in range(35)][5:]
ours, theirs = (statistics.median(times) for times in zip(*turns, strict=True))
if rank == 0:
    print(
        f"step {ours:.2f} ms with tithe, {theirs:.2f} ms with DDP's own all-reduce (medians of {len(turns)}, in turns)"
    )
    if ours >= theirs:
        print("here tithe does not pay: so it is where the network is fast or the model small (docs/start/hosts.md)")
state.close()
dist.destroy_process_group()
