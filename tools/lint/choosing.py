# SPDX-License-Identifier: Apache-2.0
"""Checks the statements on codecs under optimizers against the committed studies (study_optimizers.json and, for one
column, study.json): docs/start/choosing.md and each study_optimizers.md in lab/results and its folders; the output of
`tithe codecs NAME` (apps/tithe/codec/choosing.def); the table of tithe.torch.attach() (python/tithe/_studied.py). It
also checks that the default of sessions is indistinguishable from fp32. --write writes the files; without it they are
compared."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tree import Problem, report

HERE = Path(__file__).parents[2].resolve()
sys.path.insert(0, str(HERE))

from lab.study import verdict  # noqa: E402

OPTIMIZERS = ("SGD 0.9", "AdamW", "tithe's AdamW", "Muon with AdamW")
NAME = "study_optimizers"
FIRST = "SGD 0.5, tuned rate"  # the study of `make study`: an MLP, with the loss that counts as noise there
# attach(optimizer=...) sends these without a warning: the fewest bytes that hold here and in
# lab/results/study_adam.md.
DEFAULTS = {FIRST: "eden:bits=3", "SGD 0.9": "eden:bits=3", "tithe's AdamW": "eden:bits=3"}
# The column of the study for words in a row of the page's first table; the first match counts.
COLUMNS = {
    "momentum 0.9": "SGD 0.9",
    "plain SGD": FIRST,
    "torch's own AdamW": "AdamW",
    "AdamW": "tithe's AdamW",
}
WIDTH = 120  # of a line of Python (ruff.toml)
MARKED = re.compile(r"(<!-- optimizers: written by tools/lint/choosing.py -->\n).*?(<!-- end -->)", re.DOTALL)
ADVICE = re.compile(r"\| you have \| take \|\n\|[-| ]+\|\n((?:\|.*\n)+)")
CODEC = re.compile(r"^TITHE_CODEC\w*\((\w+),", re.MULTILINE)
DEFAULT = re.compile(r'^TITHE_OPTION\(Text, codec, "([^"]*)",', re.MULTILINE)


def verdict_of(study: verdict.Study, codec: str, optimizer: str) -> str:
    """Returns the verdict under an optimizer: within noise, nearly, or the worst loss in units of noise."""
    safe = study.safe(codec, optimizer)
    if safe is None:
        return ""
    cells = [cell for cell, v in study.cells.items() if v["optimizer"] == optimizer]
    short = [cell for cell in cells if (study.behind if safe else lambda *at: not study.near(*at))(cell, codec)]
    if not short:
        return "yes"
    if any(study.gap(cell, codec) is None for cell in short):
        return "no: diverged"
    worst = min(short, key=lambda cell: study.gap(cell, codec) / study.tolerance(cell, codec))
    digits, unit = (2, "nats") if verdict.unit(worst) == "nats" else (1, "points")
    amount = f"{-study.gap(worst, codec):.{digits + safe}f} {unit} ({study.cells[worst]['model']})"
    return f"nearly: {amount}" if safe else f"no: {amount}"


def first_study(path: Path) -> dict[str, str]:
    """Returns the verdicts of the other study in the same form, without the value of momentum."""
    out = {}
    for row in json.loads(path.read_text())["rows"]:
        near = not row["diverged"] and row["points"] >= -verdict.FLOOR["%"]
        out[row["codec"].replace(",mu=0.5", "")] = "yes" if near else f"no: {-row['points']:.1f} points"
    return out


def table(study: verdict.Study) -> str:
    results = dict(verdicts(study, {}))
    columns = [optimizer for optimizer in OPTIMIZERS if any(optimizer in found for found in results.values())]
    rows = [
        [f"`{codec}`", f"1/{study.smaller(codec):.3g}", *(found.get(column, "") for column in columns)]
        for codec, found in results.items()
    ]
    return verdict.markdown(["codec", "fp32's bytes", *columns], rows, 1)


def advice(page: str, codecs: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yields (spec, the reader's optimizer, the condition) of each row of the page's first table."""
    for row in ADVICE.search(page)[1].splitlines():
        have, take = (cell.strip() for cell in row.strip("| ").split(" | "))
        for clause in re.split(r"[;.:] ", take):
            only = re.search(r"where [^,;`]+", clause)
            for spec in re.findall(r"`(\w+(?::[^`]*)?)`", clause):
                if spec.partition(":")[0] in codecs:
                    yield spec, have, only[0] if only else ""


def contradictions(page: str, codecs: list[str], study: verdict.Study, first: dict[str, str]) -> Iterator[str]:
    """Yields codecs that the first table of the page names for an optimizer and the study refuses under it."""
    found = dict(verdicts(study, first))
    for spec, have, _ in advice(page, codecs):
        column = next((column for words, column in COLUMNS.items() if words in have), None)
        verdict_text = found.get(spec, found.get(spec.partition(":")[0], {})).get(column, "yes")
        if verdict_text.startswith("no"):
            yield f"names '{spec}' for '{have}', and the study says '{verdict_text}' under {column}"


def verdicts(study: verdict.Study, first: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields (codec, its verdict under each optimizer that ran with all models) of codecs that have one."""
    for codec in study.by_bytes():
        by_optimizer = {
            FIRST: first.get(codec, ""),
            **{optimizer: verdict_of(study, codec, optimizer) for optimizer in OPTIMIZERS},
        }
        known = {name: verdict for name, verdict in by_optimizer.items() if verdict}
        if codec != "fp32" and known:
            yield codec, known


def definitions(page: str, codecs: list[str], study: verdict.Study, first: dict[str, str]) -> str:
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        "// The words of docs/start/choosing.md for each codec: when to take it, and how it does under an optimizer.",
        "// Written by tools/lint/choosing.py --write.",
        *(
            f'TITHE_WHEN("{spec}", "{have}{f" ({only})" if only else ""}")'
            for spec, have, only in dict.fromkeys(advice(page, codecs))
        ),
    ]
    for codec, by_optimizer in verdicts(study, first):
        lines += [f'TITHE_STUDIED("{codec}", "{name}", "{verdict}")' for name, verdict in by_optimizer.items()]
    return "\n".join(lines) + "\n"


def module(study: verdict.Study, first: dict[str, str]) -> str:
    """Returns the text of _studied.py, the same verdicts for tithe.torch.attach(optimizer=...)."""
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        '"""How codecs do under optimizers (docs/start/choosing.md). Written by tools/lint/choosing.py --write."""',
        "",
    ]
    results = dict(sorted(verdicts(study, first)))
    columns = list(dict.fromkeys(name for by_optimizer in results.values() for name in by_optimizer))
    columns.sort(key=[FIRST, *OPTIMIZERS].index)
    lines += [f"_COLUMNS = ({', '.join(json.dumps(name) for name in columns)})", "_ROWS = {"]
    for codec, by_optimizer in results.items():
        cells = [json.dumps(by_optimizer.get(name, "")) for name in columns]
        row = f'    "{codec}": ({", ".join(cells)}),'
        wrapped = [f'    "{codec}": (', *(f"        {each}," for each in cells), "    ),"]
        lines += [row] if len(row) <= WIDTH else wrapped
    chosen = [f'    "{optimizer}": "{codec}",' for optimizer, codec in DEFAULTS.items()]
    made = "{c: {k: v for k, v in zip(_COLUMNS, row, strict=True) if v} for c, row in _ROWS.items()}"
    lines += ["}", f"STUDIED = {made}", "DEFAULTS = {", *chosen, "}", f'OWN = "{next(iter(verdict.OWN))}"']
    return "\n".join(lines) + "\n"


def check(root: Path, write: bool) -> Iterator[Problem]:
    page, results = root / "docs/start/choosing.md", root / f"lab/results/{NAME}.json"
    header = root / "include/tithe/options.def"
    details = json.loads(results.read_text())
    study, first = verdict.Study(details), first_study(root / "lab/results/study.json")
    codecs = CODEC.findall((root / "include/tithe/codecs.def").read_text())
    new = {
        page: MARKED.sub(lambda m: m[1] + table(study) + m[2], page.read_text()),
        **{f.with_suffix(".md"): verdict.page(json.loads(f.read_text())) for f in results.parent.rglob(f"{NAME}.json")},
        root / "apps/tithe/codec/choosing.def": definitions(page.read_text(), codecs, study, first),
        root / "python/tithe/_studied.py": module(study, first),
    }
    for path, text in new.items():
        if write:
            path.write_text(text)
        elif text != path.read_text():
            yield path, 1, "differs from what it is written from: run tools/lint/choosing.py --write"
    for problem in contradictions(page.read_text(), codecs, study, first):
        yield page, 1, problem
    default = DEFAULT.search(header.read_text())
    line = header.read_text()[: default.start()].count("\n") + 1
    if not study.safe(default[1]):
        yield header, line, f"the default codec '{default[1]}' is not within noise of fp32 in all cells of the study"
    elif not study.strictly_safe(default[1]):
        yield header, line, f"the default codec '{default[1]}' can be told from fp32 in the study"
    for optimizer, codec in DEFAULTS.items():
        if (first.get(codec) if optimizer == FIRST else verdict_of(study, codec, optimizer)) != "yes":
            yield page, 1, f"the default under {optimizer}, '{codec}', is not within noise of fp32 in the study"
    if f"`{default[1]}`" not in page.read_text().split("## ")[0]:
        yield page, 1, f"its first section does not name the default, `{default[1]}` (include/tithe/options.def)"


if __name__ == "__main__":
    sys.exit(report("choosing", HERE, check(HERE, "--write" in sys.argv[1:])))
