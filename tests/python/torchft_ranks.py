# SPDX-License-Identifier: Apache-2.0
"""The programs of test_torchft.py, in an environment with torchft: a lighthouse, or a replica of one of its jobs.

usage: torchft_ranks.py lighthouse N | steps FOLDER ME | local ME LIGHTHOUSE LIGHTHOUSE | refused
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torchft
from torchft.coordination import LighthouseServer
from torchft.local_sgd import LocalSGD

import tithe.torchft

SIZES = (3000, 5000)
# Steps that do not count for replica 2, and for no replica; a step for which replica 2 is late
ALONE, ALL, LATE = 12, 20, 24


class Given(torch.nn.Module):
    """A model whose gradient is the argument of forward()."""

    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ParameterList([torch.zeros(n) for n in SIZES])

    def forward(self, gradients):
        return sum((p * g).sum() for p, g in zip(self.parts, gradients, strict=True))


def quarters(seed):
    """Returns gradients whose sums are exact."""
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.integers(-32, 33, n).astype(np.float32) / 4) for n in SIZES]


def manager_of(group, me, module, optimizer, lighthouse, **options):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def load(saved):
        module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    manager = torchft.Manager(
        pg=group,
        min_replica_size=2,
        load_state_dict=load,
        state_dict=lambda: {"model": module.state_dict(), "optimizer": optimizer.state_dict()},
        replica_id=f"replica_{me}",
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=lighthouse,
        hostname="127.0.0.1",
        timeout=timedelta(seconds=30),
        quorum_timeout=timedelta(seconds=120),
        **options,
    )
    manager.store_of_this_replica = store
    return manager


def flat(tensors):
    return torch.cat([t.detach().reshape(-1) for t in tensors]).numpy()


def steps(folder, me):
    """Runs one replica: makes steps, and writes gradients, residuals and results of each step to the folder."""
    folder, me = Path(folder), int(me)
    module = Given()
    group = tithe.torchft.ProcessGroup(codec="topk:ratio=0.05", min_values=0, timeout=15.0)
    sgd = torch.optim.SGD(module.parameters(), 0.125)
    manager = manager_of(group, me, module, sgd, os.environ["TORCHFT_LIGHTHOUSE"])
    model = tithe.torchft.DistributedDataParallel(manager, module, bucket_cap_mb=0.01)
    optimizer = torchft.Optimizer(manager, sgd)
    spoiled, stop = set(), folder / "stop"
    while not stop.exists() or manager.current_step() < int(stop.read_text()):
        late = me == 2 and manager.current_step() == LATE and LATE not in spoiled
        spoiled |= {LATE} if late else set()
        time.sleep(3.0 if late else 0.05)  # a quorum waits for 1 second
        optimizer.zero_grad()
        begun = manager.current_step()
        gradients = quarters(1000 * begun + me)
        model(gradients).backward()
        step = manager.current_step()  # a replica that heals has a later step now
        takes_part, count = manager.is_participating(), manager.num_participants()
        alone = step == ALONE and me == 2 and step not in spoiled
        if alone or (step == ALL and step not in spoiled):
            spoiled.add(step)
            manager.report_error(RuntimeError("a step that does not count"))
        mean = flat(p.grad for p in module.parameters())
        optimizer.step()
        counted = manager.current_step() > step
        # A step that did not count here may have counted elsewhere.
        saved = folder / f"{me}.{os.getpid()}.{step}.{group.stats().get('epoch')}.npz"
        if group.size() > 1 and not saved.exists():  # otherwise this replica joined no quorum
            given = flat(gradients) if takes_part else np.zeros(sum(SIZES), np.float32)
            after = flat(group.residual(p) for p in module.parameters())
            total = np.rint(4.0 * count * mean.astype(np.float64)) / 4
            with saved.with_suffix(".new").open("wb") as file:
                np.savez(file, given=given, sum=total, after=after, counted=counted, members=group.size())
            saved.with_suffix(".new").rename(saved)
        print(f"step {step} of {count}" if counted else f"step {step} did not count", flush=True)
    stats = group.stats()
    names = ("rounds", "rounds_undone", "ranks_lost", "epoch")
    print(json.dumps({"weights": float(np.abs(flat(module.parameters())).sum()), **{n: stats[n] for n in names}}))
    manager.shutdown(wait=False)
    group.shutdown()


def local(me, diloco, local_sgd):
    """Runs one replica with DiLoCo and with LocalSGD. Prints the figures of both as JSON."""
    me, ends = int(me), {}
    for name, lighthouse in (("diloco", diloco), ("local_sgd", local_sgd)):
        torch.manual_seed(3)
        module = torch.nn.Sequential(torch.nn.Linear(60, 100), torch.nn.ReLU(), torch.nn.Linear(100, 50))
        inner = torch.optim.SGD(module.parameters(), 0.05)
        group = tithe.torchft.ProcessGroup("topk:ratio=0.05" if name == "diloco" else "zip", min_values=0)
        manager = manager_of(group, me, module, inner, lighthouse, use_async_quorum=False)
        if name == "diloco":
            halves = [module[0], module[2]]
            outer = [torch.optim.SGD(half.parameters(), 0.7) for half in halves]
            around = tithe.torchft.DiLoCo(manager, halves, inner, outer, sync_every=4, fragment_sync_delay=1)
        else:
            around = LocalSGD(manager, module, inner, sync_every=3)
        with around:
            step = 0
            while manager.current_step() < (12 if name == "diloco" else 8):
                step += 1
                x = torch.randn(8, 60, generator=torch.Generator().manual_seed(100 * me + step))
                inner.zero_grad()
                (module(x) - 1.0).pow(2).mean().backward()
                inner.step()
        kept = around._fragments if name == "diloco" else []
        whole = [t for each in kept for t in each.original_parameters.values()] or list(module.parameters())
        stats = group.stats()
        ends[name] = {
            "weights": flat(whole).tobytes().hex()[:4000],
            "steps": manager.current_step(),
            "rounds": stats["rounds"],
            "saved": stats["bytes_sent"] / max(1, stats["dense_bytes"]),
        }
        manager.shutdown(wait=False)
        group.shutdown()
    print(json.dumps(ends), flush=True)
    os._exit(0)  # threads of a second Manager keep the interpreter


def refused():
    tries = {
        "auto": lambda: tithe.torchft.ProcessGroup("auto"),
        "option": lambda: tithe.torchft.ProcessGroup(codek="fp8"),
        "decided": lambda: tithe.torchft.ProcessGroup(average=True),
        "momentum": lambda: tithe.torchft.ProcessGroup("topk:ratio=0.1,feedback=momentum"),
        "codec": lambda: tithe.torchft.ProcessGroup("fp9"),
        "group": lambda: tithe.torchft.DistributedDataParallel(object(), Given()),
    }
    for name, trial in tries.items():
        try:
            trial()
        except ValueError as why:
            print(f"{name}: {why}")


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "lighthouse":
        servers = [
            LighthouseServer("127.0.0.1:0", min_replicas=2, join_timeout_ms=1000, heartbeat_timeout_ms=1500)
            for _ in range(int(rest[0]))
        ]
        ports = [server.address().rsplit(":", 1)[1] for server in servers]
        print(" ".join(f"http://127.0.0.1:{port}" for port in ports), flush=True)
        sys.stdin.read()
    else:
        {"steps": steps, "local": local, "refused": refused}[what](*rest)
