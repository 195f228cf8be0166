#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the site of the documents in build/docs/site: `make docs` (its packages: tools/setup.sh docs).

The documents are written for a forge: they link to each other and to files by relative paths. So the input of the site,
build/docs/tree, has the same folders as this tree: every document, and the files to which documents link. Its
navigation is docs/README.md's list. A link or anchor without a target is an error, and so is a document that the list
lacks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools/lint"))

import python_api  # noqa: E402
from check_links import LINK, prose  # noqa: E402
from tree import files  # noqa: E402

OUT = ROOT / "build/docs"
TREE = OUT / "tree"
INDEX = "docs/README.md"
NAMES = "docs/python_names.md"  # generated here


def shelves() -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns the sections of docs/README.md: title and (title, document) of each."""
    found: list[tuple[str, list[tuple[str, str]]]] = []
    for _, line in prose(ROOT / INDEX):
        if line.startswith("## "):
            found.append((line[3:], []))
        elif item := re.match(r"- \[([^\]]+)\]\(([^)]+)\):", line):
            path = (ROOT / INDEX).parent.joinpath(item[2]).resolve()
            found[-1][1].append((item[1], str(path.relative_to(ROOT))))
    return found


def as_markdown(text: str) -> str:
    """Converts syntax that the site's Markdown reads differently from a forge: fences with two words, lists right below
    a paragraph."""
    out: list[str] = []
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            line = re.sub(r"^(\s*```\w+)\s.*$", r"\1", line)
        before = out[-1] if out else ""
        item = r"\s*([-*]|\d+\.) "
        if not fenced and re.match(item, line) and before.strip() and not re.match(item + r"|\s+\S|#", before):
            out.append("")
        out.append(line)
    return "\n".join(out) + "\n"


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def linked(document: Path) -> set[Path]:
    """Returns the files of the tree that a document links to; for a folder, the files in it."""
    found = set()
    for _, line in prose(document):
        for link in LINK.findall(line):
            if "://" in link or link.startswith(("#", "mailto:")):
                continue
            path = (document.parent / link.split("#")[0]).resolve()
            if path.is_file() and path.suffix != ".md":
                found.add(path)
    return found


def lay_out() -> None:
    shutil.rmtree(TREE, ignore_errors=True)
    for document in files(ROOT, "*.md"):
        put(TREE / document.relative_to(ROOT), as_markdown(document.read_text()))
        for path in linked(document):
            to = TREE / path.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to)
    put(TREE / "docs/site.css", (ROOT / "tools/site.css").read_text())
    put(TREE / NAMES, as_markdown(python_api.page(ROOT)))


def navigation() -> list[dict]:
    nav: list[dict] = [{"Documents": INDEX}]
    for shelf, documents in shelves():
        entries = [{title: path} for title, path in documents]
        if shelf == "Reference":
            entries.insert(1, {"Every name in Python": NAMES})
        if shelf == "Results":
            folder = ROOT / "lab/results"
            others = [p for p in files(ROOT, "*.md") if p.is_relative_to(folder) and p.name != "README.md"]
            title = {p: str(p.relative_to(folder).with_suffix("")).replace("_", " ") for p in others}
            entries.insert(1, {"All results": [{title[p]: str(p.relative_to(ROOT))} for p in others]})
        nav.append({shelf: entries})
    return nav


def main() -> int:
    lay_out()
    settings = "INHERIT: ../../tools/mkdocs.yml\n"
    settings += f"docs_dir: {TREE}\nsite_dir: {OUT / 'site'}\nnav: {json.dumps(navigation())}\n"
    put(OUT / "mkdocs.yml", settings)
    command = [ROOT / ".setup/docs-venv/bin/python", "-m", "mkdocs", "build", "--strict", "-f", OUT / "mkdocs.yml"]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # the version is pinned
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, check=False)
    warnings = [line for line in done.stderr.splitlines() if not line.startswith(("INFO", "DEBUG")) and line.strip()]
    print(*warnings, sep="\n", end="\n" if warnings else "")
    status = done.returncode
    print(f"docs: {'FAILED' if status else OUT.relative_to(ROOT) / 'site/index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
