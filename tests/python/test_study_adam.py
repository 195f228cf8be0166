# SPDX-License-Identifier: Apache-2.0
"""The study of AdamW: its arms run, its other rules for squares compute their definitions, its verdict is fair."""

import dataclasses
import sys

import numpy as np
import pytest
import torch
from test_demo import ROOT, data  # noqa: F401 (a fixture)

sys.path.insert(0, str(ROOT))

import tithe  # noqa: E402
from lab.study import adam, adam_verdict, arms, cells, models, variances  # noqa: E402

PAIR = arms.Arm("bytes", "AdamW", "eden"), arms.Arm("bytes", "AdamW", "fp32")


def test_every_arm_can_be_run():
    for arm in arms.all_arms():
        codec, choices = cells.parsed(cells.begun(arm.codec)[0])
        tithe.check_spec(codec)
        assert arm.reference() in arms.all_arms(), arm.name
        assert arm.cell.steps > 0 and all(rule for rule in choices.values())
    assert cells.parsed("eden; < 4096: fp8 in a group; a.*: fp32") == (
        "eden",
        {"< 4096": {"codec": "fp8", "group": "small ones"}, "a.*": "fp32"},
    )


@pytest.mark.parametrize("optimizer", [cells.TIED, *variances.RULES])
def test_an_arm_trains_and_its_squares_are_counted(data, optimizer):  # noqa: F811
    task = models.Tasks(str(data)).by_name["convnet"]
    cell = dataclasses.replace(arms.Arm("convnet", optimizer, "fp32").cell, steps=8, batch=2)
    plain = cells.train(dataclasses.replace(cell, optimizer="AdamW"), "fp32", 1, task)
    run = cells.train(cell, "fp32", 1, task)
    if optimizer == "AdamW local":
        assert run["score"] is not None
    else:  # with fp32 and few steps, all of these equal AdamW
        assert run["score"] == pytest.approx(plain["score"], abs=1)
    assert run["bytes_per_step"] > plain["bytes_per_step"]


def grown(steps):
    rule = variances.Growing([torch.nn.Parameter(torch.zeros(1))])
    out = []
    for rule.steps in range(1, steps):
        if rule.due():
            out.append(rule.steps)
    return out


def test_growing_gaps_double_after_sixteen():
    due = grown(400)
    assert due[:17] == [*range(1, 17), 18]
    assert set(np.diff(due)) == {1, 2, 4, 8, 16}
    assert [int(n) for n in np.unique(np.diff(due), return_counts=True)[1][:3]] == [15, 16, 16]


def squares(rule, gradients):
    """Returns the divisors of a rule after these steps, for one parameter; gradients by step, by rank."""
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = variances.RULES[rule]([p], lr=0.0, betas=(0.9, 0.9))
    seen = []
    for step in gradients:
        optimizer.sees([[torch.tensor([g])] for g in step])
        p.grad = torch.tensor([sum(step) / len(step)])
        optimizer.step()
        seen.append(optimizer.square(optimizer.state[p], torch.tensor([0.5])).item())
    return seen


def test_rules_divide_by_their_stated_term():
    same = squares("AdamW frozen", [(1.0, 3.0)] * 120 + [(9.0, 9.0)] * 20)
    assert same == pytest.approx([4.0] * 140)  # the square of the mean, and of the first hundred steps only
    assert squares("AdamW growing", [(1.0, 3.0)] * 30) == pytest.approx([4.0] * 30)
    assert squares("AdamW local", [(1.0, 3.0)] * 30) == pytest.approx([(0.25 + 5.0) / 2] * 30)  # (1 + 9) / 2 = 5


def details(differences):
    runs = []
    for arm, offsets in zip(PAIR, (differences, [0.0] * len(differences)), strict=True):
        for seed, offset in enumerate(offsets):
            score = None if offset is None else -2.0 + offset
            runs.append(
                {"arm": arm.name, "seed": seed, "score": score, "bytes_per_step": 1.0, "values": 1, "seconds": 1}
            )
    return {"share": 1, "runs": runs}


@pytest.mark.parametrize(
    ("differences", "near"),
    [
        ([0.001, -0.002, 0.003], True),
        ([-0.018, -0.019, -0.018], True),
        ([-0.03, -0.03, -0.031], False),
        ([0.1, -0.1, 0.0], False),  # not decidable
        ([0.0, None, 0.0], False),
        ([0.001], None),
    ],
)
def test_the_verdict(differences, near):
    study = adam_verdict.Study(details(differences))
    assert study.near(*PAIR) is near
    row = adam_verdict.row(study, *PAIR, "")
    assert (row[6] == "within noise") is (near is True)


@pytest.mark.parametrize(("differences", "says"), [([-0.3, -0.31], "as it must"), ([0.0, 0.001], "did not fall short")])
def test_passing_control_is_reported(differences, says):
    study = adam_verdict.Study(details(differences))
    assert says in adam_verdict.row(study, dataclasses.replace(PAIR[0], control=True), PAIR[1], "")[6]


def test_individual_rate_is_found_in_two_rounds():
    arm, runs = PAIR[0], []

    def ran(some, score):
        for tried, seed in some:
            run = {"arm": tried.name, "seed": seed, "score": score(tried.factor, seed)}
            runs.append({**run, "bytes_per_step": 1.0, "values": 1, "seconds": 1})
        return adam_verdict.Study({"share": 1, "runs": runs})

    empty = ran([], None)
    coarse = empty.tuning(arm)
    assert coarse == [(arm.at(f), arms.TUNED_ON[0]) for f in arms.FACTORS]
    assert empty.best(arm) is None
    study = ran(coarse, lambda factor, seed: None if factor == 4 else -abs(factor - 2))
    assert study.best(arm) == 2  # the finer factors did not run
    finer = [run for run in study.tuning(arm) if run not in coarse]
    assert {(tried.factor, seed) for tried, seed in finer} == {
        (1.4, 100), (1.4, 101), (2, 101), (2.8, 100), (2.8, 101),
    }  # fmt: skip
    study = ran(finer, lambda factor, seed: {1.4: 0.5, 2: -1.0, 2.8: None if seed == 101 else 2.0}[factor])
    assert study.best(arm) == 1.4  # on both seeds; a factor that diverged on one of them is excluded
    assert study.differences(arm.at(2), arm.at(1.4)) == []  # such seeds are not compared


def test_runs_of_other_lengths_are_separate(tmp_path):
    results = adam.Results(tmp_path, "some data", 0.4, False)
    results.add({"arm": PAIR[0].name, "seed": 0, "score": 1.0, "commit": "0"})
    assert (PAIR[0].name, 0) in adam.Results(tmp_path, "some data", 0.4, True).known
    with pytest.raises(ValueError, match="'share' differs"):
        adam.Results(tmp_path, "some data", 1, True)
