#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The link utilisation of a round: strategies x codecs x sizes x hosts x links x queues, on emulated hosts.

    python lab/bench/wire.py                                                  as many cells as fit 15 minutes
    python lab/bench/wire.py --minutes 0 --strategies ring,server --codecs fp32 --megabytes 10 --hosts 4    all of these
    python lab/bench/wire.py --minutes 0 --hosts 8 --strategies gather --pacers off/window=16384 --queues 64k

Each host has a network namespace behind a shaped link (lab/hosts/hosts.py), whose switch holds --queues bytes per port;
the hosts of strategy `hosts` have two ranks each. A round begins when all ranks are ready; its time is that of the
slowest rank for sync, wait and commit. `of the link` is the ideal over the median of the rounds. The ideal counts only
payload bytes: the bytes that the busiest host must send, at the link's rate; headers and acknowledgements of TCP/IP and
Ethernet reduce it to 0.93 to 0.95. Several settings of --pacers take turns, round by round, in the same processes, with
all kernels' retransmissions (TCP RetransSegs) and timeouts (TCPTimeouts) per round. With a limit of minutes, cells are
chosen so that any two of their factors' values meet as early as possible.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from harness import all_gather_in, counters, give, machine, rerun_in_namespaces, start_ranks

import tithe
from hosts import Hosts, parse_bytes, parse_rate
from lab.study.verdict import markdown

STRATEGIES = ["ring", "server", "gather", "hosts", "tree"]
CODECS = ["fp32", "fp8", "onebit", "qtopk"]
HEADER_BYTES = 64  # of a frame
SAMPLE = 1 << 18  # the number of values from which payload sizes are computed
MOST_SECONDS = 4.0  # the ideal time of a round may not exceed this, if minutes are limited
START_SECONDS = 1.0  # seconds to start a cell


@dataclass(frozen=True)
class Cell:
    strategy: str
    codec: str
    megabytes: float
    hosts: int
    link: str
    queue: str

    @property
    def each(self) -> int:
        """The number of ranks of a host."""
        return 2 if self.strategy == "hosts" else 1

    @property
    def ideal(self) -> float:
        strategy = "server" if self.strategy == "hosts" else self.strategy  # both send the same bytes between hosts
        share = payload_share(strategy, self.codec, self.hosts)
        return share * self.megabytes * 1e6 / (parse_rate(self.link) / 8)

    def rounds(self, requested: int) -> int:
        return requested or int(min(11, max(5, 1.0 / self.ideal)))


PAYLOADS: dict[tuple[str, str, int], float] = {}


def payload_share(strategy: str, codec: str, hosts: int) -> float:
    """Returns the payload bytes that the busiest of `hosts` ranks sends, over the bytes of the gradient."""
    key = (strategy, codec, hosts)
    if key in PAYLOADS:
        return PAYLOADS[key]
    sent = []

    def one(session: tithe.Session) -> None:
        values = np.random.default_rng(session.rank).standard_normal(SAMPLE, np.float32)
        session.wait(session.sync({"x": values}))
        session.commit()
        stats = session.stats()
        sent.append(stats["bytes_sent"] - HEADER_BYTES * stats["frames_sent"])

    ranks = [threading.Thread(target=one, args=(s,)) for s in tithe.Session.loop(hosts, codec=codec, strategy=strategy)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    PAYLOADS[key] = max(sent) / (4 * SAMPLE)
    return PAYLOADS[key]


# ---- Which cells


def all_cells(args: argparse.Namespace) -> list[Cell]:
    factors = (args.strategies, args.codecs, args.megabytes, args.hosts, args.links, args.queues)
    return [Cell(*values) for values in itertools.product(*factors)]


def pairs_of(cell: Cell) -> set[tuple]:
    return set(itertools.combinations(asdict(cell).items(), 2))


def chosen(args: argparse.Namespace) -> list[Cell]:
    """Returns all cells, or as many as fit: repeatedly the cell with most pairs of values that no chosen cell has."""
    left = all_cells(args)
    if not args.minutes:
        return left
    left = [cell for cell in left if cell.ideal <= MOST_SECONDS]
    taken: list[Cell] = []
    seconds, met = 0.0, set()
    while left:
        best = max(left, key=lambda cell: (len(pairs_of(cell) - met), -cell.ideal))
        if not pairs_of(best) - met and met:
            met = set()  # all pairs are covered, so the search starts again
            continue
        left.remove(best)
        turns = len(args.pacers) * (args.warm + best.rounds(args.rounds))
        seconds += START_SECONDS + 1.3 * turns * best.ideal
        if seconds > 60 * args.minutes:
            break
        met |= pairs_of(best)
        taken.append(best)
    return taken


# ---- A rank


def run_cell(cell: Cell, args: argparse.Namespace, folder: Path) -> dict:
    """Runs one cell on one rank: rounds of all pacers in turn. Returns times, counters and payload bytes."""
    world = cell.hosts * cell.each
    sessions = [
        tithe.Session.open(
            args.rank,
            world,
            all_gather_in(folder / str(k), args.rank, world),
            transport=args.transport,
            codec=cell.codec,
            strategy=cell.strategy,
            pacer=pacer,
        )
        for k, pacer in enumerate(args.pacers)
    ]
    data = np.random.default_rng(args.rank).standard_normal(int(cell.megabytes * 250_000), np.float32)
    mine = np.empty_like(data)
    there = np.zeros(1, np.float32)
    answer: dict = {name: [[] for _ in sessions] for name in ("seconds", "again", "timeouts")}
    for turn in range(args.warm + cell.rounds(args.rounds)):
        for k, session in enumerate(sessions):
            np.copyto(mine, data)
            session.sync({"there": there})
            session.commit()
            before, begin = counters(), time.perf_counter()
            session.wait(session.sync({"x": mine}))
            session.commit()
            took, after = time.perf_counter() - begin, counters()
            if turn < args.warm:
                continue
            for name, value in zip(answer, (took, after[0] - before[0], after[1] - before[1]), strict=True):
                answer[name][k].append(value)
    for session in sessions:
        session.close()
    return answer


def run_rank(args: argparse.Namespace) -> None:
    for number, cell in enumerate(json.loads(args.cells)):
        folder = Path(args.folder) / str(number)
        folder.mkdir(exist_ok=True)
        print(json.dumps(run_cell(Cell(**cell), args, folder)), flush=True)


# ---- The cells of one kind of hosts


def run_inside(args: argparse.Namespace) -> int:
    cells = [Cell(**cell) for cell in json.loads(args.inside)]
    first = cells[0]
    hosts = Hosts(ranks=first.hosts, link=first.link, queue=parse_bytes(first.queue))
    hosts.build()
    hosts.ranks *= first.each
    prefix = hosts.prefix
    hosts.prefix = lambda rank: prefix(rank // first.each)
    with tempfile.TemporaryDirectory() as folder:
        more = ["--folder", folder, "--cells", args.inside]
        ranks = start_ranks(hosts, more, stdout=subprocess.PIPE)
        outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        return 1
    rows = []
    for cell, answers in zip(cells, zip(*(s.splitlines() for s in outputs), strict=True), strict=True):
        results = [json.loads(answer) for answer in answers]
        firsts = results[:: first.each]  # a host's counters are those of its first rank
        for k, pacer in enumerate(args.pacers):
            slowest = [max(times) for times in zip(*(t["seconds"][k] for t in results), strict=True)]
            row = {"cell": asdict(cell), "pacer": pacer, "seconds": slowest, "control": hosts.congestion_control}
            rows.append(
                row | {name: [sum(t[name][k]) / len(slowest) for t in firsts] for name in ("again", "timeouts")}
            )
    print(json.dumps(rows))
    return 0


def line(row: dict, first: dict) -> list[str]:
    """Returns a line of the table. first: the row of the same cell with the first pacer."""
    cell = Cell(**row["cell"])
    middle = statistics.median(row["seconds"])
    shared = [cell.strategy, cell.codec, f"{cell.megabytes:g}", str(cell.hosts), cell.link, cell.queue]
    ratio = statistics.median(a / b for a, b in zip(first["seconds"], row["seconds"], strict=True))
    figures = [f"{1e3 * middle:.1f}", f"{1e3 * cell.ideal:.1f}", f"**{cell.ideal / middle:.2f}**", f"{ratio:.2f}"]
    figures += [f"{sum(row['again']):.0f}", f"{sum(row['timeouts']):.1f}"]
    return [*shared, f"`{row['pacer']}`", *figures]


def compared(args: argparse.Namespace, rows: list[dict]) -> str:
    """Returns the comparison of pacers, a line for each."""
    head = "strategy, codec, MB, hosts, link, queue, pacer, ms, ideal, of the link, first / this, sent again, timeouts"
    return markdown(head.split(", "), [line(row, rows[k - k % len(args.pacers)]) for k, row in enumerate(rows)])


def grid(rows: list[dict]) -> str:
    """Returns the grid of one pacer: a line per strategy, codec and size, a column per link and queue."""
    columns = list(dict.fromkeys((row["cell"]["link"], row["cell"]["queue"]) for row in rows))
    lines: dict[tuple, dict[tuple, str]] = {}
    for row in rows:
        cell = Cell(**row["cell"])
        middle = statistics.median(row["seconds"])
        ms = f"{1e3 * middle:.{0 if middle > 0.1 else 1}f}"
        figures = f"{cell.ideal / middle:.2f} ({ms}; {sum(row['again']):.0f})"
        what = (f"{cell.hosts}", f"{cell.megabytes:g}", cell.strategy, cell.codec)
        lines.setdefault(what, {})[cell.link, cell.queue] = figures
    head = ["hosts", "MB", "strategy", "codec", *(f"{link}, {queue}" for link, queue in columns)]
    return markdown(head, [[*what, *(had.get(c, "") for c in columns)] for what, had in lines.items()])


def page(args: argparse.Namespace, rows: list[dict]) -> str:
    command = " ".join(["python", "lab/bench/wire.py", *sys.argv[1:]])
    says = f"`{command}` on {machine()}. Transport `{args.transport}`, TCP's congestion control {rows[0]['control']}. "
    says += "Milliseconds are medians"
    if len(args.pacers) == 1:
        says += f", pacer `{args.pacers[0]}`: of the link (ms; segments that are sent again in a round)."
        return f"{says}\n\n{grid(rows)}"
    says += f"; first / this: rounds of pacer `{args.pacers[0]}` over those of this row's, the median over neighbouring"
    return f"{says} rounds.\n\n{compared(args, rows)}"


def main() -> int:
    """Reads the command line, and runs the cells of each kind of hosts in namespaces."""

    def words(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", type=words, default=STRATEGIES)
    parser.add_argument("--codecs", type=words, default=CODECS)
    parser.add_argument("--megabytes", type=lambda t: [float(w) for w in words(t)], default=[1.0, 10.0, 100.0])
    parser.add_argument("--hosts", type=lambda t: [int(w) for w in words(t)], default=[2, 4, 8])
    parser.add_argument("--links", type=words, default=["100mbit", "1gbit"])
    parser.add_argument("--queues", type=words, default=["64k", "2m"], help="bytes that the switch holds per port")
    parser.add_argument("--pacers", type=lambda t: t.split("/"), default=["off"], help="with / between")
    parser.add_argument("--transport", default="tcp:trust=10.77.0.0/24")
    parser.add_argument("--minutes", type=float, default=15, help="0: all cells")
    parser.add_argument("--rounds", type=int, default=0, help="default: 5, more where they are short")
    parser.add_argument("--warm", type=int, default=2, help="rounds before that: connections begin slowly")
    parser.add_argument("--write", type=Path)
    for name in ("--inside", "--folder", "--cells"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        run_rank(args)
        return 0
    if args.inside:
        return run_inside(args)
    kinds: dict[tuple, list[Cell]] = {}
    for cell in chosen(args):
        kinds.setdefault((cell.link, cell.queue, cell.hosts, cell.each), []).append(cell)
    rows = []
    for kind in sorted(kinds):
        rows += rerun_in_namespaces("--inside", json.dumps([asdict(cell) for cell in kinds[kind]]))
        print(*kind, f"{len(kinds[kind])} cells", file=sys.stderr, flush=True)
    rows.sort(key=lambda row: [args.links.index(row["cell"]["link"]), args.queues.index(row["cell"]["queue"]),
                               row["cell"]["hosts"], STRATEGIES.index(row["cell"]["strategy"])])  # fmt: skip
    give(page(args, rows), args.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
