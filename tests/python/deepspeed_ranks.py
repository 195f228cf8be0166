# SPDX-License-Identifier: Apache-2.0
"""One rank of a DeepSpeed job, for test_deepspeed.py. Prints the values that the test compares, as JSON."""

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


def config_of(stage):
    zero = {"stage": stage} | ({"stage3_param_persistence_threshold": 0} if stage == 3 else {})
    return {
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": 1,
        "zero_optimization": zero,
        "gradient_clipping": 1.0,
    }


def make_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8))


def engine_with(model, stage):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config_of(stage))
    return engine


def engine_of(stage):
    """Returns an engine with groups of its own."""
    groups._WORLD_GROUP = None
    return engine_with(make_model(), stage)


def stage_3(codec):
    """Returns an engine whose parameters are sharded over a group of their own, and the group."""
    options = {} if codec is None else {"pg_options": tithe.c10d.Options(codec=codec, min_values=64)}
    group = torch.distributed.new_group(backend="tithe", **options)
    with deepspeed.zero.Init(data_parallel_group=group, config_dict_or_path=config_of(3)):
        model = make_model()
    return engine_with(model, 3), group


def train(engine, steps=range(STEPS)):
    losses = []
    for step in steps:
        x = torch.randn(8, 24, generator=torch.Generator().manual_seed(1000 * step + RANK))
        loss = (engine(x) - x[:, :8].tanh()).pow(2).mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    parameters = list(engine.module.parameters())
    with deepspeed.zero.GatheredParameters(parameters, enabled=engine.zero_optimization_stage() == 3):
        whole = b"".join(p.detach().float().numpy().tobytes() for p in parameters)
    return hashlib.sha256(whole).hexdigest(), losses


def sparse_engine(stage):
    engine = engine_of(stage)
    tithe.c10d.compress(engine.data_parallel_group, codec="topk:ratio=0.1", min_values=64)
    return engine


def resumed(stage):
    """Runs steps in one engine, and the second half of them in another engine that continues from the saved state."""
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


results = {}
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
    results[stage] = {
        "own": own, "exact": exact, "rounds": rounds, "lossy": lossy, "first": losses[0], "last": losses[-1],
        "sent": stats["bytes_sent"], "dense": stats["dense_bytes"],
    }  # fmt: skip
own, _ = train(stage_3(None)[0])
exact, _ = train(stage_3("fp32")[0])
engine, group = stage_3("eden:bits=4,scale=unbiased,feedback=none")
lossy, losses = train(engine)
stats = tithe.c10d.stats(group)
results[3] = {
    "own": own, "exact": exact, "lossy": lossy, "first": losses[0], "last": losses[-1], "rounds": stats["rounds"],
    "sent": stats["bytes_sent"], "dense": stats["dense_bytes"],
}  # fmt: skip
results["resumed"] = resumed(2)
print(json.dumps(results))
torch.distributed.destroy_process_group()
