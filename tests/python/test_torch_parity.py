# SPDX-License-Identifier: Apache-2.0
"""The hook against plain DDP, in the form of PyTorch's own tests of communication hooks."""

import copy
import io

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from processes import run_ranks
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe.torch

FP32 = {"codec": "fp32", "timeout": 20.0}


def exact_mean(tensor, world):
    """Returns (g0 + g1 + ...) / world, in rank order, in the tensor's own arithmetic."""
    parts = [torch.empty_like(tensor) for _ in range(world)]
    dist.all_gather(parts, tensor.contiguous())
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total / world


def flat_gradient(model):
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


def parity(rank, world, strategy, iterations):
    torch.manual_seed(rank)
    inputs = torch.randn(iterations, 7, 1)
    torch.manual_seed(77)
    net = nn.Linear(1, 5)
    alone = copy.deepcopy(net)
    plain, ours = DDP(copy.deepcopy(net)), DDP(copy.deepcopy(net))
    tithe.torch.attach(ours, strategy=strategy, **FP32)
    for i, data in enumerate(inputs):
        for model in (alone, plain, ours):
            model.zero_grad()
            model(data).pow(2).sum().backward()
        mean = exact_mean(flat_gradient(alone), world)
        if strategy == "gather" or world == 2:
            assert torch.equal(flat_gradient(ours), mean), f"iteration {i}"
        torch.testing.assert_close(flat_gradient(ours), mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(flat_gradient(ours), flat_gradient(plain), rtol=1e-5, atol=1e-6)
    return ours._get_ddp_logging_data()["comm_hook"]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_parity_with_plain_ddp_over_100_iterations(world):
    assert run_ranks(world, parity, "gather", 100) == ["hook"] * world


@pytest.mark.parametrize(("world", "strategy"), [(2, "ring"), (3, "server"), (3, "aggregator")])
def test_parity_of_the_other_strategies(world, strategy):
    assert run_ranks(world, parity, strategy, 20) == ["hook"] * world


def accumulate(rank, world, codec):
    torch.manual_seed(rank)
    data = torch.randn(12, 4, 6)
    torch.manual_seed(77)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    plain, ours = DDP(copy.deepcopy(net)), DDP(copy.deepcopy(net))
    state = tithe.torch.attach(ours, codec=codec, timeout=20.0)
    for step in range(4):
        for model in (plain, ours):
            model.zero_grad()
            with model.no_sync():
                model(data[3 * step]).sum().backward()
                model(data[3 * step + 1]).sum().backward()
            model(data[3 * step + 2]).sum().backward()
        for p, q in zip(plain.parameters(), ours.parameters(), strict=True):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-6, atol=1e-6)
    return state.stats()["rounds"]


def test_no_sync_accumulates_and_sends_once():
    assert run_ranks(2, accumulate, "fp32") == [4, 4]


def pickling(rank, world, codec, foreign):
    """A State that is pickled during training continues bit for bit. foreign: every rank loads rank 0's file."""
    torch.manual_seed(rank)
    data, target = torch.randn(20, 7, 1), torch.randn(7, 5)
    torch.manual_seed(0)
    net = nn.Linear(1, 5)
    ours, twin = DDP(copy.deepcopy(net)), DDP(copy.deepcopy(net))
    state = tithe.torch.State(codec=codec, min_values=0, timeout=20.0)
    ours.register_comm_hook(state, tithe.torch.hook)

    def train(model, steps):
        for i in steps:
            model.zero_grad()
            F.mse_loss(model(data[i]), target).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad

    train(ours, range(10))
    with _captured_log() as saved_log:
        file = io.BytesIO()
        torch.save({"model": ours.state_dict(), "hook": tithe.torch.hook, "state": state}, file)
    blobs = [file.getvalue()]
    if foreign:  # allowed if there is no residual
        dist.broadcast_object_list(blobs, src=0)
    with _captured_log() as loaded_log:
        loaded = torch.load(io.BytesIO(blobs[0]), weights_only=False)
    assert len(saved_log) == 1 and "excluded from a saved state" in saved_log[0]
    assert len(loaded_log) == 1 and "default group" in loaded_log[0]
    assert loaded["hook"].__qualname__ == tithe.torch.hook.__qualname__
    again = loaded["state"]
    assert again.__slots__ == state.__slots__
    for slot in state.__slots__:
        if slot != "process_group":
            assert getattr(again, slot) == getattr(state, slot)
    assert again.process_group == dist.group.WORLD
    twin.load_state_dict(loaded["model"])
    twin.register_comm_hook(again, loaded["hook"])
    train(ours, range(10, 20))
    train(twin, range(10, 20))
    for p, q in zip(ours.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q)
        assert torch.equal(p.grad, q.grad)


class _captured_log:
    """Collects the log of tithe.torch inside the context."""

    def __enter__(self):
        import logging

        self.texts = []
        self.handler = logging.Handler()
        self.handler.emit = lambda record: self.texts.append(record.getMessage())
        logging.getLogger("tithe.torch").addHandler(self.handler)
        return self.texts

    def __exit__(self, *exc):
        import logging

        logging.getLogger("tithe.torch").removeHandler(self.handler)


@pytest.mark.parametrize(("codec", "foreign"), [("fp32", False), ("fp32", True), ("topk:ratio=0.2", False)])
def test_pickled_state_continues(codec, foreign):
    run_ranks(2, pickling, codec, foreign)


def copying(rank, world):
    state = tithe.torch.State(codec="topk:ratio=0.25", min_values=0, timeout=20.0)
    torch.manual_seed(0)
    net = nn.Linear(4, 4, bias=False)
    first, second = DDP(copy.deepcopy(net)), DDP(copy.deepcopy(net))
    first.register_comm_hook(state, tithe.torch.hook)
    torch.manual_seed(rank)
    data = torch.randn(6, 4)
    first(data).sum().backward()
    with _captured_log() as log:
        twin = copy.deepcopy(state)
    assert log == []
    second.register_comm_hook(twin, tithe.torch.hook)
    for model in (first, second):
        model.zero_grad()
        model(data).pow(2).sum().backward()
    assert torch.equal(first.module.weight.grad, second.module.weight.grad)
    assert torch.equal(state.residual(first.module.weight), twin.residual(second.module.weight))
    assert state.residual(first.module.weight).abs().sum() > 0


def test_deepcopy_has_its_own_session_and_the_same_residuals():
    run_ranks(2, copying)


def once(rank, world):
    model = DDP(nn.Linear(2, 2))
    tithe.torch.attach(model, **FP32)
    with pytest.raises(ValueError, match="has a communication hook already"):
        tithe.torch.attach(model, **FP32)
    with pytest.raises(RuntimeError, match="can only be called once"):
        model.register_comm_hook(tithe.torch.State(**FP32), tithe.torch.hook)
    model(torch.ones(1, 2)).sum().backward()


def test_registers_only_once():
    run_ranks(1, once)


def as_trainers_do(rank, world):
    # Lightning's DDPStrategy(ddp_comm_state=, ddp_comm_hook=, ddp_comm_wrapper=) constructs the state early, may wrap
    # the hook, reads __qualname__, then registers on the wrapped model.
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_wrapper

    torch.manual_seed(0)
    net = nn.Linear(3, 3)
    plain, ours = DDP(copy.deepcopy(net)), DDP(copy.deepcopy(net))
    comm_hook = fp16_compress_wrapper(tithe.torch.hook)
    assert isinstance(comm_hook.__qualname__, str)
    ours.register_comm_hook(state=tithe.torch.State(**FP32), hook=comm_hook)
    data = torch.randn(4, 3) + rank
    for model in (plain, ours):
        model(data).sum().backward()
    for p, q in zip(plain.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-3, atol=1e-3)
    bare = DDP(copy.deepcopy(net))
    bare.register_comm_hook(state=None, hook=tithe.torch.hook)
    with pytest.raises(ValueError, match="needs its state"):
        bare(data).sum().backward()


def test_works_with_trainers_hook_registration():
    run_ranks(2, as_trainers_do)


def shaped(rank, world):
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Conv2d(3, 8, 5), nn.Flatten(), nn.Linear(128, 40)))
    state = tithe.torch.attach(model, codec="powersgd:rank=2", min_values=0, timeout=20.0)
    for _ in range(3):
        model(torch.randn(2, 3, 8, 8)).sum().backward()
    plan = state.plan()
    both = [p.grad.clone() for p in model.parameters()]
    for grad in both:
        dist.broadcast(grad, 0)
    return plan, all(torch.equal(a, p.grad) for a, p in zip(both, model.parameters(), strict=True))


def test_matrices_keep_their_shape():
    """Rows are output features, and a vector is one row. PowerSGD factors rows by all other dimensions."""
    for plan, same in run_ranks(2, shaped):
        assert same
        assert "600 values" in plan and "powersgd:rank=2,cols=75 " in plan
        assert "5120 values" in plan and "powersgd:rank=2,cols=128 " in plan
        assert "powersgd:rank=2,cols=8 " in plan and "powersgd:rank=2,cols=40 " in plan
