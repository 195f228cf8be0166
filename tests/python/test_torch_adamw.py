# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.optim.AdamW: torch's while nothing is compressed, and what it divides by when something is."""

import copy
import io

import pytest
import torch
import torch.distributed as dist
from processes import own_part, run_ranks
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe.torch
from tithe import _torch_adamw, _torch_squares

OPTIONS = {"min_values": 0, "timeout": 20.0}


def net(width=24):
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(width, 40), torch.nn.Tanh(), torch.nn.Linear(40, 6))


def batch(rank, step, width=24):
    draws = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(16, width, generator=draws), torch.randint(6, (16,), generator=draws)


def train(model, optimizer, rank, steps):
    for step in steps:
        inputs, targets = batch(rank, step)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()


def bits(values):
    return [v.detach().numpy().tobytes() for v in values]


def plain_state(optimizer):
    return {k: {n: v.clone() for n, v in s.items() if torch.is_tensor(v)} for k, s in enumerate(optimizer.state.values())}


# ---- As torch's


def as_torch(rank, world, options, attached):
    ours, theirs = net(), net()
    model = DDP(ours)
    mine = tithe.torch.optim.AdamW(ours.parameters(), lr=1e-2, **options, **attached[1])
    other = torch.optim.AdamW(theirs.parameters(), lr=1e-2, **options)
    tithe.torch.attach(model, optimizer=mine, codec=attached[0], **OPTIONS)
    for step in range(12):
        for m, o in ((model, mine), (theirs, other)):
            train(m, o, rank, [step])
        assert bits(ours.parameters()) == bits(theirs.parameters()), step
    state, known = mine.state_dict(), other.state_dict()
    assert state["param_groups"] == known["param_groups"]
    for key, values in known["state"].items():
        for name, value in values.items():
            assert torch.equal(state["state"][key][name], value), name


@pytest.mark.parametrize(
    "options", [{}, {"amsgrad": True, "weight_decay": 0.1}, {"maximize": True, "betas": (0.8, 0.9)}, {"foreach": True}]
)
@pytest.mark.parametrize(
    "attached",
    [("fp32", {}), ("onebit", {"exact": 100, "warmup_codec": "fp32"}), ("fp32", {"variance": "sent"})],
    ids=["lossless", "exact longer than the run", "sent"],
)
def test_where_nothing_is_compressed_it_is_torchs_bit_for_bit(options, attached):
    run_ranks(1, as_torch, {"foreach": False, **options}, attached)


def test_unattached_it_is_torchs():
    ours, theirs = net(), net()
    mine = tithe.torch.optim.AdamW(ours.parameters(), lr=1e-2)
    other = torch.optim.AdamW(theirs.parameters(), lr=1e-2)
    for model, optimizer in ((ours, mine), (theirs, other)):
        train(model, optimizer, 0, range(5))
    assert bits(ours.parameters()) == bits(theirs.parameters())


def test_hooks_of_a_step_are_called_once():
    torch.optim.AdamW(net().parameters())  # so that torch has put its own wrapper around its class's step
    model, calls = net(), []
    optimizer = tithe.torch.optim.AdamW(model.parameters())
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    train(model, optimizer, 0, range(3))
    assert calls == [1, 1, 1]


def test_a_closure_is_called_once():
    model, calls = net(), []
    optimizer = tithe.torch.optim.AdamW(model.parameters())

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = model(batch(0, 0)[0]).sum()
        loss.backward()
        return loss

    assert torch.is_tensor(optimizer.step(closure)) and calls == [1]


# ---- The step itself


def alone(p, grads, **group):
    """What _step makes of a parameter, and torch's AdamW of the same."""
    q = torch.nn.Parameter(p.clone())
    group = {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1, "amsgrad": False, "maximize": False, **group}
    theirs = torch.optim.AdamW([q], foreach=False, **group)
    mine = torch.nn.Parameter(p.clone())
    state = _torch_adamw.AdamW([mine])._state_of(mine, group)
    for grad in grads:
        mine.grad, q.grad = grad.clone(), grad.clone()
        with torch.no_grad():
            _torch_adamw._step(mine, state, group)
        theirs.step()
    return mine, q, state


@pytest.mark.parametrize("options", [{}, {"amsgrad": True}, {"maximize": True}])
def test_without_squares_the_step_is_torchs(options):
    torch.manual_seed(0)
    mine, theirs, state = alone(torch.randn(50), torch.randn(20, 50), **options)
    torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)
    assert state["step"] == 20


def job(codec, world=4, steps=60, width=24, **more):
    return run_ranks(world, compressed, codec, steps, width, more)


def compressed(rank, world, codec, steps, width, more):
    ours = net(width)
    model = DDP(ours)
    optimizer = tithe.torch.optim.AdamW(ours.parameters(), lr=1e-2, **more)
    state = tithe.torch.attach(model, optimizer=optimizer, codec=codec, **OPTIONS)
    losses, same = [], []
    for step in range(steps):
        inputs, targets = batch(rank, step, width)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        same.append(bits(ours.parameters()))
    return same, {k: v.numpy().tobytes() for k, v in enumerate(s["mean_square"] for s in optimizer.state.values() if "mean_square" in s)}, state.plan()


@pytest.mark.parametrize("codec", ["fp8", "minmax", "onebit", "topk:ratio=0.1", "powersgd", "thc"])
def test_replicas_are_bit_identical(codec):
    first, *others = job(codec, world=3, steps=12)
    assert all(other[:2] == first[:2] for other in others)
    assert len(first[1]) == 4 and "(squares)" in first[2]


def windows(rank, world):
    """With bf16, which loses next to nothing: what is divided by, beside torch's of the same gradients."""
    ours = net()
    model = DDP(ours)
    optimizer = tithe.torch.optim.AdamW(ours.parameters(), lr=0.0, betas=(0.9, 0.99))
    tithe.torch.attach(model, optimizer=optimizer, codec="bf16", **OPTIONS)
    true = [torch.zeros_like(p) for p in ours.parameters()]
    for step in range(65):
        train(model, optimizer, rank, [step])
        if step < 63:
            for t, p in zip(true, ours.parameters(), strict=True):
                t.mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
    for t, p in zip(true, ours.parameters(), strict=True):
        state = optimizer.state[p]
        assert state["mean_square_steps"] == 63
        found = state["mean_square"] / (1 - 0.99**63)
        # Weights within a window are even, so the two differ a little where gradients change; here they do not.
        assert ((found / (t / (1 - 0.99**63))).log().abs().median() < 0.05)
    return True


def test_the_squares_are_those_of_the_mean_gradient():
    assert run_ranks(4, windows) == [True] * 4


def test_when_windows_end():
    assert [s for s in range(450) if _torch_squares.is_due(s)] == [2, 4, 8, 16, 32, 64, 100, 200, 300, 400]
