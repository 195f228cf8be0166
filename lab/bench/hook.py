#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of tithe.torch beside DistributedDataParallel's own all-reduce (Gloo): time of backward(), and memory.

    python lab/bench/hook.py                                      2,000 tensors of 64 values, and one of 20 million
    python lab/bench/hook.py --models many --codecs fp32,bf16 --ranks 4 --rounds 50

Ranks are processes on this machine's loopback. A model is DDP over parameters with a constant gradient, so that
backward() consists mostly of its exchange. A model without a hook and one per codec take turns, step by step, in the
same processes. Milliseconds are medians of rank 0's steps; beside them the median of the ratios to DDP's in the same
turn. Memory is the growth of this rank's resident set from before a model's first step to its tenth, in a separate
process for each model.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from harness import machine

MODELS = {"many": [64] * 2000, "one": [20_000_000]}


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run_rank(args: argparse.Namespace) -> None:
    """Runs one rank: steps of all models in turn, or the memory of one model. Rank 0 prints the results."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import tithe.torch

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    dist.init_process_group("gloo", rank=args.rank, world_size=args.ranks)

    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ParameterList(torch.zeros(n) for n in MODELS[args.models])

        def forward(self) -> torch.Tensor:
            return sum((p * 2).sum() for p in self.parts) if len(self.parts) < 10 else torch.cat(list(self.parts)).sum()

    models = {}
    for codec in args.codecs.split(","):
        models[codec] = model = DistributedDataParallel(Sum())
        if codec != "DDP":
            tithe.torch.attach(model, codec=codec)
    before = resident()
    times: dict[str, list[float]] = {codec: [] for codec in models}
    grew = 0
    for turn in range(args.warm + args.rounds):
        for codec, model in models.items():
            loss = model()
            dist.barrier()
            begin = time.perf_counter()
            loss.backward()
            if turn >= args.warm:
                times[codec].append(time.perf_counter() - begin)
            model.zero_grad(set_to_none=False)
        if turn == 10:
            grew = resident() - before
    if args.rank == 0:
        print(json.dumps({"times": times, "grew": grew}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def measure(args: argparse.Namespace, model: str, codecs: list[str], rounds: int) -> dict:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    line = [sys.executable, __file__, "--models", model, "--codecs", ",".join(codecs), "--ranks", str(args.ranks)]
    line += ["--rounds", str(rounds), "--warm", str(args.warm), "--port", str(port)]
    ranks = [
        subprocess.Popen([*line, "--rank", str(r)], stdout=subprocess.PIPE if r == 0 else None)
        for r in range(args.ranks)
    ]
    output = ranks[0].communicate()[0]
    if any(rank.wait() for rank in ranks):
        sys.exit(1)
    return json.loads(output.decode().splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="many,one")
    parser.add_argument("--codecs", default="fp32,fp8")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        run_rank(args)
        return 0
    print(f"{machine()}; {args.ranks} ranks\n")
    print("| model | codec | backward, ms | beside DDP | memory, MB |\n|---|---|---|---|---|")
    for model in args.models.split(","):
        codecs = ["DDP", *args.codecs.split(",")]
        times = measure(args, model, codecs, args.rounds)["times"]
        for codec in codecs:
            grew = measure(args, model, [codec], 11)["grew"]
            ratio = statistics.median(a / b for a, b in zip(times[codec], times["DDP"], strict=True))
            print(
                f"| {model} | {codec} | {1e3 * statistics.median(times[codec]):.1f} | {ratio:.2f} | {grew / 1e6:.0f} |"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
