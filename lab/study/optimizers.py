# SPDX-License-Identifier: Apache-2.0
"""`make study-optimizers`: the codecs that train like fp32 under every optimizer. Every codec at its defaults, under
the optimizers that users write (cells.py), with fp32's learning rate; nothing is tuned for a codec.

Writes OUT/study_optimizers.json (every run) after each run and OUT/study_optimizers.md (the table) at the end. Ctrl-C
loses the runs under way; RESUME=1 continues.

Environment:
    SEEDS=3
    CODECS="a b"          specs; all codecs if unset
    OPTIMIZERS="a, b"     of SGD 0.9, AdamW, tithe's AdamW, Muon with AdamW; all if unset
    FP32_SEEDS=8          of the reference: its spread is the noise against which the codecs are measured
    RANKS=4  STRATEGY=server
    JOBS=2                processes
    RESUME=1              keeps the runs of OUT/study_optimizers.json and trains only the missing ones
    RATES=1               trains only fp32, at rates around each cell's own, and prints the scores
    DATA=folder           MNIST-format files; Debian's Fashion-MNIST if unset
    OUT=lab/results
"""

import dataclasses
import os
import sys
from multiprocessing import get_context
from pathlib import Path

import torch

import tithe
from lab.study import idx, verdict
from lab.study import results as stored
from lab.study.cells import CELLS, Cell, train
from lab.study.models import Tasks
from lab.study.verdict import OWN

FACTORS = (1 / 4, 1 / 2, 1, 2, 4)  # of a cell's rate, for RATES
RATES_SEED = 100  # a seed that no comparison uses
SHOWN = ("SEEDS", "CODECS", "OPTIMIZERS", "FP32_SEEDS", "RANKS", "STRATEGY")
MOMENTUM_CODECS = ("dgc:feedback=momentum",)  # as published; for SGD 0.9 only, whose momentum they replace

_tasks: Tasks | None = None


def start_worker(folder: str) -> None:
    global _tasks
    torch.set_num_threads(1)
    _tasks = Tasks(folder)


def work(job: tuple[Cell, str, int]) -> dict | str:
    cell, codec, seed = job
    try:
        return train(cell, codec, seed, _tasks.by_name[cell.model])
    except (tithe.Error, RuntimeError, ValueError) as trouble:
        return f"{cell.name}, {codec}, seed {seed}: {trouble}"


def chosen_codecs() -> list[str]:
    given = os.environ.get("CODECS", "").split()
    names = given or [codec["name"] for codec in tithe.codecs()] + list(MOMENTUM_CODECS)
    return list(dict.fromkeys(["fp32", *map(tithe.check_spec, names)]))


def chosen_cells() -> list[Cell]:
    known = dict.fromkeys(cell.optimizer for cell in CELLS.values())
    given = [word.strip() for word in os.environ.get("OPTIMIZERS", "").split(",") if word.strip()] or list(known)
    for word in given:
        if word not in known:
            raise ValueError(f"OPTIMIZERS: unknown '{word}': known are {', '.join(known)}")
    return [cell for cell in CELLS.values() if cell.optimizer in given]


def jobs_of(codecs: list[str], cells: list[Cell]) -> list[tuple[Cell, str, int]]:
    """Returns the jobs ordered by seed, so that an interrupted study has results for all codecs."""
    seeds, plain = int(os.environ.get("SEEDS") or 3), int(os.environ.get("FP32_SEEDS") or 8)
    out = []
    for seed in range(max(seeds, plain)):
        for codec in codecs:
            fits = [c for c in cells if codec not in MOMENTUM_CODECS or c.optimizer == "SGD 0.9"]
            if codec == "fp32":  # tithe's own optimizers are compared with the users' optimizers
                fits = list(dict.fromkeys(CELLS[f"{c.model}, {OWN.get(c.optimizer, c.optimizer)}"] for c in fits))
            if seed < (plain if codec == "fp32" else seeds):
                out += [(cell, codec, seed) for cell in fits]
    return out


class Results(stored.Results):
    """The runs so far in the folder OUT."""

    def __init__(self, folder: Path, about: str, resume: bool):
        details = {"cells": {name: dataclasses.asdict(cell) for name, cell in CELLS.items()}}
        super().__init__(folder, "study_optimizers", SHOWN, about, details, ("cells",), resume)

    @staticmethod
    def key(run: dict) -> tuple:
        return run["cell"], run["codec"], run["seed"]

    def has(self, job: tuple[Cell, str, int]) -> bool:
        cell, codec, seed = job
        return (cell.name, codec, seed) in self.known

    def place(self, run: dict) -> tuple:
        order = {codec["name"]: at for at, codec in enumerate(tithe.codecs())}
        cells = list(self.details["cells"])
        return order[run["codec"].split(":")[0]], run["codec"], cells.index(run["cell"]), run["seed"]

    def page(self) -> str:
        return verdict.page(self.details)


def print_rates(pool, cells: list[Cell]) -> None:
    jobs = [(dataclasses.replace(c, rate=c.rate * f), "fp32", RATES_SEED) for c in cells for f in FACTORS]
    for (cell, _, _), run in zip(jobs, pool.imap(work, jobs), strict=True):
        score = run if isinstance(run, str) else "diverged" if run["score"] is None else f"{run['score']:.3f}"
        print(f"{cell.name:<24} rate {cell.rate:<8g} {score}", flush=True)


def shown(run: dict) -> str:
    score = "diverged" if run["score"] is None else f"{run['score']:8.3f}"
    return f"{run['cell']:<22} {run['codec']:<24} {score}"


def main() -> int:
    folder = os.environ.get("DATA") or idx.DEBIAN
    try:
        cells, codecs = chosen_cells(), chosen_codecs()
        rates = os.environ.get("RATES") == "1"
        out = Path(os.environ.get("OUT") or "lab/results")
        results = None if rates else Results(out, Tasks(folder).about, os.environ.get("RESUME") == "1")
    except (ValueError, FileNotFoundError) as trouble:
        print(f"study: {trouble}", file=sys.stderr)
        return 2
    status = 0
    with get_context("spawn").Pool(int(os.environ.get("JOBS") or 2), start_worker, (folder,)) as pool:
        try:
            if rates:
                print_rates(pool, cells)
                return 0
            todo = [job for job in jobs_of(codecs, cells) if not results.has(job)]
            print(f"study: {len(todo)} runs, {len(codecs)} codecs in {len(cells)} cells", flush=True)
            status = results.take(pool.imap_unordered(work, todo), len(todo), shown)
        except KeyboardInterrupt:
            status = 130
            print("study: stopped; RESUME=1 goes on from here")
    if results and results.details["runs"]:
        results.publish()
        print(verdict.text(results.details))
        print(f"study: {results.file}, {results.file.with_suffix('.md')}")
    return status


if __name__ == "__main__":
    sys.exit(main())
