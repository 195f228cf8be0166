#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sparse gradients reduced in several ways between emulated hosts of one rank each: `server`, which selects in every
chunk by itself; `sparse`, which selects over all values and sends each owner what falls into its chunk; and `gather`.

    python bench/sparse_reduce.py --hosts 4 --links 100mbit,1gbit --codec topk:ratio=0.01

Without an engine (bench/bench_sparse.cc says what a round is), all ways in turn, round by round. Shapes of the
gradient: `even`; `rows`, where a twentieth of the rows of 256 values, drawn, holds all; `head`, where they are the
first rows; `head_and_noise`, where the others hold a tenth of their magnitude. Printed for each way: the median of the
rounds in milliseconds, the median of the ratios of the first way to it in neighbouring rounds (above 1: faster), bytes
that rank 0 sent, and how much of the energy of the ranks' sum reached them in the first round.
"""

import argparse
import os
import statistics
import sys
from pathlib import Path

import hierarchy

PROGRAM = Path(__file__).resolve().parent.parent / "build" / "bench" / "bench_sparse"


def table(got: dict[str, dict[str, dict]]) -> str:
    lines = []
    for shape, ways in got.items():
        first = next(iter(ways.values()))["seconds"]
        for way, row in ways.items():
            ratio = statistics.median(a / b for a, b in zip(first, row["seconds"], strict=True))
            lines.append(
                f"{shape:15} {way:46} {1e3 * statistics.median(row['seconds']):8.2f} ms ({ratio:.2f})"
                f"  {row['bytes']:9} bytes  {100 * row['delivered']:6.2f} %"
            )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--links", default="100mbit,1gbit")
    parser.add_argument(
        "--ways", type=lambda t: t.split(";"), help="server=SPEC;sparse=SPEC@SPEC;gather=SPEC; default: all, of --codec"
    )
    parser.add_argument("--codec", default="topk:ratio=0.01")
    parser.add_argument("--shapes", type=lambda t: t.split(","), default=["even", "rows", "head", "head_and_noise"])
    parser.add_argument("--n", type=int, default=1_000_000, help="values")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--as", dest="role", choices=["link"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role is None:
        return hierarchy.on_links(args.links, [sys.executable, os.path.abspath(__file__), *sys.argv[1:]])
    ways = args.ways or [f"{how}={args.codec}" for how in ("server", "sparse", "gather")]
    line = [str(PROGRAM), "--transport", hierarchy.TRUST, "--n", str(args.n), "--rounds", str(args.rounds)]
    for shape in args.shapes:
        line += ["--shape", shape]
    for way in ways:
        line += ["--way", way]
    print(f"{args.hosts} hosts at {args.links}, {args.n} values")
    print(table(hierarchy.measure(args.hosts, 1, args.links, line)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
