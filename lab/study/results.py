# SPDX-License-Identifier: Apache-2.0
"""The runs of a study as a file, one run per line, from which an interrupted study continues."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from lab.study import cells
from lab.study.figures import machine


class Results:
    """OUT/NAME.json, after each run, and OUT/NAME.md.

    shown: environment variables that belong to the command. about: the data. details: further entries above the runs.
    same: keys of `details` that must equal those of the file that the study continues, as data, ranks and strategy
    must; a dictionary may have further entries.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        shown: tuple[str, ...],
        about: str,
        details: dict,
        same: tuple[str, ...],
        resume: bool,
    ):
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / f"{name}.json"
        given = [f"{n}={shlex.quote(os.environ[n])}" for n in shown if os.environ.get(n)]
        self.details = {
            "machine": machine(),
            "command": " ".join([*given, f"make {name.replace('_', '-')}"]),
            "data": about,
            "ranks": cells.RANKS,
            "strategy": cells.STRATEGY,
            **details,
            "runs": [],
        }
        if resume and self.file.exists():
            old = json.loads(self.file.read_text())
            for key in ("data", "ranks", "strategy", *same):
                mine = self.details[key]
                if old[key] != mine and not (isinstance(mine, dict) and mine | old[key] == mine):
                    raise ValueError(f"RESUME: {self.file} holds runs of another study: '{key}' differs")
            machines = [old["machine"], self.details["machine"]]
            self.details["machine"] = "; then ".join(machines[: 1 + (machines[1] not in machines[0])])
            self.details["runs"], self.details["command"] = old["runs"], old["command"]
        self.known = {self.key(run) for run in self.details["runs"]}

    @staticmethod
    def key(run: dict) -> tuple:
        """Returns the key that identifies a run."""
        raise NotImplementedError

    def place(self, run: dict) -> tuple:
        """Returns the sort key of a run, independent of its date."""
        raise NotImplementedError

    def page(self) -> str:
        """Returns the page in Markdown."""
        raise NotImplementedError

    def add(self, run: dict) -> None:
        self.known.add(self.key(run))
        self.details["runs"].append(run)
        self.write()

    def take(self, runs: Iterable[dict | str], count: int, shown: Callable[[dict], str]) -> int:
        """Adds runs as they finish, with this tree's commit, and prints the remaining time. A text is the error of a
        failed run. Returns the exit status: 1 if a run failed."""
        done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
        begin, status = time.monotonic(), 0
        for at, run in enumerate(runs, 1):
            if isinstance(run, str):
                status = 1
                print(f"study: {run}", file=sys.stderr, flush=True)
                continue
            self.add({**run, "commit": done.stdout.strip()})
            left = (time.monotonic() - begin) / at * (count - at)
            print(f"[{at}/{count}] {shown(run)}  {left / 60:.0f} min left", flush=True)
        return status

    def write(self) -> None:
        """Writes one run per line, so that the file and its diffs are readable."""
        self.details["runs"].sort(key=self.place)
        head = json.dumps({k: v for k, v in self.details.items() if k != "runs"}, indent=1)
        runs = ",\n".join(f"  {json.dumps(run)}" for run in self.details["runs"])
        partial = self.file.with_name(f".{self.file.name}")
        partial.write_text(f'{head[:-2]},\n "runs": [\n{runs}\n ]\n}}\n')
        partial.replace(self.file)

    def publish(self) -> None:
        self.write()
        self.file.with_suffix(".md").write_text(self.page())
