# SPDX-License-Identifier: Apache-2.0
"""The demo's results in its folder: results.json, details.json, PNGs; and the table. report_page.py writes the page."""

import itertools
import json
import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from lab.study.figures import mean, size  # noqa: E402

RESULT_KEYS = ("name", "kind", "codec", "step_seconds", "bytes_per_step", "accuracy", "seconds_to_target")
RESULTS_KEYS = ("machine", "command", "ranks", "link", "seeds", "epochs")
BASELINES = ("fp32", "bf16", "powersgd", "fsdp2")
NEAR_POINTS = 0.5  # a row within this distance of fp32's accuracy counts as "as accurate"


def seconds_to(run: dict, target: float) -> float | None:
    """Returns the training seconds until the first evaluation at or above the target; None if it was never reached."""
    return next((seconds for _, seconds, accuracy in run["curve"] if accuracy >= target), None)


def by_row(details: dict) -> dict[str, list[dict]]:
    """Returns the runs of each row, over seeds, in the order: baselines from slow to fast, then tithe's rows."""
    names = [name for name in BASELINES if any(run["name"] == name for run in details["runs"])]
    names += dict.fromkeys(run["name"] for run in details["runs"] if run["kind"] == "tithe")
    return {name: [run for run in details["runs"] if run["name"] == name] for name in names}


def results(details: dict) -> dict:
    """Returns results.json: one entry per row, means over seeds; seconds_to_target null if some seed missed it."""
    entries = []
    for runs in by_row(details).values():
        reached = [seconds_to(run, details["target"]) for run in runs]
        entry = {key: runs[0][key] for key in ("name", "kind", "codec")}
        for key in ("step_seconds", "bytes_per_step", "accuracy"):
            entry[key] = mean(run[key] for run in runs)
        entry["seconds_to_target"] = None if None in reached else mean(reached)
        entries.append({key: entry[key] for key in RESULT_KEYS})
    return {**{key: details[key] for key in RESULTS_KEYS}, "runs": entries}


def last_losses(details: dict) -> dict[str, float]:
    """Returns the last loss on the test data, by row; empty if a run has none."""
    if not all(run.get("losses") for run in details["runs"]):
        return {}
    return {name: mean(run["losses"][-1] for run in runs) for name, runs in by_row(details).items()}


def write_json(folder: Path, details: dict) -> None:
    for name, value in (("details.json", details), ("results.json", results(details))):
        partial = folder / f".{name}"
        partial.write_text(json.dumps(value, indent=1) + "\n")
        partial.replace(folder / name)


def cells(details: dict) -> tuple[list[str], list[list[str]]]:
    """Returns head and body of the table, as text."""
    entries = results(details)["runs"]
    plain = next((entry for entry in entries if entry["name"] == "fp32"), None)
    target = f"to {details['target']:.0%}"
    losses = last_losses(details)
    head = ["row", "step", "sent per rank, step", *(["loss"] if losses else []), "accuracy", target]
    head += ["step vs fp32"] if plain else []
    body = []
    for entry in entries:
        reached = entry["seconds_to_target"]
        body.append(
            [
                entry["name"],
                f"{entry['step_seconds'] * 1e3:.1f} ms",
                size(entry["bytes_per_step"]),
                *([f"{losses[entry['name']]:.3f}"] if losses else []),
                f"{entry['accuracy']:.2%}",
                "not reached" if reached is None else f"{reached:.1f} s",
                *([f"{plain['step_seconds'] / entry['step_seconds']:.1f}x"] if plain else []),
            ]
        )
    return head, body


def wires(details: dict) -> list[tuple[str, str]]:
    """Returns, for each row, the codec's spec and the strategy of its exchange."""
    strategies = {run["name"]: run.get("strategy", "") for run in details["runs"]}
    return [
        (entry["name"], ", ".join(filter(None, (entry["codec"], strategies[entry["name"]]))))
        for entry in results(details)["runs"]
    ]


def times(ratio: float, more: str, less: str) -> str:
    """Formats a ratio in the direction that gives a number above 1: "2.3x more" and not "0.4x fewer"."""
    return f"{ratio:.1f}x {more}" if ratio >= 1 else f"{1 / ratio:.1f}x {less}"


def best_row(details: dict) -> tuple[dict | None, str]:
    """Returns the best tithe row and the criterion of the choice; or None and the reason."""
    entries = results(details)["runs"]
    ours = [entry for entry in entries if entry["kind"] == "tithe"]
    plain = next((entry for entry in entries if entry["name"] == "fp32"), None)
    if plain is None:
        return (min(ours, key=lambda e: e["step_seconds"]), "the fastest step") if ours else (None, "")
    near = [e for e in ours if e["accuracy"] >= plain["accuracy"] - NEAR_POINTS / 100]
    if ours and not near:
        return None, f"no tithe row is within {NEAR_POINTS} points of fp32's accuracy"
    best = min(near, key=lambda e: e["step_seconds"], default=None)
    return best, f"the fastest step among those within {NEAR_POINTS} points of fp32's accuracy"


def comparisons(details: dict) -> list[tuple[str, str, str, str]]:
    """Compares the best tithe row with each baseline: its name, speed, bytes, accuracy."""
    best, _ = best_row(details)
    if best is None:
        return []
    return [
        (
            f"against {entry['name']}",
            times(entry["step_seconds"] / best["step_seconds"], "faster per step", "slower per step"),
            times(entry["bytes_per_step"] / best["bytes_per_step"], "fewer bytes", "more bytes"),
            f"accuracy {(best['accuracy'] - entry['accuracy']) * 100:+.2f} points",
        )
        for entry in results(details)["runs"]
        if entry["kind"] == "baseline"
    ]


def verdict(details: dict) -> list[str]:
    """Returns the verdict as lines: the best row and the reason, then one line per baseline."""
    best, why = best_row(details)
    compared = comparisons(details)
    if best is None or not compared:
        return [why] if best is None and why else []
    widths = [max(len(line[i]) for line in compared) for i in range(4)]
    lines = ["  " + "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) for line in compared]
    return [f"best tithe row: {best['name']} ({best['codec']}), {why}", *(line.rstrip() for line in lines)]


def table(details: dict) -> str:
    head, body = cells(details)
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]

    def line(row):
        return "  ".join([row[0].ljust(widths[0]), *(t.rjust(w) for t, w in zip(row[1:], widths[1:], strict=True))])

    known = [f"{name.ljust(widths[0])}  {wire}" for name, wire in wires(details)]
    lines = ["", line(head), line(["-" * w for w in widths]), *map(line, body), "", *known, "", *verdict(details)]
    for failure in details["failed"]:
        lines.append(f"FAILED: {failure['name']}, seed {failure['seed']}: {failure['why'].splitlines()[0]}")
    return "\n".join(lines)


COLOURS = {"fp32": "#3d4451", "bf16": "#8a94a6", "powersgd": "#b7791f", "fsdp2": "#8a94a6"}
TITHE_COLOURS = [
    "#1f4e79",
    "#064e4b",
    "#0b7a75",
    "#15a39b",
    "#5bbfae",
    "#2a7f9e",
    "#8fd0c3",
]  # one family of codecs, distinguished by markers
MARKERS = "*os^DvP"
# A run's `parts`: their sum is the time of its step
STAGES = ("data and forward", "backward with exchange", "optimizer")
STAGE_COLOURS = ("#ced4da", "#0b7a75", "#8a94a6")
PARTS = ("encode", "merge", "wait", "send")
PART_COLOURS = ("#064e4b", "#15a39b", "#adb5bd", "#b7791f")


def colours(details: dict) -> dict[str, str]:
    ours = [name for name in by_row(details) if name not in COLOURS]
    return {**COLOURS, **{name: TITHE_COLOURS[i % len(TITHE_COLOURS)] for i, name in enumerate(ours)}}


LOSS = ("loss_by_time.png", "Loss on the test data against training time (log scale; evaluations are not counted).")


def draw(folder: Path, details: dict) -> list[tuple[str, str]]:
    """Writes the PNGs. Returns (file name, caption) of each, in the report's order."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 12,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#e9ecef",
            "axes.axisbelow": True,
            "legend.frameon": False,
        }
    )
    made = []

    def save(figure, name, caption):
        figure.savefig(folder / name, dpi=144, bbox_inches="tight")
        plt.close(figure)
        made.append((name, caption))

    if last_losses(details):
        save(_losses(plt, details), *LOSS)
    save(
        _curves(plt, details, 1),
        "time_to_accuracy.png",
        "Test accuracy against training time (log scale; evaluations are not counted).",
    )
    save(
        _curves(plt, details, 0),
        "accuracy_by_step.png",
        "The same against steps: what compression costs in accuracy, whatever the network.",
    )
    save(
        _bars(plt, details),
        "step_and_bytes.png",
        "Median step, and bytes a rank's interface sends per step.",
    )
    if all(run.get("parts") for run in details["runs"]):
        save(_stages(plt, details), "stages.png", "Where a step's time goes: the stages follow each other and add up.")
    if any(run["stats"] for run in details["runs"]):
        save(
            _breakdown(plt, details),
            "breakdown.png",
            "Inside tithe's exchange, from its own counters. Encode and merge follow each other on the compute lane and"
            " add up. Wait is how long the exchange was waited for, send is one frame's way from posting to completion:"
            " they overlap the others and the backward pass, so they stand apart.",
        )
    return made


def _lines(axes, details):
    """Yields for each row its runs, and a function that draws a line of x and y in the row's style."""
    shade = colours(details)
    marks = dict(zip([name for name in shade if name not in BASELINES], itertools.cycle(MARKERS), strict=False))
    for name, runs in by_row(details).items():
        style = {"color": shade[name], "label": name, "marker": marks.get(name), "linewidth": 1.8, "markersize": 4}
        line = "--" if name in BASELINES else "-"
        yield runs, lambda x, y, style=style, line=line: axes.plot(x, y, linestyle=line, **style)


def _losses(plt, details):
    figure, axes = plt.subplots(figsize=(7, 4.8))
    for runs, draw_line in _lines(axes, details):
        x = [mean(p[1] for p in at) for at in zip(*(run["curve"] for run in runs), strict=True)][1:]
        y = [mean(losses) for losses in zip(*(run["losses"] for run in runs), strict=True)][1:]
        draw_line(x, y)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("training time, seconds")
    axes.set_ylabel("loss on the test data, nats")
    axes.legend(loc="upper right")
    return figure


def _curves(plt, details, column):
    """Draws test accuracy against `column` of the curves (0: steps, 1: training seconds), one line per row, with the
    range over seeds."""
    figure, axes = plt.subplots(figsize=(7, 4.8))
    for runs, draw_line in _lines(axes, details):
        points = list(zip(*(run["curve"] for run in runs), strict=True))[1:]
        x = [mean(p[column] for p in at) for at in points]
        y = [100 * mean(p[2] for p in at) for at in points]
        (drawn,) = draw_line(x, y)
        if len(runs) > 1:
            low = [100 * min(p[2] for p in at) for at in points]
            high = [100 * max(p[2] for p in at) for at in points]
            axes.fill_between(x, low, high, color=drawn.get_color(), alpha=0.12, linewidth=0)
    axes.axhline(100 * details["target"], color="#868e96", linewidth=1, linestyle=":")
    axes.annotate(
        f"target {details['target']:.0%}",
        (0.005, 100 * details["target"]),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        color="#868e96",
        fontsize=11,
    )
    best = 100 * max(run["accuracy"] for run in details["runs"])
    target = 100 * details["target"]
    axes.set_ylim(max(0, min(target, best) - 15), max(target, best) + 1)
    axes.set_ylabel("test accuracy, %")
    if column == 1:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("training time, seconds" if column == 1 else "steps")
    axes.legend(loc="lower right")
    return figure


def _bars(plt, details):
    """Draws two bars per row: the median step and the bytes per step."""
    entries = results(details)["runs"]
    shade = colours(details)
    figure, axes = plt.subplots(1, 2, figsize=(7, 0.9 + 0.4 * len(entries)), sharey=True)
    at = range(len(entries))
    for axis, key, text, label in (
        (axes[0], "step_seconds", lambda v: f"{v * 1e3:.0f} ms", "median step, milliseconds"),
        (axes[1], "bytes_per_step", size, "sent per rank and step, MB"),
    ):
        values = [entry[key] for entry in entries]
        unit = 1e3 if key == "step_seconds" else 1e-6
        axis.barh(
            at, [value * unit for value in values], color=[shade[entry["name"]] for entry in entries], height=0.65
        )
        axis.set_xlim(0, max(values) * unit * 1.3)
        axis.set_xlabel(label)
        axis.grid(axis="y", visible=False)
        for y, value in zip(at, values, strict=True):
            axis.annotate(text(value), (value * unit, y), xytext=(4, 0), textcoords="offset points", va="center")
    local = details.get("local_step_seconds")
    if local:
        axes[0].axvline(local * 1e3, color="#868e96", linewidth=1, linestyle=":")
        axes[0].annotate(
            "a step without communication",
            (local * 1e3, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, 1),
            textcoords="offset points",
            color="#868e96",
            fontsize=10,
        )
    axes[0].set_yticks(list(at), [entry["name"] for entry in entries])
    axes[0].invert_yaxis()
    figure.tight_layout()
    return figure


def _stages(plt, details):
    """Draws the stages of a step as stacked bars. The rows share one linear axis, because a log axis distorts a sum."""
    every = by_row(details)
    figure, axes = plt.subplots(figsize=(7, 1.1 + 0.4 * len(every)))
    begin = [0.0] * len(every)
    for k, (stage, colour) in enumerate(zip(STAGES, STAGE_COLOURS, strict=True)):
        values = [1e3 * mean(run["parts"][k] for run in runs) for runs in every.values()]
        axes.barh(range(len(every)), values, left=begin, height=0.65, color=colour, label=stage)
        begin = [a + b for a, b in zip(begin, values, strict=True)]
    for y, whole in enumerate(begin):
        axes.annotate(f"{whole:.0f}", (whole, y), xytext=(4, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(every)), list(every))
    axes.set_xlim(0, max(begin) * 1.12)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("milliseconds per step, medians of the stages")
    axes.legend(loc="lower right")
    return figure


def part_ns(stats: dict, part: str) -> float:
    """Returns nanoseconds per step; for send per frame, because several frames are under way at a time."""
    return stats[f"{part}_ns"] / max(1, stats["frames_sent" if part == "send" else "rounds"])


def _breakdown(plt, details):
    ours = {name: runs for name, runs in by_row(details).items() if runs[0]["stats"]}
    parts = {p: [mean(part_ns(run["stats"], p) * 1e-6 for run in runs) for runs in ours.values()] for p in PARTS}
    colour = dict(zip(PARTS, PART_COLOURS, strict=True))
    figure, axes = plt.subplots(1, 3, figsize=(7, 1.2 + 0.4 * len(ours)), sharey=True)
    rows_at = range(len(ours))
    for axis, shown, title in (
        (axes[0], ("encode", "merge"), "computing, ms per step"),
        (axes[1], ("wait",), "waiting, ms per step"),
        (axes[2], ("send",), "sending, ms per frame"),
    ):
        begin = [0.0] * len(ours)
        for part in shown:
            axis.barh(rows_at, parts[part], left=begin, height=0.65, color=colour[part], label=part)
            begin = [a + b for a, b in zip(begin, parts[part], strict=True)]
        for y, value in enumerate(begin):
            axis.annotate(
                f"{value:.1f}", (value, y), xytext=(3, 0), textcoords="offset points", va="center", fontsize=10
            )
        axis.set_xlim(0, max(begin) * 1.35 or 1.0)
        axis.grid(axis="y", visible=False)
        axis.set_xlabel(title)
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, columnspacing=1, handlelength=1)
    axes[0].set_yticks(rows_at, list(ours))
    axes[0].invert_yaxis()
    figure.tight_layout()
    return figure


def merged(notes: list[str]) -> list[str]:
    """Returns the notes of all ranks, each distinct note once."""
    ranks: dict[str, list[str]] = {}
    for note in notes:
        found = re.fullmatch(r"rank (\d+): (.*)", note)
        ranks.setdefault(found[2] if found else note, []).extend([found[1]] if found else [])
    return [
        f"rank{'s' * (len(which) > 1)} {', '.join(which)}: {text}" if which else text for text, which in ranks.items()
    ]
