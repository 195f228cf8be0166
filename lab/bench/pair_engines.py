# SPDX-License-Identifier: Apache-2.0
"""Two builds of bench_engine in turn: the effect of a change on the engine's own cost.

python lab/bench/pair_engines.py BEFORE AFTER --ranks 2,4,16 --pairs 5 [-- more arguments of bench_engine]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys


def run(program: str, ranks: str, more: list[str]) -> dict[int, dict]:
    line = [program, "--json", "--ranks", ranks, *more]
    rows = subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()
    return {row["ranks"]: row for row in map(json.loads, rows)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--ranks", default="2,4,16,64")
    parser.add_argument("--pairs", type=int, default=5)
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:cut])
    more = sys.argv[cut + 1 :]
    pairs = []
    for k in range(args.pairs):
        turn = [args.before, args.after] if k % 2 == 0 else [args.after, args.before]
        done = {program: run(program, args.ranks, more) for program in turn}
        pairs.append((done[args.before], done[args.after]))
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print("medians; the engine's own CPU seconds per 100,000 steps; the rest per rank and round")
    print("ranks | own before  after  ratio (quartiles)  |  polls  after |  wakes  after | sleeps  after")
    for ranks in pairs[0][0]:
        column = {
            key: [statistics.median(pair[i][ranks][key] for pair in pairs) for i in (0, 1)]
            for key in ("own_s", "polls", "wakes", "sleeps")
        }
        ratios = sorted(after[ranks]["own_s"] / before[ranks]["own_s"] for before, after in pairs)
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        own = column.pop("own_s")
        print(
            f"{ranks:5} | {own[0]:10.4f} {own[1]:6.4f} {statistics.median(ratios):6.2f} ({low:.2f} .. {high:.2f})  | "
            + " | ".join(f"{before:6.1f} {after:6.1f}" for before, after in column.values())
        )


if __name__ == "__main__":
    main()
