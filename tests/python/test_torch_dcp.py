# SPDX-License-Identifier: Apache-2.0
"""Model, optimizer and State in a checkpoint of torch.distributed.checkpoint, by get_state_dict and set_state_dict."""

import pytest
import torch
import torch.distributed.checkpoint as dcp
from processes import run_ranks
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import tithe.torch

OPTIMIZERS = {
    "torch": (torch.optim.AdamW, "topk:ratio=0.1", False),
    "torch, tied SGD": (lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9), "onebit", True),
    "tithe": (tithe.torch.optim.AdamW, "eden:bits=2", True),
}


def begun(name):
    make, codec, tied = OPTIMIZERS[name]
    torch.manual_seed(2)
    network = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 4))
    model = torch.nn.parallel.DistributedDataParallel(network)
    optimizer = make(model.parameters(), lr=0.01)
    options = {"optimizer": optimizer} if tied else {}
    return model, optimizer, tithe.torch.attach(model, codec=codec, min_values=0, timeout=30.0, **options)


def train(model, optimizer, rank, steps):
    for step in steps:
        data = torch.Generator().manual_seed(100 * rank + step)
        model(torch.randn(8, 20, generator=data)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().numpy().tobytes() for p in model.parameters()]


def resumed(rank, world, folder, name):
    """Returns the bits of a run, and those of a run that continued from its checkpoint."""
    model, optimizer, state = begun(name)
    train(model, optimizer, rank, range(5))
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state, "tithe": state}, checkpoint_id=folder)
    whole = train(model, optimizer, rank, range(5, 12))
    state.close()

    model, optimizer, state = begun(name)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.load({"model": model_state, "optimizer": optimizer_state, "tithe": state}, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
    again = train(model, optimizer, rank, range(5, 12))
    state.close()
    return whole, again


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_checkpoint_with_the_optimizer_resumes_bit_identically(tmp_path, name):
    first, second = run_ranks(2, resumed, str(tmp_path), name)
    assert first == second and first[0] == first[1]
