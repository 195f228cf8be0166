# SPDX-License-Identifier: Apache-2.0
"""One word per thing. docs/reference/glossary.md lists the words, and in a second table the words that are not used:
the files in which they are searched, and the replacement.

A plain word of that table is found in comments, strings and names, singular and plural, also as part of a name: `place`
in `list_places` and `Place` (the phrase `in place` is allowed). A word in back quotes is a name: it is found as a
whole, and only in code; a row may list several. `where` lists folders and globs; those after `not` are excluded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tree import Problem, files, main

GLOSSARY = "docs/reference/glossary.md"
TERM = re.compile(r"\*\*([^*]+)\*\*")
QUOTED = re.compile(r"`([^`]+)`")
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")  # parts of a name: list, places; Index, Draws
NAME = re.compile(r"[A-Za-z_]\w*")
NOT_CODE = re.compile(r'//.*|"(?:[^"\\]|\\.)*"')
PHRASE = re.compile(r"in[ _-]?place", re.IGNORECASE)


def rows(root: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields the rows of the glossary's tables, without their heads: line, cells."""
    for number, line in enumerate((root / GLOSSARY).read_text().splitlines(), 1):
        if line.startswith("| ") and not line.startswith("| word |"):
            yield number, [cell.strip() for cell in line.strip("|").split("|")]


def uses(line: str, word: str) -> bool:
    if word.startswith("`"):
        return not set(QUOTED.findall(word)).isdisjoint(NAME.findall(NOT_CODE.sub("", line)))
    return any(part.lower() in (word, word + "s") for part in PART.findall(PHRASE.sub("", line)))


def scope(root: Path, where: str) -> list[Path]:
    included, _, excluded = where.partition(" not ")

    def named(path: Path, items: str) -> bool:
        return any(path.is_relative_to(root / item) or path.match(item) for item in QUOTED.findall(items))

    every = files(root, "*.h", "*.cc", "*.md")
    return [path for path in every if named(path, included) and not named(path, excluded)]


def check(root: Path) -> Iterator[Problem]:
    page = root / GLOSSARY
    words = {number: TERM.findall(row[0]) for number, row in rows(root) if len(row) == 2}
    terms = {term.lower() for row in words.values() for term in row}
    before = ""
    for number, row in words.items():
        if row[0].lower() <= before:
            yield page, number, f"{row[0]} after {before}: sort the words, each once"
        before = row[0].lower()
    retired = [(number, row) for number, row in rows(root) if len(row) == 3]
    if not words or not retired:
        yield page, 1, "needs two tables: the words, and the words that are not used"
    for number, (word, where, instead) in retired:
        for term in TERM.findall(instead):
            if term.lower() not in terms:
                yield page, number, f"{term} is not in the glossary"
        paths = scope(root, where)
        if not paths:
            yield page, number, f"{where}: no such files"
        for path in paths:
            for at, line in enumerate(path.read_text().splitlines(), 1):
                if uses(line, word):
                    yield path, at, f"{word}: write {instead.replace('**', '')} ({GLOSSARY})"


if __name__ == "__main__":
    main("glossary", check)
