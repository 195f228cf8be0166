#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rounds of Gloo's all-reduce and of tithe, in turn, between the same processes of this machine.

    python bench/gloo_vs_tithe.py --ranks 4 --n 25000000 --codec fp32 --strategy ring

Each round starts at a barrier with fresh values and takes as long as its slowest rank. Printed is the median of
the ratios gloo / tithe of neighbouring rounds (above 1: tithe is faster), with the quartiles, the two medians in
seconds, and the processor seconds that one rank spends per round. The sums are compared with each other.
"""

import argparse
import json
import os
import socket
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import tithe
from tithe._exchange import all_gather_bytes


def processor() -> str:
    with open("/proc/cpuinfo") as info:
        return next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "unknown")


def cpu_seconds() -> float:
    t = os.times()
    return t.user + t.system


def slowest(seconds: float) -> float:
    t = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return float(t)


def run_rank(rank: int, args: argparse.Namespace, port: int) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    session = tithe.Session.ucx(
        rank,
        args.ranks,
        lambda address: all_gather_bytes(address, dist.group.WORLD, 60.0, "bench"),
        transports=args.transports,
        codec=args.codec,
        strategy=args.strategy,
        average=False,
        lanes=args.lanes,
    )
    data = torch.rand(args.n, generator=torch.Generator().manual_seed(rank))
    mine = torch.empty(args.n)
    view = mine.numpy()

    def gloo() -> None:
        dist.all_reduce(mine)

    def ours() -> None:
        session.wait(session.sync({"x": view}))
        session.commit()

    times: dict[str, list[float]] = {"gloo": [], "tithe": []}
    cpu = {"gloo": 0.0, "tithe": 0.0}
    checks: dict[str, torch.Tensor] = {}
    for r in range(args.warm + args.rounds):
        for name, step in (("gloo", gloo), ("tithe", ours)):
            mine.copy_(data)
            dist.barrier()
            begin, begin_cpu = time.perf_counter(), cpu_seconds()
            step()
            seconds, spent = time.perf_counter() - begin, cpu_seconds() - begin_cpu
            if r == 0:
                checks[name] = mine[:: max(1, args.n // 100_000)].clone()
            seconds = slowest(seconds)
            if r >= args.warm:
                times[name].append(seconds)
                cpu[name] += spent / args.rounds
    if args.codec == "fp32" and not torch.allclose(checks["gloo"], checks["tithe"], rtol=1e-5, atol=1e-6):
        raise SystemExit("the two sums differ")
    if rank == 0:
        ratios = [g / t for g, t in zip(times["gloo"], times["tithe"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            json.dumps(
                {
                    "machine": f"{processor()}, {os.cpu_count()} cores, torch {torch.__version__}",
                    **{k: getattr(args, k) for k in ("ranks", "n", "codec", "strategy", "lanes", "rounds")},
                    "transports": args.transports or "UCX's choice",
                    "gloo_over_tithe": round(middle, 3),
                    "quartiles": [round(low, 3), round(high, 3)],
                    "gloo_seconds": round(statistics.median(times["gloo"]), 4),
                    "tithe_seconds": round(statistics.median(times["tithe"]), 4),
                    "gloo_cpu_seconds": round(cpu["gloo"], 4),
                    "tithe_cpu_seconds": round(cpu["tithe"], 4),
                },
                indent=1,
            ),
            flush=True,
        )
    dist.barrier()
    session.close()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--n", type=int, default=25_000_000, help="float32 values per rank")
    parser.add_argument("--codec", default="fp32")
    parser.add_argument("--strategy", default="ring")
    parser.add_argument("--transports", default="", help="UCX_TLS; empty: UCX's own choice")
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--warm", type=int, default=2)
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(run_rank, (args, port), args.ranks)


if __name__ == "__main__":
    main()
