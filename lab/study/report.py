# SPDX-License-Identifier: Apache-2.0
"""The results of the study: rows from runs, the table, the picture."""

import itertools
from pathlib import Path

from lab.study import figures

NEAR_POINTS = 1.0  # the table comments on a codec that loses more than this against fp32
SHOWN_POINTS = 2.0  # the picture's lower end, below fp32; rows further down are drawn on its edge
FAMILIES = {
    "casts": ("#3d4451", "fp32 zip bf16 fp16 fp8 fp8_shared"),
    "signs and few bits": (
        "#c2255c",
        "onebit sign tbq terngrad terngrad_shared minmax qsgd qsgd_shared natural nuqsgd thc eden",
    ),
    "floats of other shapes": ("#e8590c", "inceptionn rangefloat"),
    "some of the values": ("#1c6dd0", "topk qtopk dgc dragonn randomk threshold graddrop scalecom blocks"),
    "transforms, low rank": ("#2f9e44", "fft powersgd"),
    "others": ("#7048e8", ""),
}


def rows_of(runs: list[dict]) -> list[dict]:
    """Returns one row per spec, in the order of the runs: means over seeds, and the distance from fp32 in points."""
    rows = []
    for spec in dict.fromkeys(run["codec"] for run in runs):
        mine = [run for run in runs if run["codec"] == spec]
        accuracies = [run["accuracy"] for run in mine]
        rows.append(
            {
                "codec": spec,
                "seeds": len(mine),
                "accuracy": figures.mean(accuracies),
                "spread": max(accuracies) - min(accuracies),
                "bytes_per_step": figures.mean(run["bytes_per_step"] for run in mine),
                "diverged": sum(not run["finite"] for run in mine),
            }
        )
    plain = next((row for row in rows if row["codec"] == "fp32"), None)
    for row in rows:
        row["points"] = plain and 100 * (row["accuracy"] - plain["accuracy"])
        row["smaller"] = plain and plain["bytes_per_step"] / row["bytes_per_step"]
    return rows


def is_far(row: dict) -> bool:
    return row["points"] is not None and row["points"] < -NEAR_POINTS


def table(rows: list[dict], why: dict[str, str]) -> str:
    """Returns the table as Markdown. `why`: notes on rows that lose more than NEAR_POINTS, by spec."""
    head = ["codec", "accuracy", "seeds lie within", "points vs fp32", "sent per rank, step", "fp32's bytes", "note"]
    lines = [head, ["---", *["---:"] * 5, "---"]]
    for row in rows:
        note = why.get(row["codec"], "")
        if row["diverged"]:
            note = f"**{row['diverged']} of {row['seeds']} runs diverged** {note}".strip()
        elif is_far(row):
            note = f"**more than a point below fp32** {note}".strip()
        known = row["points"] is not None
        lines.append(
            [
                f"`{row['codec']}`",
                f"{row['accuracy']:.2%}",
                f"{100 * row['spread']:.2f}" if row["seeds"] > 1 else "",
                f"{row['points']:+.2f}" if known else "",
                figures.size(row["bytes_per_step"]),
                f"1/{row['smaller']:.3g}" if known else "",
                note,
            ]
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def text(rows: list[dict]) -> str:
    """Returns the table for a terminal."""
    return "\n".join(
        f"{row['codec']:<48} {row['accuracy']:>7.2%}{', diverged' if row['diverged'] else ''}"
        + ("" if row["points"] is None else f" {row['points']:>+6.2f} points")
        + f" {figures.size(row['bytes_per_step']):>10}/step"
        + ("  more than a point below fp32" if is_far(row) else "")
        for row in rows
    )


def page(details: dict, why: dict[str, str]) -> str:
    commits = ", ".join(dict.fromkeys(run["commit"] for run in details["runs"]))
    return (
        "# What each codec costs in accuracy\n\n"
        f"{details['job']}; {details['epochs']} epochs, means over seeds.\n"
        f"`{details['command']}` on {details['machine']}; commits {commits}.\n"
        "Made from `study.json` by `lab/study/accuracy.py`: see [the note](README.md#study).\n\n"
        "![accuracy against bytes](study.png)\n\n" + table(details["rows"], why)
    )


def _family(name: str) -> tuple[str, str]:
    """Returns the name and colour of a codec's family."""
    stem = name.split("_")[0]  # qsgd_shared belongs to qsgd
    family = next((family for family, (_, members) in FAMILIES.items() if stem in members.split()), "others")
    return family, FAMILIES[family][0]


class _Labels:
    """Puts texts beside their points, at positions that cover no other text and no point."""

    def __init__(self, axes, points):
        self.axes = axes
        self.taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in axes.transData.transform(points)]

    def add(self, at, text, **style):
        from matplotlib.text import Text

        renderer = self.axes.figure.canvas.get_renderer()
        frame = self.axes.get_window_extent(renderer)
        for far, (right, up) in itertools.product(range(16), itertools.product((1, -1, 0), (1, -1))):
            note = self.axes.annotate(
                text,
                at,
                xytext=(right * (6 + 3 * far), up * (6 * far + (right == 0) * 9)),
                textcoords="offset points",
                va="center",
                ha={1: "left", -1: "right", 0: "center"}[right],
                fontsize=7.5,
                arrowprops={"arrowstyle": "-", "lw": 0.4, "color": "#868e96", "shrinkA": 0, "shrinkB": 3},
                **style,
            )
            note.update_positions(renderer)
            box = Text.get_window_extent(note, renderer)  # without the arrow
            inside = frame.x0 < box.x0 and box.x1 < frame.x1 and frame.y0 < box.y0 and box.y1 < frame.y1
            if inside and not any(_overlap((box.x0, box.y0, box.x1, box.y1), other) for other in self.taken):
                self.taken.append((box.x0, box.y0, box.x1, box.y1))
                return
            note.remove()


def _overlap(a, b) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def draw(path: Path, rows: list[dict]) -> None:
    """Draws a point per row. A line joins the two settings of a codec; the first one has the codec's name."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [row for row in rows if not row["diverged"]]  # their last frames are empty, so their bytes have no meaning
    plain = next((100 * row["accuracy"] for row in rows if row["codec"] == "fp32"), None)
    top = max(100 * row["accuracy"] for row in rows)
    floor = (plain if plain is not None else top) - SHOWN_POINTS
    where = {row["codec"]: (row["bytes_per_step"] / 1e3, max(100 * row["accuracy"], floor)) for row in rows}
    figure, axes = plt.subplots(figsize=(11, 7), dpi=144)
    axes.set(xscale="log", xlabel="sent per rank and step, kB", ylabel="test accuracy, %")
    axes.set_ylim(floor - 0.1, top + 0.3)
    least, most = (bound(x for x, _ in where.values()) for bound in (min, max))
    axes.set_xlim(least / 1.4, most * 1.4)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.spines[["top", "right"]].set_visible(False)
    if plain is not None:
        axes.axhspan(plain - NEAR_POINTS, plain, color="#f1f3f5", zorder=0)
        axes.annotate("within a point of fp32", (least / 1.35, plain - NEAR_POINTS + 0.03), fontsize=8, color="#495057")
    names = dict.fromkeys(row["codec"].split(":")[0] for row in rows)
    labels = _Labels(axes, list(where.values()))
    shown = set()
    for name in names:
        family, colour = _family(name)
        mine = [row for row in rows if row["codec"].split(":")[0] == name]
        for row in mine:
            ends = zip(where[mine[0]["codec"]], where[row["codec"]], strict=True)
            axes.plot(*ends, lw=0.8, color=colour, alpha=0.4, zorder=1)
            low = 100 * row["accuracy"] < floor
            axes.plot(
                *where[row["codec"]],
                "v" if low else "o",
                ms=6 if row is mine[0] else 4,
                color=colour,
                label=None if family in shown or low else family,
            )
            shown |= set() if low else {family}
            if row is mine[0] or is_far(row):
                text = name if row is mine[0] else row["codec"]
                labels.add(where[row["codec"]], f"{text} ({row['accuracy']:.0%})" if low else text, color=colour)
    note = "large: the default setting; small: others; triangle: below the picture"
    axes.annotate(note, (0.99, 0.09), xycoords="axes fraction", ha="right", fontsize=8, color="#495057")
    axes.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(FAMILIES))
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)
