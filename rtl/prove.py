# SPDX-License-Identifier: Apache-2.0
"""Proofs of the small modules: proofs/<name>.sv over all inputs, with Yosys and z3; and mutations of the modules that
each proof must refuse with a counterexample. `make rtl-prove` sets up what this needs."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Proof:
    name: str
    modules: tuple[str, ...]
    steps: int  # from the begin
    induction: int  # steps of the induction, 0: the steps are all there are
    mutations: tuple[tuple[str, str, str], ...]  # module, text, what stands there instead


PROOFS = (
    Proof(
        "axis_skid",
        ("axis_skid",),
        steps=12,
        induction=3,
        mutations=(
            ("axis_skid", "has_spare ? spare : s_data", "s_data"),
            ("axis_skid", "m_valid <= has_spare || s_valid", "m_valid <= s_valid"),
            ("axis_skid", "if (!has_spare) spare <= s_data", "spare <= s_data"),
            ("axis_skid", "assign s_ready = !has_spare", "assign s_ready = !has_spare || m_ready"),
        ),
    ),
    Proof(
        "class_edges",
        ("class_edges",),
        steps=1,
        induction=0,
        mutations=(
            ("class_edges", "b > half + 8'd7", "b > half + 8'd8"),
            ("class_edges", "if (b > 8'd15) top = b - 8'd15", "if (b > 8'd16) top = b - 8'd15"),
            ("class_edges", "bound > 7'd100", "bound > 7'd101"),
        ),
    ),
)


def refused(proof: Proof, mutation: tuple[str, str, str] | None, folder: Path) -> str:
    """What a solver found against it; nothing where it holds."""
    script = ""
    for name in proof.modules:
        text = (HERE / f"{name}.sv").read_text()
        if mutation and mutation[0] == name:
            if mutation[1] not in text:
                sys.exit(f"prove: {name}.sv has no {mutation[1]!r} to mutate")
            text = text.replace(mutation[1], mutation[2])
        (folder / f"{name}.sv").write_text(text)
        script += f"read_verilog -formal -sv {name}.sv\n"
    script += f"read_verilog -formal -sv {HERE}/proofs/{proof.name}.sv\n"
    script += "hierarchy -check -top proof\nproc\nmemory -nomap\nmemory_map\nflatten\nopt -fast\n"
    script += "async2sync\ndffunmap\nopt_clean\n"
    if proof.induction:
        script += "write_smt2 -wires proof.smt2\n"
    else:
        script += f"sat -tempinduct-baseonly -maxsteps {proof.steps} -prove-asserts -set-assumes -verify\n"
    (folder / "proof.ys").write_text(script)
    done = subprocess.run(["yosys", "-s", "proof.ys"], cwd=folder, capture_output=True, text=True)
    if not proof.induction and "proof did fail" in done.stdout + done.stderr:
        return "a counterexample"
    if done.returncode != 0:
        sys.exit(f"prove: {proof.name}: Yosys said\n{done.stdout[-2000:]}{done.stderr}")
    for how, steps in (("a counterexample", proof.steps), ("no induction", proof.induction)):
        if not proof.induction or (mutation and how == "no induction"):
            break
        command = ["yosys-smtbmc", "-s", "z3", "-t", str(steps), *(["-i"] if how == "no induction" else [])]
        said = subprocess.run([*command, "proof.smt2"], cwd=folder, capture_output=True, text=True)
        last = (said.stdout.strip().splitlines() or [""])[-1]
        if "PASSED" not in last and "FAILED" not in last:
            sys.exit(f"prove: yosys-smtbmc said\n{said.stdout}{said.stderr}")
        if "FAILED" in last:
            return how
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="one proof")
    parser.add_argument("--keep", default="", help="a folder for what the solver is given")
    a = parser.parse_args()
    chosen = [p for p in PROOFS if not a.only or p.name == a.only]
    if not chosen:
        sys.exit(f"prove: no proof {a.only!r}; there are {', '.join(p.name for p in PROOFS)}")
    failed = 0
    for proof in chosen:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as made:
            folder = Path(a.keep or made)
            folder.mkdir(parents=True, exist_ok=True)
            against = refused(proof, None, folder)
            accepted = [m for m in proof.mutations if not against and not refused(proof, m, folder)]
        for module, text, instead in accepted:
            print(f"prove: {proof.name} accepts {module} with {instead!r} for {text!r}")
        failed += bool(against or accepted)
        how = f"by induction of {proof.induction} steps" if proof.induction else "for all inputs"
        said = f"FAILS: {against}" if against else "holds"
        few = len(proof.mutations) - len(accepted)
        seconds = time.monotonic() - begin
        print(f"prove: {proof.name} {said} {how}, refuses {few} mutations ({seconds:.0f} s)", flush=True)
    print(f"rtl: {len(chosen) - failed} of {len(chosen)} proofs pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
