# SPDX-License-Identifier: Apache-2.0
"""Shared by the checkers: the files of the tree, and the report of problems."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

Problem = tuple[Path, int, str]  # file, line (1-based), text


def files(root: Path, *patterns: str) -> list[Path]:
    """Returns files under root that match one of the globs: those that git tracks or would track; without git, all
    files."""
    git = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, capture_output=True, check=False)
    if (root / ".git").exists() and listed.returncode == 0:
        found = [root / name for name in listed.stdout.decode().split("\0") if name]
    else:
        found = list(root.rglob("*"))
    return sorted({p for p in found if p.is_file() and any(p.match(pattern) for pattern in patterns)})


def report(name: str, root: Path, problems: Iterable[Problem]) -> int:
    """Prints file:line: text for each problem; returns the exit status."""
    count = 0
    for path, line, text in problems:
        count += 1
        shown = path.relative_to(root) if path.is_relative_to(root) else path
        print(f"{shown}:{line}: {text}")
    print(f"{name}: {f'{count} problems' if count else 'ok'}")
    return 1 if count else 0


def main(name: str, check: Callable[[Path], Iterable[Problem]]) -> None:
    """Runs one checker on the tree named on the command line, or on this tree."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2]
    sys.exit(report(name, root.resolve(), check(root.resolve())))
