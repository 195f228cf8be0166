# SPDX-License-Identifier: Apache-2.0
"""The default codec of attach() must not reduce accuracy, whatever the optimizer."""

import functools
import inspect
import sys

import numpy as np
import pytest
import torch
import torch.nn as nn
from processes import run_ranks
from test_demo import ROOT
from test_propose import on_all
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe.torch
from tithe.torch._optimizer import adapters

sys.path.insert(0, str(ROOT))

from lab.study import models  # noqa: E402

WORLD = 2
MARGIN = 0.03  # nats of loss, after training
SPARSE = "qtopk:ratio=0.03"
SMALL = 2.0**-12  # a factor of the loss: AdamW is independent of the scale of gradients, and codecs must be too


class Text:
    """Trains a small transformer on the project's licence."""

    steps = 60

    def __init__(self):
        self.model = models.Transformer(blocks=1)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=4e-3)
        text = torch.frombuffer(bytearray((ROOT / "LICENSE").read_bytes()), dtype=torch.uint8).long()
        self.inputs, self.targets = models.windows(text, 1)


class Images:
    """Trains a small convnet that distinguishes eight directions of stripes in noise."""

    steps = 120

    def __init__(self):
        self.model = nn.Sequential(
            *(
                nn.Conv2d(1, 16, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Conv2d(16, 32, 3, stride=2, padding=1),
                nn.ReLU(),
            ),
            *(nn.Flatten(), nn.Linear(32 * 16, 32), nn.ReLU(), nn.Linear(32, 8)),
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        random = torch.Generator().manual_seed(7)
        self.targets = torch.randint(8, (4000,), generator=random)
        angle = self.targets * torch.pi / 8
        y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
        along = x * angle.cos()[:, None, None] + y * angle.sin()[:, None, None]
        phase = 2 * torch.pi * torch.rand(4000, 1, 1, generator=random)
        stripes = (along + phase).sin() + 0.5 * torch.randn(4000, 16, 16, generator=random)
        self.inputs = stripes[:, None]


def trained(rank, world, job, options, scale=1.0):
    """Returns the loss on fixed data after training through attach(model, **options). The rate increases, then
    decreases to zero."""
    torch.manual_seed(0)
    job = job()
    model = DDP(job.model)
    state = tithe.torch.attach(model, timeout=60.0, **options)
    random = torch.Generator().manual_seed(1 + rank)
    peak = job.optimizer.param_groups[0]["lr"]
    for step in range(job.steps):
        job.optimizer.param_groups[0]["lr"] = peak * min((step + 1) / 10, 1 - step / job.steps)
        chosen = torch.randint(len(job.inputs), (16,), generator=random)
        job.optimizer.zero_grad()
        loss = cross_entropy(model(job.inputs[chosen]).flatten(0, -2), job.targets[chosen].flatten())
        (scale * loss).backward()
        job.optimizer.step()
    state.close()
    with torch.no_grad():
        few = slice(None, None, 20)
        return cross_entropy(job.model(job.inputs[few]).flatten(0, -2), job.targets[few].flatten()).item()


def train_all(rank, world):
    """Runs all jobs in the same processes, one after the other: starting processes takes longer than a job."""
    runs = {
        "text fp32": (Text, {"codec": "fp32"}),
        "text default": (Text, {}),
        "text sparse": (Text, {"codec": SPARSE, "strategy": "server"}),
        "small text fp32": (Text, {"codec": "fp32"}, SMALL),
        "small text default": (Text, {}, SMALL),
        "small text inceptionn": (Text, {"codec": "inceptionn"}, SMALL),
        "images fp32": (Images, {"codec": "fp32"}),
        "images default": (Images, {}),
    }
    return {name: trained(rank, world, *run) for name, run in runs.items()}


@functools.cache
def losses():
    return run_ranks(WORLD, train_all)[0]


def plan(**options):
    sessions = tithe.Session.loop(2, lanes=0, **options)
    on_all(sessions, lambda session: session.wait(session.sync({"w": np.zeros(5000, np.float32)})))
    return sessions[0].plan_text()


def test_default_is_defined_once():
    state = tithe.torch.State()
    parameters = inspect.signature(tithe.torch.attach).parameters
    assert (parameters["codec"].default, parameters["strategy"].default) == (None, state.strategy)
    assert adapters.suitable(None, []) == state.codec  # the same without optimizer=
    assert plan() == plan(codec=state.codec, strategy=state.strategy)
    assert plan() != plan(strategy="server")


@pytest.mark.parametrize("job", ["text", "images", "small text"])
def test_default_codec_reaches_the_loss_of_fp32(job):
    assert losses()[f"{job} default"] < losses()[f"{job} fp32"] + MARGIN, losses()


def test_the_comparison_notices_a_sparse_codec_under_adamw():
    assert losses()["text sparse"] > losses()["text fp32"] + 3 * MARGIN, losses()


def test_the_comparison_notices_a_codec_with_an_absolute_bound():
    assert losses()["small text inceptionn"] > losses()["small text fp32"] + 3 * MARGIN, losses()
