# SPDX-License-Identifier: Apache-2.0
"""Shared by the jobs of lab/bench/frameworks.py: data, sizes, and a loop that measures times."""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS = int(os.environ.get("TITHE_BENCH_STEPS", "80"))
WARM = min(5, STEPS // 2)  # steps whose times do not count
SIZES = (128, 1024, 512, 10)  # of the layers: 0.66 million values, 2.6 MB
BATCH = 64  # of each rank
RATE = 1e-3  # of Adam


def examples(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns points around 40 centres, four per class, which overlap a little."""
    centres = 0.3 * np.random.default_rng(0).standard_normal((40, SIZES[0]))
    draws = np.random.default_rng(seed)
    kind = draws.integers(40, size=count)
    return (centres[kind] + draws.standard_normal((count, SIZES[0]))).astype(np.float32), kind % 10


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    return examples(1 + step * WORLD + RANK, BATCH)


def weights() -> list[np.ndarray]:
    """Returns the initial weights of all frameworks: a matrix for each layer, inputs by outputs. Biases begin at
    zero."""
    draws = np.random.default_rng(7)
    return [
        (draws.standard_normal((i, o)) * np.sqrt(2 / i)).astype(np.float32)
        for i, o in zip(SIZES, SIZES[1:], strict=False)
    ]


def held_out() -> tuple[np.ndarray, np.ndarray]:
    return examples(10**6, 4000)


def accuracy(scores: np.ndarray) -> float:
    return float((np.asarray(scores).argmax(1) == held_out()[1]).mean())


def timed(step: Callable[[int], object], scores: Callable[[], np.ndarray]) -> dict[str, float]:
    """Trains. Returns the median milliseconds of a step, and the final accuracy."""
    times = []
    for number in range(STEPS):
        begin = time.perf_counter()
        step(number)
        times.append(1e3 * (time.perf_counter() - begin))
    return {"ms": statistics.median(times[WARM:]), "accuracy": accuracy(scores())}


def main(jobs: dict[str, dict[str, Callable[[], dict[str, float]]]]) -> None:
    """The command line: python x_jobs.py FRAMEWORK WAY...; rank 0 prints the results of each way."""
    name, *ways = sys.argv[1:]
    measured = {way: jobs[name][way]() for way in ways}
    if RANK == 0:
        print(json.dumps(measured), flush=True)
