# SPDX-License-Identifier: Apache-2.0
"""Both linters on every module at every width; a warning fails. `make rtl-lint` sets up what this needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from pyslang import driver

HERE = Path(__file__).resolve().parent
WIDTHS = (64, 128, 256, 512)


def slang(top: str, sets: list[str]) -> bool:
    d = driver.Driver()
    d.addStandardArgs()
    # A cast that does nothing at one width is needed at another.
    line = f"slang -Wextra -Wpedantic -Wno-useless-cast -Werror --top {top} "
    line += " ".join(f"-G {s}" for s in sets) + " " + " ".join(str(p) for p in sorted(HERE.glob("*.sv")))
    if not (d.parseCommandLine(line) and d.processOptions() and d.parseAllSources()):
        return False
    d.reportCompilation(d.createCompilation(), True)
    return d.reportDiagnostics(True)


def verilator(top: str, sets: list[str]) -> bool:
    command = ["verilator", "--lint-only", "-Wall", "-y", str(HERE), "--top-module", top]
    return subprocess.run([*command, *(f"-G{s}" for s in sets), str(HERE / f"{top}.sv")]).returncode == 0


def main() -> int:
    if shutil.which("verilator") is None:
        print("lint: no verilator", file=sys.stderr)
        return 1
    ok = True
    checked = 0
    for path in sorted(HERE.glob("*.sv")):
        wide = "parameter int W =" in path.read_text()
        for sets in [[f"W={w}"] for w in WIDTHS] if wide else [[]]:
            for linter in (verilator, slang):
                checked += 1
                if not linter(path.stem, sets):
                    print(f"lint: {linter.__name__} on {path.name} {' '.join(sets)}", file=sys.stderr)
                    ok = False
    print(f"rtl: {checked} lints, verilator -Wall and slang: {'ok' if ok else 'FAILED'}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
