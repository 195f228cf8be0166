# SPDX-License-Identifier: Apache-2.0
"""docs/reference/session_options.md, from include/tithe/options.def and include/tithe/stats.def. --write writes the
lists; otherwise they are compared."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tree import Problem, report

ROOT = Path(__file__).parents[2].resolve()
PAGE = ROOT / "docs/reference/session_options.md"
MARKED = re.compile(r"(<!-- (\w+): written by tools/lint/session_lists.py -->\n).*?(<!-- end -->)", re.DOTALL)
ENTRY = re.compile(r"^TITHE_(?:OPTION|STAT|SUM)\((.*?)\)$", re.DOTALL | re.MULTILINE)
STRINGS = re.compile(r'"((?:[^"\\]|\\.)*)"')
KIND = {
    "Text": "text",
    "Flag": "bool",
    "Count": "values",
    "Number": "integer",
    "Integer": "integer",
    "Milliseconds": "seconds; C and C++: milliseconds",
    "ThreadCount": "threads",
}
DEFAULT = {"{}": "unset", "kDefaultMinValues": "4096", "kDefaultPartValues": "2**22", "true": "True", "false": "False"}


def entries(name: str) -> Iterator[tuple[str, str, str, str]]:
    """Yields type, name, default and documentation of each entry of include/tithe/<name>."""
    for entry in ENTRY.findall((ROOT / "include/tithe" / name).read_text()):
        kind, word, initial, rest = (part.strip() for part in entry.split(",", 3))
        yield kind, word, initial, "".join(STRINGS.findall(rest)).replace('\\"', '"')


def default(kind: str, initial: str) -> str:
    if kind == "Milliseconds":
        return str(int(re.sub(r"\D", "", initial)) // 1000)
    return DEFAULT.get(initial, initial)


def lists() -> dict[str, str]:
    options = (f"- **`{n}`** ({KIND[k]}, `{default(k, d)}`): {text}\n" for k, n, d, text in entries("options.def"))
    stats = (f"- **`{n}`**: {text}\n" for _, n, _, text in entries("stats.def"))
    return {"options": "".join(options), "stats": "".join(stats)}


def check(write: bool) -> Iterator[Problem]:
    text = PAGE.read_text()
    made = lists()
    fresh = MARKED.sub(lambda m: m[1] + made[m[2]] + m[3], text)
    if write:
        PAGE.write_text(fresh)
    elif fresh != text:
        yield PAGE, 1, "differs from the lists: run tools/lint/session_lists.py --write"


if __name__ == "__main__":
    sys.exit(report("session lists", ROOT, check("--write" in sys.argv[1:])))
