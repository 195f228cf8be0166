# SPDX-License-Identifier: Apache-2.0
"""The study of optimizers: its runs match their descriptions, its verdict is fair, and the documents contain its
results."""

import dataclasses
import shutil
import sys

import numpy as np
import pytest
import torch
from test_demo import ROOT, data  # noqa: F401 (a fixture)

sys.path[:0] = [str(ROOT), str(ROOT / "tools/lint")]

import choosing  # noqa: E402
from lab.study import cells, models, optimizers, verdict  # noqa: E402


@pytest.fixture
def tasks(data):  # noqa: F811
    return models.Tasks(str(data))


@pytest.mark.parametrize("cell", cells.CELLS.values(), ids=lambda cell: cell.name)
def test_fp32_is_training_on_all_batches_at_once(cell, tasks):
    task = tasks.by_name[cell.model]
    cell = dataclasses.replace(cell, steps=4, batch=3)
    run = cells.train(cell, "fp32", 5, task)
    torch.manual_seed(5)
    model = task.make()
    optimizer = cells.make_optimizer(cell, model, "fp32")
    random = np.random.default_rng([5, 0])
    for step in range(cell.steps):
        chosen = torch.from_numpy(random.integers(len(task.train[0]), size=cells.RANKS * cell.batch))
        for group in optimizer.param_groups:
            group["lr"] = cells.learning_rate(cell, step)
        model.zero_grad()
        task.loss(model, task.train[0][chosen], task.train[1][chosen]).backward()
        optimizer.step()
    assert run["score"] == pytest.approx(task.score(model), abs=1e-3)
    assert run["values"] == sum(p.numel() for p in model.parameters())
    assert 4 < run["bytes_per_step"] / run["values"] < 7  # 3/4 twice, of four bytes, headers, and parts of squares


def test_momentum_of_a_codec_is_not_applied_twice():
    cell, model = cells.CELLS["mlp, SGD 0.9"], torch.nn.Linear(2, 2)
    assert cells.make_optimizer(cell, model, "dgc").param_groups[0]["momentum"] == 0.9
    assert cells.make_optimizer(cell, model, "dgc:feedback=momentum").param_groups[0]["momentum"] == 0


def details(**codecs):
    """Returns results of two cells: by codec, the difference of each seed from fp32 in mlp with SGD 0.9; zero
    elsewhere."""
    cells = {
        "mlp, SGD 0.9": {"model": "mlp", "optimizer": "SGD 0.9", "rate": 1, "batch": 1, "steps": 1},
        "transformer, AdamW": {"model": "transformer", "optimizer": "AdamW", "rate": 1, "batch": 1, "steps": 1},
    }
    fp32 = [85.0, 85.2, 84.8] * 3
    runs = []
    for codec, differences in {"fp32": [0] * max(map(len, codecs.values())), **codecs}.items():
        for seed, difference in enumerate(differences):
            score = None if difference is None else fp32[seed] + difference
            mine = {"codec": codec, "seed": seed, "bytes_per_step": 600.0, "values": 100, "commit": "0"}
            runs += [{**mine, "cell": "mlp, SGD 0.9", "score": score}]
            runs += [{**mine, "cell": "transformer, AdamW", "score": -2.0}]
    about = {"machine": "a machine", "command": "make study-optimizers", "data": "", "ranks": 4, "strategy": "server"}
    return {**about, "cells": cells, "runs": runs}


@pytest.mark.parametrize(
    ("differences", "near"),
    [
        ([0.0, 0.1, -0.1], True),
        ([-0.2, -0.3, -0.25], True),  # below, but by less than the floor
        ([-0.4, -0.4, -0.41], False),
        ([0.3, -0.6, -0.66], True),  # mean -0.32, which fp32's own seeds explain
        ([2.0, -2.0, -2.0], False),  # erratic: within the spread of its own seeds, not within that of fp32's
        ([0.5, None, 0.5], False),  # diverged once
        ([0.5, -75.5, 0.5], False),  # no better than guessing once
    ],
)
def test_the_verdict(differences, near):
    study = verdict.Study(details(topk=differences))
    assert study.near("mlp, SGD 0.9", "topk") is near
    assert study.near("transformer, AdamW", "topk")
    assert study.safe("topk") is near
    assert study.safe("topk", "AdamW") is True
    assert study.safe("topk", "SGD") is not False
    table = verdict.gaps(study)
    assert ("**yes**" in table) is near
    assert ("**diverged**" in table) is (None in differences or -75.5 in differences)


def test_without_the_floor_significant_differences_are_not_equal():
    study = verdict.Study(details(topk=[-0.1, -0.12, -0.11], dgc=[-0.1, 0.12, -0.11], fft=[0.1, None, 0.1]))
    assert study.safe("topk") and not study.strictly_safe("topk")
    assert study.safe("dgc") and study.strictly_safe("dgc")
    assert not study.strictly_safe("fft")


def test_significant_differences_within_the_floor_are_nearly_equal():
    behind = [-0.1, -0.2, -0.15, -0.1, -0.2, -0.15, -0.1]
    for differences, says in ((behind, "nearly: 0.14 points (mlp)"), (behind[:6], "yes"), ([0.3, *behind[1:]], "yes")):
        study = verdict.Study(details(topk=differences))
        assert study.safe("topk")
        assert (choosing.verdict_of(study, "topk", "SGD 0.9"), choosing.verdict_of(study, "topk", "AdamW")) == (
            says,
            "yes",
        )
    assert choosing.verdict_of(verdict.Study(details(topk=[-1.0] * 7)), "topk", "SGD 0.9") == "no: 1.0 points (mlp)"


def test_codec_with_missing_runs_is_not_called_safe():
    some = details(topk=[0.0, 0.0, 0.0])
    some["runs"] = [run for run in some["runs"] if run["codec"] == "fp32" or "mlp" in run["cell"]]
    study = verdict.Study(some)
    assert study.safe("topk") is None and study.safe("topk", "SGD 0.9") is True
    assert "1 of 1 run" not in verdict.verdict(study, "fp32")
    assert "**yes**" not in verdict.verdict(study, "topk")


def test_results_resume_only_within_the_same_study(tmp_path):
    results = optimizers.Results(tmp_path, "some data", False)
    cell = cells.CELLS["mlp, AdamW"]
    run = {"cell": cell.name, "codec": "topk", "seed": 1, "score": 84.0, "bytes_per_step": 10.0, "values": 5}
    results.add({**run, "commit": "0"})
    again = optimizers.Results(tmp_path, "some data", True)
    assert again.has((cell, "topk", 1)) and not again.has((cell, "topk", 2))
    assert not optimizers.Results(tmp_path / "other", "some data", True).has((cell, "topk", 1))
    with pytest.raises(ValueError, match="'data' differs"):
        optimizers.Results(tmp_path, "other data", True)


@pytest.fixture
def tree(tmp_path):
    for name in (
        *(
            "docs/start/choosing.md",
            "include/tithe/options.def",
            "include/tithe/codecs.def",
            "apps/tithe/codec/choosing.def",
        ),
        *("lab/results/study_optimizers.json", "lab/results/study_optimizers.md", "lab/results/study.json"),
        "python/tithe/_studied.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_tree_matches_the_studys_findings(tree):
    assert list(choosing.check(tree, write=False)) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("docs/start/choosing.md", "| yes |", "| no |", "differs from what it is written from"),
        ("lab/results/study_optimizers.md", "**yes**", "no", "differs from what it is written from"),
        (
            "lab/results/study_optimizers.json",
            '"codec": "topk"',
            '"codec": "fft"',
            "differs from what it is written from",
        ),
        ("include/tithe/options.def", 'codec, "fp8"', 'codec, "onebit"', "not within noise of fp32"),
        ("include/tithe/options.def", 'codec, "fp8"', 'codec, "thc"', "can be told from fp32"),
        ("docs/start/choosing.md", "`fp8`", "`best`", "does not name the default"),
    ],
)
def test_choosing_catches(tree, name, old, new, says):
    text = (tree / name).read_text()
    assert old in text
    (tree / name).write_text(text.replace(old, new))
    assert any(says in what for _, _, what in choosing.check(tree, write=False))
