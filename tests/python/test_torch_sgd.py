# SPDX-License-Identifier: Apache-2.0
"""attach(optimizer=SGD): momentum before the exchange, where the codec would suffer from it behind; and what torch's
optimizer says of itself meanwhile."""

import pytest
import torch
from processes import run_ranks
from small_jobs import OPTIONS, bits, net, train
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe.torch
from tithe._torch_velocities import Velocities

FORMS = {
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "dampening": {"momentum": 0.8, "dampening": 0.5},
    "decay": {"momentum": 0.9, "weight_decay": 0.05},
    "all": {"momentum": 0.9, "weight_decay": 0.05, "nesterov": True, "maximize": True},
}
# Sends all values, and is none that the table knows, so that momentum moves: the same path as for few bits.
WHOLE = "topk:ratio=1"


def pair(options, rank, steps, codec, groups=False, schedule=None, foreach=False):
    """One model with tithe and one with torch's own all-reduce, and their optimizers."""
    out = []
    for given_codec in (codec, None):
        model = DDP(net())
        weights = [p for p in model.module.parameters() if p.dim() > 1]
        biases = [p for p in model.module.parameters() if p.dim() == 1]
        given = (
            [{"params": weights}, {"params": biases, "momentum": 0.5, "lr": 0.01, "weight_decay": 0.0}]
            if groups
            else model.parameters()
        )
        optimizer = torch.optim.SGD(given, lr=0.02, foreach=foreach, **options)
        scheduler = schedule(optimizer) if schedule else None
        state = tithe.torch.attach(model, optimizer=optimizer, codec=given_codec, **OPTIONS) if given_codec else None
        for step in range(steps):
            train(model, optimizer, rank, [step])
            if scheduler:
                scheduler.step()
        out.append((model, optimizer, state))
    return out


def moved(rank, world, options, groups, foreach):
    (ours, mine, state), (theirs, other, _) = pair(options, rank, 60, WHOLE, groups, foreach=foreach)
    assert [type(tie) for tie in state._ties.all] == [Velocities]
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=2e-5, atol=2e-6)
    told = [{k: v for k, v in g.items() if k not in ("params", "tithe_carries_momentum")} for g in mine.param_groups]
    assert told == [{k: v for k, v in g.items() if k != "params"} for g in other.param_groups]
    return bits(ours.parameters())


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_with_a_codec_that_sends_all_it_is_torchs_sgd(form, groups, foreach):
    first, second = run_ranks(2, moved, FORMS[form], groups, foreach)
    assert first == second


def one_cycle(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=100, cycle_momentum=True)


def cycled(rank, world):
    (ours, mine, _), (theirs, other, _) = pair(
        {"momentum": 0.9, "weight_decay": 0.01}, rank, 60, WHOLE, schedule=one_cycle
    )
    assert mine.param_groups[0]["momentum"] == other.param_groups[0]["momentum"] != 0.9
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=2e-5, atol=2e-6)
    return True


def test_a_scheduler_of_momentum_is_followed():
    assert run_ranks(2, cycled) == [True] * 2


def twice(rank, world):
    """The same where the optimizer is not told."""
    models = [DDP(net()) for _ in range(2)]
    tithe.torch.attach(models[0], codec="topk:ratio=1,feedback=momentum,mask=off", **OPTIONS)
    for model in models:
        train(model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9), rank, range(60))
    first, second = (list(model.parameters()) for model in models)
    return max((p - q).abs().max().item() for p, q in zip(first, second, strict=True))


def test_momentum_twice_would_be_seen():
    assert min(run_ranks(2, twice)) > 1e-2


def untouched(rank, world, codec):
    (ours, mine, state), (theirs, other, _) = pair(FORMS["decay"], rank, 20, codec)
    assert state._ties is None
    if codec == "fp32":
        assert bits(ours.parameters()) == bits(theirs.parameters())
        for name, value in other.state_dict()["state"].items():
            assert torch.equal(mine.state_dict()["state"][name]["momentum_buffer"], value["momentum_buffer"])
    assert mine.state_dict()["param_groups"] == other.state_dict()["param_groups"]
    return True


@pytest.mark.parametrize("codec", ["fp32", "fp8"])
def test_where_momentum_behind_the_codec_loses_nothing_it_stays(codec):
    """Two ranks: DDP's mean has the bits of tithe's fp32."""
    assert run_ranks(2, untouched, codec) == [True] * 2
