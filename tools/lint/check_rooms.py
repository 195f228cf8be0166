# SPDX-License-Identifier: Apache-2.0
"""Imports between the rooms of python/tithe/torch go one way (HACKING.md, "The floors").

A room is a folder. ROOMS lists the rooms that each may import; a folder that is not listed is refused. The files of
tithe.torch itself are above the rooms, and no room imports them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tree import Problem, files, main

PACKAGE = "python/tithe/torch"
ROOMS = {
    "_common": (),
    "_device": ("_common",),
    "_hook": ("_common", "_device"),
    "_optimizer": ("_common", "_hook"),
    "_local_steps": ("_common", "_device"),
    "_sharded": ("_common", "_device", "_hook", "_optimizer"),
    "_checkpoint": ("_hook", "_sharded"),
}


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields (line, module) of each import, also inside functions. `from a import b` may import the module a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield node.lineno, "."
            else:
                yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def check(root: Path) -> Iterator[Problem]:
    for path in files(root, f"{PACKAGE}/*/*.py"):
        room = path.parent.name
        if room not in ROOMS:
            yield path, 1, f"'{room}' is no room of {PACKAGE}: add it to tools/lint/check_rooms.py"
            continue
        for line, module in imported(ast.parse(path.read_text())):
            if module == ".":
                yield path, line, "a relative import: name the module from tithe on"
                continue
            parts = module.split(".")
            if parts[:2] != ["tithe", "torch"]:
                continue
            target = parts[2] if len(parts) > 3 and parts[2] in ROOMS else f"{PACKAGE} itself"
            if target not in (room, *ROOMS[room]):
                yield path, line, f"the room {room} imports {module}: {target} is not below it"


if __name__ == "__main__":
    main("rooms", check)
