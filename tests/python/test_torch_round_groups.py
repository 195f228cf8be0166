# SPDX-License-Identifier: Apache-2.0
"""groups="round": tensors in groups are sent once per step, and everything else is unchanged."""

import pytest
import standin
import torch
import torch.nn as nn
from processes import run_ranks
from standin_jobs import on_standin, same_bits
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe.torch

OPTIONS = {"timeout": 20.0}
SMALL = {"*.bias": {"codec": "fp8", "group": "few"}, "*.weight": "fp32"}


class Net(nn.Module):
    """Four layers with large weights and small biases."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(80, 80) for _ in range(4))
        self.spare = nn.Linear(80, 80)

    def forward(self, x, spare=False):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.spare(x) if spare else x


def make(device="cpu", group=None):
    torch.manual_seed(0)
    return DDP(Net().to(device), process_group=group, bucket_cap_mb=0.02, find_unused_parameters=True)


def step(model, rank, number, spare):
    data = torch.randn(5, 80, generator=torch.Generator().manual_seed(100 * rank + number))
    model.zero_grad(set_to_none=True)
    model(data.to(next(model.parameters()).device), spare=spare).pow(2).sum().backward()
    return [p.grad.cpu() for p in model.parameters() if p.grad is not None]


def raw(rank, world, device):
    group = on_standin() if device != "cpu" else None
    models = [make(), make(device, group)]
    states = [
        tithe.torch.attach(model, codec="fp32", groups=groups, **OPTIONS)
        for model, groups in zip(models, ("bucket", "round"), strict=True)
    ]
    for number in range(5):
        expected, found = (step(model, rank, number, spare=number % 3 == 1) for model in models)
        assert same_bits(found, expected)
    frames = [state.stats()["frames_sent"] for state in states]
    for state in states:
        state.close()
    return frames


@pytest.mark.parametrize("device", ["cpu", "standin:0"])
def test_same_bits_in_fewer_frames(device):
    if device != "cpu":
        standin.build()
    for alone, together in run_ranks(2, raw, device):
        assert together < alone


def ledger(rank, world):
    model, plain = make(), make()
    state = tithe.torch.attach(model, codec="fp8", choices=SMALL, groups="round", min_values=0, **OPTIONS)
    given = got = 0.0
    for number in range(6):
        given += torch.cat([g.reshape(-1) for g in step(plain, rank, number, spare=True)]).double().sum()
        got += torch.cat([g.reshape(-1) for g in step(model, rank, number, spare=True)]).double().sum()
    owed = sum(state.residual(p).double().sum() for p in model.parameters()) / world
    torch.distributed.all_reduce(owed)
    assert float(owed.abs()) > 0
    return float((given - got - owed).abs())


def test_ledger_is_exact():
    assert max(run_ranks(2, ledger)) < 1e-2


def test_invalid_sizes_are_refused():
    with pytest.raises(ValueError, match="groups='step': must be 'bucket' or 'round'"):
        tithe.torch.State(groups="step")
    with pytest.raises(ValueError, match="groups='round' needs device='off'"):
        tithe.torch.State(groups="round", device="on")
