# SPDX-License-Identifier: Apache-2.0
"""Losses of the ways that a benchmark compares: each trains the same model on the same data. For --loss of muon.py and
sharded.py, one process per rank. Nats are of 500 windows of the test files of Python's library (lab/study/texts.py)."""

import argparse
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from lab.study.models import CHARACTERS, Task, Transformer, windows
from lab.study.texts import CONTEXT, files, spread


def options(parser: argparse.ArgumentParser, rate: float, names: list[str]) -> None:
    parser.add_argument("--loss", action="store_true", help="losses instead of seconds")
    parser.add_argument("--seeds", type=int, default=3, help="with --loss")
    parser.add_argument("--batch", type=int, default=8, help="of each rank, with --loss")
    parser.add_argument("--rate", type=float, default=rate, help="learning rate, with --loss")
    parser.add_argument("--ways", nargs="+", choices=names, default=names, help="with --loss")


def transformer(width: int, blocks: int) -> Transformer:
    return Transformer(width, width // 16, blocks, CONTEXT)


def losses(
    args: argparse.Namespace, make: Callable[[str], Any], watch: Callable[[str, int, Any], None]
) -> Iterable[tuple[str, list[float]]]:
    """Trains with each way from the same initial weights on the same data. Returns the losses of each way, by seed.

    make: returns a way: `model`, `optimizers`, the State or None as `state`, and trained(), the model whose loss is
    measured. watch: called after each step with name, seed and way.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    train, test = (
        windows(torch.from_numpy(np.frombuffer(b"\n".join(part), np.uint8).astype(np.int64) % CHARACTERS), 1, CONTEXT)
        for part in files()
    )
    task = Task(Transformer, train, spread(test, 500), "nats")
    nats: dict[str, list[float]] = {name: [] for name in args.ways}
    for seed in range(args.seeds):
        for name in args.ways:
            torch.manual_seed(seed)
            way = make(name)
            schedules = [torch.optim.lr_scheduler.LambdaLR(each, _factor(args.steps)) for each in way.optimizers]
            for step in range(args.steps):
                draws = torch.Generator().manual_seed(10_000 * seed + step)
                rows = torch.randint(len(train[0]), (world, args.batch), generator=draws)[rank]
                task.loss(lambda x, way=way: way.model(x).float(), train[0][rows], train[1][rows]).backward()
                for optimizer, schedule in zip(way.optimizers, schedules, strict=True):
                    optimizer.step()
                    optimizer.zero_grad()
                    schedule.step()
                watch(name, seed, way)
            nats[name].append(round(-task.score(way.trained()), 4))
            if way.state is not None:
                way.state.close()
            if rank == 0:
                print(seed, name, nats[name][-1], file=sys.stderr, flush=True)
    return nats.items()


def _factor(steps: int) -> Callable[[int], float]:
    """Returns the factor of the rate by step: a tenth of the steps to warm up, then linear to 0."""
    return lambda step: min(1, 10 * (step + 1) / steps) * (1 - step / steps)
