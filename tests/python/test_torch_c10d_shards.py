# SPDX-License-Identifier: Apache-2.0
"""Reduce-scatters and all-gathers of a group of backend "tithe": FSDP1 on it, and the collectives themselves."""

import pytest
import torch
import torch.distributed as dist
from fsdp_jobs import Network
from processes import run_ranks
from sharded_jobs import batch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

import tithe.c10d

pytestmark = pytest.mark.filterwarnings("ignore")
AVG, SUM = dist.ReduceOp.AVG, dist.ReduceOp.SUM


def of(world, codec, **options):
    given = tithe.c10d.Options(codec=codec, timeout=30.0, **{"min_values": 0, **options})
    return dist.new_group(range(world), backend="tithe", pg_options=given)


def redistributed(rank, world):
    """Changes the placement of DTensors on a mesh whose group is of backend "tithe"."""
    group = of(world, "fp32")
    mesh = DeviceMesh.from_group(group, "cpu")
    rows = [torch.arange(8.0).view(4, 2) + 10 * r for r in range(world)]
    whole = DTensor.from_local(rows[rank], mesh, [Shard(0)]).redistribute(placements=[Replicate()])
    assert torch.equal(whole.to_local(), torch.cat(rows))
    for placement, want in ((Shard(0), rows[rank] * world), (Replicate(), torch.cat(rows) * world)):
        summed = DTensor.from_local(torch.cat(rows), mesh, [Partial()]).redistribute(placements=[placement])
        assert torch.equal(summed.to_local(), want)
    assert tithe.c10d.stats(group)["rounds"] == 3, "an all-gather, a reduce-scatter and an all-reduce"


def collectives(rank, world):
    group, below = of(world, "fp32"), dist.new_group(range(world))
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        given = torch.arange(6.0 * world).add(rank).to(dtype)
        for op in (SUM, AVG):
            before, ours, theirs = given.clone(), torch.empty(6, dtype=dtype), torch.empty(6, dtype=dtype)
            dist.reduce_scatter_tensor(ours, given, op=op, group=group)
            dist.reduce_scatter_tensor(theirs, given, op=op, group=below)
            assert torch.equal(ours, theirs) and torch.equal(given, before)
        whole, mine = torch.empty(6 * world, dtype=dtype), given[:6].clone()
        work = dist.all_gather_into_tensor(whole, mine, group=group, async_op=True)
        work.wait()
        theirs = torch.empty_like(whole)
        dist.all_gather_into_tensor(theirs, mine, group=below)
        assert torch.equal(whole, theirs)
    large, small = torch.arange(8.0 * world) + rank, torch.arange(1.0 * world)
    outputs = [torch.empty(8), torch.empty(1)]
    some = of(world, "fp32", min_values=8)  # Gloo does the second one
    with dist._coalescing_manager(group=some):
        for output, given in zip(outputs, (large, small), strict=True):
            dist.reduce_scatter_tensor(output, given, group=some)
    want = [sum(torch.arange(8.0 * world) + r for r in range(world)), small * world]
    assert all(torch.equal(o, w.view(world, -1)[rank]) for o, w in zip(outputs, want, strict=True))
    assert tithe.c10d.stats(some)["rounds"] == 1
    gathered = [torch.empty(8 * world), torch.empty(world)]
    with dist._coalescing_manager(group=some):
        for whole, mine in zip(gathered, outputs, strict=True):
            dist.all_gather_into_tensor(whole, mine, group=some)
    assert all(torch.equal(g, w) for g, w in zip(gathered, want, strict=True))
    assert tithe.c10d.stats(some)["rounds"] == 2
    redistributed(rank, world)
    rounds = tithe.c10d.stats(group)["rounds"]
    with_residual = of(world, "onebit")
    dist.reduce_scatter_tensor(torch.empty(6), torch.ones(6 * world), group=with_residual)
    return rounds, tithe.c10d.stats(with_residual)


def test_collectives_are_exact_with_fp32_and_use_gloo_for_residuals():
    for rounds, others in run_ranks(2, collectives):
        assert rounds == 9 and others == {}, "three types go through tithe, each twice reduced and once gathered"


def trained(rank, group, steps, **settings):
    network = FullyShardedDataParallel(
        Network(),
        process_group=group,
        device_id=torch.device("cpu"),
        auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}),
        use_orig_params=True,
        **settings,
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        network(batch(rank, step)).float().pow(2).mean().backward()
        network.clip_grad_norm_(0.5)
        optimizer.step()
        optimizer.zero_grad()
    with FullyShardedDataParallel.summon_full_params(network):
        return torch.cat([p.detach().float().flatten() for p in network.parameters()])


def fsdp1(rank, world):
    bf16 = MixedPrecision(torch.bfloat16, torch.float32)
    same = {}
    for name, settings in {
        "ZeRO 3": {},
        "ZeRO 2": {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP},
        "bf16": {"mixed_precision": bf16},
    }.items():
        group = of(world, "fp32")
        same[name] = torch.equal(
            trained(rank, dist.new_group(range(world)), 20, **settings), trained(rank, group, 20, **settings)
        )
        same[f"{name}, rounds"] = tithe.c10d.stats(group)["rounds"] > 20
    ends = trained(rank, of(world, "eden:bits=4,scale=unbiased"), 20)
    return same, float((ends - trained(rank, dist.new_group(range(world)), 20)).norm() / ends.norm())


def test_fsdp1_on_a_named_group_is_bit_equal_with_fp32():
    for same, apart in run_ranks(2, fsdp1):
        assert all(same.values()), same
        assert 0 < apart < 0.2
