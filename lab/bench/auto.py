#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time that codec "auto" needs to find a plan and to react to a changed link, and the speed of the plan.

    python lab/bench/auto.py                                        the tables of lab/results/auto.md, on stdout
    python lab/bench/auto.py --write lab/results/auto.md          the same, written to the file
    python lab/bench/auto.py --cases 'hdc:1@1gbit>100mbit' --steps 250

Four ranks, each on a host emulated by a network namespace behind a shaped link (lab/hosts/hosts.py). A step sleeps
until a bucket of the model (data/models/) is ready, at the time when DistributedDataParallel would fill it, and hands
it over. A case runs `steps` steps of auto. If it names a second rate, the links then change to that rate under the same
job, and `steps` more steps follow. Then, on the links of that moment, the fixed settings run for some rounds each:
bf16, the allowed codec for all tensors, and the final rules of auto from the beginning. Needs root, or user namespaces.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from harness import ROOT, all_gather_in, give, machine, rerun_in_namespaces, start_ranks

import tithe
from hosts import Hosts, parse_rate

RANKS = 4
CASES = ["resnet50:0.05@1gbit>100mbit", "bert_base:0.05@1gbit>100mbit", "hdc:1@1gbit>100mbit"]
FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20  # bytes: DistributedDataParallel's
NEAR = 1.05  # a step of up to this factor counts as equally long
FIXED = 15  # steps of a fixed setting; the first 5 do not count
FEWEST = 10  # the least number of steps for a median


def buckets_of(model: str, scale: float) -> list[tuple[float, list[tuple[str, int, int]]]]:
    """Returns, for each bucket: seconds since the step began, and its tensors' names, values and rows."""
    file = json.loads((ROOT / "data" / "models" / f"{model}.json").read_text())
    out: list[tuple[float, list[tuple[str, int, int]]]] = []
    tensors: list[tuple[str, int, int]] = []
    held = 0
    for tensor in file["tensors"]:
        values = max(1, int(tensor["values"] * scale))
        tensors.append((tensor["name"], values, tensor["row"]))
        held += 4 * values
        ready = (file["forward_ms"] + tensor["ready_ms"]) / 1e3
        if held >= (FIRST_BUCKET if not out else BUCKET):
            out.append((ready, tensors))
            tensors, held = [], 0
    if tensors:
        out.append((ready, tensors))
    return out


class Job:
    """One rank's steps in one session."""

    def __init__(self, args: argparse.Namespace, name: str, **options: object):
        model, scale = args.model.split(":")
        gather = all_gather_in(Path(args.folder) / name, args.rank, RANKS)
        self.session = tithe.Session.open(args.rank, RANKS, gather, transport="ucx:transports=tcp", **options)
        rng = np.random.default_rng(args.rank)
        self.pool = rng.standard_normal(1 << 21, np.float32)
        self.buckets = []
        for ready, tensors in buckets_of(model, float(scale)):
            arrays = {}
            for key, n, row in tensors:
                whole = row > 1 and n % row == 0
                arrays[key] = np.zeros((n // row, row) if whole else n, np.float32)
            self.buckets.append((ready, arrays))
        self.number = 0

    def fill(self) -> None:
        """Sets new gradients: slices of the pool, different ones in each step."""
        at = 7919 * self.number
        for _, arrays in self.buckets:
            for array in arrays.values():
                flat = array.reshape(-1)
                for first in range(0, flat.size, 1 << 20):
                    part = flat[first : first + (1 << 20)]
                    begin = at % (self.pool.size - part.size)
                    np.copyto(part, self.pool[begin : begin + part.size])
                    at += part.size

    def step(self) -> float:
        """Makes a step. Returns the milliseconds from the beginning of forward to the end of commit."""
        self.fill()
        self.number += 1
        begin = time.perf_counter()
        tickets = []
        for ready, arrays in self.buckets:
            time.sleep(max(0.0, begin + ready - time.perf_counter()))
            tickets.append(self.session.sync(arrays))
        for ticket in tickets:
            self.session.wait(ticket)
        self.session.commit()
        return 1e3 * (time.perf_counter() - begin)


def run_rank(args: argparse.Namespace) -> None:
    """Serves lines of standard input: a number of steps, or a fixed setting. Rank 0 prints the results."""
    auto = Job(args, "auto", codec=f"auto:allow={args.allow}" if args.allow else "auto")
    for line in sys.stdin:
        request = json.loads(line)
        if "steps" in request:
            for _ in range(request["steps"]):
                ms = auto.step()
                if args.rank == 0:
                    tell({"ms": ms, "said": auto.session.messages(), "choices": auto.session.choices})
        else:
            choices = auto.session.choices if request["choices"] == "auto" else None
            job = Job(args, request["name"], codec=request["codec"], choices=choices or None)
            times = [job.step() for _ in range(FIXED)]
            job.session.close()
            if args.rank == 0:
                tell({"ms": statistics.median(times[5:])})
        if args.rank == 0:
            tell({"over": True})
    auto.session.close()


def tell(line: dict) -> None:
    print(json.dumps(line), flush=True)


class Inside:
    """The hosts and their ranks, inside the namespaces."""

    def __init__(self, args: argparse.Namespace, rate: str, folder: str):
        self.hosts = Hosts(ranks=RANKS, link=rate)
        self.hosts.build()
        self.fixed = 0
        # All ranks read each command; only rank 0 answers.
        self.ranks = start_ranks(self.hosts, ["--folder", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, what: dict) -> list[dict]:
        for rank in self.ranks:
            rank.stdin.write(json.dumps(what) + "\n")
            rank.stdin.flush()
        out = []
        for line in self.ranks[0].stdout:
            message = json.loads(line)
            if "over" in message:
                return out
            out.append(message)
        raise RuntimeError("rank 0 has ended")

    def fix(self, codec: str, choices: str = "") -> float:
        self.fixed += 1
        return self.ask({"name": f"fixed{self.fixed}", "codec": codec, "choices": choices})[0]["ms"]

    def change(self, rate: str) -> None:
        bits = parse_rate(rate)
        for r in range(RANKS):
            self.hosts.shape(r, bits)

    def end(self) -> None:
        for rank in self.ranks:
            rank.stdin.close()
        for rank in self.ranks:
            rank.wait()


def run_inside(args: argparse.Namespace) -> int:
    """Runs one case; prints its results as JSON."""
    model, rates = args.inside.split("@")
    rates = rates.split(">")
    sys.argv += ["--model", model]
    with tempfile.TemporaryDirectory() as folder:
        inside = Inside(args, rates[0], folder)
        phases = []
        for k, rate in enumerate(rates):
            if k > 0:
                inside.change(rate)
            steps = inside.ask({"steps": args.steps})
            fixed = {codec: inside.fix(codec) for codec in ["bf16", *filter(None, args.allow.split("+"))]}
            fixed["its rules"] = inside.fix("bf16", "auto")
            phases.append({"rate": rate, "steps": steps, "fixed": fixed})
        inside.end()
    print(json.dumps({"model": model, "phases": phases}))
    return 0


def near(steps: list[float], goal: float) -> int | None:
    """Returns the first step from which the median of ten steps is at most `goal`."""
    return next((k for k in range(len(steps) - 9) if statistics.median(steps[k : k + 10]) <= NEAR * goal), None)


class Counted(NamedTuple):
    """Counts of a phase: its first steps, before other rules; the first step with other rules; its last steps, under
    its final rules. None: too few steps."""

    first: float | None
    switch: int | None
    end: float | None


def counted(phase: dict, before: str) -> Counted:
    steps = [s["ms"] for s in phase["steps"]]
    rules = [s["choices"] for s in phase["steps"]]
    switch = next((k for k, r in enumerate(rules) if r != before), None)
    # The first step under the final rules
    last = next((k + 1 for k in range(len(rules) - 1, -1, -1) if rules[k] != rules[-1]), 0)

    def median(few: list[float]) -> float | None:
        return statistics.median(few) if len(few) >= FEWEST else None

    first = steps[5:15] if switch is None or switch >= 15 else steps[5:switch]
    return Counted(median(first), switch, median(steps[max(last, 5, len(steps) - 50) :]))


def text(ms: float | None) -> str:
    return "-" if ms is None else f"{ms:.1f}"


def rows_of(case: dict) -> list[str]:
    rows, before = [], ""
    for phase in case["phases"]:
        steps = [s["ms"] for s in phase["steps"]]
        first, switch, end = counted(phase, before)
        before = phase["steps"][-1]["choices"]
        fixed = phase["fixed"]
        reached = near(steps, fixed["its rules"])
        best = min((codec for codec in fixed if codec != "its rules"), key=fixed.__getitem__)
        rows.append(
            f"| {case['model']} | {phase['rate']} | {text(first)} | {'-' if switch is None else switch} "
            f"| {'-' if reached is None else reached} | {text(end)} | {fixed['its rules']:.1f} | {fixed['bf16']:.1f} "
            f"| {best} {fixed[best]:.1f} | {'-' if end is None else f'{end / fixed[best]:.2f}'} |"
        )
    return rows


def page(args: argparse.Namespace, cases: list[dict]) -> str:
    command = " ".join(["python", "lab/bench/auto.py", *sys.argv[1:]])
    out = [
        "# Codec auto",
        "",
        f"{RANKS} ranks on emulated hosts, {args.steps} steps on links of each rate, allowed: `{args.allow}`. "
        f"`{command}` on {machine()}.",
        "",
        "Milliseconds per step, medians of 10 steps or more (-: there were fewer). First: of steps 5 to 14 on these "
        "links, before other rules. Switch: the first step with other rules, counted from 0 since links have this "
        "rate. Reached: the first step from which on ten take no more than 1.05 of what its last rules take in a job "
        "that begins with them (its rules). End: of the last 50 steps, under its last rules. Best: "
        "of bf16 and what is allowed, each for all tensors.",
        "",
        "| model | links | first | switch | reached | end | its rules | bf16 | best | end / best |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        out += rows_of(case)
    out += ["", "What rank 0 said:", "", "```text"]
    for case in cases:
        for phase in case["phases"]:
            for k, step in enumerate(phase["steps"]):
                out += [f"{case['model']} at {phase['rate']}, step {k}: {line}" for line in step["said"]]
    return "\n".join([*out, "```"]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=CASES, help="MODEL:SCALE@RATE, or @RATE>RATE: links change")
    parser.add_argument("--steps", type=int, default=150, help="on links of each rate")
    parser.add_argument("--allow", default="onebit", help="codecs, with a plus between")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        run_rank(args)
        return 0
    if args.inside:
        return run_inside(args)
    give(page(args, [rerun_in_namespaces("--inside", case) for case in args.cases]), args.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
