#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The two implementations of tithe.jax.average: a callback in Python, and a typed XLA call (ffi=True).

    python lab/bench/jax_ways.py                          0.66 and 6.6 million values in 20 arrays, codecs fp32 and fp8
    python lab/bench/jax_ways.py --values 66000 --codecs fp8 --rounds 50

Two ranks are processes on this machine's loopback, in the environment that tools/setup.sh jax creates. A jitted step
makes gradients, averages them and uses them; both implementations take turns in the same processes. Milliseconds are
medians of rank 0's steps; beside them the median of the ratios of both in the same turn.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import ROOT, machine

ARRAYS = 20


def run_rank(args: argparse.Namespace) -> None:
    import jax
    import jax.numpy as jnp

    import tithe.jax

    def step_by(session: tithe.Session, ffi: bool):
        return jax.jit(lambda tree: [m * 0.5 for m in tithe.jax.averaged(session, [g * 1.5 for g in tree], ffi=ffi)])

    for codec in args.codecs.split(","):
        for values in map(int, args.values.split(",")):
            os.environ["TITHE_FILE"] = f"{args.meet}-{codec}-{values}"
            with tithe.Session.from_environment(codec=codec) as session:
                tree = [jnp.full(values // ARRAYS, 0.1 * i) for i in range(ARRAYS)]
                ways = [step_by(session, ffi) for ffi in (False, True)]
                turns = []
                for _ in range(3 + args.rounds):
                    times = []
                    for step in ways:
                        began = time.perf_counter()
                        jax.block_until_ready(step(tree))
                        times.append(1e3 * (time.perf_counter() - began))
                    turns.append(times)
                callback, typed = (statistics.median(t[i] for t in turns[3:]) for i in range(2))
                ratio = statistics.median(t[0] / t[1] for t in turns[3:])
            if os.environ["RANK"] == "0":
                print(f"| {codec} | {values / 1e6:g} | {callback:.1f} | {typed:.1f} | {ratio:.2f} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", default="660000,6600000")
    parser.add_argument("--codecs", default="fp32,fp8")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--meet", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.meet:
        run_rank(args)
        return 0
    print(
        f"{machine()}\n\n| codec | million values | callback, ms | ffi, ms | callback / ffi |\n|---|---|---|---|---|",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ, "PYTHONPATH": str(ROOT / "python"), "JAX_PLATFORMS": "cpu", "WORLD_SIZE": "2",
            "UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo", "UCX_LOG_LEVEL": "fatal",
        }  # fmt: skip
        line = [
            ROOT / ".setup" / "jax-venv" / "bin" / "python",
            Path(__file__),
            *sys.argv[1:],
            "--meet",
            f"{folder}/meet",
        ]
        ranks = [subprocess.Popen(line, env={**environment, "RANK": str(rank)}) for rank in range(2)]
        return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    sys.exit(main())
