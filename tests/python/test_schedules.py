# SPDX-License-Identifier: Apache-2.0
"""Schedules: the codec's ratio in each round, and the agreement of the ranks."""

import numpy as np
import pytest
import torch
import torch.nn as nn
from processes import run_ranks
from test_core import gaussian, run_threads
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch

VALUES = 20_000


def one_round(session):
    session.wait(session.sync({"w": gaussian(VALUES, session.rank)}))
    session.commit()


def test_warmup_sends_less_from_stage_to_stage():
    def job(session):
        ratios, sent = [], [0]
        for _ in range(5):
            ratios.append(session.ratio)
            one_round(session)
            sent.append(session.stats()["bytes_sent"])
        return ratios, np.diff(sent)

    with_ratio = tithe.Session.loop(2, codec="topk:ratio=0.001", strategy="gather", schedule="warmup:4")
    for ratios, sent in run_threads(with_ratio, job):
        np.testing.assert_allclose(ratios, [0.25, 0.0625, 0.015625, 0.004, 0.001], rtol=0.03)
        np.testing.assert_allclose(sent, [VALUES * 8 * r + 76 for r in ratios], rtol=0.05)


def test_worse_accuracy_raises_the_ratio_until_it_recovers():
    def job(session):
        ratios = []
        for accuracy in (0.8, 0.9, 0.7, 0.85, 0.9, 0.91):
            one_round(session)
            session.evaluated(accuracy=accuracy)
            ratios.append(session.ratio)
        return ratios

    sessions = tithe.Session.loop(2, codec="qtopk:ratio=0.01", schedule="recover:0.1")
    assert run_threads(sessions, job) == [[0.01, 0.01, 0.04, 0.16, 0.04, 0.01]] * 2


def test_theta_follows_the_learning_rate():
    (session,) = tithe.Session.loop(1, codec="topk:ratio=0.01", schedule="theta:1")
    assert session.ratio == 0.01
    session.evaluated(learning_rate=0.25, loss=1.0)  # theta = 0.5; the loss is not followed
    assert session.ratio == pytest.approx(0.5, rel=0.2) and session.ratio >= 0.5
    session.evaluated(learning_rate=1e-9)
    assert session.ratio == 1


def test_without_a_schedule_evaluations_change_nothing():
    (session,) = tithe.Session.loop(1, codec="topk")
    assert session.ratio is None
    session.evaluated(loss=1.0, learning_rate=0.1)
    session.evaluated(loss=9.0)
    assert session.ratio is None


@pytest.mark.parametrize(
    ("schedule", "codec", "why"),
    [
        ("warm:4", "topk", "warmup:ROUNDS"),
        ("warmup:0", "topk", "more than 0"),
        ("recover+recover", "topk", "twice"),
        ("warmup:4", "onebit", "no parameter 'ratio'"),
    ],
)
def test_wrong_schedules_are_refused_at_once(schedule, codec, why):
    with pytest.raises(ValueError, match=why):
        tithe.Session.loop(1, codec=codec, schedule=schedule)
    with pytest.raises(ValueError, match=why):
        tithe.torch.State(codec=codec, schedule=schedule)


def test_wrong_evaluations_are_refused():
    (session,) = tithe.Session.loop(1, codec="topk", schedule="recover+theta:1")
    for given, why in [
        ({}, "pass the evaluation"),
        ({"loss": 1.0, "accuracy": 0.5, "learning_rate": 0.1}, "not both"),
        ({"accuracy": 89.0, "learning_rate": 0.1}, "0 .. 1"),
        ({"loss": 1.0, "learning_rate": 0.0}, "more than 0"),
        ({"learning_rate": 0.1}, "follows the evaluations"),
        ({"loss": 1.0}, "follows the learning rate"),
    ]:
        with pytest.raises(ValueError, match=why):
            session.evaluated(**given)
    session.evaluated(loss=1.0, learning_rate=0.1)
    with pytest.raises(ValueError, match="stay with one"):
        session.evaluated(accuracy=0.5, learning_rate=0.1)


# ---- Under DDP


def make_model():
    torch.manual_seed(0)
    return DDP(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)))


def steps(model, rank, count, seed):
    torch.manual_seed(100 * seed + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).pow(2).mean().backward()
        optimizer.step()


OPTIONS = {"codec": "topk:ratio=0.01", "min_values": 0, "timeout": 20.0, "schedule": "warmup:2+recover:0.1"}


def report_and_train(rank, world):
    model = make_model()
    state = tithe.torch.attach(model, **OPTIONS)
    ratios = [state.ratio]
    steps(model, rank, 3, 0)
    ratios.append(state.ratio)
    state.evaluated(loss=1.0 if rank == 0 else None)  # only rank 0 has evaluated
    state.evaluated(loss=[0.5, 2.5][rank])  # each rank evaluated its part: the mean is 1.5
    ratios.append(state.ratio)
    steps(model, rank, 2, 1)
    refused = []
    for given in ({"accuracy": 0.5}, {"loss": 1.0, "learning_rate": 0.1 + rank}, {}):
        with pytest.raises(ValueError) as wrong:
            state.evaluated(**given)
        refused.append(str(wrong.value))
    state.evaluated(loss=torch.tensor(1.0))
    ratios.append(state.ratio)
    steps(model, rank, 1, 2)
    bits = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy().tobytes()
    state.close()
    return ratios, refused, bits


def test_ranks_agree_on_evaluations_under_ddp():
    (ratios, refused, bits), other = run_ranks(2, report_and_train)
    assert (ratios, refused, bits) == other
    assert ratios == [0.25, 0.01, 0.04, 0.01]
    assert "stay with one" in refused[0] and "differ between ranks" in refused[1]
    assert "pass the evaluation" in refused[2]


def resume(rank, world, folder, through_a_file):
    model = make_model()
    state = tithe.torch.attach(model, **OPTIONS)
    steps(model, rank, 3, 0)
    state.evaluated(loss=1.0)
    state.evaluated(loss=2.0)
    if through_a_file:
        torch.save((state.state_dict(), model.state_dict()), f"{folder}/{rank}.pt")
        state.close()
        model = make_model()
        state = tithe.torch.attach(model, **OPTIONS)
        saved, weights = torch.load(f"{folder}/{rank}.pt")
        state.load_state_dict(saved)
        model.load_state_dict(weights)
    with pytest.raises(ValueError, match="stay with one"):
        state.evaluated(accuracy=0.5)
    ratio = state.ratio
    steps(model, rank, 3, 1)
    bits = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy().tobytes()
    state.close()
    return ratio, bits


def test_resume_restores_the_schedule(tmp_path):
    straight = run_ranks(2, resume, tmp_path, False)
    assert run_ranks(2, resume, tmp_path, True) == straight
    assert straight[0][0] == 0.04
