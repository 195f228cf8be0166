# SPDX-License-Identifier: Apache-2.0
"""Compares the plan with the best setting of a manual search, by `tithe replay` on four hosts emulated by this machine
(needs root): every codec by every strategy for all tensors, every threshold, the other policies, and the plan that
`tithe plan` makes from a `tithe profile` of the same hosts and links. Then the best manual setting, the best of bf16
and the plan are measured again, in turns; the comparison uses the medians of these.

python lab/bench/plan_by_hand.py
    --links 100Mb/s,1Gb/s,5Gb/s --models hdc,vgg19:scale=0.1 --allow fp8,onebit --seconds 1 --turns 3
    --state FILE --resume --for 170 --out FILE

Measurements are written to --state after every setting; --resume continues from this file. --for: seconds after which
no further measurement begins.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from harness import ROOT, answer
from truth import State, profile, share_a_law

MODELS = ["hdc", "resnet50:scale=0.125", "bert_base:scale=0.1", "vgg19:scale=0.1"]
STRATEGIES = ["ring", "server", "gather"]
THRESHOLDS = {"64KB": 1 << 14, "256KB": 1 << 16, "1MB": 1 << 18, "4MB": 1 << 20}
POLICIES = ["timeline", "secopa", "dragonn", "threshold:1MB"]
HOSTS = 4
LEAST_STEPS, MOST_STEPS = 2, 15


class OutOfTime(Exception):
    pass


class Setting(NamedTuple):
    name: str
    choices: str  # the text of a choices file
    by_hand: bool


def rules(codec: str, strategy: str, least: int) -> str:
    """Returns choices: `codec` for tensors of at least `least` values; below, as in the planner's policies, groups of
    bf16 and bf16."""
    return json.dumps(
        {
            "< 4096": {"codec": "bf16", "group": "tiny"},
            f"< {least}": {"codec": "bf16", "strategy": "ring" if strategy == "gather" else strategy},
            "*": {"codec": codec, "strategy": strategy},
        }
    )


class Bench:
    def __init__(self, state: State, args: argparse.Namespace, folder: Path) -> None:
        self.state, self.args, self.folder = state, args, folder
        self.begin = time.monotonic()
        self.by_hand = [
            Setting(f"{codec} by {strategy}", rules(codec, strategy, 4097), True)
            for codec in ["bf16", *args.allow]
            for strategy in STRATEGIES
            if share_a_law(codec, strategy)
        ]
        self.by_hand += [
            Setting(f"{codec} by server from {name} on", rules(codec, "server", least), True)
            for codec in args.allow
            for name, least in THRESHOLDS.items()
        ]

    def plans(self, model: str, link: str) -> tuple[list[Setting], dict[str, float]]:
        path = self.folder / "profile.json"
        path.write_text(json.dumps(profile(self.state, self.args, link, HOSTS)["profile"]))
        out, predicted = [], {}
        for policy in POLICIES:
            file = self.folder / "plan.json"
            words = ["plan", "--model", model, "--profile", path, "--policy", policy, "-o", file, "--json"]
            got = answer(*words, *(w for codec in self.args.allow for w in ("--allow", codec)))
            out.append(Setting(policy, file.read_text(), False))
            predicted[policy] = got["plans"][0]["step_ms"]
        return out, predicted

    def measured(self, model: str, link: str, setting: Setting, turn: int) -> float:
        key = f"{link} {model} {setting.name} {setting.choices} {turn}"
        steps = self.state.data["steps"]
        if key not in steps:
            if time.monotonic() - self.begin > self.args.limit:
                raise OutOfTime
            file = self.folder / "choices.json"
            file.write_text(setting.choices)
            words = ["replay", "--model", model, "--ranks", HOSTS, "--link", link, "--choices", file, "--json"]
            known = [v for k, v in steps.items() if k.startswith(f"{link} {model} {setting.name} ")]
            guess = known[0] if known else answer(*words, "--steps", LEAST_STEPS)["step_ms"]
            count = min(MOST_STEPS, math.ceil(self.args.seconds * 1e3 / guess))
            steps[key] = answer(*words, "--steps", count)["step_ms"] if known or count > LEAST_STEPS else guess
            self.state.save()
            print(".", end="", file=sys.stderr, flush=True)
        return steps[key]

    def cell(self, model: str, link: str) -> Cell:
        plans, predicted = self.plans(model, link)
        once = {s: self.measured(model, link, s, 0) for s in [*self.by_hand, *plans]}
        best = min(self.by_hand, key=once.__getitem__)
        bf16 = min((s for s in self.by_hand if s.name.startswith("bf16")), key=once.__getitem__)
        turns: dict[Setting, list[float]] = {}
        for turn in range(1, self.args.turns + 1):
            for setting in dict.fromkeys([best, bf16, *plans]):
                turns.setdefault(setting, []).append(self.measured(model, link, setting, turn))
        median = {setting: statistics.median(ms) for setting, ms in turns.items()}
        others = {p.name: median[p] for p in plans}
        return Cell(model, link, best.name, median[best], bf16.name, median[bf16], others, predicted["timeline"])


class Cell(NamedTuple):
    model: str
    link: str
    best: str
    best_ms: float
    bf16: str
    bf16_ms: float
    policies: dict[str, float]  # ms
    predicted: float

    def plan(self) -> float:
        return self.policies["timeline"]


def text_of(cells: list[Cell], bench: Bench) -> str:
    """Returns the page: the table of each link and model, and the comparison of the plan with the best manual
    setting."""
    args = bench.args
    today = datetime.datetime.now(datetime.timezone.utc)
    near = sum(c.plan() <= 1.05 * c.best_ms for c in cells)
    safe = sum(c.plan() <= 1.02 * c.bf16_ms for c in cells)
    right = sum(abs(c.predicted / c.plan() - 1) <= 0.1 for c in cells)
    first = sum(c.plan() <= 1.02 * min(ms for p, ms in c.policies.items() if p != "timeline") for c in cells)
    others = [p for p in POLICIES if p != "timeline"]
    lines = [
        "# The plan beside the best that was found by hand",
        "",
        f"`python lab/bench/plan_by_hand.py --links {','.join(args.links)} --models {','.join(args.models)} "
        f"--allow {','.join(args.allow)}`,",
        f"{today:%Y-%m-%d}, {bench.state.data['machine']}, {os.cpu_count()} cores, Linux {platform.release()}.",
        "",
        f"Four emulated hosts, compute is a wait. By hand: {len(bench.by_hand)} settings, which are every codec by "
        "every strategy and every threshold.",
        f"Milliseconds; medians of {args.turns} runs in turns, of which each is a median of steps.",
        "",
        f"- The plan is within 5 % of the best by hand in {near} of {len(cells)} cells, and no slower than 1.02 times "
        f"bf16 in {safe}.",
        f"- It is no slower than 1.02 times the best other policy in {first}.",
        f"- Its predicted step is within 10 % of the measured one in {right}.",
        "",
        "| model | link | best by hand | ms | bf16 | plan | plan / best | plan / bf16 | predicted / plan | "
        + " | ".join(f"{p} / plan" for p in others)
        + " |",
        "|---" * (9 + len(others)) + "|",
    ]
    for c in cells:
        ratios = " | ".join(f"{c.policies[p] / c.plan():.2f}" for p in others)
        lines.append(
            f"| {c.model} | {c.link} | {c.best} | {c.best_ms:.1f} | {c.bf16_ms:.1f} | {c.plan():.1f} | "
            f"{c.plan() / c.best_ms:.2f} | {c.plan() / c.bf16_ms:.2f} | {c.predicted / c.plan():.2f} | {ratios} |"
        )
    return "\n".join([*lines, ""])


def arguments() -> argparse.Namespace:
    words: Callable[[str], list[str]] = lambda text: text.split(",")  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", type=words, default=["100Mb/s", "1Gb/s", "5Gb/s"])
    parser.add_argument("--models", type=words, default=MODELS)
    parser.add_argument("--allow", type=words, default=["fp8", "onebit"])
    parser.add_argument("--seconds", type=float, default=1, help="that the timed steps of a run take together")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--state", type=Path, default=ROOT / "build/plan_by_hand.json", help="what was measured so far")
    parser.add_argument("--resume", action="store_true", help="go on from --state")
    parser.add_argument("--for", dest="limit", type=float, default=math.inf, help="seconds")
    parser.add_argument("--out", type=Path, help="a file beside standard output")
    args = parser.parse_args()
    args.codecs, args.transport = ["fp32", "bf16", *args.allow], ""  # the options that profile() reads
    return args


def main() -> None:
    args = arguments()
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(State(args.state, args.resume), args, Path(folder))
        try:
            for link in args.links:
                cells += [bench.cell(model, link) for model in args.models]
        except OutOfTime:
            print(f"\n{shlex.join(sys.argv)}: cells are left: go on with --resume", file=sys.stderr)
    if not cells:
        sys.exit("no cell is whole")
    text = text_of(cells, bench)
    print(text, end="")
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
