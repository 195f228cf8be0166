# SPDX-License-Identifier: Apache-2.0
"""Runs the examples in the documents, and compares their output if the document shows it.

    ```sh run            bash, stops at the first failing line
    ```python run        the project's Python, with `import tithe` from the tree
    ```cpp run           a whole program, compiled and linked against build/libtithe.a
    ```text expect       the next block after one of these: its output. `...` stands for any text within a line;
                         a line of only `...` for any number of lines;
                         two or more spaces for any width of a gap between columns

All blocks of one document run in order in one scratch folder with links to the tree's top level, so `build/tithe` and
`examples/...` exist, and files that a block writes are removed. Usage: run_doc_examples.py [document ...]
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tree import Problem, files, report

LANGUAGES = ("sh", "python", "cpp")
SECONDS = 300
LIBRARIES = ("libhwy", "libxxhash", "libssl", "libcrypto", "ucx", "fmt")


@dataclass
class Example:
    line: int
    language: str
    text: str
    expect: list[str] | None = field(default=None)


def examples(path: Path) -> list[Example]:
    found: list[Example] = []
    kind, start, block, after = None, 0, [], False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fence = re.match(r"```\s*(.*)$", line)
        if fence and kind is None:
            kind, start, block = fence[1].strip(), number, []
        elif fence:
            language, _, mark = kind.partition(" ")
            if mark == "run":
                found.append(Example(start, language, "\n".join(block) + "\n"))
            elif kind == "text expect" and after:
                found[-1].expect = block
            elif kind == "text expect":
                found.append(Example(start, "expect", ""))
            after, kind = mark == "run", None
        elif kind is not None:
            block.append(line)
    return found


def line_pattern(line: str) -> str:
    if line.strip() == "...":
        return "(?:.*\n)*"
    columns = re.split(r" {2,}", line.rstrip())
    return " {2,}".join(".*".join(map(re.escape, column.split("..."))) for column in columns) + "\n"


def matches(shown: list[str], got: list[str]) -> bool:
    pattern = "".join(map(line_pattern, shown))
    return re.fullmatch(pattern, "".join(line.rstrip() + "\n" for line in got)) is not None


def command(example: Example, root: Path, scratch: Path) -> list[str]:
    if example.language == "sh":
        return ["bash", "-euo", "pipefail", "-c", example.text]
    if example.language == "python":
        own = root / ".venv/bin/python"
        return [str(own) if own.exists() else sys.executable, "-c", example.text]
    source, program = scratch / "example.cc", scratch / "example"
    source.write_text(example.text)
    found = subprocess.run(["pkg-config", "--cflags", "--libs", *LIBRARIES], capture_output=True, text=True, check=True)
    parts = ["c++", "-std=c++20", "-O1", f"-I{root}/include", str(source), f"{root}/build/libtithe.a"]
    compile_it = shlex.join([*parts, *found.stdout.split(), "-pthread", "-o", str(program)])
    return ["bash", "-euc", f"{compile_it}; {program}"]


def run(path: Path, root: Path) -> Iterator[Problem]:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for entry in root.iterdir():
            if entry.name != ".git":
                (scratch / entry.name).symlink_to(entry)
        environment = os.environ | {"PYTHONPATH": str(root / "python"), "TITHE_TREE": str(root)}
        environment["PATH"] = f"{root}/.venv/bin:{environment['PATH']}"
        for example in examples(path):
            if example.language not in LANGUAGES:
                yield path, example.line, f"'{example.language}' cannot be run: know {', '.join(LANGUAGES)}"
                continue
            try:
                done = subprocess.run(
                    command(example, root, scratch), cwd=scratch, env=environment, stdin=subprocess.DEVNULL,
                    capture_output=True, text=True, timeout=SECONDS, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                yield path, example.line, f"still runs after {SECONDS} s"
                continue
            if done.returncode:
                yield path, example.line, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
            elif example.expect is not None and not matches(example.expect, done.stdout.splitlines()):
                shown = "\n".join(example.expect)
                yield path, example.line, f"prints otherwise\n--- shown\n{shown}\n--- printed\n{done.stdout}"


def main() -> int:
    root = Path(__file__).parents[2].resolve()
    documents = [Path(a).resolve() for a in sys.argv[1:]] or files(root, "*.md")
    return report("doc examples", root, (p for path in documents for p in run(path, root)))


if __name__ == "__main__":
    sys.exit(main())
