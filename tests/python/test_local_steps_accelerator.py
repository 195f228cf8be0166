# SPDX-License-Identifier: Apache-2.0
"""LocalSteps of parameters on the accelerator simulated by standin.cc: the bits equal those of the CPU."""

import pytest
import standin
import torch
from processes import run_ranks
from standin_jobs import Net, on_standin

import tithe.torch

CASES = [
    {"every": 4, "codec": "onebit", "start": 3},
    {"every": 6, "codec": "eden", "fragments": 2, "delay": 1, "outer": "nesterov", "start": 2, "start_codec": "bf16"},
]


@pytest.fixture(scope="module", autouse=True)
def built():
    standin.build()


def _train(rank, devices, group, settings):
    torch.manual_seed(rank)
    network = Net(*devices)
    network.register_buffer("seen", torch.zeros(2, device=devices[0]))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    found = []
    with tithe.torch.LocalSteps(
        network, optimizer, process_group=group, min_values=0, timeout=20.0, **settings
    ) as local:
        for number in range(15):
            data = torch.randn(8, 8, generator=torch.Generator().manual_seed(1000 * rank + number))
            optimizer.zero_grad()
            network(data).pow(2).sum().backward()
            optimizer.step()
            network.seen += data.mean().to(devices[0])
            found.append([t.detach().cpu().clone() for t in [*network.parameters(), network.seen]])
        with local.outer_parameters():
            found.append([p.detach().cpu().clone() for p in network.parameters()])
    found.append([p.detach().cpu().clone() for p in network.parameters()])
    return [t.numpy().tobytes() for step in found for t in step]


def _equal_to_cpu(rank, world, devices):
    group = on_standin()
    ends = []
    for settings in CASES:
        plain = _train(rank, ("cpu",), None, settings)
        assert _train(rank, devices, group, settings) == plain, settings
        assert standin.late() == 0
        ends.append(plain[-8:])
    return ends


@pytest.mark.parametrize("devices", [("standin:0",), ("standin:0", "standin:1")], ids=len)
def test_bit_equal_to_the_cpu(devices):
    one, other = run_ranks(2, _equal_to_cpu, devices)
    assert one == other
