#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rounds of tithe over two transports, in turn, between the same processes of this machine.

    python lab/bench/transports.py --ranks 4 --values 6250000                                  over the loopback
    python lab/bench/transports.py --ranks 4 --values 250000 --link 1gbit                      on emulated hosts
    python lab/bench/transports.py --ranks 2 --values 2500000 --one tcp --other tcp:streams=4  two of your own

Each round begins when all ranks are ready; its time is that of rank 0 for sync, wait and commit. The output has the
median of the ratios one / other of neighbouring rounds (above 1: the other one is faster), with the quartiles, and the
two medians in seconds. With --link each rank has a network namespace behind a shaped link (lab/hosts/hosts.py).
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from harness import all_gather_in, start_ranks

import tithe
from hosts import Hosts, enter

INSIDE = "TITHE_BENCH_INSIDE"  # set in the private namespaces


def run_rank(args: argparse.Namespace) -> None:
    """Runs one rank: rounds of both sessions in turn. Rank 0 prints the ratio and the medians."""
    sessions = []
    for k, transport in enumerate((args.one, args.other)):
        folder = Path(args.folder) / str(k)
        gather = all_gather_in(folder, args.rank, args.ranks)
        sessions.append(
            tithe.Session.open(
                args.rank,
                args.ranks,
                gather,
                transport=transport,
                codec=args.codec,
                strategy=args.strategy,
                lanes=args.lanes,
            )
        )
    data = np.random.default_rng(args.rank).standard_normal(args.values, np.float32)
    mine = np.empty_like(data)
    there = np.zeros(1, np.float32)
    times: list[list[float]] = [[], []]
    cpu = [0.0, 0.0]
    for r in range(args.warm + args.rounds):
        for k, session in enumerate(sessions):
            np.copyto(mine, data)
            session.wait(session.sync({"there": there}))
            session.commit()
            begin, begin_cpu = time.perf_counter(), time.process_time()
            session.wait(session.sync({"x": mine}))
            session.commit()
            if r >= args.warm:
                times[k].append(time.perf_counter() - begin)
                cpu[k] += (time.process_time() - begin_cpu) / args.rounds
    if args.rank == 0:
        low, middle, high = statistics.quantiles([a / b for a, b in zip(*times, strict=True)], n=4)
        keys = ("one", "other", "ranks", "values", "codec", "strategy", "link", "rounds")
        answer = {k: getattr(args, k) for k in keys}
        answer |= {"one_over_other": round(middle, 3), "quartiles": [round(low, 3), round(high, 3)]}
        answer |= {"seconds": [round(statistics.median(t), 5) for t in times]}
        answer |= {"cpu_seconds": [round(c, 5) for c in cpu]}
        print(json.dumps(answer, indent=1), flush=True)
    for session in sessions:
        session.close()


def run(args: argparse.Namespace) -> int:
    hosts = Hosts(ranks=args.ranks, link=args.link)
    hosts.build()
    with tempfile.TemporaryDirectory() as folder:
        ranks = start_ranks(hosts, ["--folder", folder])
        return max(rank.wait() for rank in ranks)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--values", type=int, default=6_250_000, help="float32 values per rank")
    parser.add_argument("--one", default="ucx:transports=tcp")
    parser.add_argument("--other", default="", help="default: tcp, where it must be with trust= of the emulated hosts")
    parser.add_argument("--link", help="of each emulated host, e.g. 1gbit; default: the loopback")
    parser.add_argument("--codec", default="fp32")
    parser.add_argument("--strategy", default="ring")
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--warm", type=int, default=3)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.other = args.other or ("tcp:trust=10.77.0.0/24" if args.link else "tcp")
    if args.rank is not None:
        run_rank(args)
        return 0
    if args.link and INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        return enter([sys.executable, __file__, *sys.argv[1:]])
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
