# SPDX-License-Identifier: Apache-2.0
"""Models of fully_shard() over all ranks: the calls that return at once, and a rank that dies."""

import os

import pytest
import torch.distributed as dist
from fsdp_jobs import OPTIONS, loss_of, network_of
from processes import Ranks, run_ranks

import tithe
import tithe.torch

FP32 = {"codec": "fp32", **OPTIONS}


def gathers(rank, world):
    """Rank 1 starts its gather after rank 0 has returned from its own call."""
    network, store = network_of(), dist.distributed_c10d._get_default_store()
    tithe.torch.attach(network, **FP32)
    if rank == 1:
        store.wait(["gone on"])
    handle = network.enter.unshard(async_op=True)
    store.set("gone on", "")
    handle.wait()
    return network.enter.weight.detach().sum().item()


def test_all_gather_returns_before_other_ranks_start():
    first, second = run_ranks(2, gathers)
    assert first == second


def scatters(rank, world):
    """Rank 1 starts backward after rank 0 has returned from the reduce-scatter of a later layer."""
    network, store = network_of(reshard_after_forward=False), dist.distributed_c10d._get_default_store()
    state = tithe.torch.attach(network, **FP32)
    network.enter.register_full_backward_pre_hook(lambda *_: store.set("gone on", ""))
    loss = loss_of(network, 0)
    if rank == 1:
        store.wait(["gone on"])
    loss.backward()
    assert all(p.grad is not None for p in network.parameters())
    return state.stats()["reduce_scatter"]["rounds"]


def test_reduce_scatter_returns_before_other_ranks_start():
    assert run_ranks(2, scatters) == [3, 3]


def dies(rank, world):
    network = network_of()
    tithe.torch.attach(network, **FP32)
    loss = loss_of(network, 0)
    if rank == 1:
        os._exit(0)
    with pytest.raises(tithe.Error) as error:
        loss.backward()
    return error.value.code, error.value.peer


def test_dead_rank_is_named():
    with Ranks(2, dies) as ranks:
        code, peer = ranks.result(0, 120)
    assert code == "peer_lost" and peer == 1
