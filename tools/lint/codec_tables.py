# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/codecs.md, from `tithe codecs --json`. --write puts them there; else they are compared."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tree import Problem, report

ROOT = Path(__file__).parents[2].resolve()
PAGE = ROOT / "docs/codecs.md"
MARKED = re.compile(r"(<!-- (\w+): written by tools/lint/codec_tables.py -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def allowed(p: dict) -> str:
    return ", ".join(p["choices"]) if "choices" in p else f"{p['low']:g} to {p['high']:g}"


def default(p: dict) -> str:
    return p["default"] if isinstance(p["default"], str) else f"{p['default']:g}"


def tables(listing: dict) -> dict[str, str]:
    codecs = [
        [
            f"`{c['name']}`",
            str(c["id"]),
            f"{c['bits_per_value']:.4g}",
            "; ".join(f"{p['name']}: {', '.join(p['laws'])}" for p in c["phases"]),
            "exact" if c["exact_ledger"] else "rounded",
            f"{c['contraction']:.4g}" + (", no bias" if c["unbiased"] else ""),
        ]
        for c in listing["codecs"]
    ]
    parameters = [
        [f"`{owner}`", f"`{p['name']}`", default(p), allowed(p), p["doc"]]
        for owner, params in [(c["name"], c["parameters"]) for c in listing["codecs"]] + [("all", listing["feedback"])]
        for p in params
    ]
    return {
        "codecs": table(["codec", "id", "bits per value", "phases: laws", "ledger", "loses at most"], codecs),
        "parameters": table(["codec", "parameter", "default", "allowed", "what it is"], parameters),
    }


def check(write: bool, program: Path) -> Iterator[Problem]:
    if not program.exists():
        yield PAGE, 1, f"needs {program}: build first (make build)"
        return
    done = subprocess.run([program, "codecs", "--json"], capture_output=True, text=True, check=True)
    made = tables(json.loads(done.stdout))
    text = PAGE.read_text()
    new = MARKED.sub(lambda m: m[1] + made[m[2]] + m[3], text)
    if write:
        PAGE.write_text(new)
    elif new != text:
        yield PAGE, 1, "differs from `tithe codecs`: run tools/lint/codec_tables.py --write"


if __name__ == "__main__":
    sys.exit(report("codec tables", ROOT, check("--write" in sys.argv[1:], ROOT / "build/tithe")))
