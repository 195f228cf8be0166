#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.optim.Muon beside torch.optim.Muon under DistributedDataParallel: seconds and bytes per step, and losses.

    build/tithe hosts --hosts 4x1 --link 100Mb/s -- python lab/bench/muon.py
    torchrun --nproc-per-node 4 lab/bench/muon.py --loss

One process per host. Without --loss the ways take turns, step by step, in the same processes, and each has a model of
its own. Seconds are medians of rank 0's steps. The bytes of DDP's own all-reduce are computed. With --loss each way
trains the transformer of the studies on Python's library (lab/study/texts.py); nats are of 500 windows of the test
files.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim._muon import _zeropower_via_newtonschulz

import tithe.torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from lab.study.models import CHARACTERS, Task, Transformer, windows  # noqa: E402
from lab.study.texts import CONTEXT, files, spread  # noqa: E402


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
        inner = Transformer(width, width // 16, blocks, CONTEXT)
        matrices = matrices_of(inner)
        mine = {id(p) for p in matrices}
        kind = tithe.torch.optim.Muon if name in (OWN, ONE_BIT) else torch.optim.Muon
        muon = kind(matrices, lr=rate, adjust_lr_fn="match_rms_adamw")
        others = torch.optim.AdamW([p for p in inner.parameters() if id(p) not in mine], lr=2e-3)
        self.optimizers = [muon, others]
        self.model = DistributedDataParallel(inner)
        self.state = WAYS[name](self.model, self.optimizers)

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> float:
        loss = cross_entropy(self.model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        for each in self.optimizers:
            each.step()
            each.zero_grad()
        return loss.item()

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


def losses(args: argparse.Namespace) -> list[dict]:
    """Trains with each way from the same initial weights on the same data. Returns a row per way with its losses."""
    rank, world = dist.get_rank(), dist.get_world_size()
    train, test = (
        windows(torch.from_numpy(np.frombuffer(b"\n".join(part), np.uint8).astype(np.int64) % CHARACTERS), 1, CONTEXT)
        for part in files()
    )
    task = Task(Transformer, train, spread(test, 500), "nats")
    nats: dict[str, list[float]] = {name: [] for name in args.ways}
    sent: dict[str, int | None] = {}
    for seed in range(args.seeds):
        for name in args.ways:
            torch.manual_seed(seed)
            way = Way(name, args.width or 64, args.blocks or 2, args.rate)
            schedules = [
                torch.optim.lr_scheduler.LambdaLR(
                    each, lambda s: min(1, 10 * (s + 1) / args.steps) * (1 - s / args.steps)
                )
                for each in way.optimizers
            ]
            for step in range(args.steps):
                draws = torch.Generator().manual_seed(10_000 * seed + step)
                rows_of = torch.randint(len(train[0]), (world, args.batch), generator=draws)[rank]
                way.step(train[0][rows_of], train[1][rows_of])
                for each in schedules:
                    each.step()
            nats[name].append(round(-task.score(way.model.module), 4))
            sent[name] = way.bytes_sent()
            if way.state is not None:
                way.state.close()
            if rank == 0:
                print(seed, name, nats[name][-1], file=sys.stderr, flush=True)
    return [
        {"way": name, "nats": found, "bytes sent per rank and step": sent[name] and round(sent[name] / args.steps)}
        for name, found in nats.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, help="128; 64 with --loss")
    parser.add_argument("--blocks", type=int, help="6; 2 with --loss")
    parser.add_argument("--steps", type=int, help="6 after one that is not counted; 300 with --loss")
    parser.add_argument("--loss", action="store_true", help="losses instead of seconds")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8, help="of each rank, with --loss")
    parser.add_argument("--rate", type=float, default=0.02, help="Muon's, with --loss")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), help="with --loss")
    args = parser.parse_args()
    args.steps = args.steps or (300 if args.loss else 6)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for row in losses(args) if args.loss else speed(args):
        if dist.get_rank() == 0:
            print(json.dumps(row), flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
