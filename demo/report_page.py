# SPDX-License-Identifier: Apache-2.0
"""report.html: one self-contained page with the tables and pictures of report.py.

python demo/report_page.py [FOLDER]     draws everything again from FOLDER/details.json
"""

import base64
import html
import json
import sys
from pathlib import Path

import report
import rows

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#212529;max-width:960px;margin:2.5rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin-bottom:.2rem} h2{font-size:1.15rem;margin-top:2.2rem}
table{border-collapse:collapse;width:100%;font-size:.9rem} th,td{padding:.4rem .6rem;text-align:right}
th{border-bottom:2px solid #495057;font-weight:600} td{border-bottom:1px solid #e9ecef}
th:first-child,td:first-child{text-align:left} tr.tithe td:first-child{font-weight:600;color:#0b7a75}
.best{border-left:4px solid #0b7a75;padding:.1rem 0 .1rem 1rem;margin:1.5rem 0} .best p{margin:.3rem 0}
.best td{text-align:left;border:0;padding:.1rem 1rem .1rem 0} .best table{width:auto}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;font-size:.88rem} dd{margin:0}
code,dd,.small{overflow-wrap:anywhere} img{width:100%} figure{margin:1.6rem 0}
figcaption,.small{color:#6c757d;font-size:.88rem} .failed{color:#c2255c}
@media (max-width:640px){
 body{margin:1rem auto} table,tbody,tr,td{display:block} .results tr:first-child{display:none}
 tr{padding:.5rem 0;border-bottom:1px solid #ced4da} td,.best td{display:flex;justify-content:space-between;border:0;
 padding:.1rem 0} td[data-head]::before{content:attr(data-head);color:#6c757d;padding-right:1rem}
 dl{grid-template-columns:1fr} dt{margin-top:.4rem}
}
"""


SUBJECTS = {
    "images": "Fashion-MNIST",
    "text": "A transformer under AdamW",
    "sharded": "A transformer under fully_shard",
}


def subject(details: dict) -> str:
    return SUBJECTS[details.get("task", "images")]


def trained(details: dict) -> str:
    """Returns a text with the model and its optimizer."""
    if (task := details.get("task", "images")) != "images":
        sharded = task == "sharded"
        model, batch = (
            (rows.SHARDED_TRANSFORMER, rows.SHARDED_BATCH) if sharded else (rows.TRANSFORMER, rows.TEXT_BATCH)
        )
        return (
            f"a transformer of {model['blocks']} blocks, {model['width']} wide, {details['parameters']:,} parameters,"
            f" that predicts the next byte of Python's library;{' bfloat16;' if sharded else ''} AdamW, rate"
            f" {rows.TEXT_RATE:g}, batch {batch} per rank"
        )
    layers = details.get("layers", rows.LAYERS)
    return (
        f"MLP {'-'.join(map(str, layers))}, {rows.parameters(layers):,} parameters, batch {rows.BATCH} per rank, SGD"
        f" with momentum {rows.MOMENTUM}"
    )


def table(details: dict) -> str:
    text = html.escape
    head, body = report.cells(details)
    kinds = {run["name"]: run["kind"] for run in details["runs"]}
    lines = "\n".join(
        f'<tr class="{kinds[row[0]]}"><td>{text(row[0])}</td>'
        + "".join(
            f'<td data-head="{text(name)}">{text(cell)}</td>' for name, cell in zip(head[1:], row[1:], strict=True)
        )
        + "</tr>"
        for row in body
    )
    return f'<table class="results"><tr>{"".join(f"<th>{text(cell)}</th>" for cell in head)}</tr>\n{lines}</table>'


def figure(folder: Path, name: str, caption: str) -> str:
    data = base64.b64encode((folder / name).read_bytes()).decode()
    text = html.escape(caption)
    return f'<figure><img alt="{text}" src="data:image/png;base64,{data}"><figcaption>{text}</figcaption></figure>'


def section(folder: Path, details: dict) -> str:
    """Returns the section for another job of the same hosts, whose page is in `folder`, for the page of the first
    job."""
    sentence = f"The same hosts; {trained(details)}. Its own page is {folder.name}/report.html."
    return f"""<h2>{subject(details)}</h2>
<p class="small">{html.escape(sentence)}</p>
{table(details)}
{figure(folder, *report.LOSS) if (folder / report.LOSS[0]).exists() else ""}
"""


def write_html(folder: Path, details: dict, pictures: list[tuple[str, str]], more: str) -> None:
    """Writes report.html with the table, the verdicts and the pictures, inlined. more: HTML below the table."""
    text = html.escape
    kinds = {run["name"]: run["kind"] for run in details["runs"]}
    known = "".join(f"<dt>{text(name)}</dt><dd><code>{text(wire)}</code></dd>" for name, wire in report.wires(details))
    beside = "tithe against DDP's own ways to exchange gradients" if "baseline" in kinds.values() else "Rows of tithe"
    when = "in runs of the same job" if "; and " in details["command"] else "in one run"
    best, why = report.best_row(details)
    compared = "".join(
        "<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in line) + "</tr>" for line in report.comparisons(details)
    )
    if best is not None:
        sentence = f"<p><strong>{text(best['name'])}</strong> is the best row of tithe: {text(why)}.</p>"
    else:
        sentence = f"<p>{text(why or 'Baselines only.')}</p>"
    figures = "\n".join(figure(folder, *picture) for picture in pictures)
    seeds, epochs = details["seeds"], details["epochs"]
    length = f"{details['steps']} steps" if details.get("steps") else f"{epochs} epoch{'s' * (epochs > 1)}"
    setting = (
        f"{details['ranks']} ranks, link {details['link']}, {seeds} seed{'s' * (seeds > 1)}, {length};"
        f" {trained(details)}."
    )
    steps = details["runs"][0]["curve"][-1][0]
    facts = [setting, f"Command: {details['command']}", f"Machine: {details['machine']}"]
    if "link_mbit" in details:
        carried = ", ".join(f"{mbit:.1f}" for mbit in details["link_mbit"])
        facts.append(f"Links as measured before training, all at once: {carried} Mbit/s.")
    facts.append(
        "Every row has the same seeds, data order and learning rates. Rows with momentum correction keep the momentum"
        " of compressed parameters in tithe's carry; the optimizer then applies none to those. A step is its median"
        f" after the first {rows.left_out(steps)}; bytes are what the rank's interface counted; accuracies are means"
        " over seeds of the whole test set after the last step."
    )
    kept = [run for run in details["runs"] if not run.get("rounded_on_the_way")]
    differ = [f"{run['name']}, seed {run['seed']}" for run in kept if not run["identical"]]
    where = "In every run" if len(kept) == len(details["runs"]) else "In every run without rounding on the way"
    facts.append(
        f"Ranks ended with DIFFERENT parameters in: {'; '.join(differ)}."
        if differ
        else f"{where} all ranks ended with the same parameter bits."
    )
    facts += report.merged(details["notes"])
    failures = "".join(
        f'<p class="failed">Failed: {text(f["name"])}, seed {f["seed"]}: {text(f["why"].splitlines()[0])}</p>'
        for f in details["failed"]
    )
    page = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>tithe: {subject(details)} over {text(details["link"])}</title>
<style>{STYLE}</style>
<h1>{subject(details)} on {details["ranks"]} ranks over {text(details["link"])} links</h1>
<p class="small">{beside}, {when}.</p>
{table(details)}
{failures}<div class="best">{sentence}<table>{compared}</table></div>
{more}<h2>What the rows send</h2>
<dl>{known}</dl>
<h2>Pictures</h2>
{figures}
<h2>How this was measured</h2>
{"".join(f'<p class="small">{text(fact)}</p>' for fact in facts)}
</html>
"""
    (folder / "report.html").write_text(page)


def write_all(folder: Path, details: dict, more: str = "") -> None:
    """Writes all files of the report. more: HTML below the table."""
    report.write_json(folder, details)
    if details["runs"]:
        write_html(folder, details, report.draw(folder, details), more)


if __name__ == "__main__":
    where = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("out"))
    details = json.loads((where / "details.json").read_text())
    write_all(where, details)
    print(report.table(details))
