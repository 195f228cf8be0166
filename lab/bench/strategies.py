#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Strategy `auto` beside the strategies from which it chooses, on emulated hosts: is it near the best of them?

    python lab/bench/strategies.py                                   the table of lab/results/strategies.md, on stdout
    python lab/bench/strategies.py --places 4,2x2 --links 100mbit --codecs fp32,fp8 --rounds 3 --write FILE

Places are hosts, or hosts x ranks. Ranks of one host share a network namespace and its link (lab/hosts/hosts.py). One
tensor of --megabytes MB is exchanged; all strategies of a codec take turns, round by round, in the same processes.
`auto` gets the rate of the link, as by `link=`; `auto, untold` does not. Each figure is the median of the rounds,
measured by rank 0. A ratio is the median over the rounds of auto's time over that of the best other strategy (by its
median) in the same round. Needs network namespaces.
"""

import argparse
import datetime
import json
import statistics
import sys
from pathlib import Path

import hierarchy
from harness import give, machine, rerun_in_namespaces

FIXED = ["ring", "server", "gather", "tree", "hosts"]
CODECS = ["fp32", "bf16", "fp8", "onebit", "qtopk"]


def strategies_of(place: str, link: str) -> dict[str, str]:
    """Returns the strategies by their printed names; `hosts` equals `server` if each rank has a host of its own."""
    shared = "x" in place
    specs = {"auto": f"auto/link={link}", "auto, untold": "auto"}
    return specs | {name: name for name in FIXED if shared or name != "hosts"}


def run_inside(args: argparse.Namespace) -> int:
    """Runs one place on one link; prints seconds by size, codec and strategy."""
    hosts, _, each = args.place.partition("x")
    line = [sys.executable, *sys.argv, "--as", "rank"]
    times = hierarchy.measure(int(hosts), int(each or 1), args.link, line)
    print(json.dumps(times))
    return 0


def run_rank(args: argparse.Namespace) -> None:
    hosts, _, each = args.place.partition("x")
    args.ranks = int(each or 1)
    args.strategies = list(strategies_of(args.place, args.link).values())
    out = {}
    for k, megabytes in enumerate(args.megabytes):
        args.n = int(megabytes * 1e6) // 4
        got = hierarchy.rounds_of(int(hosts) * args.ranks, args, first_port=hierarchy.PORT + 100 * k)
        out[str(megabytes)] = got
    if hierarchy.rank() == 0:
        print(json.dumps(out))


def rows_of(place: str, link: str, times: dict[str, dict[str, dict[str, list[float]]]]) -> list[tuple[str, float]]:
    """Returns lines of the table, each with the ratio of `auto` to the best other strategy."""
    rows = []
    names = strategies_of(place, link)
    for megabytes, by_codec in times.items():
        for codec, seconds in by_codec.items():
            of = {name: seconds[spelled] for name, spelled in names.items()}
            middle = {name: statistics.median(times) for name, times in of.items()}
            best = min((name for name in FIXED if name in of), key=middle.__getitem__)
            ratios = {
                name: statistics.median(a / b for a, b in zip(of[name], of[best], strict=True))
                for name in ("auto", "auto, untold")
            }
            cells = " | ".join(f"{1e3 * middle[name]:.1f}" if name in middle else "" for name in FIXED)
            rows.append(
                (
                    f"| {place} | {link} | {megabytes} | {codec} | {1e3 * middle['auto']:.1f} | {cells} | {best} "
                    f"| {ratios['auto']:.2f} | {ratios['auto, untold']:.2f} |",
                    ratios["auto"],
                )
            )
    return rows


def page(args: argparse.Namespace, rows: list[tuple[str, float]]) -> str:
    command = " ".join(["python", "lab/bench/strategies.py", *sys.argv[1:]])
    ratios = [ratio for _, ratio in rows]
    within = [sum(ratio <= most for ratio in ratios) for most in (1.1, 1.25)]
    return "\n".join(
        [
            "# Strategy auto, measured",
            "",
            f"`{command}`, {datetime.date.today().isoformat()}, {machine()}. Hosts are network namespaces of this "
            f"machine, links are shaped by the kernel's `tbf`. Medians of {args.rounds} rounds, milliseconds; all "
            "strategies of a row took turns.",
            "",
            f"`auto` takes at most 1.1 times as long as the best of the others in {within[0]} of {len(rows)} rows, "
            f"1.25 times in {within[1]}, {max(ratios):.2f} times at most. It never takes a strategy that rounds more "
            "often than `server` where that loses much (a ring of onebit), which may be the fastest. `ring` and "
            "`server` are the same messages between two hosts: they show how far figures can be trusted.",
            "",
            "| hosts | links | MB | codec | auto | " + " | ".join(FIXED) + " | best | auto / best | untold / best |",
            "|---" * (8 + len(FIXED)) + "|",
            *(row for row, _ in rows),
            "",
        ]
    )


def main() -> int:
    def words(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=words, default=["2", "3", "4", "2x2"])
    parser.add_argument("--links", type=words, default=["100mbit", "1gbit"])
    parser.add_argument("--codecs", type=words, default=CODECS)
    parser.add_argument("--megabytes", type=lambda text: [float(word) for word in words(text)], default=[1.0, 10.0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm", type=int, default=1)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--as", dest="role", choices=["rank", "inside"], help=argparse.SUPPRESS)
    parser.add_argument("--place", help=argparse.SUPPRESS)
    parser.add_argument("--link", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role == "rank":
        run_rank(args)
        return 0
    if args.role == "inside":
        return run_inside(args)
    rows = []
    for link in args.links:
        for place in args.places:
            rows += rows_of(place, link, rerun_in_namespaces("--as", "inside", "--place", place, "--link", link))
            print(f"{place} at {link}: {rows[-1][0]}", file=sys.stderr, flush=True)
    give(page(args, rows), args.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
