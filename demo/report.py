# SPDX-License-Identifier: Apache-2.0
"""What the demo leaves in its folder: results.json, details.json, PNGs, report.html; and the table.

python demo/report.py [FOLDER]     draws everything again from FOLDER/details.json
"""

import base64
import html
import json
import sys
from pathlib import Path

import rows

RESULT_KEYS = ("name", "kind", "codec", "step_seconds", "bytes_per_step", "accuracy", "seconds_to_target")
RESULTS_KEYS = ("machine", "command", "ranks", "link", "seeds", "epochs")
BASELINES = ("fp32", "bf16", "powersgd")
NEAR_POINTS = 0.5  # a row within so many points of fp32's accuracy counts as "as accurate"


def mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)


def seconds_to(run: dict, target: float) -> float | None:
    """Training seconds until the first evaluation at or above the target; None if it was never reached."""
    return next((seconds for _, seconds, accuracy in run["curve"] if accuracy >= target), None)


def by_row(details: dict) -> dict[str, list[dict]]:
    """The runs of each row, over seeds, in the order: baselines from slow to fast, then tithe's."""
    names = [name for name in BASELINES if any(run["name"] == name for run in details["runs"])]
    names += dict.fromkeys(run["name"] for run in details["runs"] if run["kind"] == "tithe")
    return {name: [run for run in details["runs"] if run["name"] == name] for name in names}


def results(details: dict) -> dict:
    """results.json: one entry per row, means over seeds; seconds_to_target null if some seed missed it."""
    entries = []
    for runs in by_row(details).values():
        reached = [seconds_to(run, details["target"]) for run in runs]
        entry = {key: runs[0][key] for key in ("name", "kind", "codec")}
        for key in ("step_seconds", "bytes_per_step", "accuracy"):
            entry[key] = mean(run[key] for run in runs)
        entry["seconds_to_target"] = None if None in reached else mean(reached)
        entries.append({key: entry[key] for key in RESULT_KEYS})
    return {**{key: details[key] for key in RESULTS_KEYS}, "runs": entries}


def write_json(folder: Path, details: dict) -> None:
    for name, value in (("details.json", details), ("results.json", results(details))):
        partial = folder / f".{name}"
        partial.write_text(json.dumps(value, indent=1) + "\n")
        partial.replace(folder / name)


def size(count: float) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def cells(details: dict) -> tuple[list[str], list[list[str]]]:
    """Head and body of the table, as text."""
    entries = results(details)["runs"]
    strategies = {run["name"]: run.get("strategy", "") for run in details["runs"]}
    plain = next((entry for entry in entries if entry["name"] == "fp32"), None)
    target = f"to {details['target']:.0%}"
    head = ["row", "on the wire", "step", "sent per rank, step", "accuracy", target, "step vs fp32"]
    body = []
    for entry in entries:
        reached = entry["seconds_to_target"]
        body.append(
            [
                entry["name"],
                ", ".join(filter(None, (entry["codec"], strategies[entry["name"]]))),
                f"{entry['step_seconds'] * 1e3:.1f} ms",
                size(entry["bytes_per_step"]),
                f"{entry['accuracy']:.2%}",
                "not reached" if reached is None else f"{reached:.1f} s",
                f"{plain['step_seconds'] / entry['step_seconds']:.1f}x" if plain else "",
            ]
        )
    return head, body


def verdict(details: dict) -> list[str]:
    """The best tithe row against each baseline of this run: the fastest that is as accurate as fp32."""
    entries = results(details)["runs"]
    base = {entry["name"]: entry for entry in entries if entry["kind"] == "baseline"}
    ours = [entry for entry in entries if entry["kind"] == "tithe"]
    if not ours or not base:
        return []
    near = ours
    if "fp32" in base:
        near = [e for e in ours if e["accuracy"] >= base["fp32"]["accuracy"] - NEAR_POINTS / 100]
        if not near:
            return [f"no tithe row is within {NEAR_POINTS} points of fp32's accuracy"]
    best = min(near, key=lambda entry: entry["step_seconds"])
    lines = [f"best tithe row: {best['name']} ({best['codec']})"]
    for name, entry in base.items():
        faster = entry["step_seconds"] / best["step_seconds"]
        fewer = entry["bytes_per_step"] / best["bytes_per_step"]
        points = (best["accuracy"] - entry["accuracy"]) * 100
        lines.append(
            f"  against {name:<9} {faster:5.1f}x faster per step, {fewer:6.1f}x fewer bytes,"
            f" accuracy {points:+.2f} points"
        )
    return lines


def table(details: dict) -> str:
    head, body = cells(details)
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]

    def line(row):
        left, right = row[:2], row[2:]
        return "  ".join(
            [
                *(text.ljust(w) for text, w in zip(left, widths, strict=False)),
                *(text.rjust(w) for text, w in zip(right, widths[2:], strict=True)),
            ]
        )

    lines = ["", line(head), line(["-" * w for w in widths]), *map(line, body), "", *verdict(details)]
    for failure in details["failed"]:
        lines.append(f"FAILED: {failure['name']}, seed {failure['seed']}: {failure['why'].splitlines()[0]}")
    return "\n".join(lines)


COLOURS = {"fp32": "#3d4451", "bf16": "#8a94a6", "powersgd": "#b7791f"}
TITHE_COLOURS = ["#0b7a75", "#c2255c", "#1c6dd0", "#7048e8", "#2f9e44", "#e8590c"]
PARTS = ("encode", "send", "wait", "merge")
PART_COLOURS = ("#1c6dd0", "#b7791f", "#adb5bd", "#0b7a75")


def colours(details: dict) -> dict[str, str]:
    ours = [name for name in by_row(details) if name not in COLOURS]
    return {**COLOURS, **{name: TITHE_COLOURS[i % len(TITHE_COLOURS)] for i, name in enumerate(ours)}}


def draw(folder: Path, details: dict) -> list[tuple[str, str]]:
    """Writes the PNGs; (file name, caption) of each, in the report's order."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 10,
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
    if any(run["stats"] for run in details["runs"]):
        save(
            _breakdown(plt, details),
            "breakdown.png",
            "What tithe's part of a step consists of, from its own counters: encode and merge are time on the"
            " compute lane, send is one frame's way from posting to completion, wait is how long the exchange was"
            " waited for. They overlap each other and the backward pass, so they do not add up to the step.",
        )
    return made


def _curves(plt, details, column):
    figure, axes = plt.subplots(figsize=(9, 5))
    shade = colours(details)
    for name, runs in by_row(details).items():
        baseline = name in BASELINES
        points = list(zip(*(run["curve"] for run in runs), strict=True))[1:]
        x = [mean(p[column] for p in at) for at in points]
        y = [100 * mean(p[2] for p in at) for at in points]
        axes.plot(
            *(x, y),
            color=shade[name],
            label=name,
            linestyle="--" if baseline else "-",
            linewidth=1.8,
            marker="o",
            markersize=3,
        )
        if len(runs) > 1:
            low = [100 * min(p[2] for p in at) for at in points]
            high = [100 * max(p[2] for p in at) for at in points]
            axes.fill_between(x, low, high, color=shade[name], alpha=0.12, linewidth=0)
    axes.axhline(100 * details["target"], color="#868e96", linewidth=1, linestyle=":")
    axes.annotate(
        f"target {details['target']:.0%}",
        (0.005, 100 * details["target"]),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        color="#868e96",
        fontsize=9,
    )
    best = 100 * max(run["accuracy"] for run in details["runs"])
    axes.set_ylim(max(0, min(100 * details["target"], best) - 15), best + 1)
    axes.set_ylabel("test accuracy, %")
    if column == 1:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("training time, seconds" if column == 1 else "steps")
    axes.legend(loc="lower right")
    return figure


def _bars(plt, details):
    entries = results(details)["runs"]
    shade = colours(details)
    figure, axes = plt.subplots(1, 2, figsize=(9, 0.9 + 0.42 * len(entries)), sharey=True)
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
        axis.set_xlim(0, max(values) * unit * 1.2)
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
            fontsize=8,
        )
    axes[0].set_yticks(list(at), [entry["name"] for entry in entries])
    axes[0].invert_yaxis()
    figure.tight_layout()
    return figure


def part_ns(stats: dict, part: str) -> float:
    """Nanoseconds per step; of send, per frame: several are under way at a time."""
    return stats[f"{part}_ns"] / max(1, stats["frames_sent" if part == "send" else "rounds"])


def _breakdown(plt, details):
    ours = {name: runs for name, runs in by_row(details).items() if runs[0]["stats"]}
    figure, axes = plt.subplots(figsize=(9, 1.0 + 0.75 * len(ours)))
    width = 0.8 / len(PARTS)
    for k, part in enumerate(PARTS):
        values = [mean(part_ns(run["stats"], part) * 1e-6 for run in runs) for runs in ours.values()]
        at = [y + (k - 1.5) * width for y in range(len(ours))]
        axes.barh(at, values, height=width * 0.9, color=PART_COLOURS[k], label=part)
        for y, value in zip(at, values, strict=True):
            axes.annotate(
                *(f"{value:.1f}", (value, y)),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
    axes.set_yticks(range(len(ours)), list(ours))
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("milliseconds per step; of send, per frame")
    axes.legend(loc="lower right", ncols=len(PARTS))
    return figure


STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#212529;max-width:960px;margin:2.5rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin-bottom:.2rem} h2{font-size:1.15rem;margin-top:2.2rem}
table{border-collapse:collapse;width:100%;font-size:.88rem} th,td{padding:.4rem .6rem;text-align:right}
th{border-bottom:2px solid #495057;font-weight:600} td{border-bottom:1px solid #e9ecef}
td{white-space:nowrap} th:nth-child(-n+2),td:nth-child(-n+2){text-align:left}
tr.tithe td:first-child{font-weight:600;color:#0b7a75}
pre{background:#f8f9fa;padding:.9rem 1.1rem;border-left:4px solid #0b7a75;overflow-x:auto;font-size:.88rem}
img{width:100%} figure{margin:1.2rem 0} figcaption,.small{color:#6c757d;font-size:.88rem}
.failed{color:#c2255c}
"""


def write_html(folder: Path, details: dict, pictures: list[tuple[str, str]]) -> None:
    text = html.escape
    head, body = cells(details)
    kinds = {run["name"]: run["kind"] for run in details["runs"]}
    table_rows = "\n".join(
        f'<tr class="{kinds[row[0]]}">' + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>" for row in body
    )
    figures = "\n".join(
        f'<figure><img alt="{text(caption)}" src="data:image/png;base64,'
        f'{base64.b64encode((folder / name).read_bytes()).decode()}"><figcaption>{text(caption)}</figcaption></figure>'
        for name, caption in pictures
    )
    seeds, epochs = details["seeds"], details["epochs"]
    setting = (
        f"{details['ranks']} ranks, link {details['link']}, {seeds} seed{'s' * (seeds > 1)},"
        f" {epochs} epoch{'s' * (epochs > 1)}; MLP {'-'.join(map(str, rows.LAYERS))},"
        f" {rows.PARAMETERS:,} parameters, batch {rows.BATCH} per rank, SGD with momentum {rows.MOMENTUM}."
    )
    facts = [setting, f"Command: {details['command']}", f"Machine: {details['machine']}"]
    if "link_mbit" in details:
        carried = ", ".join(f"{mbit:.1f}" for mbit in details["link_mbit"])
        facts.append(f"Links as measured before training, all at once: {carried} Mbit/s.")
    facts.append(
        "Every row has the same seeds, data order and learning rates. Rows with momentum correction keep the momentum"
        " of compressed parameters in tithe's carry; the optimizer then applies none to those. A step is its median"
        " after the first 20; bytes are what the rank's interface counted; accuracies are means over seeds of the"
        " whole test set after the last step."
    )
    differ = [f"{run['name']}, seed {run['seed']}" for run in details["runs"] if not run["identical"]]
    facts.append(
        f"Ranks ended with DIFFERENT parameters in: {'; '.join(differ)}."
        if differ
        else "In every run all ranks ended with the same parameter bits."
    )
    facts += details["notes"]
    failures = "".join(
        f'<p class="failed">Failed: {text(f["name"])}, seed {f["seed"]}: {text(f["why"].splitlines()[0])}</p>'
        for f in details["failed"]
    )
    page = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>tithe: Fashion-MNIST over {text(details["link"])}</title>
<style>{STYLE}</style>
<h1>Fashion-MNIST on {details["ranks"]} ranks over {text(details["link"])} links</h1>
<p class="small">tithe against DDP's own ways to exchange gradients, in one run.</p>
<table><tr>{"".join(f"<th>{text(cell)}</th>" for cell in head)}</tr>
{table_rows}</table>
{failures}<pre>{text(chr(10).join(verdict(details)) or "baselines only")}</pre>
{figures}
<h2>How this was measured</h2>
{"".join(f'<p class="small">{text(fact)}</p>' for fact in facts)}
</html>
"""
    (folder / "report.html").write_text(page)


def write_all(folder: Path, details: dict) -> None:
    write_json(folder, details)
    if details["runs"]:
        write_html(folder, details, draw(folder, details))


if __name__ == "__main__":
    where = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("out"))
    told = json.loads((where / "details.json").read_text())
    write_all(where, told)
    print(table(told))
