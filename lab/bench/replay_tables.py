# SPDX-License-Identifier: Apache-2.0
"""Tables of `tithe replay`, on emulated hosts (needs root): the part of an exchange that compute hides, and the gain of
each feature of the engine.

python lab/bench/replay_tables.py hidden                 # two models, compute as long as the exchange
python lab/bench/replay_tables.py breakdown            # a row per feature that is switched on, as in HiPress' figure 11
    --ranks 4 --link 1Gb/s --scale 0.1 --steps 10 --passes 3 --models vgg19,bert_base --out FILE

Rows are measured in turn, `--passes` times, and compared within a pass; the tables have the medians over passes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

from harness import ROOT, answer, processor

# Flags that switch everything off: one part per tensor, each started after the result of the previous one.
ALONE = "--hand-over turns --bucket-cap-mb 0 --min-values 0 --part-values 1000000000"
# Small tensors are sent uncompressed, all of them in one part.
CHOICES = {"< 16Ki": "fp32", "*": {"codec": "onebit", "strategy": "server"}}
FEATURES = [
    ("default: fp32, one part per tensor", f"--codec fp32 {ALONE}"),
    ("codec alone", f"--codec onebit {ALONE}"),
    ("+ pipelining: parts, as they are ready", "--codec onebit --bucket-cap-mb 0 --min-values 0"),
    ("+ batching: buckets, small tensors in one part", "--codec onebit {buckets}"),
    ("+ coordination: a window to each peer", "--codec onebit {buckets} --pacer window=65536"),
    ("+ choice per tensor, parts by the link", "--codec onebit {buckets} --tell-link --choices {choices}"),
]
BUCKET_MB = 25  # DistributedDataParallel's default


def buckets(args: argparse.Namespace) -> str:
    """Returns the --bucket-cap-mb that gives as many buckets as the whole model: a tenth of it in buckets of 25 MB
    would have two or three."""
    return f"--bucket-cap-mb {BUCKET_MB * args.scale:g}"


def replay(args: argparse.Namespace, model: str, options: str) -> dict:
    words = ["--model", model, "--ranks", args.ranks, "--link", args.link, "--steps", args.steps]
    got = answer("replay", *words, *shlex.split(options))
    print(".", end="", file=sys.stderr, flush=True)
    return got


def spread(values: list[float]) -> str:
    middle = statistics.median(values)
    return f"{middle:.2f}" if len(values) < 2 else f"{middle:.2f} ({min(values):.2f} .. {max(values):.2f})"


def listed(name: str) -> dict:
    return json.loads((ROOT / f"data/models/{name}.json").read_text())


def least(model: dict, scale: float, exchange: float) -> float:
    """Returns the lower bound in ms for every schedule: each value takes its share of the exchange, and none can begin
    before its tensor is ready."""
    tensors = model["tensors"]
    total = rest = sum(t["values"] for t in tensors)
    bound = scale * (model["forward_ms"] + tensors[-1]["ready_ms"])
    for t in tensors:
        bound = max(bound, scale * (model["forward_ms"] + t["ready_ms"]) + exchange * rest / total)
        rest -= t["values"]
    return bound


def hosts_of(args: argparse.Namespace) -> str:
    cap = f"a bucket of {BUCKET_MB} MB too"
    return f"{args.ranks} hosts at {args.link}, a tensor has {args.scale:g} of its values, {cap}"


def hidden(args: argparse.Namespace) -> list[str]:
    rows = [
        "| model | exchange alone, ms | compute, ms (backward) | step, ms | step / max(compute, exchange) "
        "| step / least possible |",
        "|---|---|---|---|---|---|",
    ]
    for name in args.models:
        model, passes = listed(name), []
        backward = model["tensors"][-1]["ready_ms"]
        as_long = backward if args.equal == "backward" else backward + model["forward_ms"]
        for _ in range(args.passes):
            options = f"--codec {args.codec} {buckets(args)} {args.options}"
            exchange = replay(args, f"{name}:scale={args.scale}", f"{options} --compute-scale 0")["step_ms"]
            scale = exchange / as_long
            got = replay(args, f"{name}:scale={args.scale}", f"{options} --compute-scale {scale}")
            passes.append((exchange, got["compute_ms"], got["step_ms"], least(model, scale, exchange)))
        exchange, compute, step, _ = (statistics.median(column) for column in zip(*passes, strict=True))
        of_larger = spread([p[2] / max(p[0], p[1]) for p in passes])
        of_least = spread([p[2] / p[3] for p in passes])
        share = compute * backward / (backward + model["forward_ms"])
        rows.append(
            f"| {name} | {exchange:.1f} | {compute:.1f} ({share:.1f}) | {step:.1f} | {of_larger} | {of_least} |"
        )
    what = "backward" if args.equal == "backward" else "compute"
    return [
        f"Hidden time: {args.codec} by server, {hosts_of(args)}; {what} is scaled to take as long as",
        "the exchange alone. *Least possible*: the exchange of a tensor cannot begin before it is ready.",
        "",
        *rows,
    ]


def breakdown(args: argparse.Namespace) -> list[str]:
    """Returns the table of features: each row switches one more feature on, and is compared with the previous row."""
    out = [
        f"What each feature is worth: {hosts_of(args)}. *Exposed* is step less compute.",
        "HiPress, figure 11, VGG19 on 16 hosts, iterations in ms: 703, codec 462, + pipelining 432, + bulk 350,",
        "+ SeCoPa 303.",
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as choices:
        choices.write(json.dumps(CHOICES))
        choices.flush()
        for name in args.models:
            passes: list[dict[str, dict]] = []
            for _ in range(args.passes):
                passes.append(
                    {
                        row: replay(
                            args,
                            f"{name}:scale={args.scale}",
                            options.format(choices=choices.name, buckets=buckets(args)),
                        )
                        for row, options in FEATURES
                    }
                )
            first = FEATURES[0][0]
            compute = passes[0][first]["compute_ms"]
            out += ["", f"**{name}**, compute {compute:.1f} ms", ""]
            out += ["| | step, ms | exposed, ms | times as fast | bytes per rank | processor s per rank |"]
            out += ["|---|---|---|---|---|---|"]
            for row, _ in FEATURES:
                got = {key: statistics.median(p[row][key] for p in passes) for key in passes[0][row] if key in MEASURED}
                faster = spread([p[first]["step_ms"] / p[row]["step_ms"] for p in passes])
                out.append(
                    f"| {row} | {got['step_ms']:.1f} | {got['exposed_ms']:.1f} | {faster} "
                    f"| {got['wire_bytes_per_host']:,.0f} | {got['cpu_s_per_rank']:.3f} |"
                )
    return out


MEASURED = ("step_ms", "exposed_ms", "wire_bytes_per_host", "cpu_s_per_rank")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["hidden", "breakdown"])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--link", default="1Gb/s")
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--models", type=lambda text: text.split(","), default=["vgg19", "bert_base"])
    parser.add_argument("--codec", default="fp8", help="of the table of hidden time")
    parser.add_argument("--options", default="", help="further ones of `tithe replay`, of the table of hidden time")
    parser.add_argument(
        "--equal", choices=["backward", "compute"], default="backward", help="what takes as long as the exchange"
    )
    parser.add_argument("--out", type=Path, help="a file beside standard output")
    args = parser.parse_args()
    lines = {"hidden": hidden, "breakdown": breakdown}[args.table](args)
    print(file=sys.stderr)
    given = shlex.join(word for word in sys.argv[1:])
    head = [
        f"`python lab/bench/replay_tables.py {given}`, {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}, "
        f"{processor()}, Linux {platform.release()}; median of {args.passes} passes of {args.steps} steps.",
        "",
    ]
    text = "\n".join([*head, *lines, ""])
    print(text, end="")
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
