# SPDX-License-Identifier: Apache-2.0
"""DDP buckets that the session reads on the device: on the stand-in, with memory of the tests' CUDA driver."""

import os

import fake_gpu
import pytest
import standin
import torch
from processes import run_ranks
from standin_jobs import OPTIONS, make, on_standin, same_bits, train

import tithe.torch

THERE = "on GPU 0, a fake GPU"


@pytest.fixture(scope="module")
def driver():
    standin.build()
    return fake_gpu.build()


def attach(model, **options):
    return tithe.torch.attach(model, codec="onebit", **OPTIONS, **options)


def as_on_the_cpu(rank, world, driver, dtype):
    """Rank 1's gradients are copied through the host. The host cannot access the others': an access would end the
    process."""
    os.environ.update(driver)
    group = on_standin()
    plain, ours = make("cpu", dtype=dtype), make("standin:0", group, dtype)
    states = attach(plain), attach(ours, device="off" if rank == 1 else "on,min_values=1")
    for steps in (range(4), range(4, 6)):
        expected, found = (train(model, rank, steps, dtype) for model in (plain, ours))
        assert same_bits(found, expected)
    assert (THERE in states[1].plan()) == (rank != 1)
    assert (standin.pinned() > 0) == (rank == 1), "no bucket has a place in pinned memory"
    plain.zero_grad(), ours.zero_grad()
    for model in (plain, ours):
        model(torch.full((2, 8), float("nan") if rank == 1 else 1.0, dtype=dtype)).sum().backward()
    assert all(torch.isnan(p.grad.cpu()).all() for p in ours.parameters())
    assert same_bits(*([s.residual(p) for p in m.parameters()] for s, m in zip(states, (plain, ours), strict=True)))
    assert standin.late() == 0
    return found[-1].float().tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_buckets_on_the_gpu_are_bit_equal_to_the_cpu(driver, dtype):
    one, *others = run_ranks(3, as_on_the_cpu, driver, dtype)
    assert others == [one, one]


def resumed(rank, world, driver):
    os.environ.update(driver)
    group = on_standin()
    whole = attach(model := make("standin:1", group), device="on,min_values=1")
    wanted = train(model, rank, range(6))
    assert "on GPU 1, " in whole.plan()
    first = attach(model := make("standin:0", group), device="on,min_values=1")
    train(model, rank, range(3))
    saved = first.state_dict(), {name: value.cpu() for name, value in model.module.state_dict().items()}
    second = attach(model := make("standin:0", group))
    model.module.load_state_dict(saved[1])
    second.load_state_dict(saved[0])
    assert same_bits(train(model, rank, range(3, 6)), wanted[3:])


def test_state_resumes_with_host_copies(driver):
    run_ranks(2, resumed, driver)


def scaled(rank, world, driver):
    """A power of two is divided out on the device, any other scale on the host."""
    os.environ.update(driver)
    group = on_standin()
    for scales in ((65536.0, 1000.0, 2048.0, 1.0), (1000.0, 1000.0)):
        found = []
        for where, options in ((("cpu",), {}), (("standin:0", group), {"device": "on,min_values=1"})):
            now = [1.0]
            state = attach(model := make(*where), loss_scale=lambda now=now: now[0], **options)
            steps = []
            for step, now[0] in enumerate(scales):
                steps += train(model, rank, range(step, step + 1), scale=now[0])
            found.append(steps)
            there = where != ("cpu",) and any(scale != 1000.0 for scale in scales)
            assert (THERE in state.plan()) == there
        assert same_bits(*found)
    assert standin.late() == 0


def test_power_of_two_loss_scale_stays_on_the_gpu(driver):
    run_ranks(2, scaled, driver)
