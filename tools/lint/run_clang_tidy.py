# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over the library, the command and the Python module, in parallel, without unchanged files.

Most of the time goes into headers of other libraries, once per file. So several files of different folders with the
same command line are checked together, as one translation unit. If this finds a problem, or the files do not fit into
one unit (two files may use the same internal name), each file is checked separately. One check reads only the main
file, so this script searches for unused using-declarations itself.

A file that passed is recorded by the hash of itself, of every header of tithe that it includes, of its compile command
and of .clang-tidy, so the second run takes no time. The records are in the user's cache ($XDG_CACHE_HOME or ~/.cache,
tithe/clang-tidy), shared by all checkouts, for thirty days after their last use. Tests and benchmarks are omitted: the
sanitizers run them, and they would triple the time. Usage: run_clang_tidy.py [build folder]
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2].resolve()
ONE_TARGET = ("--extra-arg=-DHWY_COMPILE_ONLY_STATIC",)
CHECKED = ("src", "lang", "advisor", "card", "apps", "lab/hosts", "python")
# Folders that includes start at, beside that of the file.
BASES = ("include", "src", ".", "apps/tithe", "card/app", "lab/hosts")
MOST = 8  # files at a time
KEPT = 30 * 24 * 3600  # seconds for which a record is kept after its last use
USING = re.compile(r"^\s*using ([\w:]+::(\w+));", re.MULTILINE)
PRECOMPILED = re.compile(r" -Winvalid-pch| -include \S*/cmake_pch\.hxx")  # gcc's, which clang cannot read
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


@cache
def closure(path: Path) -> frozenset[Path]:
    """Returns the file and every file of tithe that it includes, directly or not."""
    found, todo = set(), [path]
    while todo:
        file = todo.pop()
        if file in found:
            continue
        found.add(file)
        for name in INCLUDE.findall(file.read_bytes()):
            for base in (*(ROOT / base for base in BASES), file.parent, *ROOT.glob("apps/tithe/*/")):
                if (base / name.decode()).is_file():
                    todo.append((base / name.decode()).resolve())
                    break
    return frozenset(found)


def fingerprint(path: Path, command: str, version: bytes) -> str:
    """Returns a hash that is the same in every checkout: the checkout's folder is not part of it."""
    command = command.replace(f"{ROOT}/", "")
    digest = hashlib.sha256(version + command.encode() + (ROOT / ".clang-tidy").read_bytes())
    for file in sorted(closure(path)):
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def unused_using(path: Path) -> list[str]:
    """Replaces misc-unused-using-decls, which checks no included file."""
    text = path.read_text()
    return [
        f"{path}:{text.count(chr(10), 0, found.start()) + 1}: using {found[1]} is not used [misc-unused-using-decls]"
        for found in USING.finditer(text)
        if len(re.findall(rf"\b{found[2]}\b", text)) < 2
    ]


def batches(files: list[Path], entries: dict[Path, dict]) -> list[list[Path]]:
    """Groups files that can be one translation unit: one command line, and no two files of one folder."""
    kinds: dict[tuple[str, bool], list[list[Path]]] = {}
    for file in files:
        entry = entries[file]
        line = re.sub(r" -o \S+| -M[DTF]+( \S+)?", "", entry["command"].replace(entry["file"], ""))
        kind = kinds.setdefault((line, b"foreach_target.h" in file.read_bytes()), [])
        for batch in kind:
            if len(batch) < MOST and all(file.parent != other.parent for other in batch):
                batch.append(file)
                break
        else:
            kind.append([file])
    return [batch for kind in kinds.values() for batch in kind]


def main() -> int:
    """Checks all files of compile_commands.json that changed since they passed. Returns the exit status."""
    build = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    database = build / "compile_commands.json"
    if not database.exists():
        print(f"clang-tidy: {database} is missing: build first (make build)")
        return 1
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    scratch = build / "lint"
    commands = scratch / "commands"
    commands.mkdir(parents=True, exist_ok=True)
    passed = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "tithe", "clang-tidy")
    passed.mkdir(parents=True, exist_ok=True)

    work, entries = {}, {}
    for entry in json.loads(database.read_text()):
        entry["command"] = PRECOMPILED.sub("", entry["command"])
        path = Path(entry["directory"], entry["file"]).resolve()
        inside = any(path.is_relative_to(ROOT / folder) for folder in CHECKED)
        if inside and not path.name.endswith("_test.cc"):
            entries[path] = entry
            work[path] = passed / fingerprint(path, entry["command"], version)
    (commands / "compile_commands.json").write_text(json.dumps(list(entries.values())))
    todo = {path: stamp for path, stamp in work.items() if not stamp.exists()}

    def tidy(what: Path, commands: Path) -> str:
        # The build handles the compiler's own warnings, and clang does not know all -W options of gcc. One SIMD target
        # is sufficient: the others have the same source.
        command = ["clang-tidy", "--quiet", f"-p={commands}", "--extra-arg=-Wno-everything", *ONE_TARGET, str(what)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return ""
        text = done.stdout + "\n".join(line for line in done.stderr.splitlines() if "error" in line)
        return text or f"{what}: clang-tidy ended with {done.returncode}"

    def look(files: list[Path]) -> list[str]:
        if len(files) > 1:
            folder = Path(tempfile.mkdtemp(prefix="together", dir=scratch))
            together = folder / "batch.cc"
            together.write_text("".join(f'#include "{file}"  // NOLINT\n' for file in files))
            entry = dict(entries[files[0]], file=str(together))
            entry["command"] = entry["command"].replace(entries[files[0]]["file"], str(together))
            (folder / "compile_commands.json").write_text(json.dumps([entry]))
            shutil.copy(ROOT / ".clang-tidy", folder)
            whole = tidy(together, folder)
            shutil.rmtree(folder)
            if whole:  # a finding, or names that clash: each file separately
                return [text for file in files for text in look([file])]
        else:
            whole = tidy(files[0], commands)
        texts = [whole] if whole else []
        texts += [text for file in files for text in unused_using(file)]
        if not texts:
            for file in files:
                todo[file].touch()
        return texts

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = [text for texts in pool.map(look, batches(list(todo), entries)) for text in texts]
    for text in failures:
        print(text.replace(f"{ROOT}/", ""))
    for stamp in set(work.values()) - set(todo.values()):
        stamp.touch()
    for old in passed.iterdir():
        if old.stat().st_mtime < time.time() - KEPT:
            old.unlink(missing_ok=True)
    print(f"clang-tidy: {len(work)} files, {len(todo)} looked at, {f'{len(failures)} fail' if failures else 'ok'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
