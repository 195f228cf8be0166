# SPDX-License-Identifier: Apache-2.0
"""Prints the lines of src/plan/codec_cost.def for this machine: nanoseconds per value to encode and to merge.

The least of 12 rounds of 2^20 values between two ranks of this process, through whole sessions, so that codecs of
several phases are included. With two ranks, `server` sends each rank one share of the payload.
Usage: PYTHONPATH=python .venv/bin/python lab/bench/codec_cost.py
"""

import threading

import numpy as np

import tithe

VALUES = 1 << 20
ROUNDS = 12


def least(session: tithe.Session, gradient: np.ndarray, found: list[tuple[float, float]]) -> None:
    tensor = np.empty_like(gradient)
    for _ in range(ROUNDS):
        tensor[:] = gradient
        before = session.stats()
        session.wait(session.sync({"w": tensor}))
        session.commit()
        after = session.stats()
        found.append(tuple((after[name] - before[name]) / VALUES for name in ("encode_ns", "merge_ns")))


def main() -> None:
    rng = np.random.default_rng(1)
    gradients = [rng.standard_normal(VALUES, np.float32) * 1e-3 for _ in range(2)]
    for codec in tithe.codecs():
        found: list[tuple[float, float]] = []
        sessions = tithe.Session.loop(2, codec=codec["name"], lanes=0, min_values=0)
        ranks = [threading.Thread(target=least, args=(*pair, found)) for pair in zip(sessions, gradients, strict=True)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        encode, merge = (min(numbers) for numbers in zip(*found, strict=True))
        print(f"TITHE_CODEC_COST({codec['name']}, {encode:.2f}, {merge:.2f})")


if __name__ == "__main__":
    main()
