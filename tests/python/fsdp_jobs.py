# SPDX-License-Identifier: Apache-2.0
"""Shared by tests of models that are sharded over all ranks: a model of three groups, and a reference for sums."""

import torch
import torch.distributed as dist
from sharded_jobs import CLASSES, WIDTH
from sharded_jobs import loss_of as loss_of_rank
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter
from torch.utils.checkpoint import checkpoint

OPTIONS = {"min_values": 0, "timeout": 30.0}


class Network(nn.Module):
    """A network with rows that two and four ranks cannot share evenly, and a branch that some steps do not use."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.enter, self.leave = nn.Linear(WIDTH, 41), nn.Linear(41, 16)
        self.norm, self.head, self.extra = nn.LayerNorm(16), nn.Linear(16, CLASSES), nn.Linear(16, CLASSES)
        self.checkpointed, self.with_extra = False, True

    def forward(self, x):
        hidden = checkpoint(self.enter, x, use_reentrant=False) if self.checkpointed else self.enter(x)
        hidden = self.norm(self.leave(torch.tanh(hidden)))
        return self.head(hidden) + (self.extra(hidden) if self.with_extra else 0)


def one_mesh():
    return init_device_mesh("cpu", (dist.get_world_size(),))


def network_of(mesh=None, make=Network, **policy):
    whole, mesh = make(), mesh or one_mesh()
    for layer in (whole.enter, whole.leave):
        fully_shard(layer, mesh=mesh, **policy)
    return fully_shard(whole, mesh=mesh, **policy)


def loss_of(network, step, shift=0):
    return loss_of_rank(network, dist.get_rank(), 10 * step + shift)


def plain(network, optimizer, steps):
    for step in steps:
        loss_of(network, step).backward()
        optimizer.step()
        optimizer.zero_grad()


class InRankOrder(ReduceScatter):
    """A reference reduce-scatter: the owner adds all ranks' values in float32, in rank order, and rounds once. Gloo has
    another order."""

    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        world = group.size()
        if op == dist.ReduceOp.PREMUL_SUM:
            input_tensor = input_tensor * op.factor
        rows = torch.empty_like(input_tensor)
        dist.all_to_all_single(rows, input_tensor.contiguous(), group=group)
        first, *others = rows.view(world, -1).float()
        for row in others:
            first = first + row
        output_tensor.copy_(first.to(input_tensor.dtype))
        if op == dist.ReduceOp.AVG:
            output_tensor.div_(world)


def use_rank_order(network):
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_reduce_scatter(InRankOrder())
