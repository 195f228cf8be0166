# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/reference/codecs.md and docs/reference/codecs_parameters.md, from `tithe codecs --json` and the
measurements in bench/results/codecs.txt (speed) and bench/results/study.json (accuracy). A missing measurement is an
empty cell. --write writes the tables; otherwise they are compared."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tree import Problem, report

ROOT = Path(__file__).parents[2].resolve()
PAGES = (ROOT / "docs/reference/codecs.md", ROOT / "docs/reference/codecs_parameters.md")
RESULTS = ROOT / "bench/results"
MARKED = re.compile(r"(<!-- (\w+): written by tools/lint/codec_tables.py -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def allowed(p: dict) -> str:
    return ", ".join(p["choices"]) if "choices" in p else f"{p['low']:g} to {p['high']:g}"


def default(p: dict) -> str:
    return p["default"] if isinstance(p["default"], str) else f"{p['default']:g}"


# A line of codecs.txt: name, values, threads, and per target: GB/s of gradient, what comes after them, kept/tried.
SPEED = re.compile(r"^(?P<codec>\S+) (?P<what>encode|decode), default settings +\d+ +1 \|(?P<groups>.+)\|")
GROUP = re.compile(r"^ *(?P<speed>[\d.]+) +[\d.]+ +[\d.]+ (?P<rest>.*)$")
SECTION = "Every codec"


def speeds() -> tuple[list[str], dict[tuple[str, str], str]]:
    """The targets, and GB/s for each of them by codec and "encode" or "decode": 25M values from memory, one thread, at
    default settings. A target that was too noisy is a dash, a row without any is no row."""
    lines = (RESULTS / "codecs.txt").read_text().splitlines()
    head = next((line.removeprefix(SECTION) for line in lines if line.startswith(SECTION)), "")
    targets = head.replace("|", " ").split()
    found = {}
    for row in filter(None, map(SPEED.match, lines)):
        groups = list(filter(None, map(GROUP.match, row["groups"].split("|"))))
        cells = ["-" if "noisy" in group["rest"] else group["speed"] for group in groups]
        if set(cells) != {"-"}:
            found[row["codec"], row["what"]] = " / ".join(cells)
    return targets, found


def accuracies() -> dict[str, str]:
    """By codec: points away from fp32, and bytes as a part of fp32's, in the study: at the default setting, and at the
    one that sends least of those that converge."""
    file = RESULTS / "study.json"
    rows: dict[str, list[dict]] = {}
    for row in json.loads(file.read_text())["rows"] if file.exists() else []:
        rows.setdefault(row["codec"].split(":")[0], []).append(row)

    def cell(mine: list[dict]) -> str:
        others = [row for row in mine[1:] if row["smaller"] > 1.05 * mine[0]["smaller"] and not row["diverged"]]
        shown = mine[:1] + sorted(others, key=lambda row: (row["smaller"], row["points"]))[-1:]
        return ", ".join(f"{row['points']:+.2f} at 1/{row['smaller']:.0f}" for row in shown)

    return {name: cell(mine) for name, mine in rows.items()}


def tables(listing: dict) -> dict[str, str]:
    (targets, speed), accuracy = speeds(), accuracies()
    codecs = [
        [
            f"`{c['name']}`",
            str(c["id"]),
            f"{c['bits_per_value']:.4g}",
            "; ".join(f"{p['name']}: {', '.join(p['laws'])}" for p in c["phases"]),
            c["needs_feedback"],
            "exact" if c["exact_ledger"] else "rounded",
            f"{c['contraction']:.4g}",
            speed.get((c["name"], "encode"), ""),
            speed.get((c["name"], "decode"), ""),
            accuracy.get(c["name"], ""),
        ]
        for c in listing["codecs"]
    ]
    owners: dict[tuple[str, ...], list[str]] = {}  # by parameter: the codecs that have it
    for owner, params in [(c["name"], c["parameters"]) for c in listing["codecs"]] + [("all", listing["feedback"])]:
        for p in params:
            owners.setdefault((f"`{p['name']}`", default(p), allowed(p), p["doc"]), []).append(f"`{owner}`")
    parameters = [[" ".join(codecs_of), *parameter] for parameter, codecs_of in owners.items()]
    head = ["codec", "id", "bits per value", "phases: laws", "needs feedback", "ledger", "loses at most"]
    head += [f"encode GB/s: {' / '.join(targets)}", f"decode GB/s: {' / '.join(targets)}", "points vs fp32, bytes"]
    return {
        "codecs": table(head, codecs),
        "parameters": table(["codec", "parameter", "default", "allowed", "what it is"], parameters),
    }


def check(write: bool, program: Path) -> Iterator[Problem]:
    if not program.exists():
        yield PAGES[0], 1, f"needs {program}: build first (make build)"
        return
    done = subprocess.run([program, "codecs", "--json"], capture_output=True, text=True, check=True)
    made = tables(json.loads(done.stdout))
    for page in PAGES:
        text = page.read_text()
        new = MARKED.sub(lambda m: m[1] + made[m[2]] + m[3], text)
        if write:
            page.write_text(new)
        elif new != text:
            yield page, 1, "differs from `tithe codecs`: run tools/lint/codec_tables.py --write"


if __name__ == "__main__":
    sys.exit(report("codec tables", ROOT, check("--write" in sys.argv[1:], ROOT / "build/tithe")))
