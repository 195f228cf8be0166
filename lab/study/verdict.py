# SPDX-License-Identifier: Apache-2.0
"""The verdict of the study of optimizers: which codecs stay within noise of fp32, in which cells. Standard library
only, so that the documents' tables can be checked without torch."""

import statistics

FLOOR = {"%": 0.3, "nats": 0.01}  # always counted as noise, per unit of the score
SURE = 7  # the number of seeds from which a difference within the floor is reported as one
# Optimizers for which attach() has codecs of its own, and the optimizer with fp32 that is their reference. They do not
# count for the default.
OWN = {"tithe's AdamW": "AdamW", "Muon with AdamW": "Muon with AdamW"}
GUESSING = {"%": 10.0, "nats": -4.852}  # the score without learning: ten classes, 128 characters


def unit(cell: str) -> str:
    return "nats" if cell.startswith("transformer") else "%"


class Study:
    def __init__(self, details: dict):
        self.cells = details["cells"]
        self.scores: dict[tuple[str, str], dict[int, float | None]] = {}
        self.sent: dict[tuple[str, str], float] = {}
        for run in details["runs"]:
            key = run["cell"], run["codec"]
            self.scores.setdefault(key, {})[run["seed"]] = run["score"]
            self.sent[key] = run["bytes_per_step"] / run["values"]
        self.plain = [name for name, cell in self.cells.items() if cell["optimizer"] not in OWN]
        self.codecs = list(dict.fromkeys(run["codec"] for run in details["runs"]))

    def reference(self, cell: str) -> dict[int, float]:
        """Returns fp32's scores by seed, with the optimizer that users have."""
        model, optimizer = self.cells[cell]["model"], self.cells[cell]["optimizer"]
        return self.scores.get((f"{model}, {OWN[optimizer]}" if optimizer in OWN else cell, "fp32"), {})

    def differences(self, cell: str, codec: str) -> list[float | None]:
        """Returns, seed by seed, the score minus fp32's; None for a run that diverged: not finite, or no better than
        guessing."""
        plain, mine = self.reference(cell), self.scores.get((cell, codec), {})
        pairs = [(mine[s], plain[s]) for s in sorted(mine) if s in plain]
        return [None if score is None or score <= GUESSING[unit(cell)] else score - fp32 for score, fp32 in pairs]

    def gap(self, cell: str, codec: str) -> float | None:
        """Returns the mean difference from fp32; a negative one is worse. None if a run diverged, or without runs."""
        found = self.differences(cell, codec)
        return statistics.fmean(found) if found and None not in found else None

    def error(self, cell: str, codec: str) -> float:
        """Returns two standard errors of the paired differences."""
        found = [d for d in self.differences(cell, codec) if d is not None]
        return 2 * statistics.stdev(found) / len(found) ** 0.5 if len(found) > 1 else 0.0

    def spread(self, cell: str) -> float:
        """Returns fp32's standard deviation over its seeds."""
        found = list(self.reference(cell).values())
        return statistics.stdev(found) if len(found) > 1 else 0.0

    def tolerance(self, cell: str, codec: str) -> float:
        """Returns the largest loss against fp32 that counts as noise: two standard errors of the paired differences,
        but at most the spread of fp32's own seeds (a codec must not pass by being erratic), and at least the floor."""
        found = [d for d in self.differences(cell, codec) if d is not None]
        if len(found) < 2:
            return FLOOR[unit(cell)]
        own = 2 * self.spread(cell) * (2 / len(found)) ** 0.5
        return max(FLOOR[unit(cell)], min(self.error(cell, codec), own))

    def near(self, cell: str, codec: str) -> bool:
        gap = self.gap(cell, codec)
        return gap is not None and gap >= -self.tolerance(cell, codec)

    def strictly_safe(self, codec: str) -> bool:
        """Returns True if the codec is within two standard errors of fp32 in all cells of plain optimizers, without the
        floor: no measurable difference."""
        for cell in self.plain:
            found = self.differences(cell, codec)
            if len(found) < 2 or None in found:
                return False
            if statistics.fmean(found) < -self.error(cell, codec):
                return False
        return True

    def behind(self, cell: str, codec: str) -> bool:
        """Returns True if the codec is within the floor, and yet below fp32 by more than two standard errors of enough
        seeds."""
        found = self.differences(cell, codec)
        if len(found) < SURE or None in found or not self.near(cell, codec):
            return False
        return statistics.fmean(found) < -self.error(cell, codec)

    def has(self, cell: str, codec: str) -> bool:
        return bool(self.differences(cell, codec))

    def safe(self, codec: str, optimizer: str | None = None) -> bool | None:
        """Returns True if within noise in all cells of plain optimizers, or in all of one optimizer; None if a cell was
        not run."""
        mine = [name for name, cell in self.cells.items() if cell["optimizer"] == optimizer]
        cells = self.plain if optimizer is None else mine
        if not cells or not all(self.has(cell, codec) for cell in cells):
            return None
        return all(self.near(cell, codec) for cell in cells)

    def seeds(self, codec: str) -> str:
        """Returns the number of compared seeds in each cell: one number, or the least and the most."""
        found = [len(self.differences(cell, codec)) for cell in self.plain if self.has(cell, codec)]
        return "" if not found else str(found[0]) if min(found) == max(found) else f"{min(found)} to {max(found)}"

    def bytes_per_value(self, codec: str) -> float | None:
        """Returns the bytes that a rank sends per value in a step: mean over the models, with small uncompressed
        tensors."""
        models = {self.cells[name]["model"]: name for name in self.plain if (name, codec) in self.sent}
        return statistics.fmean(self.sent[name, codec] for name in models.values()) if models else None

    def smaller(self, codec: str) -> float:
        return self.bytes_per_value("fp32") / self.bytes_per_value(codec)

    def by_bytes(self) -> list[str]:
        return sorted(self.codecs, key=self.bytes_per_value, reverse=True)


def shown_gap(study: Study, cell: str, codec: str) -> str:
    """Formats a cell of the table; bold if it is more than noise."""
    if not study.has(cell, codec):
        return ""
    gap = study.gap(cell, codec)
    if gap is None:
        return "**diverged**"
    digits, error = 3 if unit(cell) == "nats" else 2, study.error(cell, codec)
    text = f"{gap:+.{digits}f} ± {error:.{digits}f}" if error else f"{gap:+.{digits}f}"
    return text if study.near(cell, codec) else f"**{text}**"


def verdict(study: Study, codec: str) -> str:
    ran = [cell for cell in study.plain if study.has(cell, codec)]
    far = [cell for cell in ran if not study.near(cell, codec)]
    if not ran:
        return ""
    if len(ran) < len(study.plain):
        return f"{len(ran) - len(far)} of {len(ran)} run"
    return "**yes**" if not far else f"no: {len(far)} of {len(ran)} cells short"


def markdown(head: list[str], rows: list[list[str]], numbers: int = 0) -> str:
    """Returns a Markdown table. numbers: the number of numeric columns after the first."""
    rule = ["---", *["---:"] * numbers, *["---"] * (len(head) - 1 - numbers)]
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, rule, *rows])


def gaps(study: Study) -> str:
    """Returns the large table: a row per codec, most bytes first."""
    cells = [cell for cell in study.cells if any(study.has(cell, codec) for codec in study.codecs)]
    head = ["codec", "bytes per value", "fp32's bytes", "seeds", *cells, "within noise in all six"]
    rows = [
        [
            f"`{codec}`",
            f"{study.bytes_per_value(codec):.3g}",
            f"1/{study.smaller(codec):.3g}",
            study.seeds(codec),
            *(shown_gap(study, cell, codec) for cell in cells),
            "" if codec == "fp32" else verdict(study, codec),
        ]
        for codec in study.by_bytes()
    ]
    return markdown(head, rows, len(head) - 2)


def references(study: Study) -> str:
    rows = []
    for name, cell in study.cells.items():
        found = list(study.reference(name).values())
        if found and OWN.get(cell["optimizer"]) in (None, cell["optimizer"]):
            score = statistics.fmean(found)
            shown = f"{score:.2f} %" if unit(name) == "%" else f"{-score:.3f} nats"
            digits = 2 if unit(name) == "%" else 3
            job = f"rate {cell['rate']:g}, batch {cell['batch']}, {cell['steps']} steps"
            rows.append([name, job, shown, f"{study.spread(name):.{digits}f}", str(len(found))])
    return markdown(["cell", "job", "fp32", "deviation between seeds", "seeds"], rows)


def text(details: dict) -> str:
    """Returns the tables for a terminal."""
    study = Study(details)
    lines = ((codec, study.smaller(codec), verdict(study, codec).replace("*", "")) for codec in study.by_bytes())
    return "\n".join(f"{codec:<28} 1/{smaller:<6.3g} {text}" for codec, smaller, text in lines)


PAGE = """# Which codecs hold under which optimizer

{ranks} ranks, strategy {strategy}, codecs at their defaults but for the settings in their names, plain torch
optimizers (SGD with momentum 0.9; AdamW, its defaults), the learning rate that suits fp32, up over a tenth of the
steps and then down to zero. Nothing is tuned for a codec. *Muon with AdamW* is `torch.optim.Muon` with
`match_rms_adamw` for the weights of linear layers but the last, and AdamW for the rest; both get their gradients by
the codec. *tithe's AdamW* is `tithe.torch.optim.AdamW`, compared with torch's and fp32; what it sends beside
gradients, 0.16 bits per value, is not in the bytes. Accuracy on Fashion-MNIST (mlp, convnet), nats per character on
licence texts (transformer, two blocks of width 64).

`{command}` on {machine}; commits {commits}.
{data}.
Made from `study_optimizers.json` by `lab/study/verdict.py`: `lab/results/README.md` has notes.

## The reference

{references}
## The codecs

Differences from fp32 with the same seeds, in points of accuracy and in nats, ± two standard errors; less than 0 is
worse. Bold: worse than noise, which is two standard errors, though no more than fp32's own seeds give, and at least
{floor[%]} points or {floor[nats]} nats. Bytes are whole frames that a rank sends in a step, over the values of the
model, a mean over the three models: small tensors travel raw and are in it.

{gaps}"""


def page(details: dict) -> str:
    study = Study(details)
    commits = ", ".join(dict.fromkeys(run["commit"] for run in details["runs"]))
    return PAGE.format(**details, commits=commits, references=references(study), gaps=gaps(study), floor=FLOOR)
