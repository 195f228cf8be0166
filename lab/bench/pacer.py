#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gain of the pacer (docs/guide/pacing.md): rounds without and with it in turn, between the same processes.

    python lab/bench/pacer.py                                        the table of lab/results/pacer.md, on stdout
    python lab/bench/pacer.py --write lab/results/pacer.md         the same, written to the file
    python lab/bench/pacer.py --queues 64k --strategies gather --transports tcp --pacers window=65536 --rounds 5

Each rank has a network namespace behind a shaped link (lab/hosts/hosts.py), whose switch holds --queues bytes per port.
A round begins when all ranks are ready; its time is that of the slowest rank for sync, wait and commit. A row gives the
median of the ratios off / on of neighbouring rounds (above 1: the pacer is faster) with the quartiles, the median of
the seconds, and all kernels' retransmissions (TCP RetransSegs) and timeouts (TCPTimeouts) per round.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from harness import all_gather_in, counters, give, machine, rerun_in_namespaces, start_ranks

import tithe
from hosts import Hosts, parse_bytes

TRANSPORTS = {"ucx": "ucx:transports=tcp", "tcp": "tcp:trust=10.77.0.0/24"}
PACERS = [
    "window=16384",
    "window=32768",
    "window=65536",
    "window=65536,rotation=2",
    "window=65536,rotation=on",
]
# Values per rank, for about the same time by either: server sends 2 (N-1)/N of the values, gather N-1 times all values.
VALUES = {"server": 1_000_000, "gather": 250_000}


def run_case(args: argparse.Namespace, folder: Path, transport: str, strategy: str) -> dict:
    """Returns times and counters by session (the first has no pacer), one of each per round."""
    settings = ["off", *args.pacers]
    sessions = []
    for k, pacer in enumerate(settings):
        gather = all_gather_in(folder / f"{transport}-{strategy}-{k}", args.rank, args.ranks)
        sessions.append(
            tithe.Session.open(
                args.rank,
                args.ranks,
                gather,
                transport=TRANSPORTS[transport],
                codec=args.codec,
                strategy=strategy,
                pacer=pacer,
            )
        )
    values = args.values or VALUES.get(strategy, VALUES["server"])
    rng = np.random.default_rng(args.rank)
    data = [rng.standard_normal(values // args.buckets, np.float32) for _ in range(args.buckets)]
    mine = [np.empty_like(d) for d in data]
    there = np.zeros(1, np.float32)
    none = [0] * len(settings)
    answer: dict = {"seconds": [[] for _ in settings], "again": [*none], "timeouts": [*none]}
    for r in range(args.warm + args.rounds):
        for k, session in enumerate(sessions):
            for to, source in zip(mine, data, strict=True):
                np.copyto(to, source)
            session.wait(session.sync({"there": there}))
            session.commit()
            before = counters()
            begin = time.perf_counter()
            tickets = [session.sync({f"x{b}": bucket}) for b, bucket in enumerate(mine)]
            for ticket in tickets:
                session.wait(ticket)
            session.commit()
            took = time.perf_counter() - begin
            after = counters()
            if r >= args.warm:
                answer["seconds"][k].append(took)
                answer["again"][k] += after[0] - before[0]
                answer["timeouts"][k] += after[1] - before[1]
    for session in sessions:
        session.close()
    return answer


def run_rank(args: argparse.Namespace) -> None:
    folder = Path(args.folder)
    for transport in args.transports:
        for strategy in args.strategies:
            print(json.dumps(run_case(args, folder, transport, strategy)), flush=True)


def rows_of(args: argparse.Namespace, queue: str, cases: list[list[dict]]) -> list[dict]:
    """Returns one row per case and pacer; `cases` has every rank's results in order."""
    rows = []
    names = [(t, s) for t in args.transports for s in args.strategies]
    for (transport, strategy), answers in zip(names, zip(*cases, strict=True), strict=True):
        slowest = [[max(times) for times in zip(*(a["seconds"][k] for a in answers), strict=True)]
                   for k in range(1 + len(args.pacers))]  # fmt: skip
        for k, pacer in enumerate(args.pacers, start=1):
            low, middle, high = statistics.quantiles([a / b for a, b in zip(slowest[0], slowest[k], strict=True)], n=4)
            row = {"queue": queue, "transport": transport, "strategy": strategy, "pacer": pacer}
            row |= {"ratio": middle, "low": low, "high": high}
            for name, j in (("off", 0), ("on", k)):
                row[f"seconds_{name}"] = statistics.median(slowest[j])
                row[f"again_{name}"] = sum(a["again"][j] for a in answers) / args.rounds
                row[f"timeouts_{name}"] = sum(a["timeouts"][j] for a in answers) / args.rounds
            rows.append(row)
    return rows


def run_inside(args: argparse.Namespace) -> int:
    """Runs all cases behind one kind of queue; prints the rows as JSON."""
    hosts = Hosts(ranks=args.ranks, link=args.link, queue=parse_bytes(args.inside))
    hosts.build()
    with tempfile.TemporaryDirectory() as folder:
        ranks = start_ranks(hosts, ["--folder", folder], stdout=subprocess.PIPE)
        outputs = [rank.communicate()[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            return 1
        print(json.dumps(rows_of(args, args.inside, [[json.loads(x) for x in s.splitlines()] for s in outputs])))
    return 0


def table(args: argparse.Namespace, rows: list[dict]) -> str:
    command = " ".join(["python", "lab/bench/pacer.py", *sys.argv[1:]])
    out = [
        "# The pacer",
        "",
        f"{args.ranks} ranks behind links of {args.link}, codec `{args.codec}`, {args.buckets} buckets per round, "
        f"{args.rounds} rounds of each in turn. `{command}` on {machine()}.",
        "",
        "off / on above 1: rounds with the pacer are faster. In brackets the quartiles. Sent again, timeouts: TCP "
        "segments and timers of all ranks per round.",
        "",
        "| queue | transport | strategy | pacer | off / on | s off | s on | sent again off | on | timeouts off | on |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        out.append(
            f"| {r['queue']} | {r['transport']} | {r['strategy']} | `{r['pacer']}` "
            f"| {r['ratio']:.2f} ({r['low']:.2f} to {r['high']:.2f}) | {r['seconds_off']:.3f} | {r['seconds_on']:.3f} "
            f"| {r['again_off']:.0f} | {r['again_on']:.0f} | {r['timeouts_off']:.1f} | {r['timeouts_on']:.1f} |"
        )
    return "\n".join(out) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--link", default="100mbit", help="of each emulated host; slow, so that 2 cores can feed 8")
    parser.add_argument("--queues", nargs="+", default=["64k", "2m"], help="bytes that the switch holds per port")
    parser.add_argument("--transports", nargs="+", default=list(TRANSPORTS), choices=list(TRANSPORTS))
    parser.add_argument("--strategies", nargs="+", default=list(VALUES))
    parser.add_argument("--pacers", nargs="+", default=PACERS)
    parser.add_argument("--codec", default="fp32")
    parser.add_argument("--values", type=int, default=0, help="per rank; default: by strategy")
    parser.add_argument("--buckets", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        run_rank(args)
        return 0
    if args.inside:
        return run_inside(args)
    rows = [row for queue in args.queues for row in rerun_in_namespaces("--inside", queue)]
    give(table(args, rows), args.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
