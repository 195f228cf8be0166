# SPDX-License-Identifier: Apache-2.0
"""Links between the documents have a target, paths named in them exist, and tables render as tables.

Checked in every *.md: relative links and images, with their #anchors; and words in back quotes with the form of a path
of this tree, such as `src/strategy/ring.cc` (not those with <...>, * or ...). In comments of sources: words such as
sim/world.h must be the end of a file's path. A table without a line of dashes below its head is one paragraph on a
forge; a row with more cells than the head loses them. Cells are short, except in lab/results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from tree import Problem, files, main

LINK = re.compile(r"!?\[(?:[^\]\\]|\\.)*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+<?(\S+?)>?\s*$")
HTML = re.compile(r"<(?:img|a)\b[^>]*\b(?:src|href)=\"([^\"]+)\"")
CODE = re.compile(r"`([^`]+)`")
FOLDERS = r"src|lang|advisor|card|lab|data|include|docs|tests|tools|apps|python|demo|examples|\.ci"
PATH = re.compile(rf"^(?:{FOLDERS})/[\w./+-]*$")
RULE = re.compile(r"^\|(?:\s*:?-+:?\s*\|)+\s*$")
SOURCES = ("*.h", "*.cc", "*.cu", "*.def", "*.py", "*.sh", "*.sv", "*.cmake", "CMakeLists.txt", "Makefile")
COMMENT = re.compile(r"(?:^|\s)(?://|#|\*)\s.*|\"\"\".*")
NAMED = re.compile(
    r"(?<![\w./<{*$~-])((?:[\w-]+/)+[\w-]+\.(?:h|cc|cu|py|md|def|cmake|sh|toml|json|codec|sv))\b(?![/(])"
)
OUTSIDE = ("build", "byteps", "gpu_pack", "home", "hwy", "linux")  # first folders of paths outside the tree
MOST_CELL_WORDS = 15
BUILT = ("demo/out",)  # created by a run, not part of the tree


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines outside fenced blocks."""
    fence = ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if mark and (not fence or line.strip().startswith(fence)):
            fence = "" if fence else mark[1]
            continue
        if not fence:
            yield number, line


def anchors(path: Path) -> set[str]:
    """Returns the anchors that the forges make of headings: lower case, spaces to dashes, other signs dropped."""
    found: dict[str, int] = {}
    names = set()
    for _, line in prose(path):
        names.update(re.findall(r"<a\s+(?:id|name)=\"([^\"]+)\"", line))
        heading = re.match(r"#{1,6}\s+(.*?)\s*#*\s*$", line)
        if not heading:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        names.add(slug if count == 0 else f"{slug}-{count}")
    return names


def cells(row: str) -> list[str]:
    bare = CODE.sub(lambda code: code[0].replace("|", ""), row.strip()).replace("\\|", "")
    return bare.removeprefix("|").removesuffix("|").split("|")


def words(cell: str) -> int:
    """Counts the words that a reader sees: without the targets of links, and without signs that stand alone."""
    return len(re.findall(r"\S*\w\S*", re.sub(r"\]\([^)]*\)", "]", cell)))


def tables(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the defects of tables: line, text."""
    before = -1
    rows: list[tuple[int, str]] = []
    for number, line in [*prose(path), (-1, "")]:
        if line.startswith("|") and (not rows or number == before + 1):
            rows.append((number, line))
        elif rows:
            head = len(cells(rows[0][1]))
            if len(rows) < 2 or not RULE.match(rows[1][1]):
                yield rows[0][0], "a table needs a line of dashes below its head"
            for at, row in rows[1:]:
                if (found := len(cells(row))) > head:
                    yield at, f"a row of {found} cells in a table of {head}"
            rows = [(number, line)] if line.startswith("|") else []
        before = number


def comments(root: Path) -> Iterator[Problem]:
    """Yields the paths in comments that name no file. Words in capitals stand for any name."""
    ends = set()
    for path in files(root, "*"):
        parts = path.relative_to(root).parts
        ends.update("/".join(parts[at:]) for at in range(len(parts)))
    for path in files(root, *SOURCES):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for word in NAMED.findall(found[0]) if (found := COMMENT.search(line)) else ():
                known = word in ends or word.split("/")[0] in OUTSIDE or re.search(r"\b[A-Z]+\b|_[A-Z]+\b", word)
                if not known:
                    yield path, number, f"a comment names {word}, which is not there"


def check(root: Path) -> Iterator[Problem]:
    yield from comments(root)
    for path in files(root, "*.md"):
        for number, wrong in tables(path):
            yield path, number, wrong
        short = not path.is_relative_to(root / "lab/results")
        for number, line in prose(path):
            for cell in cells(line) if short and line.startswith("|") else ():
                if (count := words(cell)) > MOST_CELL_WORDS:
                    yield path, number, f"a cell of {count} words (at most {MOST_CELL_WORDS}): {cell.strip()}"
            bare = CODE.sub("", line)
            targets = LINK.findall(bare) + REFERENCE.findall(bare) + HTML.findall(bare)
            for target in targets:
                if re.match(r"[a-z][a-z0-9+.-]*:", target):
                    continue
                where, _, anchor = unquote(target).partition("#")
                file = (path.parent / where).resolve() if where else path
                if not file.exists():
                    yield path, number, f"link to {target}: no such file"
                elif not file.is_relative_to(root):
                    yield path, number, f"link to {target}: leaves the tree"
                elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                    yield path, number, f"link to {target}: no such heading"
            for word in CODE.findall(line):
                if PATH.match(word) and "..." not in word and not word.startswith(BUILT):
                    if not (root / word).exists():
                        yield path, number, f"`{word}` is not there"


if __name__ == "__main__":
    main("links", check)
