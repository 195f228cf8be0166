# SPDX-License-Identifier: Apache-2.0
"""LocalSteps when ranks differ: skipped steps, numbers that are not finite, slow ranks, ranks that leave."""

import os
import time

import pytest
import torch
from local_jobs import PLAIN, bits, inner, loss_of, model, step, values
from processes import Ranks, run_ranks


def _scaled(rank, world, fused):
    """A GradScaler finds an infinite gradient on rank 1 only: in the dense start, and in a window."""
    import tithe.torch

    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    steps = []
    settings = {**PLAIN, "every": 4, "start": 6, "scaler": scaler}
    with tithe.torch.LocalSteps(network, optimizer, **settings) as local:
        for number in range(22):
            optimizer.zero_grad()
            scaler.scale(loss_of(network, rank, number)).backward()
            if rank == 1 and number in (2, 9, 10):
                network[0].weight.grad[0, 0] = torch.inf
            if number % 2:
                scaler.unscale_(optimizer)  # as for clipping
            scaler.step(optimizer)
            scaler.update()
            steps.append(local.stats()["steps"])
    assert not {"update", "unscale_", "step"} & set(scaler.__dict__)
    return steps, local.stats(), bits(network)


@pytest.mark.parametrize("fused", [False, True])
def test_scaler_skip_on_one_rank_keeps_counters_equal(fused):
    (first, stats, end), (second, other, same) = run_ranks(2, _scaled, fused)
    assert first[5] == second[5] == 5, "in the dense start all ranks skip together"
    assert (first[-1], second[-1]) == (21, 19)
    assert stats["iterations"] == other["iterations"] == 22
    assert stats["exchanges"] == other["exchanges"] == 4
    assert end == same


def _weighed(rank, world):
    """Two iterations of rank 1 make no step; fp32, so the mean is known."""
    import tithe.torch

    network = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    ends = {}
    for weights in ("steps", "equal", lambda steps: 3.0 - rank):
        with torch.no_grad():
            network.weight.zero_()
        scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
        settings = {**PLAIN, "every": 4, "scaler": scaler, "weights": weights}
        with tithe.torch.LocalSteps(network, optimizer, **settings):
            for number in range(4):
                network.weight.grad = torch.full((1, 1), -scaler.get_scale())
                if rank == 1 and number < 2:
                    network.weight.grad.fill_(torch.inf)
                scaler.scale(torch.ones(()))
                scaler.step(optimizer)
                scaler.update()
        ends[weights if isinstance(weights, str) else "own"] = network.weight.item()
        optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    return ends


def test_windows_are_weighted_by_their_steps():
    for ends in run_ranks(2, _weighed):  # rank 0 moves by 4 in 4 steps, rank 1 by 2 in 2
        assert ends["steps"] == pytest.approx((4 * 1.0 + 2 * 0.5) / 1.5)
        assert ends["equal"] == pytest.approx((4 + 2) / 2)
        assert ends["own"] == pytest.approx((4 * 3.0 + 2 * 2.0) / 5.0)


def _poisoned(rank, world):
    import tithe.torch

    network = model()
    optimizer = inner(network)
    lost = []
    with tithe.torch.LocalSteps(network, optimizer, every=6, fragments=2, delay=1, **PLAIN) as local:
        for number in range(24):
            optimizer.zero_grad()
            loss_of(network, rank, number).backward()
            if rank == 1 and number == 7:
                network[0].weight.grad[0, 0] = torch.nan
            optimizer.step()
            lost.append(bool(torch.isfinite(torch.from_numpy(values(network))).all()))
    return lost, local.stats(), bits(network)


def test_non_finite_rank_loses_its_window_and_continues():
    (fine, stats, end), (second, other, same) = run_ranks(2, _poisoned)
    assert all(fine) and end == same
    assert second[:7] + second[9:] == [True] * 22 and second[7:8] == [False]
    assert (stats["windows_lost"], stats["steps_dropped"]) == (0, 0)
    # The fragment that was sent at iteration 6 loses three steps, the other one six.
    assert other["windows_lost"] == 1 and 3 < other["steps_dropped"] < 6


LATE = ["send", "next", "drop"]


def _slow(rank, world):
    """Trains with rank 1 slow in every other window."""
    import tithe.torch

    ends = {}
    for late in LATE:
        network = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(network.weight)
        optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
        settings = {**PLAIN, "every": 8, "deadline": 1.0, "late": late}
        after = []
        with tithe.torch.LocalSteps(network, optimizer, **settings) as local:
            while local.exchanges < 4:
                network.weight.grad = torch.full((1, 1), -1.0)
                if rank == 1 and local.exchanges % 2 == 0:
                    time.sleep(0.6)
                optimizer.step()
                if not after or local.exchanges > len(after):
                    after.append(local._windows.entries()[0].outer.item())
        stats = local.stats()
        ends[late] = ([after[-1], network.weight.item()], stats["steps"], stats["steps_dropped"], stats["windows_late"])
    return ends


def test_slow_rank_ends_its_window_at_the_deadline():
    fast, slow = run_ranks(2, _slow)
    for late in LATE:
        assert fast[late][0] == slow[late][0], "ranks end alike"
        assert fast[late][1:] == (32, 0.0, 0)
        steps, dropped, windows = slow[late][1:]
        assert windows == 2 and 16 <= steps - 2 <= 22
        assert dropped == (steps - 16 if late == "drop" else 0.0)
    # Every step moves by 1. Windows count by their steps, dropped or not, so the mean is that of the steps.
    few = (slow["send"][1] - 16) / 2
    share = few / 8
    window = (8 + few * share) / (1 + share)
    assert fast["send"][0][1] == pytest.approx(2 * window + 16, rel=0.2)
    assert fast["drop"][0][1] == pytest.approx(32)  # the slow rank's windows have no weight
    more = slow["next"][1] / 2
    assert fast["next"][0][1] == pytest.approx(2 * (8 + (8 + more * more / 8) / (1 + more / 8)), rel=0.2)


def _leaving(rank, world, how, fragments):
    """Rank 2 leaves in the middle of a window. Returns the errors of the others, and their place."""
    import tithe.torch

    network = model()
    optimizer = inner(network)
    settings = {**PLAIN, "every": 6, "fragments": fragments, "delay": 1}
    local = tithe.torch.LocalSteps(network, optimizer, **settings)
    try:
        with local:
            for number in range(18):
                if rank == 2 and number == 8 and how == "ends":
                    break
                if rank == 2 and number == 8 and how == "raises":
                    raise ZeroDivisionError
                if rank == 2 and number == 8 and how == "dies":
                    os._exit(3)
                step(network, optimizer, rank, number)
    except ZeroDivisionError:
        return None
    except tithe.Error as error:
        return number, error.peer, str(error)
    return None


@pytest.mark.parametrize("fragments", [1, 2])
@pytest.mark.parametrize("how", ["ends", "raises", "dies"])
def test_rank_that_leaves_in_a_window_is_named(how, fragments):
    with Ranks(3, _leaving, how, fragments) as ranks:
        for rank in (0, 1):
            number, peer, text = ranks.result(rank, 120)
            assert peer == 2 and "rank 2" in text
            assert number >= 8
            if how == "ends" and fragments == 1:
                assert "rank 2 has left LocalSteps" in text and "scaler=" in text
