# SPDX-License-Identifier: Apache-2.0
"""Includes go down the floors only (HACKING.md, "The floors"), and public headers compile on their own.

The libraries lang/, advisor/ and card/ are beside src/ and have floors too; SEAMS lists the only folders of src/ that
include them. A folder may include its own floor and those below. `codec` and `transport` never include each other, one
codec never includes another's folder, nor one transport another's. Folders of one floor must not include each other in
a circle. Codecs share rooms: src/codec/shared/common and the rooms in ROOMS; a codec includes at most two of these
beside common. The codec language and the engine have rooms too; a subfolder of theirs that is not in ROOMS is refused.
tests/support is only for tests. No codec reads the machine or the environment: the caller of a codec chooses its impl.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tree import Problem, files, main

FLOORS = {
    "base": 0,
    "device": 1,
    "frame": 1,
    "codec": 2,
    "transport": 2,
    "card/model": 3,
    "feedback": 3,
    "strategy": 3,
    "lang": 3,
    "trace": 3,
    "catalogue": 4,
    "plan": 4,
    "engine": 5,
    "advisor/sim": 6,
    "advisor/planner": 7,
    "advisor/measure": 7,
    "advisor/auto": 8,
}
HALLS = {"advisor", "card"}  # folders whose rooms have floors of their own
# The libraries beside src/, and the folders of src/ that include them.
SEAMS: dict[str, set[str]] = {"lang": {"catalogue"}, "advisor": set(), "card": set()}
ABOVE = {"card/app", "card/bench"}  # above all floors, as apps/
# A public header has the floor of the folder that implements it.
PUBLIC = {
    "status": "base", "byte_view": "base", "hd": "base", "limits": "base",
    "frame": "frame",
    "machine": "base",
    "codec": "codec",
    "hosts": "transport", "transport": "transport", "transports": "transport", "connect": "transport",
    "rejoin": "transport",
    "spec": "feedback",
    "catalogue": "catalogue", "codecs": "catalogue",
    "trace": "trace",
    "graph": "strategy", "strategies": "strategy",
    "plan": "plan", "choices": "plan", "schedule": "plan",
    "session": "engine", "options": "engine", "stats": "engine", "tithe": "engine",
}  # fmt: skip
# The rooms of a folder: a room, and the rooms that it may include. A codec's own folder is above the rooms of
# src/codec/shared; the files of lang itself are above its rooms, which must not include them.
ROOMS = {
    "codec": {
        "common": (),
        "delta": ("common",),
        "floats": ("common",),
        "levels": ("common",),
        "rotation": ("common",),
        "int_sum": ("common", "levels"),
        "sparse": ("common", "floats"),
    },
    "lang": {
        "runtime": (),
        "front": (),
        "run": ("front",),
        "lists": ("front", "run"),
        "text": ("front",),
        "store": (),
        "cpp": ("front", "run", "runtime", "text", "store"),
        "cuda": ("front", "run", "runtime", "text", "store"),
    },
    "engine": {
        "device": (),
        "program": ("device",),
        "peers": ("program",),
        "run": ("program", "peers"),
        "session": ("device", "program", "peers", "run"),
    },
}
CLOSED = {"lang", "engine"}  # folders in which every folder is a room
MOST_ROOMS = 2  # rooms that one codec includes, beside common
STRANGERS = [{"codec", "transport"}]
ASKS = re.compile(r"\bthis_machine\(|\bgetenv\(")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
SOURCES = ("*.h", "*.cc", "*.cu", "*.cuh", "*.c", "*.def")


def folder_of(relative: str) -> tuple[str, str] | None:
    """(folder, thing) of a path such as src/codec/topk/topk.cc; the thing is "" outside a thing's own folder."""
    parts = relative.split("/")
    if parts[:2] == ["include", "tithe"]:
        return PUBLIC.get(Path(parts[-1]).stem, f"? {relative}"), ""
    if parts[0] in SEAMS:
        parts = ["src", *parts]
    if parts[0] == "src" and len(parts) > 3 and parts[1] in HALLS:
        hall = f"{parts[1]}/{parts[2]}"
        return None if hall in ABOVE else (hall, parts[3] if len(parts) > 4 else "")
    if parts[:3] == ["src", "codec", "shared"]:
        parts = ["src", "codec", *parts[3:]]
    if parts[0] == "src" and len(parts) > 2:
        return parts[1], parts[2] if len(parts) > 3 else ""
    return None  # apps, python, tests and lab are above all floors


def place_of(folder: str) -> str:
    """The path of a folder with a floor, or of a file in it."""
    return folder if folder.split("/")[0] in SEAMS else f"src/{folder}"


def check(root: Path) -> Iterator[Problem]:
    """Yields a problem for each include that goes up, sideways to another codec or transport, or in a circle."""
    edges: dict[tuple[str, str], tuple[Path, int]] = {}
    rooms: dict[str, set[str]] = {}
    for path in files(root, *SOURCES):
        here = folder_of(str(path.relative_to(root)))
        if here is None:
            continue
        if here[0] not in FLOORS:
            yield path, 1, f"'{here[0]}' has no floor: add it to tools/lint/check_floors.py"
            continue
        if here[0] in CLOSED and here[1] and here[1] not in ROOMS[here[0]]:
            yield path, 1, f"'{here[1]}' is no room of {place_of(here[0])}: add it to tools/lint/check_floors.py"
            continue
        public = path.is_relative_to(root / "include")
        test = path.name.endswith("_test.cc")
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if here[0] == "codec" and here[1] and not test and ASKS.search(line):
                yield path, number, "a codec asks the machine: give it a row in its impls instead"
            match = INCLUDE.match(line)
            if not match:
                continue
            name = match[1]
            target = f"include/{name}" if name.startswith("tithe/") else place_of(name)
            if name.startswith("support/") and not test:
                yield path, number, f'"{name}" is for tests'
            if not (root / target).is_file():
                if not name.startswith("tithe/") and name.split("/")[0] not in FLOORS:
                    continue  # a library's header in quotes
                yield path, number, f'"{name}" is not there (paths start at src/, include/ or the root)'
                continue
            there = folder_of(target)
            if there is None and test:
                continue  # a test includes a bench
            if there is None or there[0] not in FLOORS:
                yield path, number, f'"{name}" has no floor: add it to tools/lint/check_floors.py'
                continue
            if public and not name.startswith("tithe/"):
                yield path, number, f'a public header includes "{name}", which users do not have'
            library = there[0].split("/")[0]
            if library in SEAMS and here[0].split("/")[0] not in (library, *SEAMS[library]) and not test:
                if path.is_relative_to(root / "src"):
                    yield path, number, f'{here[0]} includes "{name}": {library}/ is beside src/ (SEAMS)'
            up = FLOORS[there[0]] - FLOORS[here[0]]
            if up > 0 and not test:
                yield (
                    path,
                    number,
                    f'{here[0]} (floor {FLOORS[here[0]]}) includes "{name}" (floor {FLOORS[there[0]]})',
                )
            elif {here[0], there[0]} in STRANGERS:
                yield (
                    path,
                    number,
                    f'{here[0]} includes "{name}": {here[0]} and {there[0]} never see each other',
                )
            elif here[0] == there[0] and here[1] in (own := ROOMS.get(here[0], {})) and not test:
                below = (here[1], *own[here[1]], *([""] if here[0] == "codec" or name.startswith("tithe/") else []))
                if there[1] not in below:
                    what = there[1] if there[1] in own else place_of(there[0])
                    yield path, number, f'the room {here[1]} includes "{name}": {what} is not below it'
            elif here[0] == there[0] == "codec" and there[1] in ROOMS["codec"]:
                if here[1] and there[1] != "common" and not test:
                    rooms.setdefault(here[1], set()).add(there[1])
                    if len(rooms[here[1]]) > MOST_ROOMS:
                        yield path, number, f"{here[1]} names {len(rooms[here[1]])} rooms (at most {MOST_ROOMS})"
            elif here[0] == there[0] and there[1] not in ("", here[1]) and here[0] in ("codec", "transport"):
                if here[1] and not test:
                    yield path, number, f'{here[1]} includes "{name}": share it in src/{here[0]}/ instead'
            elif up == 0 and here[0] != there[0]:
                edges[here[0], there[0]] = (path, number)
    for (a, b), (path, number) in edges.items():
        if (b, a) in edges and a < b:
            yield path, number, f"{a} and {b} include each other"
    yield from check_alone(root)


def check_alone(root: Path) -> Iterator[Problem]:
    """Each public header compiles as the first line of an otherwise empty file, with nothing else included."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    headers = list(files(root, "include/tithe/*.h", "include/tithe/seam/*.h"))
    if not headers:
        return
    if compiler is None:
        yield headers[0], 1, "no C++ compiler to try the public headers with"
        return

    def compile_alone(header: Path) -> Problem | None:
        with tempfile.TemporaryDirectory() as scratch:
            source = Path(scratch) / "alone.cc"
            source.write_text(f'#include "{header.relative_to(root / "include")}"\n')
            command = [
                compiler,
                "-std=c++20",
                "-fsyntax-only",
                "-Wall",
                "-Wextra",
                f"-I{root}/include",
                str(source),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return None
        return header, 1, f"does not compile alone: {done.stderr.strip().splitlines()[-1]}"

    with ThreadPoolExecutor() as pool:
        yield from (p for p in pool.map(compile_alone, headers) if p)


if __name__ == "__main__":
    main("floors", check)
