# SPDX-License-Identifier: Apache-2.0
"""`make study`: the accuracy under each codec. Every codec of this build at two settings (specs.py) trains
Fashion-MNIST on 4 ranks of this process (job.py), beside fp32 and bf16; same seeds, same data order.

Writes OUT/study.json (every run with its commit), OUT/study.md (the table) and OUT/study.png (accuracy against bytes)
after each codec; Ctrl-C loses at most the codec under way. If OUT/study_why.json exists, it holds the table's notes by
spec.

Environment:
    SEEDS=3  EPOCHS=3
    CODECS="a b"          codecs (at two settings each) or specs to study; all codecs if unset
    RESUME=1              keeps the runs of OUT/study.json and trains only the missing ones
    DATA=folder           MNIST-format files; Debian's Fashion-MNIST if unset
    OUT=lab/results
"""

import itertools
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import torch

import tithe
from lab.study import idx, job, report, specs
from lab.study.figures import machine, size


def chosen_specs(given: str, data: job.Data) -> list[str]:
    listed = {codec["name"]: codec for codec in tithe.codecs()}
    gradient = job.first_gradient(data)
    out = []
    for word in given.split() or listed:
        if word in listed:
            out += specs.settings_of(listed[word], gradient, job.MOMENTUM)
        else:
            out.append(tithe.check_spec(word))
    return list(dict.fromkeys(out))


class Folder:
    """The folder OUT: the runs so far, and the files made from them."""

    def __init__(self, path: Path, epochs: int, resume: bool):
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        file = path / "study.json"
        given = {n: os.environ[n] for n in ("SEEDS", "EPOCHS", "CODECS") if os.environ.get(n)}
        self.details = {
            "machine": machine(),
            "command": " ".join([*(f"{n}={shlex.quote(v)}" for n, v in given.items()), "make study"]),
            "job": job.DESCRIPTION,
            "epochs": epochs,
            "rows": [],
            "runs": [],
        }
        if resume and file.exists():
            old = json.loads(file.read_text())
            for key in ("job", "epochs"):
                if old[key] != self.details[key]:
                    raise ValueError(f"RESUME: {file} holds runs of another job: {key} is {old[key]!r}")
            self.details["command"], self.details["runs"] = old["command"], old["runs"]

    def has(self, spec: str, seed: int) -> bool:
        return any(run["codec"] == spec and run["seed"] == seed for run in self.details["runs"])

    def add(self, run: dict) -> None:
        self.details["runs"].append(run)
        self._write()

    def _write(self) -> None:
        self.details["runs"].sort(key=_place)
        self.details["rows"] = report.rows_of(self.details["runs"])
        partial = self.path / ".study.json"
        partial.write_text(json.dumps(self.details, indent=1) + "\n")
        partial.replace(self.path / "study.json")

    def publish(self) -> None:
        self._write()
        rows = self.details["rows"]
        why = self.path / "study_why.json"
        notes = json.loads(why.read_text()) if why.exists() else {}
        (self.path / "study.md").write_text(report.page(self.details, notes))
        report.draw(self.path / "study.png", rows)


def _place(run: dict) -> tuple:
    """Returns the sort key of a run: the position of its codec in the list, then its bytes, independent of its date."""
    names = [codec["name"] for codec in tithe.codecs()]
    name = run["codec"].split(":")[0]
    return (names.index(name) if name in names else len(names), run["codec"], run["seed"])


def main() -> int:
    """Trains the missing runs codec by codec, and writes the files after each codec. Returns the exit status."""
    try:
        data = job.Data(os.environ.get("DATA") or idx.DEBIAN)
        specs = chosen_specs(os.environ.get("CODECS", ""), data)
        seeds, epochs = int(os.environ.get("SEEDS") or 3), int(os.environ.get("EPOCHS") or 3)
        out = Folder(Path(os.environ.get("OUT") or "lab/results"), epochs, os.environ.get("RESUME") == "1")
    except (ValueError, FileNotFoundError) as trouble:
        print(f"study: {trouble}", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    todo = [(spec, seed) for spec, seed in itertools.product(specs, range(seeds)) if not out.has(spec, seed)]
    print(f"study: {len(todo)} runs of {epochs} epochs, {len(specs)} settings", flush=True)
    begin, status = time.monotonic(), 0
    try:
        for at, (spec, seed) in enumerate(todo, 1):
            try:
                run = job.train(spec, seed, epochs, data)
            except (tithe.Error, RuntimeError, ValueError) as trouble:
                status = 1
                print(f"study: {spec}, seed {seed}: {trouble}", file=sys.stderr, flush=True)
                continue
            out.add({**run, "commit": commit.stdout.strip()})
            left = (time.monotonic() - begin) / at * (len(todo) - at)
            print(
                f"[{at}/{len(todo)}] {spec:<48} seed {seed}  {run['accuracy']:.2%}"
                f"  {size(run['bytes_per_step'])}/step  {left / 60:.0f} min left",
                flush=True,
            )
    except KeyboardInterrupt:
        status = 130
        print("study: stopped; RESUME=1 goes on from here")
    if out.details["runs"]:
        out.publish()
        print(report.text(out.details["rows"]))
        print(f"study: {out.path}/study.json, study.md, study.png")
    return status


if __name__ == "__main__":
    sys.exit(main())
