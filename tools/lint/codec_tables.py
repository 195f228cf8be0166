# SPDX-License-Identifier: Apache-2.0
"""The table of docs/reference/codecs.md and the list of docs/reference/codecs_parameters.md, from `tithe codecs
--json`. --write writes both; otherwise they are compared."""

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
            f"{c['bits_per_value']:.4g}",
            "; ".join(f"{p['name']}: {', '.join(p['laws'])}" for p in c["phases"]),
            c["needs_feedback"],
            "exact" if c["exact_ledger"] else "rounded",
            f"{c['contraction']:.4g}",
        ]
        for c in listing["codecs"]
    ]
    owners: dict[tuple[str, ...], list[str]] = {}  # by parameter: the codecs that have it
    for owner, params in [(c["name"], c["parameters"]) for c in listing["codecs"]] + [("all", listing["feedback"])]:
        for p in params:
            owners.setdefault((p["name"], default(p), allowed(p), p["doc"]), []).append(f"`{owner}`")
    parameters = [
        f"- **`{name}`** of {', '.join(codecs_of)} = {value} ({values}): {doc}\n"
        for (name, value, values, doc), codecs_of in owners.items()
    ]
    head = ["codec", "bits per value", "phases: laws", "needs feedback", "ledger", "loses at most"]
    return {"codecs": table(head, codecs), "parameters": "".join(parameters)}


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
