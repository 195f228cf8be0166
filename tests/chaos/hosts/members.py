# SPDX-License-Identifier: Apache-2.0
"""`make chaos-members`: jobs that continue without lost ranks. Faults x phases x victims x strategies x transports,
with a process per rank in network namespaces, and a board in a folder.

    members.py --rank BINARY [--out FILE] [--only TEXT] [--jobs N]      the table
    members.py --cell FAULT PHASE VICTIM STRATEGY TRANSPORT --rank BINARY

Five ranks begin. The victims stop at a gate of the protocol; then the fault begins. The other ranks must finish all
their rounds, and their records of each round must satisfy: gradients and residuals before == result and residuals
after.
"""

import contextlib
import itertools
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "lab/hosts"))
import cells as cells_at_work
from matrix import Rank

from hosts import Hosts, command

NAMES = ["ann", "bob", "cay", "dan", "eve"]
TIMEOUT = 3.0
ROUNDS = 8
VALUES = 100_000
LINK = "1gbit"
SLOW = 2e6  # bits per second: a frame takes a third of a second
FAULTS = ["kill", "freeze", "cut", "return"]
MEETING = ["open", "meet"]
PHASES = [*MEETING, "encode", "exchange", "between", "commit", "propose", "reform", "connect"]
VICTIMS = {"one": [1], "rank 0": [0], "two": [1, 3], "last of a host": [4]}
ON_HOSTS = [0, 0, 1, 1, 2]  # the host of each rank, for strategies that depend on hosts
STRATEGIES = ["ring", "server", "gather"]
TRANSPORTS = ["tcp:trust=10.77.0.0/24", "ucx:transports=tcp"]
HANGS = 60.0


class Play:
    """Runs one cell, in private namespaces."""

    def __init__(self, cell, binary, folder):
        self.cell = cell
        self.fault, self.phase, self.which, self.strategy, self.transport = cell
        self.binary, self.board = binary, Path(folder) / "board"
        self.board.mkdir(mode=0o700)
        self.victims = VICTIMS[self.which]
        self.host = ON_HOSTS if self.which == "last of a host" else list(range(len(NAMES)))
        self.hosts = Hosts(ranks=1 + max(self.host), link=LINK)
        self.hosts.build()
        # A gate inside reform() needs a reform, so another rank must be lost before.
        self.first = 3 if self.phase in ("reform", "connect") else None

    def start(self, number, members, gate):
        env = dict(os.environ, TITHE_TOKEN="5a" * 32, UCX_NET_DEVICES="eth0", UCX_LOG_LEVEL="fatal")
        strategy = self.strategy if self.host != ON_HOSTS else HOST_STRATEGY[self.strategy]
        argv = [*self.hosts.prefix(self.host[number]), self.binary, strategy, "topk:ratio=0.1", self.transport]
        argv += [str(int(TIMEOUT * 1000)), str(VALUES), str(ROUNDS), gate, str(self.board), NAMES[number], members]
        return Rank(number, argv, env)

    def port(self, rank, state):
        command("bridge", "link", "set", "dev", f"port{self.host[rank.number]}", "state", state)

    def strike(self, rank):
        if self.fault in ("kill", "return"):
            rank.process.kill()
            return
        # A victim without a network cannot reach the other ranks, nor the board.
        if self.fault == "cut":
            self.port(rank, "0")
        rank.process.send_signal(signal.SIGSTOP)

    def heal(self, rank):
        if self.fault == "cut":
            self.port(rank, "3")
        rank.process.send_signal(signal.SIGCONT)
        rank.go()

    def reach(self, ranks):
        """Waits until the victims have reached their gate. Returns the defect if they do not reach it."""
        if self.first is not None:
            if not ranks[self.first].until("gate", 60):
                return "the first was not reached"
            ranks[self.first].process.kill()
        for rank in (ranks[v] for v in self.victims):
            if self.phase == "exchange":
                if not rank.until("ready", 60):
                    return f"rank {rank.number} is not ready"
                self.hosts.shape(self.host[rank.number], SLOW)
                rank.go()
        for rank in (ranks[v] for v in self.victims):
            if not rank.until("gate", 60):
                return f"rank {rank.number}: {[t for _, t in rank.lines][-3:]}"
        if self.phase != "encode":
            time.sleep(0.1)
        return None

    def run(self):
        """Starts the ranks, applies the fault, and collects the output of all processes. Returns the observations of
        the cell."""
        everybody = ",".join(NAMES)
        gates = dict.fromkeys(self.victims, self.phase)
        if self.first is not None:
            gates[self.first] = "between"
        ranks = [self.start(number, everybody, gates.get(number, "none")) for number in range(len(NAMES))]
        lost = [*self.victims, *([] if self.first is None else [self.first])]
        seen = {"cell": self.cell}
        if (trouble := self.reach(ranks)) is not None:
            return seen | {"broken": trouble}
        struck = time.monotonic()
        for number in self.victims:
            self.strike(ranks[number])
        survivors = [r for r in ranks if r.number not in lost]
        returned = []
        if self.fault == "return":
            members = everybody if self.phase in MEETING else "-"
            returned = [self.start(number, members, "none") for number in self.victims]
        if self.phase == "exchange":
            for number in self.victims:
                self.hosts.shape(self.host[number], 1e9)
        end = time.monotonic() + HANGS
        for rank in survivors:
            self.wait(rank, end)
        if self.fault in ("freeze", "cut"):
            for number in self.victims:
                self.heal(ranks[number])
                self.wait(ranks[number], time.monotonic() + HANGS)
        for rank in returned:
            self.wait(rank, time.monotonic() + HANGS)
        if self.fault in ("kill", "return"):
            for number in self.victims:
                self.wait(ranks[number], time.monotonic() + HANGS)
        everyone = ranks + returned
        hung = [r.number for r in everyone if r.process.poll() is None]
        for r in everyone:
            if r.process.poll() is None:
                r.process.kill()
                r.process.wait()
            r.until("\n", 10)  # no line begins so: reads until the output ends
        return seen | {"hung": hung} | self.books(everyone, survivors, returned, struck)

    @staticmethod
    def wait(rank, end):
        with contextlib.suppress(subprocess.TimeoutExpired):
            rank.process.wait(timeout=max(0.1, end - time.monotonic()))

    def books(self, everyone, survivors, returned, struck):
        """Checks the sums of the ranks' records."""
        steps = {id(r): [Step(when, text) for when, text in r.lines if text.startswith("step ")] for r in everyone}
        rounds, mismatches = {}, []
        for step in itertools.chain.from_iterable(steps.values()):
            rounds.setdefault((step.epoch, step.number), []).append(step)
        whole = 0
        for (epoch, number), committed in sorted(rounds.items()):
            where = f"epoch {epoch} step {number}"
            if len({(s.members, s.hash) for s in committed}) != 1:
                mismatches.append(f"{where}: members or results differ")
            elif len(committed) == len(committed[0].members):  # otherwise a rank was lost during its commit
                whole += 1
                if sum(s.put + s.had for s in committed) != committed[0].result + sum(s.kept for s in committed):
                    mismatches.append(f"{where}: the ledger does not balance")
        for r in everyone:
            mismatches += [f"rank {r.number} {text}" for text in unkept(steps[id(r)], len(returned))]
        finals = {r.line("done ") for r in survivors + returned if r.line("done ")}
        after = []
        for r in survivors:
            begins = next((when for when, text in r.lines if text.startswith("epoch ") and when > struck), None)
            if begins is not None:
                after += [s.when - struck for s in steps[id(r)] if s.when > begins][:1]
        stopped = [r for r in survivors if not r.line("done ")]
        return {
            "mismatches": mismatches,
            "balanced": whole,
            "went_on": [r.line("done ") is not None for r in survivors],
            "came_back": [r.line("done ") is not None for r in returned],
            "equal": len(finals) <= 1,
            "next_round": max(after) if after else None,
            "why": sorted({r.line("trouble") or f"rank {r.number} says nothing" for r in stopped}),
        }


class Step:
    """A line of a member: a round that the member committed."""

    def __init__(self, when, text):
        word = text.split()
        self.when, self.number, self.epoch = when, int(word[1]), int(word[2])
        self.members = tuple(word[3].split(","))
        self.put, self.had, self.kept, self.result = (float.fromhex(word[k]) for k in (5, 7, 9, 11))
        self.hash, self.lost = word[13], int(word[15])


def unkept(steps, anew=0):
    """Returns the defects between the rounds of one member: its residual, and the ranks that it counts as lost.

    anew: the number of ranks that were restarted under their old names. They are members although their earlier
    processes are lost.
    """
    wrong = []
    for before, now in itertools.pairwise(steps):
        if now.had != before.kept:
            wrong.append(f"step {now.number}: the residual was {before.kept} and is {now.had}")
        gone = len(set(before.members) - set(now.members))
        if not gone <= now.lost - before.lost <= gone + anew:
            wrong.append(f"step {now.number}: {gone} were lost, {now.lost - before.lost} are counted")
    return wrong


HOST_STRATEGY = {"ring": "hosts_ring", "server": "hosts", "gather": "hosts_gather"}


def cells(only):
    """Yields each strategy with each fault, phase and victim, over the transports in turn."""
    transport = itertools.cycle(TRANSPORTS)
    for cell in itertools.product(FAULTS, PHASES, VICTIMS, STRATEGIES):
        over = next(transport)
        if cell[2] == "two" and cell[1] in ("reform", "connect"):
            continue  # no quorum without three of five
        if only in " ".join([*cell, over]):
            yield *cell, over


def in_namespaces(cell, binary):
    return cells_at_work.in_namespaces(__file__, cell, "--rank", binary)


INTRODUCTION = f"""\
`make chaos`: {len(NAMES)} ranks begin, each a process in a network namespace of its own behind a link of {LINK};
timeout {TIMEOUT:.0f} s, `topk:ratio=0.1`, {VALUES} values, {ROUNDS} rounds, a board in a folder.

Phases: `open`, `meet`: at the begin of the job, before the victim registers, and before it connects; `encode`;
`exchange`: with frames under way on a slow line; `between`, `commit`, `propose` (with a proposal under way); `reform`,
`connect`: another rank was killed before, and the fault begins when the victim leaves the old group, or before it
connects to the new one. Victims: `two` at once; `last of a host`: ranks share hosts as 2+2+1, with the strategies for
hosts. `cut`: the victim reaches neither the other ranks nor the board until these have ended; `return`: it is killed
and restarted at once, under its old name.

The columns: the survivors that did all rounds; the time from the fault to the end of the next round on the last
survivor; the rounds with a complete ledger over all members, or the defects of the ledger, of a residual between two
rounds, or of the count of lost ranks; final parameters; processes that did not end. At the begin of the job all ranks
wait for each other.
"""


def is_bad(r):
    """Returns True for a failure: a rank hangs, differs or loses values, or not all survivors continue after the
    rendezvous."""
    if "broken" in r or r["hung"] or r["mismatches"] or not r["equal"]:
        return True
    return r["cell"][1] not in MEETING and not all(r["went_on"])


def spell(r):
    """Returns the columns of a cell: continued, next round after, ledger, replicas, hung."""
    if "broken" in r:
        return ["-", "-", "-", "-", f"not reached: {r['broken']}"]
    went = "all" if all(r["went_on"]) else f"{sum(r['went_on'])} of {len(r['went_on'])}"
    if r["came_back"]:
        went += f", {sum(r['came_back'])} of {len(r['came_back'])} came back"
    if not all(r["went_on"]):
        went += ": " + r["why"][0][:120]
    took = f"{r['next_round']:.2f} s" if r["next_round"] is not None else "-"
    ledger = f"{r['balanced']} rounds" if not r["mismatches"] else "; ".join(r["mismatches"][:2])
    hung = "no" if not r["hung"] else "rank " + ", ".join(map(str, r["hung"]))
    return [went, took, ledger, "equal" if r["equal"] else "differ", hung]


def table(results, took, jobs):
    """Returns the page: the sums, the times, and a row per cell."""
    reached = [r for r in results if "broken" not in r]
    faults = sum(len(VICTIMS[r["cell"][2]]) + (r["cell"][1] in ("reform", "connect")) for r in reached)
    differences = sum(len(r["mismatches"]) for r in reached)
    unequal, hung = sum(not r["equal"] for r in reached), sum(bool(r["hung"]) for r in reached)
    behind = [r for r in reached if r["cell"][1] not in MEETING]
    stopped = sum(not all(r["went_on"]) for r in behind)
    lines = [
        "# Jobs that continue after losses, on real processes",
        "",
        *INTRODUCTION.splitlines(),
        "",
        cells_at_work.machine(took, jobs),
        "",
        f"**{len(reached)} cells of {len(results)}, {faults} faults; {differences} differences in "
        f"{sum(r['balanced'] for r in reached)} rounds; replicas differ in {unequal} cells; {hung} hung; behind the",
        f"meeting survivors stopped in {stopped} cells of {len(behind)}.**",
        "",
        "| fault | next round, median | worst | cells |",
        "|---|---|---|---|",
    ]
    for name, takes in (*((f, lambda r, f=f: r["cell"][0] == f) for f in FAULTS), ("all", lambda r: True)):
        times = [r["next_round"] for r in behind if takes(r) and r["next_round"] is not None]
        if times:
            lines.append(f"| {name} | {statistics.median(times):.2f} s | {max(times):.2f} s | {len(times)} |")
    names = ("fault", "phase", "victim", "strategy", "transport")
    head = [*names, "continued", "next round", "ledger", "replicas", "hung"]
    lines += ["", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for r in results:
        cell = [*r["cell"][:4], r["cell"][4].split(":")[0]]
        lines.append("| " + " | ".join([*cell, *spell(r)]) + " |")
    return "\n".join(lines) + "\n"


def main():
    args = cells_at_work.arguments(__doc__, "chaos_member", 5).parse_args()
    if args.cell:
        return cells_at_work.one(lambda folder: Play(args.cell, args.rank, folder).run())
    wanted = list(cells(args.only))
    results, left, took = cells_at_work.play_all(args, wanted, lambda c: in_namespaces(c, args.rank), spell)
    if left:
        print(f"{left} cells are left: the same command goes on", file=sys.stderr)
        return 2
    cells_at_work.put(table(results, took, args.jobs), args.out)
    return 1 if any(map(is_bad, results)) else 0


if __name__ == "__main__":
    sys.exit(main())
