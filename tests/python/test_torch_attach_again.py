# SPDX-License-Identifier: Apache-2.0
"""attach() of a copied optimizer, with a parameter frozen later, and after a refusal."""

import copy
import pickle

import pytest
from processes import own_part, run_ranks
from small_jobs import OPTIONS, backward, bits, net, train
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch


def copied(rank, world):
    """Attaches copies of an optimizer that is attached itself."""
    out = []
    for copy_of in (copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))):
        first = DDP(net())
        optimizer = tithe.torch.optim.AdamW(first.parameters(), lr=1e-2, exact=0.5, steps=4)
        tithe.torch.attach(first, optimizer=optimizer, **OPTIONS)
        train(first, optimizer, rank, range(1))
        module, twin = copy_of((first.module, optimizer))
        model = DDP(module)
        tithe.torch.attach(model, optimizer=twin, **OPTIONS)
        train(model, twin, rank, range(1, 6))
        assert (twin.exact, twin._exact_part) == (2, 0.5)
        out.append(bits(model.parameters()))
    return out


def test_copies_of_an_optimizer_can_be_attached():
    first, second = run_ranks(2, copied)
    assert first == second


def added_after_freezing(rank, world):
    """A matrix is frozen, and then a parameter group is added. The saved state has both."""
    model = DDP(net(), find_unused_parameters=True)
    first, second = model.module[0], model.module[2]
    optimizer = tithe.torch.optim.AdamW(first.parameters(), lr=1e-2, max_norm=0.01)
    state = tithe.torch.attach(model, optimizer=optimizer, codec="minmax", **OPTIONS)
    train(model, optimizer, rank, range(5))
    first.weight.requires_grad_(False)
    train(model, optimizer, rank, range(5, 10))
    optimizer.add_param_group({"params": list(second.parameters())})
    train(model, optimizer, rank, range(10, 15))
    return bits(model.parameters()), set(own_part(state.state_dict())["optimizer"]["squares"])


def test_frozen_parameter_keeps_its_products_in_the_saved_state():
    first, second = run_ranks(2, added_after_freezing)
    assert first == second
    assert first[1] == {"0.weight", "0.bias", "2.weight", "2.bias"}


def attached_after_a_refusal(rank, world):
    """A refused attach() changes neither model nor optimizer."""
    model = DDP(net())
    matrices = [p for p in model.parameters() if p.dim() == 2]
    muon = tithe.torch.optim.Muon(matrices, lr=0.01)
    adamw = tithe.torch.optim.AdamW([p for p in model.parameters() if p.dim() != 2], lr=0.01)
    refusals = [{"choices": {"no.such": "fp32"}}, {"codec": "fp8" if rank else "onebit"}]
    refusals.append({"choices": "/no such file"} if rank else {})  # rank 1 alone refuses
    for options in refusals:
        with pytest.raises((ValueError, tithe.Error)):
            tithe.torch.attach(model, optimizer=[muon, adamw], **options, **OPTIONS)
    tithe.torch.attach(model, optimizer=[muon, adamw], **OPTIONS)
    for step in range(3):
        model.zero_grad()
        backward(model, rank, step)
        muon.step()
        adamw.step()
    return bits(model.parameters())


def test_attach_works_after_a_refusal():
    first, second = run_ranks(2, attached_after_a_refusal)
    assert first == second
