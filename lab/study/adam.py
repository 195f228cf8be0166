# SPDX-License-Identifier: Apache-2.0
"""`make study-adam`: the fewest bits that train AdamW and SGD with momentum without a loss, and the gain of tithe's
optimizers (arms.py lists the arms). Runs in parts; the results are readable after each run.

Writes OUT/study_adam.json after each run and OUT/study_adam.md at the end. Ctrl-C loses the runs under way; RESUME=1
continues.

Environment:
    PARTS="adamw, sgd"    parts of arms.py; these two if unset; `list` prints the duration of each
                          rates: fp32 at rates around each; tuned: then all arms of the parts at their own best rates
    ARMS=pattern          only arms whose name contains a match of this regular expression
    SEEDS=5
    SHARE=1               the share of the steps: 0.4 takes less than half as long; such runs are stored separately
    RANKS=4
    JOBS=2                processes
    RESUME=1              keeps the runs of OUT/study_adam.json and trains only the missing ones
    DATA=folder           MNIST-format files; Debian's Fashion-MNIST if unset
    OUT=lab/results
"""

import os
import re
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import torch

import tithe
from lab.study import adam_verdict, arms, cells, idx
from lab.study import results as stored
from lab.study.arms import FACTORS, PARTS, TUNED_ON, Arm
from lab.study.models import Tasks
from lab.study.texts import Texts

SHOWN = ("PARTS", "ARMS", "SEEDS", "SHARE", "RANKS")

_tasks: dict = {}


def read(folder: str) -> str:
    """Reads all tasks into this process. Returns a description of the data."""
    images, texts = Tasks(folder), Texts()
    _tasks.update({"convnet": images.by_name["convnet"], **texts.by_name})
    return f"{images.about}; {texts.about}"


def start_worker(folder: str) -> None:
    torch.set_num_threads(1)
    read(folder)


def work(job: tuple[Arm, int, float]) -> dict | str:
    arm, seed, share = job
    begin = time.process_time()
    try:
        run = cells.train(arm.part(share), arm.codec, seed, _tasks[arm.model])
    except (tithe.Error, RuntimeError, ValueError) as trouble:
        return f"{arm.name}, seed {seed}: {trouble}"
    return {"arm": arm.name, **run, "seconds": round(time.process_time() - begin, 1)}


class Results(stored.Results):
    def __init__(self, folder: Path, about: str, share: float, resume: bool):
        details = {
            "share": share,
            "shapes": {name: list(shape) for name, shape in arms.SHAPES.items()},
            "rates": {", ".join(key): rate for key, rate in arms.RATES.items()},
        }
        super().__init__(folder, "study_adam", SHOWN, about, details, ("share",), resume)

    @staticmethod
    def key(run: dict) -> tuple:
        return run["arm"], run["seed"]

    def place(self, run: dict) -> tuple:
        return self.key(run)

    def page(self) -> str:
        return adam_verdict.page(self.details)


def chosen(results: Results) -> list[tuple[Arm, int]]:
    """Returns arms with seeds, ordered by seed, so that an interrupted study has results for all arms."""
    parts = [part.strip() for part in (os.environ.get("PARTS") or "adamw, sgd").split(",")]
    seeds, pattern = int(os.environ.get("SEEDS") or 5), os.environ.get("ARMS", "")
    wrong = [part for part in parts if part not in (*PARTS, "rates", "tuned")]
    if wrong:
        raise ValueError(f"PARTS: unknown '{wrong[0]}': known are {', '.join(PARTS)}, rates, tuned, list")
    named = [arm for part in parts for arm in PARTS.get(part, ())] or arms.all_arms()
    try:
        some = list(dict.fromkeys(arm for arm in named if re.search(pattern, arm.name)))
    except re.error as trouble:
        raise ValueError(f"ARMS: {trouble}") from None
    needed = dict.fromkeys([*(arm.reference() for arm in some), *some])
    if "rates" in parts:
        return [(arm.at(f), TUNED_ON[0]) for arm in needed if arm == arm.reference() for f in FACTORS]
    if "tuned" in parts:
        study = adam_verdict.Study(results.details)
        tuning = [run for arm in needed if not arm.control for run in study.tuning(arm)]
        if any((arm.name, seed) not in results.known for arm, seed in tuning):
            return tuning
        best = [(arm, study.best(arm)) for arm in needed if not arm.control]
        return [(arm.at(factor), seed) for seed in range(seeds) for arm, factor in best if factor is not None]
    return [(arm, seed) for seed in range(seeds) for arm in needed]


def missing(results: Results) -> list[tuple[Arm, int]]:
    return [(arm, seed) for arm, seed in chosen(results) if (arm.name, seed) not in results.known]


def shown(run: dict) -> str:
    score = "diverged" if run["score"] is None else f"{run['score']:8.4f}"
    return f"{run['arm']:<48} seed {run['seed']:<3} {score}  {run['seconds']:.0f} s"


def main() -> int:
    folder = os.environ.get("DATA") or idx.DEBIAN
    try:
        share = float(os.environ.get("SHARE") or 1)
        out = Path(os.environ.get("OUT") or "lab/results")
        results = Results(out, read(folder), share, os.environ.get("RESUME") == "1")
        if os.environ.get("PARTS") == "list":
            print(adam_verdict.times(adam_verdict.Study(results.details)))
            return 0
        todo = missing(results)
    except (ValueError, FileNotFoundError) as trouble:
        print(f"study: {trouble}", file=sys.stderr)
        return 2
    status = 0
    with get_context("spawn").Pool(int(os.environ.get("JOBS") or 2), start_worker, (folder,)) as pool:
        try:
            while todo and status == 0:  # each pass trains at rates near the best of the previous pass
                print(f"study: {len(todo)} runs", flush=True)
                runs = pool.imap_unordered(work, [(*job, share) for job in todo])
                status = results.take(runs, len(todo), shown)
                todo = missing(results)
        except KeyboardInterrupt:
            status = 130
            print("study: stopped; RESUME=1 goes on from here")
    if results.details["runs"]:
        results.publish()
        print(adam_verdict.table(adam_verdict.Study(results.details)))
        print(f"study: {results.file}, {results.file.with_suffix('.md')}")
    return status


if __name__ == "__main__":
    sys.exit(main())
