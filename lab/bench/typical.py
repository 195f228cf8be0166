# SPDX-License-Identifier: Apache-2.0
"""The payload size of gradients, for codecs whose sizes depend on the values: the simulator's expectation
(src/codec/typical.def), beside the encoded size of normally distributed values and of the gradients of two models in
training, with feedback. `python lab/bench/typical.py [--out FILE]` prints the table of lab/results/typical.md in a
minute or two.

The models: an MLP that learns a made-up classification, and a transformer of two layers that learns the bytes of this
repository's documents. One vector of all gradients is encoded in each of 40 steps of Adam; the table has the mean of
the last 20.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from harness import ROOT, answer
from torch import nn

from tithe import _core

STEPS, SETTLED = 40, 20
VALUES = 200_000
DEVIATION = 1e-3  # codec::kDefaultDeviation
HEADER = 64


def bell() -> Iterator[np.ndarray]:
    draw = np.random.default_rng(1)
    while True:
        yield draw.standard_normal(VALUES, dtype=np.float32) * np.float32(DEVIATION)


def training(model: nn.Module, loss_of_step) -> Iterator[np.ndarray]:
    adam = torch.optim.Adam(model.parameters(), 1e-3)
    while True:
        adam.zero_grad()
        loss_of_step(model).backward()
        yield torch.cat([p.grad.reshape(-1) for p in model.parameters()]).numpy().copy()
        adam.step()


def mlp() -> Iterator[np.ndarray]:
    torch.manual_seed(1)
    teacher = torch.randn(128, 10)

    def loss(model: nn.Module) -> torch.Tensor:
        x = torch.randn(64, 128)
        return nn.functional.cross_entropy(model(x), (x @ teacher).argmax(1))

    return training(
        nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)), loss
    )


class Transformer(nn.Module):
    def __init__(self, width: int = 64, length: int = 64) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.out(self.layers(self.tokens(x) + self.places(torch.arange(length)), mask))


def transformer() -> Iterator[np.ndarray]:
    torch.manual_seed(1)
    pages = b"".join(page.read_bytes() for page in sorted((ROOT / "docs/reference").glob("format*.md")))
    text = torch.frombuffer(bytearray(pages), dtype=torch.uint8).long()

    def loss(model: nn.Module) -> torch.Tensor:
        at = torch.randint(len(text) - 65, (16,))
        rows = torch.stack([text[a : a + 65] for a in at])
        return nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())

    return training(Transformer(), loss)


def bytes_per_value(codec: str, gradients: Iterator[np.ndarray]) -> float:
    sizes: list[float] = []
    left = None
    for step, gradient in zip(range(STEPS), gradients, strict=False):
        whole = gradient if left is None else gradient + left
        frame = _core.encode(codec, whole)
        sent = np.zeros_like(whole)
        _core.decode(frame, sent)
        left = whole - sent
        if step >= SETTLED:
            sizes.append((len(frame) - HEADER) / len(whole))
    return float(np.mean(sizes))


def expected(codec: str) -> tuple[float, float]:
    """Returns bytes per value: the maximum, and the expectation."""
    description = answer("codecs", codec)
    return description["most_bits"] / 8, description["expected_bits"] / 8


def codecs() -> list[str]:
    text = (ROOT / "src/codec/typical.def").read_text()
    return [line[len("TITHE_TYPICAL(") : -1] for line in text.splitlines() if line.startswith("TITHE_TYPICAL(")]


def main() -> None:
    """Trains the two models, encodes their gradients with every codec, and prints or writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    sources = {"bell": bell, "MLP": mlp, "transformer": transformer}
    spread = {name: float(np.std(next(make()))) for name, make in sources.items()}
    lines = [
        "# How long payloads of gradients are",
        "",
        f"`python lab/bench/typical.py`, {datetime.date.today().isoformat()}. Bytes of a value, of codecs whose "
        "payloads depend on the",
        "gradients, at their default settings: the most that one may take, what the simulator and the planner expect,",
        "and what encode made, with feedback, of bell-shaped values and of the gradients of an MLP and of a",
        f"transformer in training (the mean of steps {SETTLED + 1} to {STEPS}). Deviations in the first step: "
        + ", ".join(f"{name} {d:.1e}" for name, d in spread.items())
        + ".",
        "Selection by a ratio hardly depends on the gradients. `inceptionn` and `threshold` have an absolute bound:",
        "what they send depends on the gradients' scale, and differs from what is expected where that does.",
        "",
        "| codec | most | expected | " + " | ".join(sources) + " |",
        "|---" * (3 + len(sources)) + "|",
    ]
    for codec in codecs():
        most, expected_bytes = expected(codec)
        made = " | ".join(f"{bytes_per_value(codec, make()):.4f}" for make in sources.values())
        lines.append(f"| {codec} | {most:.4f} | {expected_bytes:.4f} | {made} |")
    text = "\n".join([*lines, ""])
    print(text, end="")
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
