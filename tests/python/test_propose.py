# SPDX-License-Identifier: Apache-2.0
"""`propose()`: other choices in the middle of a job, from Python and under DDP."""

import copy
import threading

import numpy as np
import pytest
import torch
import torch.nn as nn
from processes import own_part, run_ranks
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch


def on_all(sessions, body):
    ranks = [threading.Thread(target=body, args=(session,)) for session in sessions]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()


def train(session):
    session.wait(session.sync({"w": np.full(8000, session.rank + 1.0, np.float32)}))
    session.commit()


def test_sessions_apply_the_proposal_of_rank_0():
    sessions = tithe.Session.loop(2, codec="topk:ratio=0.01", lanes=0)
    nothing = {"state": "none", "round": None, "why": "", "rank": None}
    assert sessions[1].proposal() == nothing
    on_all(sessions, train)
    with pytest.raises(ValueError, match="call propose\\(\\) on rank 0"):
        sessions[1].propose({"w": "fp32"})
    with pytest.raises(ValueError, match="did you mean 'w'"):
        sessions[0].propose({"ww": "fp32"})
    with pytest.raises(ValueError, match="the first possible round is 2"):
        sessions[0].propose({"w": "fp32"}, round=1)
    assert sessions[0].proposal() == nothing
    sessions[0].propose({"w": "fp32"}, round=6)
    with pytest.raises(ValueError, match="pending already"):
        sessions[0].propose({"w": "bf16"})
    owed = [session.residual("w", 8000) for session in sessions]
    assert all(debt.any() for debt in owed)
    for _ in range(5):
        on_all(sessions, train)
    for session in sessions:
        assert session.proposal() == {"state": "switched", "round": 6, "why": "", "rank": None}
        assert '"fp32"' in session.choices
        assert "fp32 by gather (rule 1 ('w'))" in session.plan_text()
    on_all(sessions, train)
    assert not any(session.residual("w", 8000).any() for session in sessions)
    state = [session.state() for session in sessions]
    again = tithe.Session.loop(2, codec="topk:ratio=0.01", lanes=0)
    for session, saved in zip(again, state, strict=True):
        session.restore(saved)
        assert session.choices == sessions[0].choices


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 200)
        self.last = nn.Linear(200, 8)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


def step(model, rank, number):
    x = torch.randn(16, 64, generator=torch.Generator().manual_seed(100 * number + rank))
    model(x).square().mean().backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
            p.grad = None


def proposing(rank, world):
    """Trains, proposes choices, and resumes from a checkpoint. Returns proposals, codecs and bits."""
    torch.manual_seed(1)
    net = Net()
    model = DDP(net)
    options = {"codec": "topk:ratio=0.05", "min_values": 0, "timeout": 20.0}
    state = tithe.torch.attach(model, **options)
    number = 0
    for number in range(3):
        step(model, rank, number)
    if rank == 0:
        state.propose({"*bias": "fp32", "first.weight": {"codec": "fp8", "strategy": "ring"}})
    while state.proposal()["state"] != "switched":
        number += 1
        assert number < 2000, state.proposal()
        step(model, rank, number)
    agreed = state.proposal()["round"]
    assert "tensor first.weight: 12800 values, fp8 by ring" in state.plan()
    for _ in range(3):
        number += 1
        step(model, rank, number)
    assert not state.residual(net.first.bias).any()

    # A resumed job with the same start continues with the adopted choices, bit for bit.
    saved, weights = state.state_dict(), copy.deepcopy(net.state_dict())
    assert own_part(saved)["proposed"]
    step(model, rank, number + 1)
    again = Net()
    again.load_state_dict(weights)
    other = tithe.torch.State(parameters=again.named_parameters(), **options)
    other.load_state_dict(saved)
    ddp = DDP(again)
    ddp.register_comm_hook(other, tithe.torch.hook)
    step(ddp, rank, number + 1)
    for a, b in zip(net.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    state.close()
    assert own_part(state.state_dict())["proposed"]
    return agreed, [p.detach().numpy().tobytes() for p in net.parameters()]


def test_a_model_trains_through_a_proposal():
    mine, other = run_ranks(2, proposing)
    assert mine == other


def sixteenth(rank, world):
    """The recipe of docs/guide/optimizers.md, "SGD with momentum". Returns residuals before and after, and bits."""
    torch.manual_seed(1)
    model = DDP(Net())
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    small = {"< 4096": {"codec": "fp8", "group": "small ones"}}
    first = "eden:bits=3,scale=unbiased,feedback=none"
    state = tithe.torch.attach(model, first, optimizer=sgd, choices=small, timeout=20.0)
    residuals = []
    for number in range(2000):
        if number == 4:
            residuals.append(state.residual(model.module.first.weight).norm().item())
            if rank == 0:
                state.propose({**small, ">= 4096": "eden:bits=1"})
        if number > 4 and state.proposal()["state"] == "switched":
            break
        step(model, rank, number)
    for more in range(3):
        step(model, rank, 3000 + more)
    residuals.append(state.residual(model.module.first.weight).norm().item())
    plan = state.plan()
    state.close()
    return residuals, plan, [p.detach().numpy().tobytes() for p in model.parameters()]


def test_recipe_of_a_sixteenth_switches_to_one_bit_with_a_residual():
    (mine, plan, first), (_, _, second) = run_ranks(2, sixteenth)
    assert first == second
    assert mine[0] == 0.0 < mine[1]
    assert "tensor first.weight: 12800 values, eden:bits=1 by" in plan
