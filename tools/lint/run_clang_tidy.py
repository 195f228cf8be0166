# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over the library, the command and the Python module, in parallel, skipping what has not changed.

A file that passed is remembered in build/lint by the hash of itself, of every header of ours that it includes, of its
compile command and of .clang-tidy, so the second run takes no time. Tests and benchmarks are left out: the sanitizers
run them, and they would triple the time. Usage: run_clang_tidy.py [build folder]
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2].resolve()
ONE_TARGET = ("--extra-arg=-DHWY_COMPILE_ONLY_STATIC",)
CHECKED = ("src", "apps", "python")
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


@cache
def closure(path: Path) -> frozenset[Path]:
    """The file and every file of ours that it includes, directly or not."""
    found, todo = set(), [path]
    while todo:
        file = todo.pop()
        if file in found:
            continue
        found.add(file)
        for name in INCLUDE.findall(file.read_bytes()):
            for base in (ROOT / "include", ROOT / "src", file.parent):
                if (base / name.decode()).is_file():
                    todo.append((base / name.decode()).resolve())
                    break
    return frozenset(found)


def fingerprint(path: Path, command: str, version: bytes) -> str:
    digest = hashlib.sha256(version + command.encode() + (ROOT / ".clang-tidy").read_bytes())
    for file in sorted(closure(path)):
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def main() -> int:
    build = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    database = build / "compile_commands.json"
    if not database.exists():
        print(f"clang-tidy: {database} is missing: build first (make build)")
        return 1
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    passed = build / "lint"
    passed.mkdir(exist_ok=True)

    work = {}
    for entry in json.loads(database.read_text()):
        path = Path(entry["directory"], entry["file"]).resolve()
        inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in CHECKED
        if inside and not path.name.endswith("_test.cc"):
            work[path] = passed / fingerprint(path, entry.get("command", ""), version)
    todo = {path: stamp for path, stamp in work.items() if not stamp.exists()}

    def tidy(item: tuple[Path, Path]) -> str:
        path, stamp = item
        # The compiler's own warnings are the build's business, and -W names of gcc mean nothing here. One SIMD
        # target is enough: the others are the same source.
        command = ["clang-tidy", "--quiet", f"-p={build}", "--extra-arg=-Wno-everything", *ONE_TARGET, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            stamp.touch()
            return ""
        return done.stdout + "\n".join(line for line in done.stderr.splitlines() if "error" in line)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = [text for text in pool.map(tidy, todo.items()) if text]
    for text in failures:
        print(text.replace(f"{ROOT}/", ""))
    for old in set(passed.iterdir()) - set(work.values()):
        old.unlink()
    print(f"clang-tidy: {len(work)} files, {len(todo)} looked at, {f'{len(failures)} fail' if failures else 'ok'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
