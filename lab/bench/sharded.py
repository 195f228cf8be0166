#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seconds per step of a transformer under FSDP2 with tithe, beside FSDP2's own collectives and DDP with tithe.

    build/tithe hosts --hosts 4x1 --link 100Mb/s -- python lab/bench/sharded.py
    python lab/bench/sharded.py --alone                # a step without communication, one process
    python lab/bench/sharded.py --list FILE            # the model for `tithe simulate --sharded`
    torchrun --nproc-per-node 4 lab/bench/sharded.py --loss --plot bits.svg

One process per host. The ways take turns, step by step, in the same processes, and each has a model of its own.
Seconds are medians of rank 0's steps; the ratio is the median of the ratios to FSDP2's own step in the same turn.
tithe counts the bytes of rank 0; the bytes of FSDP2's own collectives are computed. With --loss FSDP2 and FSDP2 with
tithe train a transformer of the studies (losses.py); the bits per value are those that rank 0 sends in a step.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import tithe.torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from lab.bench import losses  # noqa: E402

OWN, TITHE = "FSDP2", "FSDP2 + tithe"
KINDS = {"gradients": "reduce_scatter", "weights": "all_gather"}


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(width, 8, batch_first=True)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        return x + self.wide(self.after(x))


class Transformer(nn.Module):
    def __init__(self, width: int, blocks: int, tokens: int = 256) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, tokens)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x) * 1.0


def sharded(model: nn.Module, keep: bool) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    policy = {"mp_policy": MixedPrecisionPolicy(torch.bfloat16), "reshard_after_forward": not keep}
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **policy)
    return fully_shard(model, mesh=mesh, **policy)


def model_list(model: nn.Module, seconds: float) -> dict:
    """Returns the model's list (data/models/README.md) for a step of these seconds, two thirds of which are backward.
    Each parameter takes the same share of the time as of the values."""
    tensors, done = [], 0
    for name, p in reversed(list(model.named_parameters())):
        done += p.numel()
        tensors.append({"name": name, "values": p.numel(), "row": p.numel() // (len(p) if p.dim() > 1 else 1)})
        tensors[-1]["ready_ms"] = done
    for tensor in tensors:
        tensor["ready_ms"] *= 2e3 / 3 * seconds / done
    return {"model": "sharded", "forward_ms": 1e3 / 3 * seconds, "tensors": tensors}


class Way:
    """Trains the transformer of the studies, for losses.losses()."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        self._args = args
        self.model = sharded(losses.transformer(args.width, args.blocks), args.keep)
        self.state = tithe.torch.attach(self.model) if name == TITHE else None
        self.optimizers = [torch.optim.AdamW(self.model.parameters(), lr=args.rate)]

    def trained(self) -> nn.Module:
        whole = losses.transformer(self._args.width, self._args.blocks)
        whole.load_state_dict({name: p.full_tensor() for name, p in self.model.named_parameters()})
        return whole


def with_losses(args: argparse.Namespace) -> list[dict]:
    """Trains with FSDP2's own collectives and with tithe's. Returns a row per way with its losses, and a row with the
    bits per value in the first, a middle and the last tenth of the steps, the mean of all seeds."""
    sent: dict[str, list[list[int]]] = {what: [] for what in KINDS}  # by seed, the sum after each step

    def watch(name: str, seed: int, way: Way) -> None:
        if way.state is not None:
            stats = way.state.stats()
            for what, kind in KINDS.items():
                sent[what] += [[0]] if len(sent[what]) == seed else []
                sent[what][seed].append(stats[kind]["bytes_sent"])

    rows = [{"way": name, "nats": nats} for name, nats in losses.losses(args, lambda name: Way(name, args), watch)]
    if len(rows) > 1:
        first, second = (row["nats"] for row in rows)
        rows[1]["difference"] = [round(b - a, 4) for a, b in zip(first, second, strict=True)]
    world = dist.get_world_size()
    values = sum(p.numel() for p in losses.transformer(args.width, args.blocks).parameters())
    rows.append({"values": values, "ranks": world})
    bits = {
        what: (8 * torch.tensor(sums, dtype=torch.float64).diff() / (values * (world - 1) / world)).mean(0)
        for what, sums in sent.items()
        if sums
    }
    tenth = max(1, args.steps // 10)
    for what, each in bits.items():
        parts = (each[:tenth], each[args.steps // 2 - tenth // 2 :][:tenth], each[-tenth:], each)
        rows.append(
            {f"bits per value, {what}: first, middle, last tenth, all": [round(float(p.mean()), 2) for p in parts]}
        )
    if args.plot and dist.get_rank() == 0:
        plot(bits, args.plot)
    return rows


def plot(bits: dict[str, torch.Tensor], to: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "tithe"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    for what, each in bits.items():
        axes.plot(each, label=what)
    axes.set(xlabel="step", ylabel="bits per value", ylim=(0, 18), title="sent per rank and step")
    axes.legend()
    figure.savefig(to, metadata={"Date": None})


def main() -> None:
    """Runs one rank: steps of all ways in turn, or with --alone a step without communication. Rank 0 prints JSON
    lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, help="320; 64 with --loss")
    parser.add_argument("--blocks", type=int, help="8; 2 with --loss")
    parser.add_argument("--steps", type=int, help="5 after one that is not counted; 400 with --loss")
    parser.add_argument(
        "--tokens", type=int, default=16, help="per rank and step: few, since a CPU computes bf16 slowly"
    )
    parser.add_argument("--keep", action="store_true", help="reshard_after_forward=False: one gather per step")
    parser.add_argument("--alone", action="store_true", help="the model alone, without communication")
    parser.add_argument("--list", type=Path, metavar="FILE", help="write the model's list, for --seconds per step")
    parser.add_argument("--seconds", type=float, default=0.7, help="of --list: four processes on two cores")
    parser.add_argument("--progress", action="store_true", help="a line per step on stderr")
    losses.options(parser, 4e-3, [OWN, TITHE])
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the bits per value, with --loss")
    args = parser.parse_args()
    args.steps = args.steps or (400 if args.loss else 5)
    args.width, args.blocks = args.width or (64 if args.loss else 320), args.blocks or (2 if args.loss else 8)
    torch.set_num_threads(1)
    torch.manual_seed(0)

    def make() -> Transformer:
        return Transformer(args.width, args.blocks)

    if args.list:
        args.list.write_text(json.dumps(model_list(make(), args.seconds)))
        return
    if args.loss:
        dist.init_process_group("gloo")
        for row in with_losses(args):
            if dist.get_rank() == 0:
                print(json.dumps(row), flush=True)
        dist.barrier()
        return
    if args.alone:
        models = {"alone": make(), "alone, bf16": make().bfloat16()}
    else:
        dist.init_process_group("gloo")
        models = {OWN: sharded(make(), args.keep), TITHE: sharded(make(), args.keep)}
        models["DDP + tithe"] = DistributedDataParallel(make())
    states = {name: tithe.torch.attach(model) for name, model in models.items() if "tithe" in name}
    optimizers = {name: torch.optim.AdamW(model.parameters(), lr=3e-4) for name, model in models.items()}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    before: dict[str, int] = {}
    for step in range(args.steps + 1):
        x = torch.randint(0, 256, (1, args.tokens), generator=torch.Generator().manual_seed(step))
        for name, model in models.items():
            if not args.alone:
                dist.barrier()
            if step == 1 and name in states:
                before[name] = states[name].stats()["bytes_sent"]
            begin = time.monotonic()
            nn.functional.cross_entropy(model(x).float().flatten(0, 1), x.roll(1, 1).flatten()).backward()
            optimizers[name].step()
            optimizers[name].zero_grad()
            seconds[name].append(time.monotonic() - begin)
            if args.progress and (args.alone or dist.get_rank() == 0):
                print(step, name, f"{seconds[name][-1]:.2f} s", file=sys.stderr, flush=True)
    if not args.alone and dist.get_rank() > 0:
        dist.barrier()
        return
    values = sum(p.numel() for p in make().parameters())
    for name, taken in seconds.items():
        row = {"way": name, "values": values, "seconds": round(statistics.median(taken[1:]), 3)}
        if not args.alone:
            ratios = [own / each for own, each in zip(seconds[OWN][1:], taken[1:], strict=True)]
            row["times faster"] = round(statistics.median(ratios), 2)
        if name in states:
            row["MB sent per step"] = round((states[name].stats()["bytes_sent"] - before[name]) / args.steps / 1e6, 2)
        print(json.dumps(row), flush=True)
    if TITHE in states:
        print(states[TITHE], flush=True)
    if not args.alone:
        dist.barrier()


if __name__ == "__main__":
    main()
