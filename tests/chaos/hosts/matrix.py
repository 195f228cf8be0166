# SPDX-License-Identifier: Apache-2.0
"""`make chaos`: faults x phases x strategies, with a process and a network namespace per rank.

    matrix.py --rank BINARY [--out FILE] [--only TEXT] [--jobs N]     the table
    matrix.py --cell FAULT PHASE STRATEGY --rank BINARY               one cell, inside namespaces of its own

The victim is rank 1 of 3. It stops at a gate of the protocol (never after a sleep). Then the fault begins, the victim
continues, and the outputs of all ranks are collected. Nothing outside the namespaces changes.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "lab/hosts"))
import cells as cells_at_work

from hosts import Hosts, command, die_with_parent

RANKS = 3
VICTIM = 1
TIMEOUT = 4.0
ROUNDS = 4
VALUES = 120_000
LINK = "1gbit"
STRATEGIES = ["ring", "server", "gather"]
PHASES = ["open", "round", "between", "commit"]
# True: the job must continue as without a fault. False: it must end on every survivor. None: either.
FAULTS = {
    "kill": False,
    "freeze": False,
    "blackhole": False,
    "one-way": False,
    "flap -1 s": True,
    "flap +1 s": None,
    "slow link": True,
    "descriptors": None,
    "no /dev/shm": None,
}
ONLY_AT_START = {"descriptors", "no /dev/shm"}
FILES = 4  # descriptors of a rank whose session is closed: its three streams, and the folder in which it counts
HANGS = 6 * TIMEOUT + 8  # seconds after the fault; a process that runs longer hangs


class Rank:
    """A process, and its output lines with their times."""

    def __init__(self, number, argv, env, before=None):
        self.number = number
        self.lines = []
        self.news = queue.Queue()
        self.process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=before or die_with_parent,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip()))
            self.news.put(line.rstrip())
        self.news.put(None)

    def until(self, word, seconds):
        """Returns True if the process prints a line that begins with `word` within `seconds`."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                line = self.news.get(timeout=left)
            except queue.Empty:
                return False
            if line is None or line.startswith(word):
                return line is not None
        return False

    def go(self):
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except OSError:
            pass

    def line(self, word):
        return next((text for _, text in self.lines if text.startswith(word)), None)

    def moment(self, word):
        return next((when for when, text in self.lines if text.startswith(word)), None)


class Fault:
    """Applies a fault to the victim, and removes it."""

    def __init__(self, name, hosts, victim):
        self.name, self.hosts, self.victim = name, hosts, victim

    def strike(self):
        port = f"port{VICTIM}"
        if self.name == "kill":
            self.victim.process.send_signal(signal.SIGKILL)
        elif self.name == "freeze":
            self.victim.process.send_signal(signal.SIGSTOP)
        elif self.name == "one-way":  # messages of the victim are lost
            command("tc", "-n", f"rank{VICTIM}", "qdisc", "replace", "dev", "eth0", "root", "blackhole")
        elif self.name == "slow link":
            shape = ("root", "tbf", "rate", "1mbit", "burst", "6250", "limit", "2000000")
            command("tc", "qdisc", "replace", "dev", port, *shape)
            command("tc", "-n", f"rank{VICTIM}", "qdisc", "replace", "dev", "eth0", *shape)
        elif self.name == "blackhole" or self.name.startswith("flap"):
            command("bridge", "link", "set", "dev", port, "state", "0")
            if self.name.startswith("flap"):
                wait = TIMEOUT + (1 if "+" in self.name else -1)
                threading.Timer(wait, self.heal).start()

    def heal(self):
        command("bridge", "link", "set", "dev", f"port{VICTIM}", "state", "3")

    def end(self):
        if self.name == "freeze":
            self.victim.process.send_signal(signal.SIGCONT)


def shared_memory():
    files = [f for f in os.listdir("/dev/shm") if "ucx" in f]
    with open("/proc/sysvipc/shm") as table:
        return len(files) + len(table.readlines()) - 1


def play(name, phase, strategy, binary, folder, transport):
    """Runs one cell, in private namespaces. Returns a dict of the observations."""
    hosts = Hosts(ranks=RANKS, link=LINK)
    hosts.build()
    command("mount", "-t", "tmpfs", "-o", "size=64m" if name != "no /dev/shm" else "size=4k", "tmpfs", "/dev/shm")
    shm_before = shared_memory()
    if name == "no /dev/shm" and transport.startswith("ucx"):
        transport = "ucx"

    def few_files():
        die_with_parent()
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))

    ranks = []
    for r in range(RANKS):
        env = dict(
            os.environ,
            RANK=str(r),
            WORLD_SIZE=str(RANKS),
            MASTER_ADDR=hosts.address(0),
            MASTER_PORT="29501",
            TITHE_TOKEN="5a" * 32,
            UCX_NET_DEVICES="all" if name == "no /dev/shm" else "eth0",
            UCX_LOG_LEVEL="fatal",
        )
        gate = phase if r == VICTIM or phase == "between" else "none"
        argv = [*hosts.prefix(r), binary, strategy, "fp32", transport, str(int(TIMEOUT * 1000)), str(VALUES)]
        argv += [str(ROUNDS), gate, f"{folder}/state{r}"]
        limited = few_files if name == "descriptors" and r == VICTIM else None
        ranks.append(Rank(r, argv, env, limited))
    victim, others = ranks[VICTIM], [r for r in ranks if r.number != VICTIM]
    fault = Fault(name, hosts, victim)
    seen = {"cell": [name, phase, strategy]}
    if not all(r.until("gate", 30) for r in (ranks if phase == "between" else [victim])):
        seen["broken"] = "; ".join(f"rank {r.number}: {[text for _, text in r.lines][-4:]}" for r in ranks)
    time.sleep(0.3)  # until the other ranks wait for the victim
    begin = time.monotonic()
    fault.strike()
    for r in ranks:
        r.go()
    end = begin + (90 if name == "slow link" else HANGS)
    watched = ranks if FAULTS[name] is not False else others
    hung = [r.number for r in watched if not waited(r, end)]
    fault.end()
    if FAULTS[name] is False and name != "kill" and not waited(victim, time.monotonic() + HANGS):
        hung.append(VICTIM)
    for r in ranks:
        if r.process.poll() is None:
            r.process.kill()
            r.process.wait()
    time.sleep(0.1)
    troubles = {r.number: r.line("trouble") for r in ranks}
    noticed = [r.moment("trouble") - begin for r in others if troubles[r.number]]
    ended = [r for r in ranks if r.line(f"round {ROUNDS - 1}")]
    seen.update(
        hung=hung,
        noticed=max(noticed) if noticed else None,
        troubles=troubles,
        went_on=len(ended) == RANKS,
        saved=[r.line("saved") for r in others],
        died={r.number: r.process.returncode for r in others if r.process.returncode not in (0, 1)},
        files=[r.line("files") for r in others],
        shm=shared_memory() - shm_before,
        processes=len(command("ps", "-e", "-o", "comm=").split("chaos_rank")) - 1,
        other_words=sorted({t for r in ranks for _, t in r.lines if t.split()[0:1] and t.split()[0] not in KNOWN})[:4],
    )
    return seen


KNOWN = {"gate", "begins", "opened", "round", "trouble", "saved", "unsaved", "files", "closed"}


def waited(rank, end):
    try:
        rank.process.wait(timeout=max(0.1, end - time.monotonic()))
        return True
    except subprocess.TimeoutExpired:
        return False


def spell(cell):
    """Returns the columns of a cell: noticed in, named right, hung, leaked, continued."""
    if "broken" in cell:
        return ["-", "-", "-", "-", f"not reached: {cell['broken']}"]
    name, phase = cell["cell"][:2]
    lines = [t for r, t in cell["troubles"].items() if int(r) != VICTIM]
    spoke = [t for t in lines if t]
    noticed = f"{cell['noticed']:.1f} s" if cell["noticed"] is not None else "-"
    if FAULTS[name] is True:
        right = "nobody" if not spoke else f"{len(spoke)} blamed " + ", ".join(sorted({t.split()[2] for t in spoke}))
    elif not spoke:
        right = "-"
    else:
        good = sum(t.split()[2] == str(VICTIM) for t in spoke)
        right = f"{good} of {len(spoke)}"
        if wrong := sorted({t.split()[2] for t in spoke} - {str(VICTIM)}):
            right += " (" + ", ".join("nobody" if w == "-1" else f"rank {w}" for w in wrong) + ")"
    hung = "no" if not cell["hung"] else "rank " + ", ".join(map(str, cell["hung"]))
    leaks = []
    if cell["shm"] > 0:
        leaks.append(f"{cell['shm']} shared")
    if cell["processes"] > 0:
        leaks.append(f"{cell['processes']} processes")
    if more := [f for f in cell["files"] if f and int(f.split()[1]) > FILES]:
        leaks.append(f"descriptors: {more[0].split()[1]} instead of {FILES}")
    if cell["died"]:
        leaks.append("died: " + ", ".join(f"rank {r} by {c}" for r, c in cell["died"].items()))
    if cell["went_on"]:
        went = "all rounds"
    elif phase == "open":
        went = "had not begun"
    else:
        rounds = sorted({s.split()[1] for s in cell["saved"] if s})
        went = "saved at round " + ", ".join(rounds) if all(cell["saved"]) else "not saved"
    return [noticed, right, hung, ", ".join(leaks) or "nothing", went]


def cells(only):
    for fault in FAULTS:
        for phase in PHASES:
            if fault in ONLY_AT_START and phase != "open":
                continue
            for strategy in STRATEGIES:
                if only in f"{fault} {phase} {strategy}":
                    yield fault, phase, strategy


def in_namespaces(cell, args):
    return cells_at_work.in_namespaces(__file__, cell, "--rank", args.rank, "--transport", args.transport)


def table(results, took, args):
    over = "TCP through UCX" if args.transport.startswith("ucx") else args.transport
    head = ["fault", "phase", "strategy", "noticed in", "named right", "hung", "leaked", "continued"]
    lines = [
        "# Faults on real processes",
        "",
        f"`make chaos`: {RANKS} ranks, each a process in a network namespace of its own behind a link of {LINK}, over",
        f"{over}; timeout {TIMEOUT:.0f} s, fp32, {VALUES} values, rank {VICTIM} is the victim. The columns:",
        "the time from the fault to the last survivor's error; the number of survivors that named the victim (or, if",
        "no rank is at fault, the named ranks); processes that did not end; leaked resources; and whether the job did",
        "all its rounds, or else the round after which the survivors' states were saved.",
        "",
        cells_at_work.machine(took, args.jobs),
        "In the phase `open` a survivor's clock starts when the victim continues.",
        "",
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
    ]
    for r in results:
        lines.append("| " + " | ".join([*r["cell"], *spell(r)]) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = cells_at_work.arguments(__doc__, "chaos_rank", 3)
    parser.add_argument("--transport", default="ucx:transports=tcp", help="e.g. tcp:trust=10.77.0.0/24")
    args = parser.parse_args()
    if args.cell:
        return cells_at_work.one(lambda folder: play(*args.cell, args.rank, folder, args.transport))
    wanted = list(cells(args.only))
    results, left, took = cells_at_work.play_all(args, wanted, lambda c: in_namespaces(c, args), spell)
    if left:
        print(f"{left} cells are left: the same command goes on", file=sys.stderr)
        return 2
    cells_at_work.put(table(results, took, args), args.out)
    return 1 if any(r.get("hung") or "broken" in r for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
