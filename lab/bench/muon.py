#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.optim.Muon beside torch.optim.Muon under DistributedDataParallel: seconds and bytes per step, and losses.

    build/tithe hosts --hosts 4x1 --link 100Mb/s -- python lab/bench/muon.py
    torchrun --nproc-per-node 4 lab/bench/muon.py --loss

One process per host. Without --loss the ways take turns, step by step, in the same processes, and each has a model of
its own. Seconds are medians of rank 0's steps. The bytes of DDP's own all-reduce are computed. With --loss each way
trains the transformer of the studies (losses.py).
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim._muon import _zeropower_via_newtonschulz

import tithe.torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from lab.bench import losses  # noqa: E402
from lab.study.models import CHARACTERS  # noqa: E402
from lab.study.texts import CONTEXT  # noqa: E402


def bf16(group: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """torch's bf16_compress_hook, which DDP refuses without NCCL."""
    sent = bucket.buffer().bfloat16() / dist.get_world_size()
    done = dist.all_reduce(sent, async_op=True).get_future()
    return done.then(lambda future: bucket.buffer().copy_(future.value()[0]))


TORCHS, BF16, OWN, ONE_BIT = "torch's Muon", "torch's Muon, bf16 hook", "tithe's Muon", "tithe's Muon, 1 bit back"
WAYS = {
    TORCHS: lambda model, optimizers: None,
    BF16: lambda model, optimizers: model.register_comm_hook(None, bf16),
    "torch's Muon, attach()": lambda model, optimizers: tithe.torch.attach(model, optimizer=optimizers),
    OWN: lambda model, optimizers: tithe.torch.attach(model, optimizer=optimizers),
    ONE_BIT: lambda model, optimizers: tithe.torch.attach(
        model, optimizer=optimizers, choices={"* (update)": "eden:bits=1,scale=unbiased,feedback=none"}
    ),
}


def matrices_of(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [p for p in model.blocks.parameters() if p.dim() == 2]


class Way:
    def __init__(self, name: str, width: int, blocks: int, rate: float) -> None:
        inner = losses.transformer(width, blocks)
        matrices = matrices_of(inner)
        mine = {id(p) for p in matrices}
        kind = tithe.torch.optim.Muon if name in (OWN, ONE_BIT) else torch.optim.Muon
        muon = kind(matrices, lr=rate, adjust_lr_fn="match_rms_adamw")
        others = torch.optim.AdamW([p for p in inner.parameters() if id(p) not in mine], lr=2e-3)
        self.optimizers = [muon, others]
        self.model = DistributedDataParallel(inner)
        self.state = WAYS[name](self.model, self.optimizers)

    def trained(self) -> torch.nn.Module:
        return self.model.module

    def bytes_sent(self) -> int | None:
        return None if self.state is None else self.state.stats()["bytes_sent"]


def speed(args: argparse.Namespace) -> list[dict]:
    """Measures the seconds and bytes of a step of each way, in turn. Returns a row per way."""
    names = [TORCHS, BF16, OWN]
    torch.manual_seed(0)
    ways = {name: Way(name, args.width or 128, args.blocks or 6, 0.02) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    in_step: dict[str, list[float]] = {name: [] for name in names}
    before = None
    for step in range(args.steps + 1):
        draws = torch.Generator().manual_seed(100 * step + dist.get_rank())
        x = torch.randint(0, CHARACTERS, (2, CONTEXT), generator=draws)
        for name, way in ways.items():
            dist.barrier()
            if step == 1 and name == OWN:
                before = way.bytes_sent()
            begin = time.monotonic()
            cross_entropy(way.model(x).flatten(0, 1), x.roll(1, 1).flatten()).backward()
            middle = time.monotonic()
            way.optimizers[0].step()
            end = time.monotonic()
            way.optimizers[1].step()
            for each in way.optimizers:
                each.zero_grad()
            seconds[name].append(time.monotonic() - begin)
            in_step[name].append(end - middle)
    inner = ways[OWN].model.module
    matrices, world = matrices_of(inner), dist.get_world_size()
    owners = ways[OWN].optimizers[0]._owners.owners
    alone = {}
    for name, which in (("all", matrices), ("own", [p for p in matrices if owners[id(p)] == dist.get_rank()])):
        dist.barrier()
        begin = time.monotonic()
        for p in which:
            _zeropower_via_newtonschulz(p.detach(), (3.4445, -4.775, 2.0315), 5, 1e-7)
        alone[name] = time.monotonic() - begin
    values = sum(p.numel() for p in inner.parameters())
    rows = []
    for name in names:
        row = {"way": name, "s per step": round(statistics.median(seconds[name][1:]), 3)}
        row["s in Muon's step()"] = round(statistics.median(in_step[name][1:]), 3)
        row["times faster"] = round(
            statistics.median(a / b for a, b in zip(seconds[BF16][1:], seconds[name][1:], strict=True)), 2
        )
        dense = 2 * (world - 1) / world * values * (2 if name == BF16 else 4)
        sent = dense if name != OWN else (ways[OWN].bytes_sent() - before) / args.steps
        row["MB sent per rank and step"] = round(sent / 1e6, 2)
        rows.append(row)
    rows.append({"values": values, "in matrices": sum(p.numel() for p in matrices)})
    rows.append({f"s of Newton-Schulz, {name}": round(taken, 3) for name, taken in alone.items()})
    return rows


def with_losses(args: argparse.Namespace) -> list[dict]:
    """Trains with each way. Returns a row per way with its losses."""
    sent: dict[str, int | None] = {}

    def watch(name: str, seed: int, way: Way) -> None:
        sent[name] = way.bytes_sent()

    found = losses.losses(args, lambda name: Way(name, args.width or 64, args.blocks or 2, args.rate), watch)
    return [
        {"way": name, "nats": nats, "bytes sent per rank and step": sent[name] and round(sent[name] / args.steps)}
        for name, nats in found
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, help="128; 64 with --loss")
    parser.add_argument("--blocks", type=int, help="6; 2 with --loss")
    parser.add_argument("--steps", type=int, help="6 after one that is not counted; 300 with --loss")
    losses.options(parser, 0.02, list(WAYS))
    args = parser.parse_args()
    args.steps = args.steps or (300 if args.loss else 6)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for row in with_losses(args) if args.loss else speed(args):
        if dist.get_rank() == 0:
            print(json.dumps(row), flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
