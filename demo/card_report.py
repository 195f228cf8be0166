# SPDX-License-Identifier: Apache-2.0
"""The part of the demo's report that CARD=1 adds: INCEPTIONN's comparison, and a figure of the path of a gradient.

python demo/card_report.py FOLDER...     prints the table as Markdown and draws FOLDER's page again; further folders
                                         contain other rows of the same job, from separate runs
"""

import html
import json
import sys
from pathlib import Path

import report
import report_page
import rows
from report import mean

GOAL_FASTER = 2.2  # speed-up of the ring with cards over WA to the same accuracy: the least of INCEPTIONN's 2.2 to 3.1
GOAL_LESS = 0.70  # reduction of the communication time, by the same comparison
NAMES = {
    "wa": "WA: workers and an aggregator, fp32",
    "wa-card": "WA + card",
    "ring": "ring, fp32",
    "ring-card": "ring + card",
    "ring-card-lossy": "ring + card, nothing carried",
    "ring-card-literal": "the same, rounded as printed",
    "ring-lossy": "ring + cards that round: the paper's own way",
    "wa-lossy": "WA + cards that round",
    "ring-lossy-literal": "ring + cards that round as printed",
    "tithe-qtopk": "tithe's best without a card",
}
HEAD = (
    *("row", "step", "exchange", "on the wire, worker", "busiest host", "accuracy", "{target}", "epochs", "wa / row"),
    *("CPU per step, worker", "aggregator", "all cards", "replicas apart"),
)


def entries(details: dict) -> list[dict]:
    """Returns one entry per row, means over seeds, in the order of NAMES; other rows follow."""
    found = report.by_row(details)
    order = [name for name in NAMES if name in found] + [name for name in found if name not in NAMES]
    out = []
    for name in order:
        runs = found[name]
        keys = ("step_seconds", "bytes_per_step", "busiest_bytes_per_step", "accuracy", "processor_seconds")
        entry = {key: mean(run[key] for run in runs) for key in (*keys, "server_seconds", "card_seconds")}
        reached = [report.seconds_to(run, details["target"]) for run in runs]
        steps = [next((s for s, _, a in run["curve"] if a >= details["target"]), None) for run in runs]
        entry["name"] = name
        # The largest difference of a parameter at the end; older results do not have it.
        known = [run.get("apart", 0.0 if run["identical"] else None) for run in runs]
        entry["apart"] = None if None in known else max(known)
        entry["seconds"] = None if None in reached else mean(reached)
        entry["epochs"] = (
            None if None in steps else mean(s / run["per_epoch"] for s, run in zip(steps, runs, strict=True))
        )
        entry["exchange"] = max(0.0, entry["step_seconds"] - details["local_step_seconds"])
        out.append(entry)
    return out


def cells(details: dict) -> tuple[list[str], list[list[str]]]:
    found = entries(details)
    first = next((entry["seconds"] for entry in found if entry["name"] == "wa"), None)
    head = [word.format(target=f"to {details['target']:.0%}") for word in HEAD]
    body = []
    for entry in found:
        reached = entry["seconds"] is not None
        body.append(
            [
                NAMES.get(entry["name"], entry["name"]),
                f"{1e3 * entry['step_seconds']:.0f} ms",
                f"{1e3 * entry['exchange']:.0f} ms",
                f"{entry['bytes_per_step'] / 1e6:.2f} MB",
                f"{entry['busiest_bytes_per_step'] / 1e6:.2f} MB",
                f"{entry['accuracy']:.2%}",
                f"{entry['seconds']:.1f} s" if reached else "not reached",
                f"{entry['epochs']:.2f}" if reached else "",
                f"{first / entry['seconds']:.2f}x" if reached and first else "",
                f"{1e3 * entry['processor_seconds']:.0f} ms",
                f"{1e3 * entry['server_seconds']:.0f} ms" if entry["server_seconds"] else "",
                f"{1e3 * entry['card_seconds']:.0f} ms",
                "not known" if entry["apart"] is None else f"{entry['apart']:.1e}" if entry["apart"] else "0",
            ]
        )
    return head, body


def goals(details: dict) -> list[str]:
    """Compares these rows with the claims of INCEPTIONN's authors; returns a line each, with the verdict."""
    of = {entry["name"]: entry for entry in entries(details)}
    lines = []

    def say(text: str, met: bool) -> None:
        lines.append(f"{text}: {'met' if met else 'MISSED'}")

    wa, ring, packed = (of.get(name) for name in ("wa", "ring", "ring-card"))
    if wa and packed and wa["seconds"] and packed["seconds"]:
        times = wa["seconds"] / packed["seconds"]
        what = f"ring + card reaches {details['target']:.0%} {times:.2f}x as fast as WA"
        say(f"{what}, goal {GOAL_FASTER}x", times >= GOAL_FASTER)
    if wa and packed:
        less = 1 - packed["exchange"] / wa["exchange"]
        say(f"its exchange takes {less:.1%} less time than WA's, goal {GOAL_LESS:.0%}", less >= GOAL_LESS)
        sent = 1 - packed["busiest_bytes_per_step"] / wa["busiest_bytes_per_step"]
        lines.append(f"the busiest host sends {sent:.1%} fewer bytes")
    if ring and packed:
        part = packed["processor_seconds"] / ring["processor_seconds"]
        say(f"a worker's step takes {part:.2f} of the processor time of the ring of fp32, goal 1.00", part <= 1)
    return lines


def setting(details: dict) -> str:
    seeds, epochs = details["seeds"], details["epochs"]
    length = f"{details['steps']} steps" if details["steps"] else f"{epochs} epoch{'s' * (epochs > 1)}"
    job = f"{details['ranks']} workers, links of {details['link']}, {seeds} seed{'s' * (seeds > 1)}, {length}"
    model = f"MLP {'-'.join(map(str, details['layers']))}, batch {rows.BATCH} per rank"
    return f"{job}; {model}; a step without communication takes {1e3 * details['local_step_seconds']:.0f} ms."


def table(details: dict) -> str:
    head, body = cells(details)
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(t.rjust(w) for t, w in zip(row[1:], widths[1:], strict=True))])
        for row in [head, ["-" * w for w in widths], *body]
    ]
    failed = [f"FAILED: {f['name']}, seed {f['seed']}: {f['why'].splitlines()[0]}" for f in details["failed"]]
    return "\n".join(["", *lines, "", *goals(details), *failed])


def markdown(details: dict) -> str:
    head, body = cells(details)
    ruler = ["---", *["---:"] * (len(head) - 1)]
    lines = [setting(details), f"{details['machine']}.", ""]
    lines += [f"| {' | '.join(row)} |" for row in [head, ruler, *body]]
    return "\n".join([*lines, "", *(f"- {line}" for line in goals(details))]) + "\n"


def _box(x: int, y: int, width: int, title: str, what: str, kind: str) -> str:
    middle = x + width // 2
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="46" rx="4" class="{kind}"/>'
        f'<text x="{middle}" y="{y + 19}" class="title">{html.escape(title)}</text>'
        f'<text x="{middle}" y="{y + 36}">{html.escape(what)}</text>'
    )


def path_figure(link: str) -> str:
    """Draws the path of a gradient: down through the sending host, over the link, up through the receiving host."""
    width, left, right, step = 212, 4, 444, 76
    sends = [
        ("training", "a gradient, fp32", "host"),
        ("tithe, codec snap", "the rest stays in the carry", "ours"),
        ("TCP, IP, ToS 0x28", "as the kernel has it", "host"),
        ("card: packs", "tags, 0, 1, 2 or 4 bytes a value", "card"),
    ]
    receives = [
        ("training", "the mean, the same bits on all", "host"),
        ("tithe, merge", "checksums hold, nothing is lost", "ours"),
        ("TCP, IP", "the bytes that were sent", "host"),
        ("card: restores", "bit for bit", "card"),
    ]
    parts = []
    for x, column, down in ((left, sends, True), (right, receives, False)):
        for i, (title, what, kind) in enumerate(column):
            parts.append(_box(x, 10 + i * step, width, title, what, kind))
            if i:
                a, b = 10 + (i - 1) * step + 48, 10 + i * step - 4
                begin, end = (a, b) if down else (b + 2, a + 2)
                parts.append(f'<path d="M{x + width // 2} {begin}V{end}" marker-end="url(#tip)"/>')
    at = 10 + 3 * step + 23
    parts.append(f'<path d="M{left + width + 2} {at}H{right - 6}" marker-end="url(#tip)"/>')
    between = (left + width + right) // 2
    parts.append(f'<text x="{between}" y="{at - 9}">link, {html.escape(link)}: packed frames</text>')
    style = (
        "text{font:12px system-ui,sans-serif;text-anchor:middle;fill:#495057}.title{font-weight:600;fill:#212529}"
        "rect{fill:#f8f9fa;stroke:#ced4da}.ours{fill:#e6f4f2;stroke:#0b7a75}.card{fill:#fbf3e1;stroke:#b7791f}"
        "path{stroke:#495057;fill:none}marker path{fill:#495057;stroke:none}"
    )
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    return (
        f'<svg viewBox="0 0 660 {10 + 3 * step + 56}" role="img" aria-label="the path of a gradient through two cards">'
        f'<style>{style}</style><defs>{tip}<path d="M0 0L8 4L0 8z"/></marker></defs>{"".join(parts)}</svg>'
    )


def section(details: dict) -> str:
    """Returns the section of the report page: figure, table, verdicts. Empty without cards."""
    if not details.get("card") or not details["runs"]:
        return ""
    text = html.escape
    head, body = cells(details)
    lines = "".join(
        "<tr>"
        + f"<td>{text(row[0])}</td>"
        + "".join(f'<td data-head="{text(n)}">{text(c)}</td>' for n, c in zip(head[1:], row[1:], strict=True))
        + "</tr>"
        for row in body
    )
    goals_html = "".join(f"<li>{text(line)}</li>" for line in goals(details))
    return f"""<h2>With a network card on every host</h2>
<figure>{path_figure(details["link"])}<figcaption>INCEPTIONN's network card packs what its ToS names. What it keeps of a
value is known, so codec snap sends that, and the rest goes with the next round.</figcaption></figure>
<style>.cards{{font-size:.8rem}} .cards td+td{{white-space:nowrap}} .cards th,.cards td{{padding:.4rem .3rem}}</style>
<table class="results cards"><tr>{"".join(f"<th>{text(cell)}</th>" for cell in head)}</tr>{lines}</table>
<ul>{goals_html}</ul>
<p class="small">WA's aggregator has a host of its own. The exchange is the step less a step without communication.
Replicas are apart by the largest difference of a parameter between two workers at the end: 0 means the same bits.
Bytes are those that the links' interfaces counted per step, epochs those to the accuracy. A worker's processor time is
its process's in a step; that of the cards is for all hosts together, over the whole run: in silicon they take none.</p>
"""


def read(folders: list[Path]) -> dict:
    """Returns details.json of the first folder, with the runs of all folders. ValueError for another job."""
    first, *others = [json.loads((folder / "details.json").read_text()) for folder in folders]
    for other in others:
        for key in ("machine", "ranks", "link", "seeds", "epochs", "steps", "target", "layers", "card"):
            if first[key] != other[key]:
                raise ValueError(f"{key}: {first[key]} in one folder, {other[key]} in another")
        first["runs"] += other["runs"]
        first["failed"] += other["failed"]
        first["command"] += f"; and {other['command']}"
    return first


if __name__ == "__main__":
    places = [Path(folder) for folder in sys.argv[1:]] or [Path(__file__).with_name("out")]
    cards = read(places)
    report_page.write_all(places[0], cards, section(cards))
    print(markdown(cards), end="")
