# SPDX-License-Identifier: Apache-2.0
"""Shared by both tables of faults on real processes: a command line, and several cells at a time."""

import argparse
import concurrent.futures
import hashlib
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "lab/hosts"))
from hosts import die_with_parent, unshare_command


def arguments(doc, program, words):
    """Returns the parser of the command line. words: the number of words that name a cell."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rank", required=True, help=f"the program {program}")
    parser.add_argument("--cell", nargs=words)
    parser.add_argument("--out", help="where the table goes; else to the terminal")
    parser.add_argument("--raw", help="JSON lines, as they come; what is there of the same program is not done anew")
    parser.add_argument("--only", default="", help="cells whose name holds this text")
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--for", type=float, dest="seconds", help="begin no cell after so many seconds; needs --raw")
    return parser


def one(play):
    """Runs one cell, inside its namespaces: play(folder) returns the observations, which are printed."""
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(play(folder)))
    return 0


def in_namespaces(script, cell, *options):
    argv = [*unshare_command(), sys.executable, script, *options, "--cell", *cell]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=400, preexec_fn=die_with_parent)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        text = (done.stderr or done.stdout).strip().splitlines()[-1:]
        return {"cell": list(cell), "broken": str(text)}


def play_all(args, cells, play, spell):
    """Runs all cells without a stored result, in random order, so that an interrupted run has samples of all kinds.

    Returns the observations in the order of the cells, the number of remaining cells, and the seconds of the run.
    """
    program = hashlib.sha256(Path(args.rank).read_bytes()).hexdigest()[:16]
    results = []
    if args.raw and Path(args.raw).exists():
        lines = [json.loads(line) for line in Path(args.raw).read_text().splitlines()]
        results = [r for r in lines if r.get("program") == program]
    done = {tuple(r["cell"]) for r in results}
    wanted = [cell for cell in cells if tuple(cell) not in done]
    random.Random(1).shuffle(wanted)
    begin = time.monotonic()

    def timed(cell):
        if args.seconds is not None and time.monotonic() - begin > args.seconds:
            return None
        began = time.monotonic()
        return play(cell) | {"program": program, "seconds": time.monotonic() - began}

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for n, result in enumerate(pool.map(timed, wanted), 1):
            if result is None:
                continue
            results.append(result)
            if args.raw:
                with open(args.raw, "a") as raw:
                    raw.write(json.dumps(result) + "\n")
            print(f"{n}/{len(wanted)}", *result["cell"], *spell(result), sep=" | ", file=sys.stderr, flush=True)
    order = {tuple(cell): at for at, cell in enumerate(cells)}
    results = sorted((r for r in results if tuple(r["cell"]) in order), key=lambda r: order[tuple(r["cell"])])
    return results, len(cells) - len(results), sum(r["seconds"] for r in results) / args.jobs


def machine(took, jobs):
    """Returns a line about the machine and the duration of a table's run."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if "model name" in line), "?")
    return (
        f"{os.cpu_count()} cores, {cpu}, Linux {platform.release()}, {took / 60:.0f} min, {jobs} cells at a time, "
        f"load {os.getloadavg()[1]:.1f}."
    )


def put(text, out):
    if out:
        Path(out).write_text(text)
    else:
        print(text)
