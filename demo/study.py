# SPDX-License-Identifier: Apache-2.0
"""`make study`: what each codec costs in accuracy. Every codec of this build, at its default setting and at one other,
trains Fashion-MNIST on 4 ranks of this process (`loop`), beside fp32 and bf16; same seeds, same data order.

Writes OUT/study.json and OUT/study.png (accuracy against bytes), and prints the table.

Environment:
    SEEDS=3  EPOCHS=4
    CODECS="a b"          spec strings to study; all codecs at two settings if unset
    DATA=folder           MNIST-format files; Debian's Fashion-MNIST if unset
    OUT=bench/results
"""

import itertools
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import nn

import idx
import report
import tithe
from run import machine
from train import Inputs

RANKS, BATCH = 4, 32  # a global batch of 128
LAYERS = (784, 256, 128, 10)
MOMENTUM, PEAK_RATE = 0.5, 0.2
NEAR_POINTS = 1.0  # what a codec may lose against fp32 before the table says so


def model_of(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    layers = [part for a, b in itertools.pairwise(LAYERS) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def other_setting(codec: dict) -> str | None:
    """A second setting: a quarter of the values where a codec has a ratio, else its first parameter's other end."""
    for parameter in codec["params"]:
        name, usual = parameter["name"], parameter["default"]
        if name == "ratio":
            return f"{codec['name']}:{name}={usual / 4:g}"
        if "choices" in parameter:
            return f"{codec['name']}:{name}={next(c for c in parameter['choices'] if c not in (usual, 'default'))}"
        end = parameter["low"] if usual != parameter["low"] else parameter["high"]
        return f"{codec['name']}:{name}={end:g}"
    return None


def specs() -> list[str]:
    if given := os.environ.get("CODECS"):
        return [tithe.check_spec(spec) and spec for spec in given.split()]
    both = [(codec["name"], other_setting(codec)) for codec in tithe.codecs()]
    return [spec for pair in both for spec in pair if spec]


class Data:
    def __init__(self, folder: str):
        files = idx.load(folder)
        inputs = Inputs(files["train"][0])
        self.images, self.labels = inputs(files["train"][0]), torch.from_numpy(files["train"][1])
        self.test = inputs(files["test"][0]), torch.from_numpy(files["test"][1])


def train(spec: str, seed: int, epochs: int, data: Data) -> dict:
    model = model_of(seed)
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.SGD(parameters.values(), lr=PEAK_RATE, momentum=MOMENTUM)
    loss = nn.CrossEntropyLoss()
    per_epoch = len(data.images) // (RANKS * BATCH)
    steps = per_epoch * epochs
    gradients = [{name: torch.empty_like(p) for name, p in parameters.items()} for _ in range(RANKS)]
    sessions = tithe.Session.loop(RANKS, codec=spec, strategy="gather", seed=seed, lanes=1)

    def exchange(rank: int) -> None:
        session = sessions[rank]
        session.wait(session.sync({name: g.numpy() for name, g in gradients[rank].items()}))
        session.commit()

    with ThreadPoolExecutor(RANKS) as threads:
        for step in range(steps):
            epoch, at = divmod(step, per_epoch)
            if at == 0:
                order = np.random.default_rng([seed, epoch]).permutation(len(data.images))
            for rank in range(RANKS):
                first = (at * RANKS + rank) * BATCH
                chosen = torch.from_numpy(order[first : first + BATCH])
                optimizer.zero_grad()
                loss(model(data.images[chosen]), data.labels[chosen]).backward()
                for name, parameter in parameters.items():
                    gradients[rank][name].copy_(parameter.grad)
            list(threads.map(exchange, range(RANKS)))
            for name, parameter in parameters.items():
                parameter.grad.copy_(gradients[0][name])
            rise = max(1, steps // 10)
            for group in optimizer.param_groups:
                group["lr"] = PEAK_RATE * min((step + 1) / rise, (steps - step) / (steps - rise + 1))
            optimizer.step()
    sent = sessions[0].stats()["bytes_sent"] / steps
    for session in sessions:
        session.close()
    with torch.no_grad():
        right = (model(data.test[0]).argmax(1) == data.test[1]).float().mean().item()
    return {"codec": spec, "seed": seed, "accuracy": right, "bytes_per_step": sent}


def rows_of(runs: list[dict]) -> list[dict]:
    """One row per spec: the mean over its seeds, and the points it is away from fp32."""
    rows = []
    for spec in dict.fromkeys(run["codec"] for run in runs):
        mine = [run for run in runs if run["codec"] == spec]
        rows.append({"codec": spec, **{k: report.mean(r[k] for r in mine) for k in ("accuracy", "bytes_per_step")}})
    plain = next((row["accuracy"] for row in rows if row["codec"] == "fp32"), None)
    for row in rows:
        row["points"] = None if plain is None else 100 * (row["accuracy"] - plain)
    return rows


def table(rows: list[dict]) -> str:
    lines = [f"{'codec':<44} {'accuracy':>8} {'vs fp32':>8} {'sent per rank, step':>20}"]
    for row in rows:
        points = "" if row["points"] is None else f"{row['points']:+.2f}"
        far = "  more than a point below fp32" if (row["points"] or 0) < -NEAR_POINTS else ""
        lines.append(
            f"{row['codec']:<44} {row['accuracy']:>8.2%} {points:>8} {report.size(row['bytes_per_step']):>20}{far}"
        )
    return "\n".join(lines)


def draw(path: Path, rows: list[dict]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 6))
    for row in rows:
        x, y = row["bytes_per_step"] / 1e3, 100 * row["accuracy"]
        axes.plot(x, y, "o", color=report.COLOURS.get(row["codec"], report.TITHE_COLOURS[0]))
        axes.annotate(row["codec"], (x, y), xytext=(4, 3), textcoords="offset points", fontsize=7)
    axes.set(xscale="log", xlabel="sent per rank and step, kB", ylabel="test accuracy, %")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=144, bbox_inches="tight")


def main() -> int:
    try:
        chosen = specs()
        data = Data(os.environ.get("DATA") or idx.DEBIAN)
        seeds, epochs = int(os.environ.get("SEEDS") or 3), int(os.environ.get("EPOCHS") or 4)
    except (ValueError, FileNotFoundError) as trouble:
        print(f"study: {trouble}", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    out = Path(os.environ.get("OUT") or "bench/results")
    out.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    runs, begin = [], time.monotonic()
    try:
        for at, (spec, seed) in enumerate(itertools.product(chosen, range(seeds))):
            runs.append(train(spec, seed, epochs, data))
            left = (time.monotonic() - begin) / (at + 1) * (len(chosen) * seeds - at - 1)
            print(
                f"[{at + 1}/{len(chosen) * seeds}] {spec:<44} seed {seed}  {runs[-1]['accuracy']:.2%}"
                f"  {report.size(runs[-1]['bytes_per_step'])}/step  {left / 60:.0f} min left",
                flush=True,
            )
    except KeyboardInterrupt:
        print("study: stopped; nothing was written")
        return 130
    rows = rows_of(runs)
    details = {
        "machine": machine(),
        "commit": commit.stdout.strip(),
        "command": f"SEEDS={seeds} EPOCHS={epochs} make study",
        "ranks": RANKS,
        "job": f"Fashion-MNIST, MLP {'-'.join(map(str, LAYERS))}, batch {BATCH} per rank, momentum {MOMENTUM}",
        "rows": rows,
        "runs": runs,
    }
    (out / "study.json").write_text(json.dumps(details, indent=1) + "\n")
    draw(out / "study.png", rows)
    print(table(rows))
    print(f"study: {out}/study.json, {out}/study.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
