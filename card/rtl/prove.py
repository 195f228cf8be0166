# SPDX-License-Identifier: Apache-2.0
"""Proofs of the small modules: proofs/<name>.sv over all inputs, with Yosys' solver; and mutations of the modules that
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
    steps: int  # of the induction, at most; 0: a proof about a pipeline whose inputs stay as they are
    mutations: tuple[tuple[str, str, str], ...]  # module, text, what stands there instead
    sizes: tuple[int, ...] = (0,)  # of the proof's parameter N; mutations are refused at the first of them


PROOFS = (
    Proof(
        "axis_skid",
        ("axis_skid",),
        steps=10,
        sizes=(8, 306),
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
        steps=0,
        mutations=(
            ("class_edges", "b > half + 8'd7", "b > half + 8'd8"),
            ("class_edges", "if (b > 8'd15) top = b - 8'd15", "if (b > 8'd16) top = b - 8'd15"),
            ("class_edges", "bound > 7'd100", "bound > 7'd101"),
        ),
    ),
    Proof(
        "units",
        ("class_edges", "quantise", "dequantise"),
        steps=0,
        mutations=(
            ("quantise", "lost == 15'b0 && x1[8:0] == 9'b0", "lost == 15'b0 && x1[7:0] == 8'b0"),
            ("quantise", "amount >= 8'd24", "amount >= 8'd26"),
            ("dequantise", "4'd14 - i[3:0]", "4'd13 - i[3:0]"),
        ),
    ),
    Proof(
        "shift_tree",
        ("shift_tree", "split_tree"),
        steps=0,
        sizes=(4,),
        mutations=(
            ("shift_tree", "<< {left_bytes, 3'b0}", "<< {left_bytes - 1'b1, 3'b0}"),
            ("split_tree", "left_bytes = left_bytes + {3'b0,", "left_bytes = left_bytes | {3'b0,"),
        ),
    ),
    Proof(
        "packet_fifo",
        ("packet_fifo",),
        steps=10,
        sizes=(4, 295),
        mutations=(
            ("packet_fifo", "assign s_ready = !used[PTR_W]", "assign s_ready = 1'b1"),
            ("packet_fifo", "if (keep) kept <= in", "if (keep) kept <= in + 1'b1"),
            ("packet_fifo", "ALWAYS_KEEP ? in : kept", "in"),
            ("packet_fifo", "&& (!m_valid || m_ready)", ""),
        ),
    ),
    Proof(
        "checksum",
        ("checksum",),
        steps=10,
        sizes=(32, 64, 128, 256),
        mutations=(
            ("checksum", "{16'b0, data[16*i+:8], data[16*i+8+:8]}", "{16'b0, data[16*i+8+:8], data[16*i+:8]}"),
            ("checksum", "folded[15:0] + {15'b0, folded[16]}", "folded[15:0]"),
            ("checksum", "all <= clear ? 32'b0 : all + beat", "all <= clear ? beat : all + beat"),
        ),
    ),
)


def refused(proof: Proof, size: int, mutation: tuple[str, str, str] | None, folder: Path) -> str:
    """The counterexample of a solver; empty if the property holds."""
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
    script += f"hierarchy -check -top proof {f'-chparam N {size}' if size else ''}\n"
    script += "proc\nmemory -nomap\nmemory_map\nflatten\nopt -fast\n"
    script += "async2sync\ndffunmap\nopt_clean\n"
    if proof.steps == 0:
        script += f"techmap -map {HERE}/proofs/steady.v\nopt_clean\n"
    how = f"-tempinduct -maxsteps {proof.steps}" if proof.steps else ""
    script += f"sat {how} -prove-asserts -set-assumes -verify\n"
    (folder / "proof.ys").write_text(script)
    done = subprocess.run(["yosys", "-s", "proof.ys"], cwd=folder, capture_output=True, text=True)
    output = done.stdout + done.stderr
    if done.returncode == 0 and "SUCCESS!" in output:
        return ""
    if "proof did fail" in output:
        return "no induction" if "Reached maximum number of time steps" in output else "a counterexample"
    sys.exit(f"prove: {proof.name}: Yosys printed\n{output[-2000:]}")


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
        took: list[str] = []
        against: list[str] = []
        accepted: list[tuple[str, str, str]] = []
        with tempfile.TemporaryDirectory() as made:
            folder = Path(a.keep or made)
            folder.mkdir(parents=True, exist_ok=True)
            for size in proof.sizes:
                since = time.monotonic()
                against += [f"{found} at {size}" for found in [refused(proof, size, None, folder)] if found]
                took.append(f"{size}: {time.monotonic() - since:.0f} s")
            first = proof.sizes[0]
            accepted = [m for m in proof.mutations if against or refused(proof, first, m, folder) != "a counterexample"]
        for module, text, instead in accepted:
            print(f"prove: {proof.name} has nothing against {module} with {instead!r} for {text!r}")
        failed += bool(against or accepted)
        how = "by induction" if proof.steps else "for all inputs"
        verdict = f"FAILS: {', '.join(against)}" if against else "holds"
        few = len(proof.mutations) - len(accepted)
        sizes = f"N = {', '.join(took)}; " if proof.sizes != (0,) else ""
        seconds = time.monotonic() - begin
        print(
            f"prove: {proof.name} {verdict} {how}, refuses {few} mutations ({sizes}{seconds:.0f} s in all)", flush=True
        )
    print(f"rtl: {len(chosen) - failed} of {len(chosen)} proofs pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
