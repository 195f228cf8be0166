# SPDX-License-Identifier: Apache-2.0
"""Long messages over a link with delay: a round measured on emulated hosts whose frames arrive 40 ms late (needs root),
beside the simulator's prediction for each rule by which a transport starts long messages. The measurement must agree
with the rule that the transport states, whether rounds follow each other directly or ranks compute between them.

python lab/bench/delay.py [--delay-ms 40] [--hosts 3] [--link 100Mb/s] [--steps 5] [--pause-ms 1000]
    [--transport ucx,tcp] [--out FILE]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import tempfile
from pathlib import Path

from harness import answer

RULES = ("at once", "posted", "asked")
STATED = {"ucx": "at once", "tcp": "posted"}  # src/transport/*/: <name>_long_messages
SIZES = {"short": 1_000, "long": 300_000}


def model(folder: Path, values: int, pause_ms: float) -> Path:
    path = folder / f"{values}_{pause_ms:g}.json"
    tensors = [{"name": "w", "values": values, "row": values, "ready_ms": 0.001}]
    path.write_text(json.dumps({"model": "one", "forward_ms": max(0.001, pause_ms), "tensors": tensors}))
    return path


def cluster(folder: Path, args: argparse.Namespace, rule: str) -> Path:
    path = folder / f"{rule.replace(' ', '_')}.toml"
    path.write_text(
        f'name = "far"\n[[hosts]]\ncount = {args.hosts}\nrate = "{args.link}"\nlatency = "{args.delay_ms}ms"\n'
        f'[costs]\neager_bytes = 4096\nlong_messages = "{rule}"\nmany_to_one = 1.0\n'
    )
    return path


def main() -> None:
    """Reads the command line, measures and predicts the step under each rule, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delay-ms", type=float, default=40)
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--link", default="100Mb/s")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--pause-ms", type=float, default=1000)
    parser.add_argument("--transport", type=lambda text: text.split(","), default=list(STATED))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    lines = [
        "# Messages over a long way",
        "",
        f"`python lab/bench/delay.py`, {datetime.date.today().isoformat()}, {os.cpu_count()} processors at a load of "
        f"{os.getloadavg()[0]:.0f}: {args.hosts} emulated hosts at {args.link}, whose",
        f"frames arrive {args.delay_ms:g} ms later. A round of one tensor of fp32, measured by `tithe replay` "
        f"(median of {args.steps}), and as",
        "`tithe simulate` has it by each rule; bold: the rule that the transport states. A pause: ranks compute for "
        f"{args.pause_ms:g} ms",
        "before each round, which are not counted.",
        "",
        "| transport | strategy | message | measured, ms | " + " | ".join(f"{rule}, ms" for rule in RULES) + " |",
        "|---" * (4 + len(RULES)) + "|",
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for transport in args.transport:
            for strategy in ("ring", "server", "gather"):
                for size, pause in (("short", 0), ("long", 0), ("long", args.pause_ms)):
                    values = SIZES[size]
                    what = ["--model", model(folder, values, pause), "--strategy", strategy, "--codec", "fp32"]
                    link = ["--ranks", args.hosts, "--link", args.link, "--delay-ms", args.delay_ms]
                    measured = answer("replay", *what, *link, "--transport", transport, "--steps", args.steps)
                    cells = []
                    for rule in RULES:
                        far = ["--cluster", cluster(folder, args, rule), "--tell-link", "none"]  # as in the replay
                        setting = answer("simulate", *what, *far)["settings"][0]
                        mark = "**" if STATED[transport] == rule else ""
                        cells.append(f"{mark}{setting['exposed_ms']:.0f}{mark}")
                    size_of = 4 * values // (1 if strategy == "gather" else args.hosts)
                    row = [transport, strategy, f"{size}, {size_of} bytes{', after a pause' if pause else ''}"]
                    row += [f"{measured['exposed_ms']:.0f}", *cells]
                    lines.append(f"| {' | '.join(row)} |")
                    print(lines[-1], flush=True)
    text = "\n".join([*lines, ""])
    if args.out:
        args.out.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
