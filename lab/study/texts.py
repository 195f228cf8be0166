# SPDX-License-Identifier: Apache-2.0
"""Models of the source text of Python's standard library, for the study of AdamW: its bytes by a transformer, and its
words by an embedding. A step uses few rows of the embedding, some often and most rarely. Files are split into training
and test files."""

import hashlib
import re
import sysconfig
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import nn

from lab.study.models import CHARACTERS, Task, Transformer, windows

CONTEXT = 64  # bytes of input to the transformer
WORDS = 2048  # rows; the last row stands for all rarer words
BEFORE = 8  # words of input for the prediction of the next word
HELD_OUT = 10  # percent of the files for testing
TESTED = 500  # windows of bytes, and 32 times this number of words
WORD = re.compile(rb"[A-Za-z_]+|[^\sA-Za-z_]")


def transformer() -> nn.Module:
    return Transformer(width=96, heads=4, blocks=4, context=CONTEXT)


def large_transformer() -> nn.Module:
    return Transformer(width=192, heads=6, blocks=6, context=CONTEXT)


class Words(nn.Module):
    """Predicts the next word from the mean of the previous ones."""

    def __init__(self, width: int = 48):
        super().__init__()
        self.words, self.wide, self.head = nn.Embedding(WORDS, width), nn.Linear(width, width), nn.Linear(width, WORDS)

    def forward(self, before: torch.Tensor) -> torch.Tensor:
        x = self.words(before).mean(1)
        return self.head(x + torch.relu(self.wide(x)))


def files() -> tuple[list[bytes], list[bytes]]:
    """Returns the modules and packages of the standard library, without its tests."""
    root = Path(sysconfig.get_paths()["stdlib"])
    names = sorted(p.relative_to(root) for p in [*root.glob("*.py"), *root.glob("*/*.py")])
    out = [], []
    for name in names:
        if name.parts[0] not in ("test", "idlelib", "site-packages", "dist-packages"):
            held = hashlib.sha256(name.as_posix().encode()).digest()[0] * 100 < HELD_OUT * 256
            out[held].append((root / name).read_bytes())
    return out


def spread(parts: tuple[torch.Tensor, torch.Tensor], many: int) -> tuple[torch.Tensor, ...]:
    step = max(1, len(parts[0]) // many)
    return tuple(part[::step][:many].contiguous() for part in parts)


class Texts:
    """The tasks by name, and the description of their data, as in models.Tasks."""

    def __init__(self):
        read = [b"\n".join(part) for part in files()]
        train, test = (torch.from_numpy(np.frombuffer(t, np.uint8).astype(np.int64) % CHARACTERS) for t in read)
        text = windows(train, 1, CONTEXT), spread(windows(test, CONTEXT, CONTEXT), TESTED)
        words = [WORD.findall(t) for t in read]
        rows = {word: row for row, (word, _) in enumerate(Counter(words[0]).most_common(WORDS - 1))}
        numbers = [torch.tensor([rows.get(word, WORDS - 1) for word in part]) for part in words]
        examples = [(part.unfold(0, BEFORE + 1, 1)[:, :-1], part[BEFORE:]) for part in numbers]
        self.by_name = {
            "bytes": Task(transformer, *text, "nats"),
            "large": Task(large_transformer, *text, "nats"),
            "words": Task(Words, examples[0], spread(examples[1], 32 * TESTED), "nats"),
        }
        self.about = (
            f"bytes, large, words: Python's library, {len(train)} bytes to train and {len(test)} to test, CRC-32"
            f" {zlib.crc32(read[0]):08x}; {len(numbers[0])} and {len(numbers[1])} words"
        )
