#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rounds of strategies with and without a host hierarchy, between emulated hosts of several ranks.

    python lab/bench/hierarchy.py --hosts 2 --ranks 2 --links 100mbit,1gbit --codecs fp32,bf16,onebit

Ranks of one host share a network namespace and its link (lab/hosts/hosts.py), and exchange over its loopback. All
strategies of a codec take turns, round by round, in the same processes. The output has the medians of the rounds in
milliseconds, measured by rank 0, and the median of the ratios `server` / strategy of neighbouring rounds (above 1:
faster than `server`). Fields of a rule may follow a strategy: `hosts/inside=bf16/part_values=262144`, and `link=` is
passed to the session.
Needs network namespaces; otherwise it ends with the reason.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "hosts"))

import hosts

PORT = 29_400
TRUST = f"tcp:trust={hosts.SUBNET}.0/24"


def options(codec: str, strategy: str) -> dict[str, object]:
    """Returns the session options of a text such as `hosts/inside=bf16/part_values=262144/link=1gbit`."""
    name, *fields = strategy.split("/")
    settings = dict(field.split("=", 1) for field in fields)
    link = settings.pop("link", "")
    size = {"part_values": int(settings.pop("part_values"))} if "part_values" in settings else {}
    return {"choices": {"*": {"codec": codec, "strategy": name, **settings, **size}}, "link": link}


def rank() -> int:
    return int(os.environ["RANK"])


def rounds_of(world: int, args: argparse.Namespace, first_port: int = PORT) -> dict[str, dict[str, list[float]]]:
    """Runs one rank: all codecs, all strategies in turn. Returns the seconds of each round, by codec and strategy."""
    import numpy as np

    import tithe

    out: dict[str, dict[str, list[float]]] = {}
    gradient = np.random.default_rng(rank()).standard_normal(args.n, dtype=np.float32)
    port = first_port
    for codec in args.codecs:
        sessions = {}
        for strategy in args.strategies:
            port += 1
            os.environ["MASTER_PORT"] = str(port)
            sessions[strategy] = tithe.Session.from_environment(
                transport=TRUST, hosts=f"{world // args.ranks}x{args.ranks}", **options(codec, strategy)
            )
        seconds: dict[str, list[float]] = {strategy: [] for strategy in sessions}
        for turn in range(args.warm + args.rounds):
            for strategy, session in sessions.items():
                values = gradient.copy()
                begin = time.perf_counter()
                session.wait(session.sync({"gradient": values}))
                session.commit()
                if turn >= args.warm:
                    seconds[strategy].append(time.perf_counter() - begin)
        for session in sessions.values():
            session.close()
        out[codec] = seconds
    return out


def measure(count: int, ranks: int, link: str, line: list[str]) -> object:
    """Runs `line` in every rank of `count` hosts on links of this rate. Returns rank 0's JSON output. Called inside
    `hosts.enter`."""
    world = count * ranks
    place = hosts.Hosts(ranks=count, link=link)
    place.build()
    started = []
    for rank in range(world):
        environment = {
            **os.environ,
            **{"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": place.address(0), "TITHE_TOKEN": "none"},
            "MASTER_PORT": str(PORT),
        }
        started.append(
            subprocess.Popen(
                [*place.prefix(rank // ranks), *line],
                env=environment,
                stdout=subprocess.PIPE,
                preexec_fn=hosts.die_with_parent,  # noqa: PLW1509 (no threads here)
            )
        )
    answers = [process.communicate()[0] for process in started]
    if any(process.returncode != 0 for process in started):
        raise RuntimeError(f"ranks ended with {[process.returncode for process in started]}")
    return json.loads(answers[0].splitlines()[-1])


def on_links(links: str, line: list[str]) -> int:
    """Runs `line` once for each link, in namespaces of its own."""
    try:
        hosts.unshare_command()
    except RuntimeError as why:
        print(f"{os.path.basename(line[1])}: no network namespaces here ({why})", file=sys.stderr)
        return 1
    for link in links.split(","):
        if (status := hosts.enter([*line, "--links", link, "--as", "link"])) != 0:
            return status
    return 0


def table(got: dict[str, dict[str, list[float]]]) -> str:
    lines = []
    for codec, seconds in got.items():
        cells = []
        for strategy, times in seconds.items():
            ratio = statistics.median(a / b for a, b in zip(seconds["server"], times, strict=True))
            cells.append(f"{strategy} {1e3 * statistics.median(times):.1f} ms ({ratio:.2f})")
        lines.append(f"{codec:8}  " + "   ".join(cells))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2, help="of each host")
    parser.add_argument("--links", default="100mbit,1gbit")
    parser.add_argument("--codecs", type=lambda t: t.split(","), default=["fp32", "bf16", "onebit"])
    parser.add_argument(
        "--strategies", type=lambda t: t.split(","), default=["server", "ring", "hosts", "gather", "hosts_gather"]
    )
    parser.add_argument("--n", type=int, default=1_000_000, help="values of the one tensor")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--as", dest="role", choices=["rank", "link"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if "server" not in args.strategies:
        parser.error("strategies: server is what the others are compared with")
    if args.role == "rank":
        got = rounds_of(args.hosts * args.ranks, args)
        if rank() == 0:
            print(json.dumps(got))
        return 0
    if args.role == "link":
        print(f"{args.hosts} hosts of {args.ranks} ranks at {args.links}, {args.n} values")
        line = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--as", "rank"]
        print(table(measure(args.hosts, args.ranks, args.links, line)), flush=True)
        return 0
    return on_links(args.links, [sys.executable, os.path.abspath(__file__), *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
