# SPDX-License-Identifier: Apache-2.0
"""Shared by tests of fully_shard() models: a model whose shards are uneven, meshes, batches, a training loop."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

OPTIONS = {"min_values": 0, "timeout": 30.0}
WIDTH, CLASSES = 24, 5


def model():
    """Returns a model with parameters of 41 and 5 rows, which two ranks cannot share evenly, and with an empty shard on
    a rank."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(WIDTH, 41),
        nn.Tanh(),
        nn.Linear(41, 16),
        nn.LayerNorm(16),
        nn.Linear(16, CLASSES),
        nn.Linear(CLASSES, 1),
    )


def mesh_of(replicas=2, shards=2):
    return init_device_mesh("cpu", (replicas, shards), mesh_dim_names=("replicate", "shard"))


def halves():
    """Returns, for four ranks, this rank's mesh without replicas, and the group of the ranks with the same shard."""
    inside = [dist.new_group([0, 1]), dist.new_group([2, 3])][dist.get_rank() // 2]
    across = [dist.new_group([0, 2]), dist.new_group([1, 3])][dist.get_rank() % 2]
    return DeviceMesh.from_group(inside, "cpu"), across


def sharded(mesh, make=model, **policy):
    whole = make()
    for layer in whole:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, **policy)
    return fully_shard(whole, mesh=mesh, **policy)


def batch(rank, step):
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(1000 * step + rank))


def loss_of(network, rank, step):
    return network(batch(rank, step)).float().pow(2).mean()


def train(network, optimizer, steps, micro=1, sync="set_requires_all_reduce"):
    """Trains with `micro` backward passes per step, of which the last one is averaged."""
    for step in steps:
        for part in range(micro):
            getattr(network, sync)(part == micro - 1)
            loss_of(network, dist.get_rank(), 10 * step + part).backward()
        optimizer.step()
        optimizer.zero_grad()


def clipped(network, optimizer, steps):
    for step in steps:
        loss_of(network, dist.get_rank(), step).backward()
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 0.01)
        assert float(norm.full_tensor()) > 0.01
        optimizer.step()
        optimizer.zero_grad()


def kept(network, optimizer, steps):
    """Trains with gradients that are added to those of the previous step."""
    for step in steps:
        loss_of(network, dist.get_rank(), step).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def bits(network):
    return [p.to_local().detach().float().numpy().tobytes() for p in network.parameters()]
