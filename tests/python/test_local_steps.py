# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.LocalSteps: its method against plain torch and DDP, and its ledger."""

import pytest
import torch
from local_jobs import CLASSES, FEATURES, PLAIN, Truth, batch, bits, inner, loss_of, model, step, values
from processes import run_ranks

from tithe.torch._local_steps import drift

# every, fragments, delay, merge, outer; some numbers of iterations end within a window
CASES = [
    (1, 1, 0, "add", "mean"),
    (6, 1, 0, "add", "mean"),
    (6, 1, 2, "add", "mean"),
    (6, 1, 2, "replace", "mean"),
    (6, 3, 1, "add", "mean"),
    (6, 2, 2, "replace", "nesterov"),
    (5, 1, 0, "add", "nesterov"),
    (6, 3, 0, "add", "factory"),
]
ITERATIONS = 26


def _factory(parameters):
    return torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)


def _trained(rank, world, cases):
    import tithe.torch

    results = []
    for every, fragments, delay, merge, outer in cases:
        network = model(seed=3 + rank)  # entering copies rank 0's parameters
        optimizer = inner(network)
        settings = {"every": every, "fragments": fragments, "delay": delay, "merge": merge}
        outer = _factory if outer == "factory" else outer
        with tithe.torch.LocalSteps(network, optimizer, **settings, outer=outer, **PLAIN) as local:
            for number in range(ITERATIONS):
                step(network, optimizer, rank, number)
            names = [[entry.key for entry in f.entries] for f in local._windows.fragments]
            before = values(network)
        results.append((names, before, bits(network), values(network), local.stats()))
    return results


@pytest.fixture(scope="module")
def trained():
    return run_ranks(3, _trained, CASES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_form_matches_its_published_method(trained, case):
    place = CASES.index(case)
    every, fragments, delay, merge, outer = case
    names = trained[0][place][0]
    truth = Truth(3, names, every, fragments, delay, merge, "mean" if outer == "mean" else "nesterov")
    truth.run(0, ITERATIONS)
    for rank in range(3):
        torch.testing.assert_close(
            trained[rank][place][1], values(truth.networks[rank]).astype("float32"), rtol=1e-4, atol=1e-5
        )
    truth.finish(ITERATIONS)
    torch.testing.assert_close(trained[0][place][3], values(truth.networks[0]).astype("float32"), rtol=1e-4, atol=1e-5)
    assert trained[0][place][2] == trained[1][place][2] == trained[2][place][2], "ranks end alike"
    stats = trained[0][place][4]
    assert (stats["iterations"], stats["steps"]) == (ITERATIONS, ITERATIONS)
    assert (stats["steps_dropped"] > 0) == (merge == "replace")


def test_fragments_have_every_parameter_once():
    network = model()
    entries = [drift.Entry(n, p, trained=True) for n, p in network.named_parameters()]
    for fragments in range(1, len(entries) + 1):
        runs = drift.cut(entries, fragments)
        assert len(runs) == fragments and all(runs)
        assert [entry for run in runs for entry in run] == entries
    halves = [sum(e.outer.numel() for e in run) for run in drift.cut(entries, 2)]
    assert max(halves) <= sum(halves) / 2 + max(e.outer.numel() for e in entries)


def _integers(network):
    """Makes whole numbers, so that no sum is rounded."""
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in network.parameters():
            p.copy_(torch.randint(-8, 8, p.shape, generator=draws))
    return network


def _beside_ddp(rank, world):
    """Returns the parameters of LocalSteps with every=1, and of DDP."""
    import tithe.torch

    ends = {}
    for how in ("local", "ddp"):
        network = _integers(torch.nn.Linear(6, 3, bias=False))
        optimizer = torch.optim.SGD(network.parameters(), lr=2.0**-6)
        trains = torch.nn.parallel.DistributedDataParallel(network) if how == "ddp" else network

        def run(optimizer=optimizer, trains=trains):
            for number in range(12):
                inputs = torch.randint(
                    -2, 3, (4, 6), generator=torch.Generator().manual_seed(10 * number + rank)
                ).float()
                optimizer.zero_grad()
                (trains(inputs) * torch.tensor([1.0, -2.0, 1.0])).sum().backward()
                optimizer.step()

        if how == "ddp":
            run()
        else:
            with tithe.torch.LocalSteps(network, optimizer, every=1, **PLAIN):
                run()
        ends[how] = bits(network)
    # The dense start, which is the whole run here, has DDP's gradients, so any optimizer makes the same steps.
    for how in ("start", "plain ddp"):
        network = model()
        optimizer = inner(network)
        trains = torch.nn.parallel.DistributedDataParallel(network) if how == "plain ddp" else network
        if how == "plain ddp":
            for number in range(12):
                step(trains, optimizer, rank, number)
        else:
            with tithe.torch.LocalSteps(network, optimizer, start=12, timeout=20.0) as local:
                for number in range(12):
                    step(network, optimizer, rank, number)
            assert local.stats()["start_bytes_sent"] > 0 and local.exchanges == 0
        ends[how] = bits(network)
    return ends


def test_every_1_with_mean_and_sgd_is_ddp_and_so_is_the_dense_start():
    for ends in run_ranks(2, _beside_ddp):
        assert ends["local"] == ends["ddp"]
        assert ends["start"] == ends["plain ddp"]


def _alone(rank, world):
    import tithe.torch

    ends = []
    for every in (None, 1, 7):
        network = model()
        optimizer = inner(network)
        if every is None:
            for number in range(20):
                step(network, optimizer, rank, number)
        else:
            with tithe.torch.LocalSteps(network, optimizer, every=every, **PLAIN):
                for number in range(20):
                    step(network, optimizer, rank, number)
        ends.append(values(network))
    return ends


def test_one_rank_equals_its_optimizer():
    plain, *local = run_ranks(1, _alone)[0]
    for ends in local:
        torch.testing.assert_close(ends, plain, rtol=1e-5, atol=1e-6)


LOSSY = [
    {"codec": "onebit", "every": 4},
    {"codec": "eden:bits=2", "every": 6, "fragments": 3, "delay": 1},
    {"codec": "topk:ratio=0.05", "every": 6, "delay": 4},
]


def _booked(rank, world, cases):
    """Returns, for every case and iteration, the sum of local steps so far, and their effect on the parameters."""
    import tithe.torch

    results = []
    for settings in cases:
        network = model()
        optimizer = torch.optim.SGD(network.parameters(), lr=0.2)
        rows = []
        with tithe.torch.LocalSteps(network, optimizer, start=0, min_values=0, timeout=20.0, **settings) as local:
            begin, moved = torch.from_numpy(values(network)), 0.0
            for number in range(23):
                optimizer.zero_grad()
                loss_of(network, rank, number).backward()
                moved = moved - 0.2 * torch.cat([p.grad.reshape(-1) for p in network.parameters()]).double()
                optimizer.step()
                entries = local._windows.entries()
                outer = torch.cat([e.outer.reshape(-1) for e in entries]) - begin
                here = torch.from_numpy(values(network)) - torch.cat([e.outer.reshape(-1) for e in entries])
                local._windows.wait()
                pending = local._windows._pending
                flying = {e.key for e in pending.fragment.entries} if pending is not None else set()
                # The received and not yet merged mean is every rank's share.
                arrived = -torch.cat(
                    [(e.out if e.key in flying else torch.zeros_like(e.out)).reshape(-1) for e in entries]
                )
                counted = torch.cat(
                    [(e.base - e.outer if e.key in flying else torch.zeros_like(e.out)).reshape(-1) for e in entries]
                )
                carry = -torch.cat([local.residual(p).reshape(-1) for p in network.parameters()])
                rows.append([t.double().numpy() for t in (moved, outer, here - counted, arrived, carry)])
        results.append(rows)
    return results


def test_sent_residual_and_in_flight_sum_to_the_local_steps():
    ranks = run_ranks(2, _booked, LOSSY)
    for case in range(len(LOSSY)):
        for at in range(23):
            mine = [ranks[rank][case][at] for rank in range(2)]
            moved = sum(m[0] for m in mine)
            booked = sum(outer + here + arrived + carry for _, outer, here, arrived, carry in mine)
            torch.testing.assert_close(booked, moved, rtol=0, atol=2e-5)


SPARSE = ["topk:ratio=0.05,values=4bit,indices=delta", "topk:ratio=0.05,block=64,values=2bit,indices=delta"]


def _forgotten(rank, world, form):
    import tithe.torch

    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.2)
    codec = f"{form},feedback=decay,beta=0.5"
    with tithe.torch.LocalSteps(network, optimizer, every=4, start=0, min_values=0, codec=codec, timeout=20.0) as local:
        begin, moved = values(network).astype("float64"), 0.0
        for number in range(23):
            optimizer.zero_grad()
            loss_of(network, rank, number).backward()
            moved -= 0.2 * sum(float(p.grad.double().sum()) for p in network.parameters())
            optimizer.step()
        here = (values(network).astype("float64") - begin).sum()  # the outer change, and this window's own steps
        carry = -sum(float(local.residual(p).double().sum()) for p in network.parameters())
        return moved, here + carry, -local.stats()["sum_decayed"]


@pytest.mark.parametrize("form", SPARSE)
def test_decayed_residual_is_booked(form):
    moved, kept, forgotten = (sum(stats) for stats in zip(*run_ranks(2, _forgotten, form), strict=True))
    assert abs(forgotten) > 0.01
    assert moved == pytest.approx(kept + forgotten, abs=1e-4)


def _own_data(rank, world):
    """A model with statistics of a batch norm, and an infinite mask, which must not change."""
    import tithe.torch

    ends = {}
    for buffers in ("mean", "keep"):
        torch.manual_seed(rank)
        network = torch.nn.Sequential(
            torch.nn.Linear(FEATURES, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, CLASSES)
        )
        network.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
        optimizer = inner(network, "sgd")
        with tithe.torch.LocalSteps(network, optimizer, every=5, delay=2, buffers=buffers, **PLAIN) as local:
            for number in range(11):
                step(network, optimizer, rank, number)
            mine = network[1].running_mean.clone()
            with local.outer_parameters() as common:
                shared = (
                    bits(common) if buffers == "mean" else [p.detach().numpy().tobytes() for p in common.parameters()]
                )
            assert torch.equal(network[1].running_mean, mine)
        ends[buffers] = (shared, mine.numpy(), bits(network), network[1].running_mean.numpy())
    return ends


def test_buffers_are_averaged_or_local_and_outer_parameters_are_equal():
    ends = run_ranks(2, _own_data)
    for buffers in ("mean", "keep"):
        assert ends[0][buffers][0] == ends[1][buffers][0]
        assert (ends[0][buffers][1] != ends[1][buffers][1]).any()
    assert ends[0]["mean"][2] == ends[1]["mean"][2]
    torch.testing.assert_close(ends[0]["mean"][3], (ends[0]["mean"][1] + ends[1]["mean"][1]) / 2, rtol=1e-5, atol=1e-6)
    assert (ends[0]["keep"][3] != ends[1]["keep"][3]).any()


def _short_types(rank, world):
    import tithe.torch

    network = model().to(torch.bfloat16)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    with tithe.torch.LocalSteps(network, optimizer, every=4, **PLAIN) as local:
        began = {e.key: e.outer.clone() for e in local._windows.entries()}
        for _ in range(8):
            optimizer.step()  # without a gradient no parameter changes
        still = all(torch.equal(began[e.key], e.outer) for e in local._windows.entries())
        for number in range(8):
            inputs, targets = batch(rank, number)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(inputs.bfloat16()).float(), targets).backward()
            optimizer.step()
        between = any(not torch.equal(e.outer, e.outer.bfloat16().float()) for e in local._windows.entries())
    return still, between, [p.detach().float().numpy().tobytes() for p in network.parameters()]


def test_rounding_of_bfloat16_parameters_stays_in_the_outer_ones():
    ends = run_ranks(3, _short_types)
    assert all(still and between for still, between, _ in ends)
    assert ends[0][2] == ends[1][2] == ends[2][2]
