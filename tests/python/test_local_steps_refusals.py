# SPDX-License-Identifier: Apache-2.0
"""Refusals of LocalSteps, and LocalSteps beside DDP, closures and several optimizers."""

import copy
import logging

import pytest
import torch
from local_jobs import PLAIN, bits, inner, loss_of, model, step, values
from processes import run_ranks

import tithe.torch

WRONG = [
    ({"every": 0}, "every=0: must be a whole number of at least 1"),
    ({"every": 2.5}, "every=2.5: must be a whole number"),
    ({"every": 30, "fragments": 4}, "fragments=4 does not divide every=30.*every=28 would do"),
    ({"every": 6, "fragments": 3, "delay": 2}, r"delay=2: .*after 2 iterations .*at most 1"),
    ({"every": 6, "delay": 6}, "delay=6: .*at most 5"),
    ({"delay": -1}, "delay=-1"),
    ({"merge": "subtract"}, "merge='subtract': must be one of 'add', 'replace'"),
    ({"outer": "adam"}, "outer='adam': give 'mean', 'nesterov', or a function"),
    ({"outer": torch.optim.SGD, "outer_rate": 0.7}, "outer_rate=0.7 stands beside an outer optimizer of your own"),
    ({"outer_rate": 0}, "outer_rate=0: must be a finite number above 0"),
    ({"start": 0.1}, "how long that is is not known: give steps="),
    ({"start": 1.5}, "start=1 is a number of iterations"),
    ({"start": -1}, "start=-1"),
    ({"steps": 0}, "steps=0"),
    ({"buffers": "sum"}, "buffers='sum'"),
    ({"weights": "tokens"}, "weights='tokens'"),
    ({"deadline": 0}, "deadline=0: must be more than 0 seconds"),
    ({"late": "wait"}, "late='wait'"),
    ({"codec": "auto"}, "measures and plans for every step"),
    ({"codec": "dgc:feedback=momentum"}, "has momentum: here it is the outer optimizer's"),
    ({"codec": "topk:clip=1"}, "clip the gradients inside each step"),
    ({"codec": "edn"}, "edn"),
    ({"start_codec": "edn"}, "edn"),
    ({"evry": 3}, "unknown option 'evry'.*every"),
    ({"average": False}, "LocalSteps takes no average="),
    ({"servers": 1}, "LocalSteps takes no servers="),
    ({"schedule": "warmup:4"}, "LocalSteps takes no schedule="),
    ({"choices": {"0.weight": "fp32"}, "every": 4, "fragments": 2}, r"write a pattern, such as '0.weight\*'"),
    ({"choices": {"*": "edn"}}, "edn"),
    ({"process_group": "eden"}, "process group"),
]


@pytest.mark.parametrize(("settings", "text"), WRONG, ids=str)
def test_settings(settings, text):
    network = model()
    with pytest.raises(ValueError, match=text):
        tithe.torch.LocalSteps(network, inner(network), **{"start": 0, **settings})


def test_models_and_optimizers():
    network, other = model(), model()

    def make(given, optimizer):
        return tithe.torch.LocalSteps(given, optimizer, start=0)

    for given, optimizer, text in [
        (network.parameters(), inner(network), "the first argument of LocalSteps is the model, not generator"),
        (network, network, "the second argument of LocalSteps is an optimizer, not Sequential"),
        (network, [], "no optimizer in it"),
        (network, inner(other), "6 parameters that the model does not have"),
    ]:
        with pytest.raises(ValueError, match=text):
            make(given, optimizer)
    for changed, text in [
        (model().double(), "'0.weight', .*whole parameters of float32, bfloat16 or float16"),
        (model().requires_grad_(False), "moves no parameter of the model"),
    ]:
        with pytest.raises(ValueError, match=text):
            make(changed, inner(changed))
    with pytest.raises(ValueError, match="init_process_group"):
        make(other, inner(other)).open()
    with pytest.raises(ValueError, match="only inside the context"):
        make(other, inner(other)).state_dict()


def _in_the_loop(rank, world):
    """Makes mistakes inside the loop. Returns the pattern of each refusal."""
    refusals = []

    def heard(match, body):
        with pytest.raises((ValueError, tithe.Error), match=match):
            body()
        refusals.append(match)

    def appears():
        network = model()
        optimizer = inner(network)
        with tithe.torch.LocalSteps(network, optimizer, every=3, **PLAIN):
            step(network, optimizer, rank, 0)
            network.extra = torch.nn.Linear(2, 2)
            optimizer.add_param_group({"params": network.extra.parameters()})
            network.forward = lambda x: torch.nn.Sequential(*network[:5])(x)
            for number in range(1, 5):
                step(network, optimizer, rank, number)

    def vanishes():
        network = model()
        optimizer = inner(network)
        with tithe.torch.LocalSteps(network, optimizer, every=3, **PLAIN):
            for number in range(5):
                network[0].bias.requires_grad_(number < 1)
                step(network, optimizer, rank, number)

    def another_optimizer():
        network = model()
        given, steps = inner(network), inner(network)
        with tithe.torch.LocalSteps(network, given, every=3, **PLAIN):
            step(network, steps, rank, 0)

    def twice():
        network = model()
        local = tithe.torch.LocalSteps(network, inner(network), every=3, **PLAIN)
        with local:
            pass
        local.open()

    def evaluates():
        network = model()
        optimizer = inner(network)
        with tithe.torch.LocalSteps(network, optimizer, every=3, **PLAIN) as local:
            with local.outer_parameters():
                step(network, optimizer, rank, 0)

    def many_fragments():
        network = model()
        tithe.torch.LocalSteps(network, inner(network), every=7, fragments=7, **PLAIN).open()

    def differ():
        network = model()
        tithe.torch.LocalSteps(network, inner(network), every=3 + rank, **PLAIN).open()

    def one_refuses():
        network = model()
        tithe.torch.LocalSteps(network, inner(network), every=4, fragments=2 if rank == 0 else 4, **PLAIN).open()

    def damaged():
        network = model()
        optimizer = inner(network)
        with tithe.torch.LocalSteps(network, optimizer, every=3, **PLAIN) as local:
            if rank == 1:
                local._windows.entries()[0].outer[0, 0] += 1
            for number in range(3):
                step(network, optimizer, rank, number)

    def averages():
        network = torch.nn.parallel.DistributedDataParallel(model())
        optimizer = inner(network)
        with tithe.torch.LocalSteps(network, optimizer, every=3, **PLAIN):
            network.require_backward_grad_sync = True
            step(network, optimizer, rank, 0)

    def around():
        network = torch.nn.parallel.DistributedDataParallel(model())
        tithe.torch.LocalSteps(network.module, inner(network), every=3, **PLAIN).open()

    heard(r"'extra.weight', 'extra.bias' new", appears)
    heard("'0.bias' no longer there", vanishes)
    heard("no step.. of the optimizer was seen", another_optimizer)
    heard("entered before", twice)
    heard("inside outer_parameters", evaluates)
    heard("fragments=7, and the model has 6 parameters", many_fragments)
    heard("every=3 on rank 0 and 4 on rank 1", differ)
    heard("fragments=2 on rank 0 and 4 on rank 1", one_refuses)
    heard("the outer parameters of rank 1 are not those of rank 0", damaged)
    heard("has averaged the gradients of this step", averages)
    heard("a DistributedDataParallel holds these parameters", around)
    return refusals


def test_errors_in_the_training_loop_are_refused():
    assert len(run_ranks(2, _in_the_loop)[0]) == 11


def _outside(rank, world):
    """Steps before and after the context change only a rank's own parameters."""
    network = model()
    optimizer = inner(network, "sgd")
    local = tithe.torch.LocalSteps(network, optimizer, every=2, **PLAIN)
    step(network, optimizer, rank, 0)
    own = values(network).copy()
    with local:
        entered = values(network).copy()
        step(network, optimizer, rank, 1)
    ended = values(network).copy()
    step(network, optimizer, rank, 2)
    return own, entered, ended, values(network), local.stats()["iterations"]


def test_steps_outside_the_context_stay_local():
    first, second = run_ranks(2, _outside)
    assert (first[0] != second[0]).any()
    for here in (first, second):
        assert (here[1] == first[0]).all(), "entering gives rank 0's parameters to all"
        assert (here[2] == first[2]).all() and here[4] == 1
    assert (first[3] != second[3]).any()


def _beside_ddp(rank, world):
    network = torch.nn.parallel.DistributedDataParallel(model(seed=3 + rank))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)  # its state differs between ranks, so this one has none
    plain = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(network.module))
    other = torch.optim.SGD(plain.parameters(), lr=0.1)
    with tithe.torch.LocalSteps(network, optimizer, every=4, start=6, codec="fp32", timeout=20.0) as local:
        for number in range(12):
            step(network, optimizer, rank, number)
            if number < 6:
                step(plain, other, rank, number)
                assert bits(network) == bits(plain), "the dense start is DDP's own"
            if number == 6:
                apart = values(network)
    assert network.require_backward_grad_sync
    step(network, optimizer, rank, 12)
    return apart, bits(network), local.stats()["start_bytes_sent"]


def test_ddp_model_synchronises_only_in_the_dense_start():
    (apart, end, sent), (other, same, _) = run_ranks(2, _beside_ddp)
    assert (apart != other).any() and end == same and sent == 0


def _closures(rank, world):
    """LBFGS calls its closure several times in a step; two optimizers share a model."""
    network = model()
    optimizer = torch.optim.LBFGS(network.parameters(), lr=0.1, max_iter=3)
    with tithe.torch.LocalSteps(network, optimizer, every=2, start=3, codec="fp32", timeout=20.0) as local:
        for number in range(7):

            def closure(number=number):
                optimizer.zero_grad()
                loss = loss_of(network, rank, number)
                loss.backward()
                return loss

            optimizer.step(closure)
            if number == 2:
                early = bits(network)
    ends = [early, bits(network), local.iterations]
    network = model()
    first = torch.optim.SGD(network[0].parameters(), lr=0.1)
    second = torch.optim.AdamW(network[2].parameters(), lr=1e-2)
    with tithe.torch.LocalSteps(network, [first, second], every=2, start=3, codec="fp32", timeout=20.0) as local:
        for number in range(7):
            network.zero_grad()
            loss_of(network, rank, number).backward()
            first.step()
            second.step()
            if number == 2:
                early = bits(network)
    return [*ends, early, bits(network), local.iterations]


def test_closures_and_several_optimizers():
    assert len({str(refusals) for refusals in run_ranks(2, _closures)}) == 1
    assert run_ranks(2, _closures)[0][2::3] == [7, 7]


def test_too_few_exchanges_for_momentum_are_reported(caplog):
    def job_of(steps, every):
        network = model()
        made = tithe.torch.LocalSteps(network, inner(network), outer="nesterov", every=every, steps=steps, start=0)
        made._warn_of_settings()
        return [record.getMessage() for record in caplog.records]

    with caplog.at_level(logging.WARNING, "tithe.torch"):
        assert job_of(30_000, 30) == []
        assert "outer='mean' is safe" in job_of(300, 30)[0]
