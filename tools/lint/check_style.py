# SPDX-License-Identifier: Apache-2.0
"""Rules that no formatter checks: the SPDX line, file length, line length in comments, tabs, one name per file,
leftovers, sentences that begin with a relative clause, and the length of documents."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tree import Problem, files, main

SPDX = "SPDX-License-Identifier: Apache-2.0"
CODE = (
    "*.h",
    "*.cc",
    "*.cu",
    "*.cuh",
    "*.c",
    "*.def",
    "*.py",
    "*.sh",
    "*.sv",
    "*.cmake",
    "CMakeLists.txt",
    "Makefile",
)
SCRIPTS = (".sh", ".cmake", "CMakeLists.txt", "Makefile", "run")
LIBRARIES = ("src", "lang", "advisor", "card/model")
LONG_FILE = 400  # a note
TOO_LONG_FILE = 500  # refused: a concept is missing
LONG_LINE = 120
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
# Calls that open a descriptor which outlives a function: a forked child must not keep a copy (src/base/unique_fd.h).
OPENS = re.compile(r"(?<![\w.>])(socket|socketpair|accept4|epoll_create1?|eventfd|timerfd_create|memfd_create)\((?!\))")
OWNED = re.compile(r"(UniqueFd|Socket)::from\(")
# A sentence that begins with a free relative clause ("What is sent ..."), in a comment or a document.
CLAUSE = r"(What|Who|Whom|Whoever|Whatever|Those that|Those who|That which) (?!.*\?)"
IN_COMMENT = re.compile(rf"//(.*[.:])? {CLAUSE}")
IN_SCRIPT = re.compile(rf"(^|\s)#(.*[.:])? {CLAUSE}")
IN_DOCSTRING = re.compile(rf'^ *(# |"""){CLAUSE}')
IN_DOCUMENT = re.compile(rf"(^|[.:] |^ *[-*] |^ *\d\. ){CLAUSE}")
A_CLAUSE = "a sentence begins with a relative clause: name the thing"
MOST_WORDS, MOST_PAGE_WORDS = 50_000, 1_500  # of docs/, and of one page there
SNAKE = re.compile(r"^[a-z0-9_]+(\.[a-z0-9_]+)*$")


def check(root: Path) -> Iterator[Problem]:
    """Yields a problem for each line or file that breaks a rule of this module."""
    names = defaultdict(list)
    for path in files(root, *CODE, ".ci/run"):
        lines = path.read_text().splitlines()
        head = lines[1:2] if lines and lines[0].startswith("#!") else lines[:1]
        if path.name != "__init__.py" or lines:
            if not head or SPDX not in head[0]:
                yield path, 1, f"the first line must hold '{SPDX}'"
        if len(lines) > TOO_LONG_FILE:
            yield (
                path,
                len(lines),
                f"{len(lines)} lines (at most {TOO_LONG_FILE}): split it where a concept is missing",
            )
        elif len(lines) > LONG_FILE:
            print(f"note: {path.relative_to(root)}: {len(lines)} lines (aim: {LONG_FILE})", file=sys.stderr)
        inside = any(path.is_relative_to(root / folder) for folder in LIBRARIES)
        library = inside and path.suffix == ".cc" and not path.stem.endswith("_test")
        for number, line in enumerate(lines, 1):
            if len(line) > LONG_LINE and path.suffix in (".h", ".cc", ".cu", ".py"):
                yield path, number, f"{len(line)} characters (at most {LONG_LINE})"
            if path.suffix in (".h", ".cc", ".cu", ".c", ".def") and IN_COMMENT.search(line):
                yield path, number, A_CLAUSE
            if path.suffix == ".py" and IN_DOCSTRING.search(line):
                yield path, number, A_CLAUSE
            if (path.suffix in SCRIPTS or path.name in SCRIPTS) and IN_SCRIPT.search(line):
                yield path, number, A_CLAUSE
            if "\t" in line and path.name != "Makefile":
                yield path, number, "a tab"
            if line != line.rstrip():
                yield path, number, "blanks at the end"
            if library and OPENS.search(line) and not any(map(OWNED.search, lines[max(0, number - 2) : number])):
                yield path, number, "open it in UniqueFd::from(), so that forked children close it"
            if LEFTOVER.search(line) and path.name != "check_style.py":
                yield path, number, "a leftover: do it or say why not"
        if path.suffix in (".h", ".cc", ".cu", ".py", ".sh", ".def") and not SNAKE.match(path.name):
            yield path, 1, "file names are snake_case"
        shared_names = path.is_relative_to(root / "src/transport")  # each transport has the same file names
        if inside and not shared_names and path.suffix in (".h", ".cc", ".cu"):
            names[path.name].append(path)
    for same in names.values():
        for path in same[1:]:
            yield path, 1, f"a second file of this name: {same[0].relative_to(root)}"
    for path in files(root, "*.md"):
        if not path.is_relative_to(root / "lab/results"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if IN_DOCUMENT.search(line):
                    yield path, number, A_CLAUSE
    words = {path: len(path.read_text().split()) for path in files(root, "*.md") if path.is_relative_to(root / "docs")}
    for path, count in words.items():
        if count > MOST_PAGE_WORDS:
            yield path, 1, f"{count:,} words (at most {MOST_PAGE_WORDS:,}): split the page"
    if sum(words.values()) > MOST_WORDS:
        yield root / "docs", 1, f"docs/ has {sum(words.values()):,} words (at most {MOST_WORDS:,})"
    for path in files(root, "*.sh", ".ci/run"):
        done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
        if done.returncode:
            yield path, 1, done.stderr.strip().splitlines()[0]


if __name__ == "__main__":
    main("style", check)
