# SPDX-License-Identifier: Apache-2.0
"""The loss under many local steps, and the bytes and time that they save: the studies' transformer, 4 ranks, AdamW.

    tithe hosts --hosts 4x1 --link 100Mb/s -- python -m lab.study.local_steps          # loss of every arm, with seeds
    TIMES=1 tithe hosts --hosts 4x1 --link 10Mb/s --delay-ms 50 -- python -m lab.study.local_steps    # time of a step

or under torchrun, on one machine. One process per rank. The arms run one after the other; rank 0 writes OUT after each.

Environment:
    SEEDS=3           runs of an arm, each with the same initial weights and data in all arms
    FIRST=0           the first seed: 1 with SEEDS=2 adds two seeds to a file of one, and the report merges them
    STEPS=400         of a run
    RATE=2e-3         the largest of AdamW's rates
    ARMS="a; b*"      by their names; all if unset
    TIMES=1           a few steps of each arm, and the time of a step beside one without communication
    OUT=file.json
"""

import json
import os
import statistics
import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import torch
import torch.distributed as dist

import tithe.torch
from lab.study.figures import machine
from lab.study.models import LICENSES, Task, Transformer, read_texts, windows

# Per rank; the time constant of v suits the length of the run
BATCH, RATE, BETAS = 8, float(os.environ.get("RATE") or 2e-3), (0.9, 0.99)
SPARSE = "topk:ratio=0.015625,values=4bit,indices=delta,feedback=decay,beta=0.95"  # 64 of 4,096 values, at any index
SPARSELOCO = "topk:ratio=0.015625,block=4096,values=2bit,indices=delta,feedback=decay,beta=0.95"  # 64 of each 4,096


@dataclass(frozen=True)
class Arm:
    name: str
    every: int  # 0: DDP; -1: no communication at all
    codec: str
    start: float = 0.1
    outer: str = "mean"
    rate: float = 1.0  # a factor of RATE


ALONE = Arm("alone", -1, "")


def arms() -> list[Arm]:
    all_arms = [ALONE, Arm("every step, fp32", 0, "fp32"), Arm("every step, bf16", 0, "bf16")]
    all_arms.append(Arm("every step, eden 4 bits", 0, "eden"))
    codecs = {"fp32": "fp32", "eden 4 bits": "eden", "sparse with decay": SPARSE, "SparseLoCo": SPARSELOCO}
    for every in (10, 30, 100):
        all_arms += [Arm(f"H {every}, {name}", every, codec) for name, codec in codecs.items()]
    all_arms += [Arm(f"H 30, eden 4 bits, start {start:g}", 30, "eden", start) for start in (0, 0.25)]
    all_arms.append(Arm("H 30, eden 2 bits", 30, "eden:bits=2"))
    all_arms.append(Arm("H 10, eden 4 bits, nesterov", 10, "eden", outer="nesterov"))
    all_arms += [Arm(f"rate {f:g}, every step, fp32", 0, "fp32", rate=f) for f in (0.5, 2)]
    all_arms += [Arm(f"rate {f:g}, H 30, eden 4 bits", 30, "eden", rate=f) for f in (0.5, 2)]
    all_arms.append(Arm("H 1, fp32", 1, "fp32"))
    wanted = [name.strip() for name in os.environ.get("ARMS", "").split(";") if name.strip()]
    return [arm for arm in all_arms if not wanted or any(fnmatchcase(arm.name, name) for name in wanted)]


def learning_rate(step: int, steps: int) -> float:
    """Returns the rate: linear increase over the first tenth, then linear decrease to a tenth."""
    rise = max(1, steps // 10)
    return RATE * min((step + 1) / rise, 0.1 + 0.9 * (steps - step) / (steps - rise + 1))


class Run:
    """One arm with one seed on this rank."""

    def __init__(self, arm: Arm, seed: int, steps: int, task: Task, whole: int):
        torch.manual_seed(seed)
        self.arm, self.steps, self.task, self.whole = arm, steps, task, whole
        self.model = task.make()
        self.draws = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, betas=BETAS)
        self.seconds: list[float] = []

    def _iterate(self, model: torch.nn.Module) -> None:
        inputs, targets = self.task.train
        for step in range(self.steps):
            began = time.perf_counter()
            for group in self.optimizer.param_groups:
                group["lr"] = self.arm.rate * learning_rate(step, self.whole)
            chosen = torch.randint(len(inputs), (BATCH,), generator=self.draws)
            self.optimizer.zero_grad()
            self.task.loss(model, inputs[chosen], targets[chosen]).backward()
            self.optimizer.step()
            self.seconds.append(time.perf_counter() - began)

    def train(self) -> dict:
        """Trains. Returns the bytes that a rank sent in the dense start and after it, and the length of the start."""
        arm = self.arm
        if arm.every < 0:
            self._iterate(self.model)
            return {"bytes": 0, "start_bytes": 0, "start_steps": 0}
        if arm.every == 0:
            model = torch.nn.parallel.DistributedDataParallel(self.model)
            state = tithe.torch.attach(model, codec=arm.codec)
            self._iterate(model)
            state.close()
            return {"bytes": state.stats()["bytes_sent"], "start_bytes": 0, "start_steps": 0}
        settings = {"every": arm.every, "codec": arm.codec, "outer": arm.outer, "delay": arm.every // 3}
        start = round(arm.start * self.whole) if self.steps == self.whole else 0
        with tithe.torch.LocalSteps(self.model, self.optimizer, start=start, start_codec="bf16", **settings) as local:
            self._iterate(self.model)
        stats = local.stats()
        return {"bytes": stats["bytes_sent"], "start_bytes": stats["start_bytes_sent"], "start_steps": start}


def main() -> None:
    """Runs all chosen arms, with losses over seeds or, with TIMES=1, with the times of a few steps."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    times = bool(os.environ.get("TIMES"))
    first, seeds = int(os.environ.get("FIRST") or 0), int(os.environ.get("SEEDS") or 3)
    steps = int(os.environ.get("STEPS") or 400)
    train_text, test_text = read_texts(LICENSES)
    task = Task(Transformer, windows(train_text, 1), windows(test_text, 128), "nats")
    out = Path(os.environ.get("OUT") or "study_local_steps.json")
    runs: list[dict] = []
    for seed in range(first, first + (1 if times else seeds)):
        for arm in arms():
            length = max(60, 2 * arm.every + arm.every // 3) if times else steps
            row = {"arm": arm.name, "seed": seed, "steps": length}
            if times:  # in the same turn, since other load on the machine changes
                alone = Run(ALONE, seed, 60, task, steps)
                dist.barrier()
                alone.train()
                row["alone_seconds"] = _step_seconds(alone)
            run = Run(arm, seed, length, task, steps)
            dist.barrier()
            row |= run.train() | {"step_seconds": _step_seconds(run)}
            if not times:
                row["loss"] = -task.score(run.model)
            runs.append(row)
            if dist.get_rank() == 0:
                print(json.dumps(row), flush=True)
                out.write_text(
                    json.dumps({"machine": machine(), "ranks": dist.get_world_size(), "runs": runs}, indent=1)
                )
    dist.destroy_process_group()


def _step_seconds(run: Run) -> float:
    """Returns the mean step over whole windows of the second half, so that exchanges are included."""
    window = max(1, run.arm.every)
    return statistics.fmean(run.seconds[-(len(run.seconds) // (2 * window) or 1) * window :])


if __name__ == "__main__":
    main()
