# SPDX-License-Identifier: Apache-2.0
"""The size of gradients under codec zip, for the study's models (lab/study/models.py) in the first steps of AdamW: in
fp32, rounded to bf16, and the fp32 gradients of training under bf16 autocast.
`python lab/bench/lossless.py [--steps N]` prints the table of lab/results/lossless.md in two to three minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import torch
from harness import ROOT  # noqa: F401  (adds the folder of `lab` to the path)

from lab.study.models import Task, Tasks
from tithe import _core

BATCH, HEADER, SKIPPED = 32, 64, 8


def gradients(task: Task, autocast: bool, steps: int) -> Iterator[list[np.ndarray]]:
    """Yields the gradients of each step, tensor by tensor."""
    torch.manual_seed(1)
    model = task.make()
    adam = torch.optim.AdamW(model.parameters(), 1e-3)
    inputs, targets = task.train
    for _ in range(steps):
        at = torch.randint(len(targets), (BATCH,))
        adam.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = task.loss(model, inputs[at], targets[at])
        loss.backward()
        yield [p.grad.reshape(-1).numpy().copy() for p in model.parameters()]
        adam.step()


def rounded(values: np.ndarray) -> np.ndarray:
    return torch.from_numpy(values).bfloat16().float().numpy()


def share(step: list[np.ndarray]) -> tuple[int, int]:
    """Returns the bytes of a step's payloads, and of its values in fp32. The decoded values are compared bit by bit."""
    sent = 0
    for values in step:
        frame = _core.encode("zip", values)
        back = np.empty_like(values)
        _core.decode(frame, back)
        if back.tobytes() != values.tobytes():
            raise SystemExit("zip: other bits came back")
        sent += len(frame) - HEADER
    return sent, 4 * sum(len(values) for values in step)


def times(steps: list[list[np.ndarray]]) -> float:
    sent, whole = (sum(column) for column in zip(*map(share, steps), strict=True))
    return whole / sent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=24)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| model | fp32 values: of fp32 | bf16 values: of bf16 | of fp32 | under autocast: of fp32 | lower bits zero |"
    )
    print("|---|---|---|---|---|---|")
    for name, task in Tasks().by_name.items():
        plain = list(gradients(task, False, args.steps))[SKIPPED::4]
        halves = [[rounded(values) for values in step] for step in plain]
        cast = list(gradients(task, True, args.steps))[SKIPPED::4]
        zero = np.mean([np.mean(values.view(np.uint32) & 0xFFFF == 0) for step in cast for values in step])
        half = times(halves)
        print(
            f"| {name} | {times(plain):.3f} | {half / 2:.3f} | {half:.3f} | {times(cast):.3f} | {zero:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
