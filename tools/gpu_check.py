# SPDX-License-Identifier: Apache-2.0
"""Two ranks with gradients on a GPU: are all bits equal to those of the CPU path, and how long does a step take?

    tools/gpu_check.sh                                   sets up, builds and runs this
    PYTHONPATH=python python tools/gpu_check.py          the same in a tree that is set up and built

Equality: the same gradients go through DDP and tithe on the device and on the CPU. Gradients and residuals must have
the same bits, for each type and codec. Backward is kept busy, so that a missing wait changes the result. Models of
fully_shard() are compared with FSDP2 on the same device (gpu_check_sharded.py). Times: a step of DDP with tithe and
with the process group's own all-reduce, in turns; the ratio is the median over neighbouring steps. "in the hook" is the
time per step for which the hook blocks backward's thread. It must not grow with the buckets' size.
"""

import argparse
import importlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_check_sharded
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tithe.torch
from tithe import _core

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
CODECS = ("fp32", "bf16", "fp16", "topk:ratio=0.01", "qtopk:ratio=0.03", "onebit", "eden:bits=3", "powersgd:rank=2")
TIMED = ("fp32", "bf16", _core.Options().codec, "qtopk:ratio=0.03")
MOST_COMPARED = 4_000_000  # the largest number of values of a model whose bits are compared
WORLD = 2
NO_GPU = 3


class Busy(torch.autograd.Function):
    """The identity. Its backward first occupies the device, so that gradients are late."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, work: torch.Tensor) -> torch.Tensor:
        ctx.work = work
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        for _ in range(8):
            ctx.work @ ctx.work
        return gradient, None


class Given(nn.Module):
    """A model with a given gradient: the arguments of forward() become the gradients, to the bit, on every device."""

    def __init__(self, values: int, work: int) -> None:
        super().__init__()
        sizes = (values // 2, values // 4, values // 8, values // 8, 1000, 10)
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(n)) for n in sizes)
        self.register_buffer("work", torch.full((work, work), 1.0 / work))

    def forward(self, given: list[torch.Tensor]) -> torch.Tensor:
        total = torch.zeros((), dtype=self.weights[0].dtype, device=self.weights[0].device)
        for weight, gradient in zip(self.weights, given, strict=True):
            total = Busy.apply(total, self.work) + (weight * gradient).sum()
        return total


def equality(device: torch.device, group: dist.ProcessGroup, args: argparse.Namespace, nccl: bool) -> list[dict]:
    rows = []
    for name in args.types:
        dtype = DTYPES[name]
        for codec in args.codecs:
            for scale in (1.0, 1000.0) if codec == "topk:ratio=0.01" else (1.0,):
                row = {"dtype": name, "codec": codec, "loss_scale": scale, "group": "nccl" if nccl else "gloo"}
                rows.append(row | one_equality(device, group, args, dtype, codec, scale))
    return rows


def one_equality(
    device: torch.device,
    group: dist.ProcessGroup,
    args: argparse.Namespace,
    dtype: torch.dtype,
    codec: str,
    scale: float,
) -> dict:
    """Runs backward on the device and on the CPU with equal gradients. Returns the numbers of differing gradients and
    residuals."""
    values = min(args.values, MOST_COMPARED)
    sides: list[tuple[DistributedDataParallel, tithe.torch.State]] = []
    for where, ranks in ((torch.device("cpu"), None), (device, group)):
        net = Given(values, 1024 if where.type == "cuda" else 8).to(where, dtype)
        model = DistributedDataParallel(net, process_group=ranks, bucket_cap_mb=values * 4 / 2**20 / 6)
        there = torch.full((), scale, device=where)
        state = tithe.torch.attach(
            model, codec=codec, min_values=0, timeout=60.0, loss_scale=None if scale == 1.0 else there.item
        )
        sides.append((model, state))
    wrong = 0
    for step in range(args.steps):
        generator = torch.Generator().manual_seed(1000 * dist.get_rank() + step)
        given = [torch.randn(p.shape, generator=generator).to(dtype) for p in sides[0][0].parameters()]
        for model, _ in sides:
            model.zero_grad()
            (model([g.to(next(model.parameters()).device) for g in given]) * scale).backward()
        for p, q in zip(*(model.parameters() for model, _ in sides), strict=True):
            wrong += differing(p.grad, q.grad)
    owed = 0
    for p, q in zip(*(model.parameters() for model, _ in sides), strict=True):
        owed += differing(sides[0][1].residual(p), sides[1][1].residual(q))
    sent = [state.stats()["bytes_sent"] for _, state in sides]
    for _, state in sides:
        state.close()
    return {"gradients_differ": wrong, "residuals_differ": owed, "ok": wrong == owed == 0 and sent[0] == sent[1]}


def differing(one: torch.Tensor, other: torch.Tensor) -> int:
    """Returns the number of values whose bits differ."""
    one, other = (t.detach().cpu().contiguous().view(torch.uint8).view(t.numel(), -1) for t in (one, other))
    return int((one != other).any(dim=1).sum())


def times(device: torch.device, groups: dict[str, dist.ProcessGroup], args: argparse.Namespace) -> list[dict]:
    """Times steps of a model of args.values parameters, each row in turn, so that a disturbance affects all rows."""
    rows: dict[str, tuple[Callable[[], float], tithe.torch.State | None]] = {}
    side = max(64, int((args.values / 6) ** 0.5))
    data = torch.randn(32, side, device=device)

    def row(name: str, group: dist.ProcessGroup, codec: str | None) -> None:
        torch.manual_seed(0)
        layers = [layer for _ in range(6) for layer in (nn.Linear(side, side), nn.ReLU())]
        model = DistributedDataParallel(nn.Sequential(*layers).to(device), process_group=group)
        state, hooks = None, [0.0]
        if codec is not None:
            state = tithe.torch.State(group, codec=codec, timeout=60.0, parameters=model.module.named_parameters())

            def hook(state: tithe.torch.State, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
                begin = time.perf_counter()
                future = tithe.torch.hook(state, bucket)
                hooks[0] += time.perf_counter() - begin
                return future

            model.register_comm_hook(state, hook)

        def step() -> float:
            hooks[0] = 0.0
            model.zero_grad()
            model(data).square().mean().backward()
            next(model.parameters()).grad.sum().item()  # waits until the device has finished
            return hooks[0]

        rows[name] = (step, state)

    for backend, group in groups.items():
        row(f"{backend} all-reduce", group, None)
    for codec in args.timed:
        row(f"tithe {codec}", next(iter(groups.values())), codec)
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    hooks: dict[str, list[float]] = {name: [] for name in rows}
    for turn in range(args.warm + args.rounds):
        for name, (step, _) in rows.items():
            dist.barrier()
            begin = time.perf_counter()
            in_hook = step()
            slowest = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            if turn >= args.warm:
                seconds[name].append(float(slowest))
                hooks[name].append(in_hook)
    found = []
    reference = next(iter(rows))
    for name, (_, state) in rows.items():
        ratios = [a / b for a, b in zip(seconds[reference], seconds[name], strict=True)]
        sent = None if state is None else state.stats()["bytes_sent"] / (args.warm + args.rounds)
        found.append(
            {"row": name, "ms": 1e3 * statistics.median(seconds[name]), "faster_than": reference,
             "times": statistics.median(ratios), "bytes_per_step": sent,
             "hook_ms": None if state is None else 1e3 * statistics.median(hooks[name])})  # fmt: skip
        if state is not None:
            state.close()
    return found


def rank_main(rank: int, args: argparse.Namespace, meeting: str, out: str) -> None:
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // WORLD))
    gpu_check_sharded.prepare()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if args.preload:
        importlib.import_module(args.preload).load()
    device = torch.device(args.device)
    gpus = torch.accelerator.device_count() if device.type != "cpu" else 0
    if gpus:
        device = torch.device(device.type, rank % gpus)
        torch.accelerator.set_device_index(device.index)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=WORLD)
    groups = {"gloo": dist.new_group(backend=args.backend or "gloo")}
    if device.type == "cuda" and gpus >= WORLD:  # NCCL refuses two ranks on one GPU
        groups["nccl"] = dist.new_group(backend="nccl")
    result: dict[str, Any] = {"gpus": gpus, "equality": [], "times": []}
    for name, group in groups.items():
        result["equality"] += equality(device, group, args, name == "nccl")
    result["sharded"] = gpu_check_sharded.sharded(device)
    result["times"] = times(device, groups, args)
    everyone: list[Any] = [None] * WORLD
    dist.all_gather_object(everyone, [row["ok"] for row in result["equality"] + result["sharded"]])
    result["ok"] = all(all(ranks) for ranks in everyone)
    if rank == 0:
        Path(out).write_text(json.dumps(result))
    dist.destroy_process_group()


def machine(device: str) -> dict[str, Any]:
    there: dict[str, Any] = {"torch": torch.__version__, "device": device, "cpus": os.cpu_count()}
    if device == "cuda":
        there |= {"gpu": torch.cuda.get_device_name(0), "cuda": torch.version.cuda}
    return there


def show(result: dict[str, Any]) -> None:
    print(
        f"{'gradients':<10} {'codec':<20} {'scale':>6} {'group':<6} {'gradients differ':>16} {'residuals differ':>16}"
    )
    for r in result["equality"]:
        print(
            f"{r['dtype']:<6} {r['codec']:<20} {r['loss_scale']:>6g} {r['group']:<6} "
            f"{r['gradients_differ']:>16} {r['residuals_differ']:>16}  {'ok' if r['ok'] else 'WRONG'}"
        )
    gpu_check_sharded.show(result["sharded"])
    print(f"\n{'step with':<28} {'median ms':>10} {'x faster':>9} {'in the hook':>11} {'bytes per rank':>15}")
    for r in result["times"]:
        ours = "" if r["hook_ms"] is None else f"{r['hook_ms']:>11.2f} {r['bytes_per_step']:>15,.0f}"
        print(f"{r['row']:<28} {r['ms']:>10.2f} {r['times']:>9.2f} {ours}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try this program")
    parser.add_argument("--values", type=int, default=25_000_000, help="parameters of the model")
    parser.add_argument("--steps", type=int, default=5, help="of each check of equality")
    parser.add_argument("--rounds", type=int, default=20, help="timed steps of each row")
    parser.add_argument("--warm", type=int, default=5, help="steps before them")
    parser.add_argument("--types", nargs="+", choices=DTYPES, default=list(DTYPES), help="of gradients")
    parser.add_argument("--codecs", nargs="+", default=list(CODECS), help="whose bits are compared")
    parser.add_argument("--timed", nargs="+", default=list(TIMED), help="codecs that are timed")
    parser.add_argument("--out", type=Path, default=Path("build/gpu_check.json"))
    parser.add_argument("--preload", help=argparse.SUPPRESS)  # a module whose load() brings the device: tests
    parser.add_argument("--backend", help=argparse.SUPPRESS)  # of the device's process group: tests
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        print(f"no GPU here: nothing was checked (torch {torch.__version__} sees none)")
        return NO_GPU
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/result"
        mp.spawn(rank_main, (args, f"{folder}/store", out), nprocs=WORLD)
        result = {"machine": machine(args.device)} | json.loads(Path(out).read_text())
    show(result)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    on = "the CPU alone, which says nothing about GPUs" if args.device == "cpu" else args.device
    print(f"\n{'all bits equal' if result['ok'] else 'NOT EQUAL'} on {on}; {args.out}")
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
