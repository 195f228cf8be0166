# SPDX-License-Identifier: Apache-2.0
"""The accuracy of a job that loses and regains ranks: Fashion-MNIST on 4 processes, of which one is killed every 30
seconds and restarted 10 seconds later, beside the same job without losses.

    make study-members                                                   # writes lab/results/elastic.md and .json
    python -m lab.study.elastic RANK FOLDER NAME MEMBERS SEED STEPS PAUSE    # one process of a run

Environment:
    SEEDS=3        runs of each job, with the same initial weights and batches in both
    STEPS=936      of a run: 2 epochs of batches of 128, which all ranks share
    EVERY=30       seconds between two kills
    DATA=folder    MNIST-format files
    RESUME=1       continues with the seeds that are missing in the .json
    OUT=file       lab/results/elastic.md if unset
"""

import hashlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import tithe
from lab.study import idx
from lab.study.figures import machine, mean
from lab.study.models import Task, Tasks, mlp
from tithe import _core

NAMES = ["ann", "bob", "cay", "dan"]
BATCH, RATE, MOMENTUM = 128, 0.05, 0.9
CODEC = "topk:ratio=0.01"
# Seconds of sleep per step of the job with losses, to emulate a larger model and leave time for several losses
PAUSE = 0.08
AWAY = 10.0  # seconds between a kill and the restart
LIMIT = 1800.0


class Trainer:
    """The state of a rank: the model, its optimizer, and the step number."""

    def __init__(self, seed: int, steps: int, task: Task):
        torch.manual_seed(seed)
        self.seed, self.steps, self.task, self.step = seed, steps, task, 0
        self.model = mlp()
        self.optimizer = torch.optim.SGD(self.model.parameters(), RATE, momentum=MOMENTUM)

    def gradients(self, rank: int, world: int) -> dict[str, np.ndarray]:
        """Returns the gradients of this rank's part of the step's batch."""
        inputs, targets = self.task.train
        epoch, at = divmod(self.step * BATCH, len(targets) // BATCH * BATCH)
        order = np.random.default_rng([self.seed, epoch]).permutation(len(targets))[at : at + BATCH]
        mine = torch.from_numpy(order[rank::world])
        self.optimizer.zero_grad()
        self.task.loss(self.model, inputs[mine], targets[mine]).backward()
        return {name: p.grad.numpy() for name, p in self.model.named_parameters()}

    def update(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = RATE * (1 - self.step / self.steps)
        self.optimizer.step()
        self.step += 1

    def state_bytes(self) -> bytes:
        out = io.BytesIO()
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}, out)
        return out.getvalue()

    def load(self, given: bytes) -> None:
        saved = torch.load(io.BytesIO(given), weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step = saved["step"]


def one_rank(folder: Path, name: str, members: list[str], seed: int, steps: int, pause: float) -> None:
    """Runs one rank: joins the members, trains, and after a failure continues with the remaining ranks from the last
    commit."""
    torch.set_num_threads(1)
    trainer = Trainer(seed, steps, Tasks(os.environ.get("DATA") or idx.DEBIAN).by_name["mlp"])
    job = tithe.Membership(
        str(folder / "board"), name, members, min_world=2, codec=CODEC, min_values=0, transport="tcp", seed=seed
    )
    reforms = []
    with job.open() as session:
        if job.received_state:
            trainer.load(job.received_state)

        def go_on() -> None:
            began = time.monotonic()
            job.reform(session, state=trainer.state_bytes)
            reforms.append(time.monotonic() - began)

        while trainer.step < steps:
            time.sleep(pause)
            gradients = trainer.gradients(session.rank, session.world)
            try:
                session.wait(session.sync(gradients))
                session.commit()
            except tithe.Error:
                go_on()
                continue
            trainer.update()
            if trainer.step < steps and job.new_ranks_waiting():
                go_on()
        result = {
            "accuracy": trainer.task.score(trainer.model),
            "weights": hashlib.sha256(trainer.state_bytes()).hexdigest(),
            "lost": session.stats()["ranks_lost"],
            "epochs": job.epoch,
            "slowest_reform": max(reforms, default=0.0),
        }
        (folder / f"{name}.json").write_text(json.dumps(result))


def run(seed: int, steps: int, every: float | None) -> dict:
    """Runs one job. every: seconds between two kills; None: no kills. Returns the common result of all ranks at the
    end."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "board").mkdir(mode=0o700)

        def start(name: str, members: str) -> subprocess.Popen:
            argv = [sys.executable, "-m", "lab.study.elastic", "RANK", place, name, members, str(seed), str(steps)]
            pause = str(PAUSE if every else 0.0)
            return subprocess.Popen([*argv, pause], env={**os.environ, "OMP_NUM_THREADS": "1"})

        began = time.monotonic()
        ranks = {name: start(name, ",".join(NAMES)) for name in NAMES}
        board = _core.board_in(str(folder / "board"))
        while board.get("0.members") is None and time.monotonic() - began < LIMIT:
            time.sleep(0.1)
        kills, next_kill, comes = 0, time.monotonic() + (every or LIMIT), None
        try:
            while any(p.poll() is None for p in ranks.values()):
                now = time.monotonic()
                if now - began > LIMIT:
                    raise RuntimeError(f"seed {seed}: the job does not end")
                if comes is not None and now >= comes[0]:
                    ranks[comes[1]] = start(comes[1], "-")
                    comes = None
                if now >= next_kill and comes is None and all(p.poll() is None for p in ranks.values()):
                    victim = NAMES[kills % len(NAMES)]
                    ranks[victim].kill()
                    kills, next_kill, comes = kills + 1, now + every, (now + AWAY, victim)
                time.sleep(0.05)
        finally:
            for process in ranks.values():
                process.kill()
        results = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    if len(results) < len(NAMES) - 1 or len({one["weights"] for one in results}) != 1:
        raise RuntimeError(f"seed {seed}: {len(results)} ranks were there to the end, and they say {results}")
    took = time.monotonic() - began
    return {**max(results, key=lambda one: one["lost"]), "kills": kills, "seconds": took, "there": len(results)}


def page(pairs: list[tuple[dict, dict]], steps: int, every: float) -> str:
    gaps = [disturbed["accuracy"] - alone["accuracy"] for alone, disturbed in pairs]
    sure = "(1 seed)"
    if len(pairs) > 1:
        error = statistics.stdev(gaps) / len(gaps) ** 0.5
        spread = statistics.stdev(alone["accuracy"] for alone, _ in pairs)
        sure = f"± {error:.2f} points (paired, {len(pairs)} seeds); between seeds of the job that is left alone the "
        sure += f"standard\ndeviation is {spread:.2f}"
    text = f"""\
# A job that loses and regains ranks

`make study-members`: Fashion-MNIST, an MLP 784-128-64-10, {len(NAMES)} processes, `{CODEC}`, SGD {MOMENTUM}, {steps}
steps of {BATCH} images, which those that are there share. Every {every:.0f} s one process is killed, in turn, rank 0
too, and started anew {AWAY:.0f} s later: it takes parameters and the optimizer's state from the others, and what its
old self had left unsent is lost. The same seed has the same beginning and batches in both.

{machine()}

**Difference {mean(gaps):+.2f} {sure}. Those that were there to the end had equal parameters.**

| seed | left alone, % | with losses, % | difference | kills | booked as lost | epochs | slowest reform |
|---|---|---|---|---|---|---|---|
"""
    lines = text.splitlines()
    for seed, ((alone, disturbed), gap) in enumerate(zip(pairs, gaps, strict=True)):
        lines.append(
            f"| {seed} | {alone['accuracy']:.2f} | {disturbed['accuracy']:.2f} | {gap:+.2f} | {disturbed['kills']} | "
            f"{disturbed['lost']} | {disturbed['epochs']} | {disturbed['slowest_reform']:.2f} s |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    if sys.argv[1:2] == ["RANK"]:
        folder, name, members, seed, steps, pause = sys.argv[2:]
        known = members.split(",") if members != "-" else []
        one_rank(Path(folder), name, known, int(seed), int(steps), float(pause))
        return
    seeds, steps = int(os.environ.get("SEEDS") or 3), int(os.environ.get("STEPS") or 936)
    every = float(os.environ.get("EVERY") or 30)
    out = Path(os.environ.get("OUT") or "lab/results/elastic.md")
    kept = out.with_suffix(".json")
    study = {"steps": steps, "every": every, "pairs": []}
    if os.environ.get("RESUME") and kept.exists():
        before = json.loads(kept.read_text())
        if (before["steps"], before["every"]) != (steps, every):
            raise SystemExit(f"{kept} is of {before['steps']} steps, with {before['every']} s between kills")
        study = before
    for seed in range(len(study["pairs"]), seeds):
        study["pairs"].append([run(seed, steps, None), run(seed, steps, every)])
        kept.write_text(json.dumps(study, indent=1) + "\n")
        out.write_text(page(study["pairs"], steps, every))
    print(out.read_text())


if __name__ == "__main__":
    main()
