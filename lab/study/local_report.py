# SPDX-License-Identifier: Apache-2.0
"""Tables of the results of lab/study/local_steps.py: python -m lab.study.local_report FILE.json ...

Losses of several files are merged by arm and seed; files with times have a table each.
"""

import json
import math
import statistics
import sys
from pathlib import Path

REFERENCE = "every step, fp32"


def losses(runs: list[dict]) -> dict[str, dict[int, dict]]:
    """Returns the runs by arm and seed."""
    by_arm: dict[str, dict[int, dict]] = {}
    for run in runs:
        by_arm.setdefault(run["arm"], {})[run["seed"]] = run
    return by_arm


def gap(arm: dict[int, dict], plain: dict[int, dict]) -> tuple[float, float, int]:
    """Returns the mean difference of loss over the common seeds, its standard error, and the number of these seeds."""
    pairs = [arm[seed]["loss"] - plain[seed]["loss"] for seed in arm if seed in plain]
    error = statistics.stdev(pairs) / math.sqrt(len(pairs)) if len(pairs) > 1 else math.nan
    return statistics.fmean(pairs), error, len(pairs)


def fewer(run: dict, plain: dict) -> tuple[str, str]:
    """Returns the factor of bytes saved against fp32 in every step: after the dense start, and in the whole run."""
    if run["bytes"] == 0:
        return "-", "-"
    start = run["start_steps"]
    dense = plain["bytes"] / plain["steps"]
    after = dense * (run["steps"] - start) / run["bytes"]
    return f"{after:,.0f}", f"{plain['bytes'] / (run['bytes'] + run['start_bytes']):,.0f}"


def loss_table(runs: list[dict]) -> str:
    by_arm = losses(runs)
    plain = by_arm[REFERENCE]
    lines = [
        "| arm | loss, nats | above fp32 every step | seeds | times fewer bytes after the start | in the whole run |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, arm in by_arm.items():
        mean, error, seeds = gap(arm, plain)
        seed = max(seed for seed in arm if seed in plain)  # bytes depend on the choices of "auto" in that run
        after, whole = fewer(arm[seed], plain[seed])
        beside = "" if name == REFERENCE else f"{mean:+.3f}" + (f" +- {error:.3f}" if seeds > 1 else "")
        loss = statistics.fmean(run["loss"] for run in arm.values())
        lines.append(f"| {name} | {loss:.3f} | {beside} | {seeds} | {after} | {whole} |")
    return "\n".join(lines)


def time_table(runs: list[dict]) -> str:
    lines = ["| arm | a step, ms | one without communication, beside it | ratio |", "|---|---:|---:|---:|"]
    for run in runs:
        step, alone = run["step_seconds"], run["alone_seconds"]
        lines.append(f"| {run['arm']} | {1e3 * step:.1f} | {1e3 * alone:.1f} | {step / alone:.2f} |")
    return "\n".join(lines)


def main(files: list[str]) -> str:
    studies = {file: json.loads(Path(file).read_text()) for file in files}
    trained = [run for one in studies.values() for run in one["runs"] if "loss" in run]
    tables = [loss_table(trained)] if trained else []
    tables += [
        f"{file}\n\n{time_table(one['runs'])}" for file, one in studies.items() if "alone_seconds" in one["runs"][0]
    ]
    return "\n\n".join(tables)


if __name__ == "__main__":
    print(main(sys.argv[1:]))
