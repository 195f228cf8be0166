# SPDX-License-Identifier: Apache-2.0
"""The planner's policies on the testbeds of four papers, in the simulator: the step under each policy, the tensors that
HiPress' equations compress and their number of parts beside tithe's, and DRAGONN's gain from the selection of tensors.
The files of data/clusters/ give the constants. Any machine can run it, because nothing is timed.

    python lab/bench/plan_policies.py [--out FILE]
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import tempfile
from pathlib import Path
from typing import NamedTuple

from harness import ROOT, answer

POLICIES = ["timeline", "secopa", "dragonn", "threshold:4MB", "threshold:1MB", "bf16", "fp32"]


class Testbed(NamedTuple):
    cluster: str
    model: str
    codec: str  # the codec of the paper


TESTBEDS = [
    Testbed("hipress_ec2", "vgg19", "onebit"),
    Testbed("hipress_ec2", "bert_large", "onebit"),
    Testbed("hipress_ec2", "resnet50_v2", "dgc:ratio=0.001"),
    Testbed("hipress_local", "vgg19", "onebit"),
    Testbed("dragonn", "resnet50", "dragonn:ratio=0.001"),
    Testbed("dragonn", "vit_b_16", "dragonn:ratio=0.001"),
    Testbed("dragonn", "xml", "dragonn:ratio=0.001"),
    Testbed("dragonn", "resnet50", "dgc:ratio=0.001"),
    Testbed("dragonn", "vit_b_16", "dgc:ratio=0.001"),
    Testbed("fft_comet", "alexnet", "fft:bits=10"),
    Testbed("inceptionn", "alexnet", "inceptionn"),
    Testbed("inceptionn", "vgg16", "inceptionn"),
    Testbed("inceptionn", "resnet50", "inceptionn"),
    Testbed("inceptionn", "hdc", "inceptionn"),
]


class Planner:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model("xml", [4096 * 30938], row=4096, forward_ms=4.2, backward_ms=8.4)

    def model(self, name: str, sizes: list[int], row: int = 1024, forward_ms: float = 1, backward_ms: float = 1) -> str:
        """Writes a model whose tensors are all ready when backward ends. Returns its path."""
        tensors = [{"name": f"t{k}", "values": n, "row": row, "ready_ms": backward_ms} for k, n in enumerate(sizes)]
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({"model": name, "forward_ms": forward_ms, "tensors": tensors}))
        return str(path)

    def named(self, model: str) -> str:
        own = self.folder / f"{model}.json"
        return str(own) if own.exists() else model

    def ask(self, model: str, cluster: str, codec: str, policies: list[str], *more: object) -> dict:
        words = ["plan", "--model", self.named(model), "--cluster", cluster, "--allow", codec, *more]
        return answer(*words, "--policy", policies[0], *(w for p in policies[1:] for w in ("--compare", p)))

    def simulated(self, model: str, cluster: str, codec: str, strategy: str) -> float:
        """Returns the milliseconds of a step in which every tensor is compressed."""
        choices = self.folder / "all.json"
        choices.write_text(json.dumps({"*": {"codec": codec, "strategy": strategy}}))
        words = ["simulate", "--model", self.named(model), "--cluster", cluster, "--choices", choices]
        return answer(*words)["settings"][0]["step_ms"]


def steps(planner: Planner) -> list[str]:
    rows = [
        "| testbed | model | may be used | "
        + " | ".join(f"{p}" for p in POLICIES)
        + " | best single setting | best without a loss / timeline | best other / timeline |",
        "|---" * (6 + len(POLICIES)) + "|",
    ]
    for bed in TESTBEDS:
        got = planner.ask(bed.model, bed.cluster, bed.codec, POLICIES)
        first = got["plans"][0]
        step = {plan["policy"]: plan["step_ms"] for plan in got["plans"]}
        named = {"bf16": f" ({first['bf16']})", "fp32": f" ({first['fp32']})"}
        cells = " | ".join(f"{step[p]:.1f}{named.get(p, '')}" for p in POLICIES)
        least = min(ms for p, ms in step.items() if p != "timeline")
        single = f"{first['single_ms']:.1f} ({first['single']})"
        lossless, gain = first["lossless_ms"] / step["timeline"], least / step["timeline"]
        rows.append(f"| {bed.cluster} | {bed.model} | {bed.codec} | {cells} | {single} | {lossless:.3f} | {gain:.3f} |")
    return rows


# ---- HiPress' plans


def released(values: int, nodes: int) -> tuple[bool, int]:
    """Returns the decision of HiPress' released SeCoPa for a ring, from its own constants (ms; x counts float32): an
    affine send, encode and decode, a compression rate of 1/16, 2 (N-1) sends, N encodes and N decodes, parts from 1 to
    N."""
    rate, sends = 1 / 16, 2 * (nodes - 1)

    def raw(parts: int) -> float:
        return sends * (8.5005e-7 * values / parts + 0.20337)

    def compressed(parts: int) -> float:
        send = 8.5005e-7 * rate * values / parts + 0.20337
        encode = 1.4133e-8 * values / parts + 0.058938
        decode = 6.2041e-9 * rate * values / parts + 0.13956
        return sends * send + nodes * (encode + decode)

    counts = range(1, nodes + 1)
    best_raw, best = min(counts, key=raw), min(counts, key=compressed)
    return (True, best) if compressed(best) < raw(best_raw) else (False, best_raw)


def part_text(rule: dict, values: int) -> str:
    if "group" in rule:
        return f"no, {rule['codec']} in a group"
    parts = math.ceil(values / rule["part_values"])
    yes = "no" if rule["codec"] in ("fp32", "bf16") else "yes"
    codec = f", {rule['codec']}" if yes == "no" else ""
    return f"{yes}{codec} by {rule['strategy']}, {parts}"


def plans(planner: Planner) -> list[str]:
    sizes = {
        "64 KB": 1 << 14,
        "1 MB": 1 << 18,
        "4 MB": 1 << 20,
        "16 MB": 1 << 22,
        "64 MB": 1 << 24,
        "392 MB": 102760448,
    }
    rows = [
        "| one tensor of | nodes | HiPress as released (ring) | secopa | timeline | step: secopa, timeline |",
        "|---|---|---|---|---|---|",
    ]
    for name, values in sizes.items():
        for nodes in (4, 16):
            compressed, parts = released(values, nodes)
            model = Path(planner.model("one", [values])).stem
            texts, ms = [], []
            for policy in ("secopa", "timeline"):
                got = planner.ask(model, planner.folder / "local.toml", "onebit", [policy], "--ranks", nodes)
                texts.append(part_text(got["rules"][-1], values))
                ms.append(got["plans"][0]["step_ms"])
            theirs = f"{'yes' if compressed else 'no'}, {parts}"
            rows.append(f"| {name} | {nodes} | {theirs} | {texts[0]} | {texts[1]} | {ms[0]:.2f}, {ms[1]:.2f} |")
    return rows


# ---- DRAGONN's breakdown


def selection(planner: Planner) -> list[str]:
    rows = [
        "| model | codec | bf16 | all tensors by `gather` | selected by `dragonn` | `timeline` | all / selected |",
        "|---|---|---|---|---|---|---|",
    ]
    for model in ("resnet50", "vit_b_16", "xml"):
        for codec in ("dgc:ratio=0.001", "dragonn:ratio=0.001"):
            got = planner.ask(model, "dragonn", codec, ["timeline", "dragonn", "bf16"])
            best, selected, bf16 = (plan["step_ms"] for plan in got["plans"])
            everything = planner.simulated(model, "dragonn", codec, "gather")
            ratio = everything / selected
            rows.append(
                f"| {model} | {codec} | {bf16:.1f} | {everything:.1f} | {selected:.1f} | {best:.1f} | {ratio:.2f} |"
            )
    return rows


def main() -> None:
    """Writes the page: steps by policy on each testbed, HiPress' plans, and DRAGONN's breakdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a file beside standard output")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # A node is one rank: HiPress first sums inside a node, which its table omits.
        local = (ROOT / "data/clusters/hipress_local.toml").read_text()
        (folder / "local.toml").write_text(local.replace("\nranks = 2", "\nranks = 1"))
        planner = Planner(folder)
        text = "\n".join(
            [
                "# The planner's policies on the testbeds of four papers",
                "",
                f"`make bench-plan-policies`, {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}. Simulated: "
                "nothing here was timed. Steps in milliseconds.",
                "Each policy may use fp32, bf16 and the codec that the paper used; `timeline` is the default. "
                "Where another one is shorter,",
                "`timeline` takes a plan that loses nothing, within 5 % of it. `bf16` and `fp32` are the best single "
                "settings of bf16 and fp32, by name.",
                "",
                *steps(planner),
                "",
                "## Which sizes HiPress' equations compress, and into how many parts",
                "",
                "One tensor on nodes of `hipress_local`, onebit allowed. The third column follows from the released "
                "program's constants;",
                "`secopa` is the same two equations with the curves of the testbed's file, and the decoder is charged "
                "for values.",
                "",
                *plans(planner),
                "",
                "## What selecting tensors brings DRAGONN",
                "",
                *selection(planner),
                "",
            ]
        )
    print(text, end="")
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
