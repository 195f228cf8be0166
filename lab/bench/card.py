#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""INCEPTIONN's comparison, steps without compute: workers and an aggregator (WA), the ring, both with network cards,
and codecs without a card, on emulated hosts (needs root).

    python lab/bench/card.py [--link 100Mb/s] [--values 1149010] [--steps 5] [--out FILE]

The paper's HDC network gives the number of values, and `tithe replay --n` the gradients, which a card
compresses about 4 to 1. WA is `server` with one rank that only sums, on a host of its own. Each row is one run of that
command: the median step, the bytes that the busiest host's link counted in a step, and the results of the checks. The
cards are processes here, and take processor time from the ranks, unlike hardware cards.
"""

import argparse
import sys
from pathlib import Path

from harness import answer, machine

WORKERS = 4
ROWS = [  # name, codec, strategy, aggregators, card
    ("WA", "fp32", "server", 1, "none"),
    ("WA + card", "snap", "server", 1, "exact"),
    ("ring", "fp32", "ring", 0, "none"),
    ("ring + card", "snap", "ring", 0, "exact"),
    ("ring, bf16", "bf16", "ring", 0, "none"),
    ("ring, inceptionn in software", "inceptionn", "ring", 0, "none"),
    ("server, qtopk 3 %", "qtopk:ratio=0.03", "server", 0, "none"),
]


def measure(args: argparse.Namespace, codec: str, strategy: str, aggregators: int, card: str) -> dict:
    words = ["--ranks", WORKERS + aggregators, "--servers", aggregators, "--transport", "tcp", "--link", args.link]
    words += ["--card", card, "--codec", codec, "--strategy", strategy, "--n", args.values, "--steps", args.steps]
    return answer("replay", *words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", default="100Mb/s")
    parser.add_argument("--values", type=int, default=1_149_010)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    lines = [
        f"Links of {args.link}, {WORKERS} workers, {args.values} values, median of {args.steps} steps, tcp.",
        f"{machine()}.",
        "",
        "| row | codec | step, s | MB on the wire, busiest host | steps of WA | identical | ledger |",
        "|---|---|---:|---:|---:|---|---|",
    ]
    first = None
    for name, *row in ROWS:
        got = measure(args, *row)
        first = first or got["step_ms"]
        ledger = "exact" if got["ledger_exact"] else f"{got['ledger_error']:.1e}"
        lines.append(
            f"| {name} | {row[0]} | {got['step_ms'] / 1e3:.3f} | {got['wire_bytes_per_host'] / 1e6:.2f}"
            f" | {first / got['step_ms']:.2f}x | {'yes' if got['identical'] else 'NO'} | {ledger} |"
        )
        print(lines[-1], file=sys.stderr, flush=True)
    text = "\n".join(lines) + "\n"
    if args.out:
        args.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
