# SPDX-License-Identifier: Apache-2.0
"""A rank of test_torchrun.py: two lines of tithe, and the points of its failures.

torchrun_ranks.py FOLDER HOST STEPS: the file "HOST at STEP" in FOLDER has the action of HOST at a step: `dies`, or
`waits` for a failure.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import tithe.torch

folder, host, total = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])


def say(text):
    with open(folder / f"{host}.log", "a") as log:
        log.write(text + "\n")


dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(50, 40))
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
state = tithe.torch.attach(model, codec="topk:ratio=0.1", min_values=0, timeout=30.0)
kept = tithe.torch.Checkpoints(str(folder / "kept"), state, model, optimizer, every=4)
say(f"world {dist.get_world_size()} from {kept.step}")
for step in kept.steps(total):
    order = folder / f"{host} at {step}"
    if order.exists():
        what = order.read_text()
        order.unlink()
        say(f"{what} {os.getpid()}")
        if what == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)
    model.zero_grad()
    data = torch.Generator().manual_seed(100 * dist.get_rank() + step)
    model(torch.randn(8, 50, generator=data)).pow(2).mean().backward()
    optimizer.step()
owed = sum(float(state.residual(p).double().abs().sum()) for p in model.parameters())
say(f"done {model.module.weight.detach().double().sum().item()!r} owed {owed > 0}")
state.close()
