# SPDX-License-Identifier: Apache-2.0
"""Residuals in the training of a real model: nothing is lost, for all bucket layouts of DDP."""

import copy

import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from processes import run_ranks
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe.torch

SPARSE = {"codec": "topk:ratio=0.05", "min_values": 0, "timeout": 20.0}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 64)
        self.b = nn.Linear(64, 64)
        self.spare = nn.Linear(64, 64)
        self.c = nn.Linear(64, 8)

    def forward(self, x, spare=False):
        x = torch.relu(self.b(torch.relu(self.a(x))))
        return self.c(self.spare(x) if spare else x)


def all_sum(tensor):
    out = tensor.double().clone()
    dist.all_reduce(out)
    return out


def ledger_error(model, state, given, got):
    """Returns the largest |sum of gradients - (sum of results + residuals)| over parameters, relative to the largest
    gradient."""
    worst = 0.0
    for name, p in model.module.named_parameters():
        owed = all_sum(state.residual(p))
        total = all_sum(given[name])
        worst = max(worst, float((total - got[name].double() - owed).abs().max() / total.abs().max().clamp(min=1e-9)))
    return worst


def backward(model, alone, data, given, got, world, **kwargs):
    """Makes one step with frozen weights. Adds this rank's own gradient to `given`, world times the mean to `got`."""
    for m in (model, alone):
        m.zero_grad()
        m(data, **kwargs).pow(2).sum().backward()
    for (name, p), q in zip(model.module.named_parameters(), alone.parameters(), strict=True):
        if q.grad is not None:
            given[name] += q.grad.double()
        if p.grad is not None:
            got[name] += p.grad.double() * world


def sums_of(net):
    return {name: torch.zeros_like(p, dtype=torch.double) for name, p in net.named_parameters()}


def buckets(rank, world):
    torch.manual_seed(0)
    net = Net()
    model, alone = DDP(copy.deepcopy(net), bucket_cap_mb=0.005, find_unused_parameters=False), copy.deepcopy(net)
    seen = []
    state = tithe.torch.State(parameters=model.module.named_parameters(), **SPARSE)

    def hook(state, bucket):
        seen.append((bucket.index(), tuple(id(p) for p in bucket.parameters())))
        return tithe.torch.hook(state, bucket)

    model.register_comm_hook(state, hook)
    given, got = sums_of(net), sums_of(net)
    torch.manual_seed(rank)
    for _ in range(6):
        backward(model, alone, torch.randn(5, 16), given, got, world, spare=True)
    layouts = set(seen)
    assert len({index for index, _ in seen}) > 2, "several buckets"
    assert len(layouts) > len({index for index, _ in seen}), "DDP rebuilt its buckets"
    assert state.stats()["rounds"] == 6
    assert sum(float(state.residual(p).abs().sum()) for p in model.parameters()) > 0
    return ledger_error(model, state, given, got)


def test_ledger_holds_across_bucket_rebuild():
    assert max(run_ranks(2, buckets)) < 1e-5


def unused(rank, world):
    torch.manual_seed(0)
    net = Net()
    plain = DDP(copy.deepcopy(net), find_unused_parameters=True)
    ours = DDP(copy.deepcopy(net), find_unused_parameters=True)
    tithe.torch.attach(ours, codec="fp32", timeout=20.0)
    torch.manual_seed(rank)
    for step in range(6):
        data = torch.randn(5, 16)
        for model in (plain, ours):
            model.zero_grad(set_to_none=True)
            model(data, spare=step % 3 == 1 and rank == 0).pow(2).sum().backward()  # used by no rank, or by rank 0 only
        for p, q in zip(plain.parameters(), ours.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None)
            if p.grad is not None:
                torch.testing.assert_close(q.grad, p.grad, rtol=1e-5, atol=1e-5)


def test_unused_parameters():
    run_ranks(2, unused)


def uneven(rank, world, codec):
    torch.manual_seed(0)
    net = Net()
    model, alone = DDP(copy.deepcopy(net)), copy.deepcopy(net)
    state = tithe.torch.attach(model, codec=codec, min_values=0, timeout=20.0)
    given, got = sums_of(net), sums_of(net)
    batches = [torch.randn(5, 16) for _ in range(3 if rank == 0 else 12)]
    owed_when_joined = None
    with Join([model]):
        for data in batches:
            backward(model, alone, data, given, got, world, spare=True)
        owed_when_joined = sum(float(state.residual(p).abs().sum()) for p in model.parameters())
    owed_at_the_end = sum(float(state.residual(p).abs().sum()) for p in model.parameters())
    # Rank 1 trained to the end, so it has all results.
    for name in got:
        dist.broadcast(got[name], src=1)
    return owed_when_joined, owed_at_the_end, ledger_error(model, state, given, got)


def test_joined_rank_sends_its_residual():
    (joined, end, error), (_, _, error_1) = run_ranks(2, uneven, "topk:ratio=0.05")
    assert max(error, error_1) < 1e-5
    assert end < 0.8 * joined  # nine rounds that send the residual


def uneven_with_adamw(rank, world):
    model = DDP(Net())
    optimizer = tithe.torch.optim.AdamW(model.parameters())
    tithe.torch.attach(model, optimizer=optimizer, codec="fp8", min_values=0, timeout=20.0)
    with Join([model]), pytest.raises(ValueError, match="leave Join out"):
        model(torch.randn(5, 16), spare=True).sum().backward()


def test_join_is_refused_with_an_optimizer_that_counts_steps():
    run_ranks(2, uneven_with_adamw)


def test_uneven_inputs_with_a_lossless_codec():
    (joined, end, error), _ = run_ranks(2, uneven, "fp32")
    assert (joined, end) == (0.0, 0.0)
    assert error < 1e-5


def overflow(rank, world):
    """Overflows on one rank under a loss scale: the step is NaN on both ranks, and residuals do not change."""
    torch.manual_seed(0)
    model = DDP(nn.Linear(32, 32))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    state = tithe.torch.attach(model, loss_scale=scaler.get_scale, **SPARSE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    weight = model.module.weight

    def step(data):
        optimizer.zero_grad()
        scaler.scale(model(data).pow(2).sum()).backward()
        grad = weight.grad.clone()
        scaler.step(optimizer)
        scaler.update()
        return grad

    for _ in range(3):
        assert torch.isfinite(step(torch.randn(4, 32))).all()
    before = state.residual(weight).clone(), weight.detach().clone()
    bad = torch.randn(4, 32)
    if rank == 1:
        bad[0, 0] = float("inf")
    assert torch.isnan(step(bad)).all()  # on both ranks
    assert scaler.get_scale() == 512.0
    assert torch.equal(state.residual(weight), before[0])
    assert torch.equal(weight, before[1])
    assert state.stats()["rounds_dropped"] == 1
    assert torch.isfinite(step(torch.randn(4, 32))).all()
    # In gradient units: of the order of the gradient, not of 1024 times the gradient.
    return float(state.residual(weight).abs().max()), float(before[0].abs().max())


def test_overflow_on_one_rank_skips_the_step_on_all_and_keeps_residuals():
    for after, before in run_ranks(2, overflow):
        assert 0 < before < 1e3 and 0 < after < 1e3


def half(rank, world, dtype, codec):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 8)).to(dtype)
    plain, ours = DDP(copy.deepcopy(net)), DDP(copy.deepcopy(net))
    tithe.torch.attach(ours, codec=codec, timeout=20.0)
    torch.manual_seed(rank)
    for _ in range(3):
        data = torch.randn(4, 16).to(dtype)
        for model in (plain, ours):
            model.zero_grad()
            model(data).sum().backward()
        for p, q in zip(plain.parameters(), ours.parameters(), strict=True):
            assert q.grad.dtype == dtype
            torch.testing.assert_close(q.grad, p.grad, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_parameters(dtype):
    run_ranks(2, half, dtype, "fp32")


def identical(rank, world, codec, strategy):
    torch.manual_seed(0)
    model = DDP(Net(), bucket_cap_mb=0.02)
    tithe.torch.attach(model, codec=codec, strategy=strategy, min_values=64, timeout=20.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(8, 16), spare=True).pow(2).mean().backward()
        optimizer.step()
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


@pytest.mark.parametrize(
    ("codec", "strategy"),
    [
        ("onebit", "gather"),
        ("topk:ratio=0.1", "ring"),
        ("dgc:ratio=0.05,feedback=momentum", "server"),
        ("bf16", "ring"),
    ],
)
def test_all_ranks_hold_the_same_bits(codec, strategy):
    weights = run_ranks(3, identical, codec, strategy)
    assert weights[0] == weights[1] == weights[2]


def refusals(rank, world):
    with pytest.raises(ValueError, match="DistributedDataParallel"):
        tithe.torch.attach(nn.Linear(1, 1))
    for wrong, text in [
        ({"codec": "topkk"}, "topk"),
        ({"codec": "topk:ratio=2"}, "ratio"),
        ({"strategy": "rings"}, "ring"),
        ({"lanes": -1}, "lanes"),
        ({"timeout": 0.0}, "timeout"),
        ({"min_valuse": 3}, "min_values"),
        ({"transports": 3}, "transports"),
    ]:
        with pytest.raises(ValueError, match=text):
            tithe.torch.State(**wrong)
    model = DDP(nn.Embedding(10, 4, sparse=True))
    with pytest.raises(ValueError, match="sparse.*'weight'"):
        tithe.torch.attach(model, codec="fp32", timeout=20.0)
    model.register_comm_hook(tithe.torch.State(codec="fp32", timeout=20.0), tithe.torch.hook)
    with pytest.raises(ValueError, match="sparse"):
        model(torch.tensor([1, 2])).sum().backward()
    model = DDP(nn.Linear(2, 2).double())
    with pytest.raises(ValueError, match="float64.*'weight', 'bias'"):
        tithe.torch.attach(model, codec="fp32", timeout=20.0)
    model.register_comm_hook(tithe.torch.State(codec="fp32", timeout=20.0), tithe.torch.hook)
    with pytest.raises(ValueError, match="float64"):
        model(torch.ones(1, 2).double()).sum().backward()


def test_refusals_name_the_cure():
    run_ranks(1, refusals)


def observed(rank, world):
    torch.manual_seed(rank)
    model = DDP(Net())
    state = tithe.torch.attach(model, codec="onebit", timeout=20.0)
    state.trace()
    for _ in range(3):
        model(torch.randn(4, 16), spare=True).sum().backward()
    stats = state.stats()
    assert stats["rounds"] == 3 and stats["bytes_sent"] > 0 and stats["frames_sent"] > 0
    assert {"encode", "send", "recv"} <= {event["op"] for event in state.take_trace()}
    assert state.take_trace() == []
    assert "onebit" in state.plan()
    return stats["values"]


def test_stats_plan_and_trace():
    net = Net()
    values = 3 * sum(p.numel() for p in net.parameters())
    assert run_ranks(2, observed) == [values, values]
