# SPDX-License-Identifier: Apache-2.0
"""A backward inside a backward: DDP ends inside it, where it hands over the last bucket, and so must the hook."""

import os
import signal
import time

import pytest
import torch
import torch.nn as nn
from processes import Ranks, own_part, run_ranks, wait_until
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

import tithe
import tithe.torch

WIDTH, LAYERS, STEPS = 64, 5, 4
BUCKETS = {"bucket_cap_mb": 0.01}  # one per layer, from the second step on
OPTIONS = {"min_values": 0, "timeout": 20.0}


class Layers(nn.Module):
    """A model whose forward() gets the function that runs its layers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, x, run):
        return run(self.layers, x).pow(2).mean()


def plain(layers, x):
    for layer in layers:
        x = torch.tanh(layer(x))
    return x


def reentrant(layers, x):
    for layer in layers:
        x = checkpoint(lambda y, layer=layer: torch.tanh(layer(y)), x, use_reentrant=True)
    return x


def not_reentrant(layers, x):
    for layer in layers:
        x = checkpoint(lambda y, layer=layer: torch.tanh(layer(y)), x, use_reentrant=False)
    return x


def in_one_another(layers, x):
    """Nested checkpoints: the backward of each layer runs inside that of the next layer."""
    if len(layers) == 0:
        return x
    inner = checkpoint(lambda y: in_one_another(layers[:-1], y), x, use_reentrant=True)
    return torch.tanh(layers[-1](inner))


def half(layers, x):
    """The outer backward hands over the last bucket, of the first layers."""
    return reentrant(layers[2:], plain(layers[:2], x))


def other_half(layers, x):
    """An inner backward hands over the last bucket."""
    return plain(layers[3:], reentrant(layers[:3], x))


class Nested(torch.autograd.Function):
    """Its backward computes gradients of its own, of the same parameters."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x

    @staticmethod
    def backward(ctx, grad):
        x, weight = (t.detach().requires_grad_() for t in ctx.saved_tensors)
        with torch.enable_grad():
            found = torch.autograd.grad(torch.tanh(x @ weight).sum(), (x, weight))
        return grad + 0.1 * found[0], 0.1 * found[1]


def gradients_inside(layers, x):
    for layer in layers:
        x = torch.tanh(layer(Nested.apply(x, layer.weight)))
    return x


RUNS = {r.__name__: r for r in (reentrant, not_reentrant, in_one_another, half, other_half, gradients_inside)}
CHECKPOINTS = set(RUNS) - {"gradients_inside"}  # these have the gradients of `plain`


def batch(rank, step):
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(100 * rank + step), requires_grad=True)


def backward(model, rank, step, run):
    model(batch(rank, step), run).backward()


def penalty(model, rank, step, run):
    """A backward through a backward: the loss contains the gradient of the input."""
    x = batch(rank, step)
    loss = model(x, run)
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    (loss + slope.pow(2).sum()).backward()


def whole(model, rank, step, run):
    """The model as a part of a backward: forward and backward both run inside."""
    checkpoint(lambda x: model(x, run), batch(rank, step), use_reentrant=True).backward()


def trained(rank, run, step_of=backward, attach=None, **ddp):
    model = DDP(Layers(), **BUCKETS, **ddp)
    state = None if attach is None else tithe.torch.attach(model, **attach, **OPTIONS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        step_of(model, rank, step, run)
        optimizer.step()
    if state is not None:
        assert state.stats()["rounds"] == STEPS
        assert state.plan().count("layout") > 2, "too few buckets to say anything"
        state.close()
    return [p.detach().numpy().tobytes() for p in model.parameters()]


def all_runs(rank, world):
    """Returns the names of the cases that differ: from plain DDP with fp32, or from the same model without checkpoints
    with the default."""
    wrong = []
    expected = trained(rank, plain, attach={})
    for name, run in RUNS.items():
        for static in (False, True):
            if trained(rank, run, static_graph=static) != trained(
                rank, run, attach={"codec": "fp32"}, static_graph=static
            ):
                wrong.append(f"{name}, static_graph={static}: fp32")
        if name in CHECKPOINTS and trained(rank, run, attach={}) != expected:
            wrong.append(f"{name}: default codec")
    for step_of in (penalty, whole):
        if trained(rank, plain, step_of) != trained(rank, plain, step_of, {"codec": "fp32"}):
            wrong.append(step_of.__name__)
    return wrong


def test_nested_backward_equals_training_without_tithe():
    """If each bucket were awaited at the end of its own backward, all ranks would hang from the second step on, because
    another backward hands over the last bucket."""
    assert run_ranks(2, all_runs) == [[], []]


# ---- An exception inside reaches the caller unchanged


def lost_inside(rank, world, folder):
    model = DDP(Layers(), **BUCKETS)
    tithe.torch.attach(model, **OPTIONS)
    for step in range(3):
        backward(model, rank, step, reentrant)
    open(f"{folder}/{rank}", "w").close()
    time.sleep(60 if rank == 1 else 0)
    try:
        for step in range(100):
            backward(model, rank, step, reentrant)
    except tithe.Error as lost:
        return lost.code, lost.peer
    return None


def test_peer_lost_during_a_nested_backward_is_named(tmp_path):
    with Ranks(2, lost_inside, str(tmp_path)) as ranks:
        wait_until(lambda: len(os.listdir(tmp_path)) == 2, 120)
        os.kill(ranks.processes[1].pid, signal.SIGKILL)
        assert ranks.result(0, 60) == ("peer_lost", 1)


# ---- Every wait ends


def waits_in_the_hook(rank, world):
    def hook(state, bucket):
        future = tithe.torch.hook(state, bucket)
        future.wait()  # the step's other buckets follow only after this one
        return future

    model = DDP(Layers(), **BUCKETS)
    state = tithe.torch.State(parameters=model.module.named_parameters(), min_values=0, timeout=2.0, patience=2.0)
    model.register_comm_hook(state, hook)
    backward(model, rank, 0, plain)  # one bucket
    before = state.state_dict()
    with pytest.raises(RuntimeError) as ended:
        backward(model, rank, 1, plain)
    after = state.state_dict()
    assert torch.equal(own_part(before)["session"], own_part(after)["session"])
    model = DDP(Layers(), **BUCKETS)
    tithe.torch.attach(model, **OPTIONS)
    for step in range(2):
        backward(model, rank, step, plain)
    # The last buckets are never handed over, and DDP does not wait for them
    backward(model, rank, 2, lambda layers, x: plain(layers[2:], x))
    with pytest.raises(RuntimeError, match="find_unused_parameters=True"):
        backward(model, rank, 3, plain)
    return str(ended.value)


def test_step_without_its_last_bucket_names_the_missing_parameters():
    """In the hook the step ends after patience. If DDP itself does not wait, tithe must not wait either."""
    for error in run_ranks(2, waits_in_the_hook):
        assert "handed over bucket 0 and then nothing for 2 s" in error, error
        assert "buckets after 0 were waited for" in error and "'layers.0.weight'" in error, error
        assert "does not wait for it" in error and "Restart from a checkpoint" in error, error
