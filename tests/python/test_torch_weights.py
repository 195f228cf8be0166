# SPDX-License-Identifier: Apache-2.0
"""attach(weight=): weighted means."""

import contextlib

import pytest
import torch
from processes import run_ranks
from small_jobs import OPTIONS, batch, bits, gradient_of, net
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch

SMALL = {"bucket_cap_mb": 0.001}  # two buckets


def rows(rank, step, count):
    inputs, targets = batch(rank, step)
    return inputs[:count], targets[:count]


COUNTS = [[16, 3, 7], [1, 16, 2], [5, 5, 5], [9, 0, 4], [0, 0, 11]]  # rows of each rank, by step


def uneven(rank, world, codec, made):
    """Returns the gradients of each step, and those of a single process with all rows of the step."""
    model, alone = DDP(net(), **made), net()
    count = 0
    state = tithe.torch.attach(model, codec=codec, weight=lambda: count, **OPTIONS)
    found = []
    for step, counts in enumerate(COUNTS):
        count = counts[rank]
        gradient = gradient_of(model, rows(rank, step, count or 1))  # a weight of 0 is a skip
        parts = [rows(r, step, n) for r, n in enumerate(counts) if n]
        whole = tuple(torch.cat(column) for column in zip(*parts, strict=True))
        found.append((bits(gradient), gradient, gradient_of(alone, whole)))
    state.close()
    return [(each, [torch.dist(a, b).item() / b.norm().item() for a, b in zip(g, w, strict=True)])
            for each, g, w in found]  # fmt: skip


@pytest.mark.parametrize("made", [{}, {**SMALL, "gradient_as_bucket_view": True}], ids=["plain", "views"])
def test_weighted_mean_of_uneven_batches_equals_one_process(made):
    ranks = run_ranks(3, uneven, "fp32", made)
    for step in zip(*ranks, strict=True):
        assert len({tuple(each) for each, _ in step}) == 1
        assert max(max(errors) for _, errors in step) < 2e-6


def joined(rank, world, static):
    """Rank 1 has data for one step, rank 0 for three. Returns the gradients of rank 0 and those of its data alone."""
    model, alone = DDP(net(), static_graph=static), net()
    tithe.torch.attach(model, codec="fp32", weight=lambda: 16, **OPTIONS)
    found = []
    with Join([model]):
        for step in range(1 if rank else 3):
            found.append((gradient_of(model, batch(rank, step)), gradient_of(alone, batch(rank, step))))
    return [max(torch.dist(a, b).item() / b.norm().item() for a, b in zip(*pair, strict=True)) for pair in found]


@pytest.mark.parametrize("static", [False, True])
def test_a_rank_without_data_under_join_has_the_weight_zero(static):
    first, second = run_ranks(2, joined, static)
    assert first[0] > 0.1 and second[0] > 0.1  # both ranks have data
    assert max(first[1:]) < 1e-6


def weights_and_none(rank, world):
    """Equal weights give the same bits as no weights."""
    out = []
    for options in ({}, {"weight": lambda: 0.3}):
        model = DDP(net(), **SMALL)
        state = tithe.torch.attach(model, codec="onebit", **options, **OPTIONS)
        out.append([bits(gradient_of(model, batch(rank, step))) for step in range(4)])
        state.close()
    return out[0] == out[1]


def test_equal_weights_change_no_bit():
    assert run_ranks(3, weights_and_none) == [True] * 3


def weighted_ledger(rank, world):
    """Returns sums over steps of this rank's weighted gradients and of the results, and the residual."""
    model = DDP(net(), **SMALL)
    weight = 1.0
    state = tithe.torch.attach(model, codec="topk:ratio=0.05", weight=lambda: weight, **OPTIONS)
    alone, sums = net(), [0.0, 0.0]
    for step in range(12):
        weights = [float((step + 1) * (r + 1) % 5) + 0.5 for r in range(world)]
        weight = weights[rank]
        skips = step % 4 == 3 and rank == 1
        if skips:
            state.skip()
            weights[1] = 0.0
        else:
            gradient_of(model, batch(rank, step))
            if step % 4 == 3:
                weights[1] = 0.0
        result = torch.cat([p.grad.flatten() for p in model.parameters()]).double()
        own = torch.cat([g.flatten() for g in gradient_of(alone, batch(rank, step))]).double()
        sums[0] = sums[0] + own * weights[rank] / sum(weights)
        sums[1] = sums[1] + result
    residual = torch.cat([state.residual(p).flatten() for p in model.parameters()]).double()
    state.close()
    return sums[0].tolist(), sums[1].tolist(), (residual / world).tolist()


def test_ledger_holds_in_units_of_the_weighted_mean():
    ranks = run_ranks(3, weighted_ledger)
    given = sum(torch.tensor(each[0]) for each in ranks)
    left = sum(torch.tensor(each[2]) for each in ranks)
    result = torch.tensor(ranks[0][1])
    assert left.norm() > 0.1 * given.norm()
    assert torch.dist(given, result + left) < 1e-5 * given.norm()


def wrong_weights(rank, world):
    texts = []
    for wrong in (-1, float("nan"), float("inf"), "many", None, 1e30):
        model = DDP(net())
        state = tithe.torch.attach(model, weight=lambda wrong=wrong: wrong, codec="fp32", **OPTIONS)
        try:
            gradient_of(model, batch(rank, 0))
        except ValueError as error:
            texts.append((repr(wrong), str(error)))
        state.close()
    for options in ({"weight": 3}, {"weight": lambda: 1, "device": "on"}, {"weight": lambda: 1, "inside": "auto"},
                    {"weight": lambda: 1, "stragglers": "share=0.5,without=4"}):  # fmt: skip
        with contextlib.suppress(tithe.Error), pytest.raises(ValueError, match="weight="):
            tithe.torch.attach(DDP(net()), **options, **OPTIONS)
    options = {"weight": lambda: 1} if rank == 0 else {}
    try:
        tithe.torch.attach(DDP(net()), **options, **OPTIONS)
    except tithe.Error as error:
        texts.append(("weight=True", str(error)))
    return texts


def test_a_wrong_weight_is_refused_with_its_value():
    for texts in run_ranks(2, wrong_weights):
        assert len(texts) == 7
        for value, text in texts:
            assert value in text


def unweighted(rank, world):
    """Returns frames and bytes of a few steps without weights, and with weights."""
    out = []
    for options in ({}, {"weight": lambda: 1}):
        model = DDP(net(), **SMALL)
        state = tithe.torch.attach(model, codec="fp8", strategy="gather", timeout=20.0, **options)
        for step in range(5):
            gradient_of(model, batch(rank, step))
        figures = state.stats()
        out.append((figures["frames_sent"] / 5, figures["bytes_sent"] / 5, figures["gradient_bytes"]))
        state.close()
        saved = state.state_dict()
        again = tithe.torch.attach(DDP(net(), **SMALL), codec="fp8", strategy="gather", weight=lambda: 1)
        again.load_state_dict(saved)  # at the default min_values, the state has no rule for weights
        again.close()
    return out


def test_weights_cost_a_small_frame_per_step_and_peer():
    for plain, weighted in run_ranks(2, unweighted):
        assert weighted[0] == plain[0] + 1
        assert 0 < weighted[1] - plain[1] <= 100
        assert weighted[2] == plain[2]  # weights are not gradients
