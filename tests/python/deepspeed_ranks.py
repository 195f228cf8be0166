# SPDX-License-Identifier: Apache-2.0
"""One rank of a DeepSpeed job, for test_deepspeed.py. Prints what the test compares, as JSON."""

import hashlib
import json
import os
from pathlib import Path

os.environ |= {"DS_ACCELERATOR": "cpu", "GLOO_SOCKET_IFNAME": "lo", "LOCAL_RANK": os.environ["RANK"]}

import deepspeed
import torch
from deepspeed.utils import groups

import tithe.c10d

RANK = int(os.environ["RANK"])
STEPS = 8
# Sums of inference between ranks of a host, which training does not use; DeepSpeed would compile it at the start.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def engine_of(stage):
    """An engine with groups of its own."""
    groups._WORLD_GROUP = None
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8))
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2),
        config={
            "train_micro_batch_size_per_gpu": 8,
            "gradient_accumulation_steps": 1,
            "zero_optimization": {"stage": stage},
            "gradient_clipping": 1.0,
        },
    )
    return engine


def train(engine, steps=range(STEPS)):
    losses = []
    for step in steps:
        x = torch.randn(8, 24, generator=torch.Generator().manual_seed(1000 * step + RANK))
        loss = (engine(x) - x[:, :8].tanh()).pow(2).mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    whole = b"".join(p.detach().float().numpy().tobytes() for p in engine.module.parameters())
    return hashlib.sha256(whole).hexdigest(), losses


def sparse_engine(stage):
    engine = engine_of(stage)
    tithe.c10d.compress(engine.data_parallel_group, codec="topk:ratio=0.1", min_values=64)
    return engine


def resumed(stage):
    """Steps in one engine, and the second half of them in another one that goes on from what was saved."""
    folder = Path(os.environ["TITHE_FILE"]).parent / "checkpoint"
    engine = sparse_engine(stage)
    train(engine, range(STEPS // 2))
    engine.save_checkpoint(str(folder))
    saved = tithe.c10d.state_dict(engine.data_parallel_group)
    whole, _ = train(engine, range(STEPS // 2, STEPS))
    ends = [whole]
    for state in (saved, {}):
        engine = sparse_engine(stage)
        engine.load_checkpoint(str(folder))
        tithe.c10d.load_state_dict(engine.data_parallel_group, state)
        ends.append(train(engine, range(STEPS // 2, STEPS))[0])
    return ends


told = {}
deepspeed.init_distributed(dist_backend="tithe", verbose=False)
for stage in range(3):
    own, _ = train(engine_of(stage))
    engine = engine_of(stage)
    tithe.c10d.compress(engine.data_parallel_group, codec="fp32", min_values=64)
    exact, _ = train(engine)
    rounds = tithe.c10d.stats(engine.data_parallel_group)["rounds"]
    engine = engine_of(stage)
    tithe.c10d.compress(engine.data_parallel_group, codec="fp8", min_values=64)
    lossy, losses = train(engine)
    stats = tithe.c10d.stats(engine.data_parallel_group)
    told[stage] = {
        "own": own, "exact": exact, "rounds": rounds, "lossy": lossy, "first": losses[0], "last": losses[-1],
        "sent": stats["bytes_sent"], "dense": stats["dense_bytes"],
    }  # fmt: skip
told["resumed"] = resumed(2)
print(json.dumps(told))
torch.distributed.destroy_process_group()
