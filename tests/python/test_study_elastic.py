# SPDX-License-Identifier: Apache-2.0
"""The study of jobs that lose and regain ranks: the data and gradients of a rank, and the text of the page."""

import sys

import numpy as np
import pytest
from test_examples import ROOT

torch = pytest.importorskip("torch")
sys.path.insert(0, str(ROOT))

from lab.study import elastic  # noqa: E402
from lab.study.models import Task, mlp  # noqa: E402

STEPS = 20


def trainer(seed=3):
    draw = torch.Generator().manual_seed(5)
    images, labels = torch.randn(600, 784, generator=draw), torch.randint(10, (600,), generator=draw)
    return elastic.Trainer(seed, STEPS, Task(mlp, (images, labels), (images, labels), "%"))


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_of_any_number_share_a_batch(world):
    one, many = trainer(), trainer()
    for _ in range(6):  # into the second epoch
        whole = {name: g.copy() for name, g in one.gradients(0, 1).items()}
        parts = [{name: g.copy() for name, g in many.gradients(r, world).items()} for r in range(world)]
        shares = [len(range(r, elastic.BATCH, world)) / elastic.BATCH for r in range(world)]
        for name, gradient in whole.items():
            mean = sum(share * part[name] for share, part in zip(shares, parts, strict=True))
            assert np.allclose(mean, gradient, atol=1e-5)
        one.step, many.step = one.step + 1, many.step + 1


def test_new_rank_receives_the_complete_state():
    old, new = trainer(), trainer(seed=9)
    for _ in range(3):
        old.gradients(0, 1)
        old.update()
    new.load(old.state_bytes())
    new.seed = old.seed
    for each in (old, new):
        each.gradients(0, 1)
        each.update()
    assert old.state_bytes() == new.state_bytes() and new.step == 4


def test_page_states_the_differences():
    def result(accuracy, **more):
        return {"accuracy": accuracy, "kills": 0, "lost": 0, "epochs": 0, "slowest_reform": 0.0, **more}

    pairs = [
        (result(86.0), result(85.5, kills=5, lost=4, epochs=8, slowest_reform=1.25)),
        (result(87.0), result(87.5, kills=4)),
    ]
    page = elastic.page(pairs, 1872, 30.0)
    assert "Difference +0.00 ± 0.50 points (paired, 2 seeds)" in page and "standard\ndeviation is 0.71" in page
    assert "Difference -0.50 (1 seed)" in elastic.page(pairs[:1], 1872, 30.0)
    assert "| 0 | 86.00 | 85.50 | -0.50 | 5 | 4 | 8 | 1.25 s |" in page
