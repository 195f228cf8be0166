# SPDX-License-Identifier: Apache-2.0
"""Compares the step that `tithe simulate` predicts with the step that `tithe replay` measures, on hosts emulated by
this machine (needs root): codecs by strategies, on links of two rates, on two and four hosts and on two hosts of two
ranks, with the tensors of three models. Predictions come from a `tithe profile` of the same hosts and links, all ranks
at once.

python lab/bench/truth.py                                # all cases, about a quarter of an hour
    --links 100Mb/s,1Gb/s --hosts 2,4,2x2 --models hdc,resnet50:scale=0.125 --codecs fp32,dgc --strategies ring,gather
    --seconds 1.5 --state FILE --resume --for 170 --out FILE --csv FILE --cases data/truth_cases.def

Measurements are written to --state after every case; --resume continues from this file, and repeats the predictions.
--for: seconds after which no further case begins.
--cases: the file from which the command computes the range that it prints with each prediction.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import math
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from harness import ROOT, TITHE, answer, processor, run

MODELS = ["hdc", "resnet50:scale=0.125", "bert_base:scale=0.1"]
CODECS = ["fp32", "bf16", "onebit", "dgc", "dragonn", "qtopk"]
STRATEGIES = ["ring", "server", "gather", "hosts"]
LEAST_STEPS, MOST_STEPS = 1, 15
CASES_HEAD = """\
// SPDX-License-Identifier: Apache-2.0
// TITHE_TRUTH_CASE(measured, predicted): milliseconds of a step, in the order of the table of lab/results/truth.md.
// `python lab/bench/truth.py --cases data/truth_cases.def` writes this file.
"""


class Case(NamedTuple):
    link: str
    hosts: str  # "4": four hosts of one rank each; "2x2": two hosts of two ranks
    model: str
    codec: str
    strategy: str

    def key(self) -> str:
        return " ".join(str(word) for word in self)


def place(hosts: str) -> list[object]:
    """Returns the arguments of the command that place the ranks."""
    count, _, each = hosts.partition("x")
    return ["--ranks", int(count) * int(each or 1), *(["--hosts", hosts] if each else [])]


def share_a_law(codec: str, strategy: str) -> bool:
    done = run("simulate", "--model", "hdc", "--link", "1Gb/s", "--ranks", 2, "--codec", codec, "--strategy", strategy)
    if done.returncode != 0 and "share no law" not in done.stderr:
        sys.exit(f"{codec} by {strategy}: {done.stderr.strip()}")
    return done.returncode == 0


class State:
    """The measurements, in a file that is complete at any time: profiles by link and hosts, steps by case."""

    def __init__(self, path: Path, resume: bool) -> None:
        self.path = path
        mine = {"machine": processor(), "tithe": hashlib.sha256(TITHE.read_bytes()).hexdigest()[:16]}
        self.data: dict = {**mine, "commits": [], "profiles": {}, "steps": {}}
        if resume and path.exists():
            self.data = json.loads(path.read_text())
            if self.data["machine"] != mine["machine"]:
                sys.exit(f"{path}: measured on {self.data['machine']}, this is {mine['machine']}: leave out --resume")
            if self.data["tithe"] != mine["tithe"]:
                print(f"{path}: measured by another build of tithe; predicted by this one", file=sys.stderr)

    def measured(self, key: str, step: dict) -> None:
        self.data["steps"][key] = step
        done = subprocess.run(["git", "describe", "--always"], cwd=ROOT, capture_output=True, text=True, check=False)
        if (commit := done.stdout.strip()) not in self.data["commits"]:
            self.data["commits"].append(commit)
        self.save()

    def save(self) -> None:
        beside = self.path.with_suffix(".part")
        beside.write_text(json.dumps(self.data, indent=1))
        beside.rename(self.path)


def transport(args: argparse.Namespace) -> list[str]:
    return ["--transport", args.transport] if args.transport else []


def profile(state: State, args: argparse.Namespace, link: str, hosts: str) -> dict:
    key = f"{link} {hosts}"
    if key not in state.data["profiles"]:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "profile.json"
            codecs = [word for codec in args.codecs for word in ("--codec", codec)]
            begin = time.monotonic()
            done = run("profile", *place(hosts), "--link", link, *codecs, *transport(args), "--out", out)
            if done.returncode != 0:
                sys.exit(f"tithe profile: {done.stderr.strip()}")
            took = time.monotonic() - begin
            state.data["profiles"][key] = {"took_s": took, "profile": json.loads(out.read_text())}
            print(f"profile of {hosts} hosts at {link}: {took:.0f} s", file=sys.stderr, flush=True)
        state.save()
    return state.data["profiles"][key]


def predict(case: Case, profile_path: Path) -> dict:
    words = ["--model", case.model, "--profile", profile_path, "--codec", case.codec, "--strategy", case.strategy]
    # `tithe replay` passes no link= to its sessions.
    return answer("simulate", *words, "--tell-link", "none", "--json")["settings"][0]


def measure(case: Case, args: argparse.Namespace, expected_ms: float) -> dict:
    steps = min(MOST_STEPS, max(LEAST_STEPS, math.ceil(args.seconds * 1e3 / expected_ms)))
    words = ["--model", case.model, *place(case.hosts), "--link", case.link, "--codec", case.codec]
    got = answer("replay", *words, "--strategy", case.strategy, *transport(args), "--steps", steps, "--json")
    kept = ("step_ms", "step_spread_ms", "steps", "late_ms", "bytes_sent_per_rank", "cpu_s_per_rank")
    return {name: got[name] for name in kept}


# ---- The report


class Comparison(NamedTuple):
    case: Case
    measured: float  # ms, as all the following fields
    predicted: float
    measured_cpu: float
    predicted_cpu: float

    def error(self) -> float:
        return self.predicted / self.measured - 1


def shares(comparisons: list[Comparison]) -> str:
    within = [sum(abs(t.error()) <= most for t in comparisons) for most in (0.1, 0.2)]
    middle = statistics.median(abs(t.error()) for t in comparisons)
    return " | ".join([f"{len(comparisons)}", *(f"{n} ({n / len(comparisons):.0%})" for n in within), f"{middle:.1%}"])


def summary(comparisons: list[Comparison]) -> list[str]:
    rows = ["| of | cases | within 10 % | within 20 % | median error |", "|---|---|---|---|---|"]
    rows.append(f"| **all** | {shares(comparisons)} |")
    for field in Case._fields:
        values: Iterable = dict.fromkeys(getattr(t.case, field) for t in comparisons)
        for value in values:
            what = f"{value} hosts" if field == "hosts" else value
            rows.append(f"| {what} | {shares([t for t in comparisons if getattr(t.case, field) == value])} |")
    return rows


def noise(comparisons: list[Comparison]) -> list[str]:
    """Returns the agreement of measurements with each other: between two hosts, ring and server send the same
    messages."""
    by_case = {t.case: t.measured for t in comparisons}
    pairs = [(ms, by_case.get(c._replace(strategy="server"))) for c, ms in by_case.items() if c[1::3] == ("2", "ring")]
    both = [(a, b) for a, b in pairs if b is not None]
    if not both:
        return []
    alike = sum(abs(a / b - 1) <= 0.1 for a, b in both)
    return [
        "Between two hosts `ring` and `server` are the same messages, so what is measured of both should be the same:",
        f"it is within 10 % in {alike} of {len(both)} pairs ({alike / len(both):.0%}). A prediction cannot be much",
        "better.",
        "",
    ]


def table(comparisons: list[Comparison], args: argparse.Namespace) -> list[str]:
    places = [(link, hosts) for link in args.links for hosts in args.hosts]
    head = " | ".join(f"{hosts} hosts, {link}" for link, hosts in places)
    rows = [f"| model | codec by strategy | {head} |", "|---" * (2 + len(places)) + "|"]
    known = {t.case: t for t in comparisons}

    def cell(case: Case) -> str:
        if case not in known:
            return ""
        t = known[case]
        mark = "**" if abs(t.error()) > 0.1 else ""
        return f"{t.measured:.1f}, {t.predicted:.1f} ({mark}{t.error():+.0%}{mark})"

    for model, codec, strategy in dict.fromkeys((t.case.model, t.case.codec, t.case.strategy) for t in comparisons):
        cells = " | ".join(cell(Case(link, hosts, model, codec, strategy)) for link, hosts in places)
        rows.append(f"| {model} | {codec} by {strategy} | {cells} |")
    return rows


def truth_cases(page: str) -> str:
    """Returns data/truth_cases.def for a page, from the cells "measured, predicted (error)" of its table."""
    cells = re.findall(r"([0-9]+\.[0-9]+), ([0-9]+\.[0-9]+) \(", page)
    return CASES_HEAD + "".join(f"TITHE_TRUTH_CASE({measured}, {predicted})\n" for measured, predicted in cells)


def chosen(words: list[str]) -> list[str]:
    """Returns the words of the command line that determine the figures."""
    out, skip = [], False
    for word in words:
        if not skip and word not in ("--resume", "--state", "--for", "--out", "--csv", "--cases"):
            out.append(word)
        skip = not skip and word in ("--state", "--for", "--out", "--csv", "--cases")
    return out


def text_of(comparisons: list[Comparison], left_out: list[str], state: State, args: argparse.Namespace) -> str:
    took = [p["took_s"] for p in state.data["profiles"].values()]
    today = datetime.datetime.now(datetime.timezone.utc)
    given = chosen(sys.argv[1:])
    lines = [
        "# Predicted and measured steps",
        "",
        f"`{shlex.join(['python', 'lab/bench/truth.py', *given])}`, {today:%Y-%m-%d}, {state.data['machine']}, "
        f"{os.cpu_count()} cores, Linux {platform.release()}.",
        "Measured by `tithe replay`: hosts are network namespaces of this machine, links are shaped by the kernel's",
        "`tbf`, compute is a wait. Predicted by `tithe simulate` from a `tithe profile` of the same hosts and links,",
        f"all ranks at once, {min(took):.0f} to {max(took):.0f} s each. Errors are those of the prediction against the",
        f"median of the measured steps. Measured at commit {' and '.join(state.data['commits'])}.",
        "",
        *summary(comparisons),
        "",
        *noise(comparisons),
        "Pairs that share no law are left out: " + (", ".join(left_out) or "none") + ".",
        "",
        "Milliseconds, measured, predicted (error); bold: more than 10 %.",
        "",
        *table(comparisons, args),
        "",
    ]
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    words: Callable[[str], list[str]] = lambda text: text.split(",")  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", type=words, default=["100Mb/s", "1Gb/s"])
    parser.add_argument("--hosts", type=words, default=["2", "4", "2x2"])
    parser.add_argument("--models", type=words, default=MODELS)
    parser.add_argument("--codecs", type=words, default=CODECS)
    parser.add_argument("--strategies", type=words, default=STRATEGIES)
    parser.add_argument("--transport", default="", help="instead of the one that is chosen by itself: tcp")
    parser.add_argument("--seconds", type=float, default=1.5, help="that the timed steps of a case take together")
    parser.add_argument("--state", type=Path, default=ROOT / "build/truth.json", help="what was measured so far")
    parser.add_argument("--resume", action="store_true", help="go on from --state")
    parser.add_argument("--for", dest="limit", type=float, default=math.inf, help="seconds")
    parser.add_argument("--out", type=Path, help="a file beside standard output")
    parser.add_argument("--csv", type=Path, help="all cases, one a line")
    parser.add_argument("--cases", type=Path, help="all cases, as data/truth_cases.def")
    return parser.parse_args()


def main() -> None:
    """Reads the command line, measures the missing cases, predicts all cases, and writes the page and the CSV file."""
    args = arguments()
    begin = time.monotonic()
    state = State(args.state, args.resume)
    pairs = [(c, s) for c in args.codecs for s in args.strategies]
    left_out = [f"{c} by {s}" for c, s in pairs if not share_a_law(c, s)]
    pairs = [(c, s) for c, s in pairs if f"{c} by {s}" not in left_out]
    comparisons: list[Comparison] = []
    left = 0
    with tempfile.TemporaryDirectory() as folder:
        for link in args.links:
            for hosts in args.hosts:
                if f"{link} {hosts}" not in state.data["profiles"] and time.monotonic() - begin > args.limit:
                    left += len(args.models) * len(pairs)
                    continue
                path = Path(folder) / "profile.json"
                path.write_text(json.dumps(profile(state, args, link, hosts)["profile"]))
                for case in [Case(link, hosts, m, *pair) for m in args.models for pair in pairs]:
                    if case.strategy == "hosts" and "x" not in hosts:
                        continue  # same as `server`, because no host has two ranks
                    if case.key() not in state.data["steps"] and time.monotonic() - begin > args.limit:
                        left += 1
                        continue
                    forecast = predict(case, path)
                    predicted = forecast["step_ms"]
                    if case.key() not in state.data["steps"]:
                        state.measured(case.key(), measure(case, args, predicted))
                        print(".", end="", file=sys.stderr, flush=True)
                    got = state.data["steps"][case.key()]
                    cpu = got["cpu_s_per_rank"] * 1e3, forecast["cpu_s_per_rank"] * 1e3
                    comparisons.append(Comparison(case, got["step_ms"], predicted, *cpu))
    print(file=sys.stderr)
    if left > 0:
        print(f"{left} cases are left: go on with --resume", file=sys.stderr)
    if not comparisons:
        sys.exit("nothing was measured")
    text = text_of(comparisons, left_out, state, args)
    print(text, end="")
    if args.out:
        args.out.write_text(text)
    if args.cases:
        args.cases.write_text(truth_cases(text))
    if args.csv:
        columns = (*Case._fields, *(f"{name}_ms" for name in Comparison._fields[1:]))
        rows = [",".join(map(str, (*t.case, *t[1:]))) for t in comparisons]
        args.csv.write_text("\n".join([",".join(columns), *rows, ""]))


if __name__ == "__main__":
    main()
