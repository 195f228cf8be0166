# SPDX-License-Identifier: Apache-2.0
"""Models and data of the study of optimizers. They are small, so that a run takes seconds, and of the usual kind.
Images are Fashion-MNIST; text is /usr/share/common-licenses of Debian (base-files)."""

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lab.study import idx

LICENSES = "/usr/share/common-licenses"
TEXTS = ("Apache-2.0", "Artistic", "CC0-1.0", "GFDL-1.3", "GPL-3", "LGPL-2.1", "MPL-1.1", "MPL-2.0")
HELD_OUT = 10  # one tenth, the end of each text, is for testing
CONTEXT = 32  # characters of input to the transformer
CHARACTERS = 128


class Inputs:
    """Converts pixels to inputs: (pixel - mean of this pixel over the training images) / one common deviation."""

    def __init__(self, images: np.ndarray):
        few = images[:: max(1, len(images) // 10_000)].astype(np.float32)
        self.mean = few.mean(0)
        self.scale = 1 / max(float((few - self.mean).std()), 1e-6)

    def __call__(self, images: np.ndarray) -> torch.Tensor:
        return torch.from_numpy((images - self.mean) * self.scale)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def convnet() -> nn.Module:
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(64 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x))))


class Transformer(nn.Module):
    """Predicts the next character at each position."""

    def __init__(self, width: int = 64, heads: int = 4, blocks: int = 2, context: int = CONTEXT):
        super().__init__()
        self.characters, self.places = nn.Embedding(CHARACTERS, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CHARACTERS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.characters(text) + self.places.weight[: text.shape[1]]
        return self.head(self.norm(self.blocks(x)))


@dataclass(frozen=True)
class Task:
    """The training and test data of one model, and its score. score: more is better, in `unit`."""

    make: type | object
    train: tuple[torch.Tensor, torch.Tensor]  # inputs, targets
    test: tuple[torch.Tensor, torch.Tensor]
    unit: str

    def loss(self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())

    @torch.no_grad()
    def score(self, model: nn.Module) -> float:
        """Returns the score on the test data: correct answers in percent, or minus the nats per character."""
        parts = list(zip(*(t.split(500) for t in self.test), strict=True))
        if self.unit == "%":
            right = sum(int((model(x).argmax(-1) == y).sum()) for x, y in parts)
            return 100 * right / len(self.test[1])
        return -sum(len(y) * self.loss(model, x, y).item() for x, y in parts) / len(self.test[1])


def read_texts(folder: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the characters for training and those for testing."""
    missing = [name for name in TEXTS if not Path(folder, name).is_file()]
    if missing:
        raise FileNotFoundError(f"{folder}/{missing[0]} is missing: it comes with Debian's package base-files")
    train, test = [], []
    for name in TEXTS:
        text = np.frombuffer(Path(folder, name).read_bytes(), np.uint8) % CHARACTERS
        cut = len(text) - len(text) // HELD_OUT
        train.append(text[:cut])
        test.append(text[cut:])
    return tuple(torch.from_numpy(np.concatenate(part).astype(np.int64)) for part in (train, test))


def windows(text: torch.Tensor, step: int, context: int = CONTEXT) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns inputs and targets: every step-th window of `context` characters, and the same window one character
    later. If every position begins a window these are views, since copies would be `context` times as large as the
    text."""
    all_windows = text.unfold(0, context + 1, step)
    return all_windows[:, :-1], all_windows[:, 1:]


class Tasks:
    """The three tasks by name. `about` describes the data, so that results of other data are not mixed with these."""

    def __init__(self, images: str = idx.DEBIAN, texts: str = LICENSES):
        files = idx.load(images)
        inputs = Inputs(files["train"][0])
        train, test = ((inputs(x), torch.from_numpy(y)) for x, y in (files["train"], files["test"]))
        train_text, test_text = read_texts(texts)
        text = windows(train_text, 1), windows(test_text, CONTEXT)
        self.by_name = {
            "mlp": Task(mlp, train, test, "%"),
            "convnet": Task(convnet, train, test, "%"),
            "transformer": Task(Transformer, *text, "nats"),
        }
        self.about = (
            f"mlp, convnet: images, {len(train[1])} to train and {len(test[1])} to test, CRC-32"
            f" {zlib.crc32(files['train'][0].tobytes()):08x}; transformer: licence texts, {len(train_text)} characters"
            f" to train and {len(test_text)} to test, CRC-32 {zlib.crc32(train_text.numpy().tobytes()):08x}"
        )
