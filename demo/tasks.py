# SPDX-License-Identifier: Apache-2.0
"""The demo's tasks: an MLP on images under SGD, and small transformers on text under AdamW."""

import itertools

import numpy as np
import torch
from torch import nn

import rows
from lab.study.models import Inputs, Transformer
from lab.study.texts import CONTEXT, files


class Images:
    rate, batch = 0.45, rows.BATCH

    def __init__(self, data: dict):
        (self.images, self.labels), self.test = data["train"], data["test"]
        self.inputs = data.get("inputs") or Inputs(self.images)
        self.count, self.tested = len(self.images), len(self.test[0])

    def per_epoch(self, workers: int) -> int:
        """Returns the steps of an epoch."""
        return self.count // (self.batch * workers)

    @staticmethod
    def make() -> nn.Module:
        layers = [(nn.Linear(size, following), nn.ReLU()) for size, following in itertools.pairwise(rows.LAYERS)]
        return nn.Sequential(*itertools.chain(*layers[:-1]), layers[-1][0])

    def taken(self, chosen: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs(self.images[chosen]), torch.from_numpy(self.labels[chosen])

    def tests(self, chosen: slice) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = (part[chosen] for part in self.test)
        return self.inputs(images), torch.from_numpy(labels)


class Text:
    """Predicts the next byte of the source text of Python's standard library."""

    rate, batch = rows.TEXT_RATE, rows.TEXT_BATCH
    BETWEEN = 16  # bytes from one example to the next
    TESTED = 320  # examples
    STEPS = 100  # counted as one epoch

    def __init__(self, _data: dict):
        self.train, self.test = (np.frombuffer(b"\n".join(part), np.uint8) % 128 for part in files())
        self.count = (len(self.train) - CONTEXT - 1) // self.BETWEEN
        self.tested = self.TESTED

    def per_epoch(self, _workers: int) -> int:
        return self.STEPS

    @staticmethod
    def make() -> nn.Module:
        return Transformer(**rows.TRANSFORMER, context=CONTEXT)

    @staticmethod
    def _pairs(text: np.ndarray, first: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        seen = torch.from_numpy(text[first[:, None] + np.arange(CONTEXT + 1)].astype(np.int64))
        return seen[:, :-1], seen[:, 1:]

    def taken(self, chosen: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        return self._pairs(self.train, chosen * self.BETWEEN)

    def tests(self, chosen: slice) -> tuple[torch.Tensor, torch.Tensor]:
        first = np.arange(self.TESTED)[chosen]
        return self._pairs(self.test, first * ((len(self.test) - CONTEXT - 1) // self.TESTED))


class Sharded(Text):
    """The same task with a larger model, for rows under fully_shard."""

    batch = rows.SHARDED_BATCH
    TESTED = 64

    @staticmethod
    def make() -> nn.Module:
        return Transformer(**rows.SHARDED_TRANSFORMER, context=CONTEXT)


TASKS = {"images": Images, "text": Text, "sharded": Sharded}
