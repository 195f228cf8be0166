# SPDX-License-Identifier: Apache-2.0
"""Models of fully_shard() and replicate() between replicas: bit-equal to FSDP2's own all-reduce with codec fp32."""

import pytest
import torch
import torch.distributed as dist
from processes import run_ranks
from sharded_jobs import OPTIONS, batch, bits, clipped, halves, kept, loss_of, mesh_of, model, sharded, train
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard

import tithe.torch

FP32 = {"codec": "fp32", **OPTIONS}


def sgd(network):
    return torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)


def both(make, steps=3, prepare=lambda network: None, run=train):
    """Returns the bits of FSDP2's own and of tithe after the same steps, and tithe's rounds."""
    ends = []
    for attached in (False, True):
        network = make()
        state = tithe.torch.attach(network, **FP32) if attached else None
        prepare(network)
        run(network, sgd(network), range(steps))
        ends.append(bits(network))
    assert ends[0] == ends[1]
    rounds = state.stats()["rounds"]
    state.close()
    return rounds


# ---- Settings of FSDP2; each line must be equal bit for bit


def accumulated(network, optimizer, steps):
    train(network, optimizer, steps, micro=3)


def in_backward(network, _, steps):
    """Makes a step of the optimizer as soon as a parameter has its gradient."""
    for p in network.parameters():
        p.register_post_accumulate_grad_hook(lambda q: (q.data.sub_(q.grad, alpha=0.1), setattr(q, "grad", None)))
    for step in steps:
        loss_of(network, dist.get_rank(), step).backward()


def parity(rank, world):
    mesh = mesh_of()
    half, mixed = torch.bfloat16, MixedPrecisionPolicy
    return {
        "plain": both(lambda: sharded(mesh)),
        "accumulated": both(lambda: sharded(mesh), run=accumulated),
        "clipped": both(lambda: sharded(mesh), run=clipped),
        "kept": both(lambda: sharded(mesh), run=kept),
        "in backward": both(lambda: sharded(mesh), run=in_backward),
        "bf16, reduced as fp32": both(lambda: sharded(mesh, mp_policy=mixed(half, torch.float32))),
        "bf16": both(lambda: sharded(mesh, mp_policy=mixed(half))),
        "reduced as bf16": both(lambda: sharded(mesh, mp_policy=mixed(reduce_dtype=half))),
        "reduced as fp16": both(lambda: sharded(mesh, mp_policy=mixed(reduce_dtype=torch.float16))),
        "factor": both(lambda: sharded(mesh), prepare=lambda n: set_on_all(n, "set_gradient_divide_factor", 2.0)),
        "sums": both(lambda: sharded(mesh), prepare=lambda n: set_on_all(n, "set_force_sum_reduction_for_comms", True)),
        "columns": both(lambda: sharded(mesh, wide, shard_placement_fn=by_columns)),
        "not resharded": both(lambda: sharded(mesh, reshard_after_forward=False)),
        "offloaded": both(lambda: sharded(mesh, offload_policy=CPUOffloadPolicy(pin_memory=False))),
    }


def wide():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(24, 8, bias=False))


def by_columns(_):
    return Shard(1)


def set_on_all(network, name, value):
    for module in network.modules():
        if hasattr(module, name):
            getattr(module, name)(value)


def test_four_ranks_are_bit_equal_to_fsdps_own_replicas():
    """If no code reads a gradient before the end of backward, a step is one round; otherwise each group is one."""
    waits = {"kept", "in backward", "bf16", "reduced as bf16", "reduced as fp16", "sums", "offloaded"}
    for rounds in run_ranks(4, parity, timeout=400):
        assert {name for name, count in rounds.items() if count > 3} <= waits
        assert set(rounds) - {name for name, count in rounds.items() if count == 3} <= waits
        assert rounds["in backward"] == 15 and rounds["plain"] == rounds["accumulated"] == 3


# ---- Other meshes


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(24, 24), nn.Linear(24, 24)

    def forward(self, x):
        return x + self.experts(torch.tanh(self.router(x)))


def expert_mesh(network, dense, other):
    experts = set(network.experts.parameters())
    return fully_shard(
        network,
        mesh=dense,
        shard_placement_fn=lambda p: ShardPlacementResult(Shard(0), other) if p in experts else None,
    )


def meshes(rank, world):
    """Compares tithe with FSDP2's own replicas on several meshes. Returns the rounds."""
    global ShardPlacementResult
    from torch.distributed._composable.replicate_with_fsdp import replicate
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, HSDPMeshInfo, ShardPlacementResult

    dense = mesh_of()

    def experts(info):
        torch.manual_seed(5)
        return expert_mesh(Experts(), dense, info)

    def replicated():
        network = model()
        for layer in network:
            replicate(layer, mesh=every)
        return replicate(network, mesh=every)

    every = init_device_mesh("cpu", (world,), mesh_dim_names=("replicate",))
    in_two = FSDPMeshInfo(init_device_mesh("cpu", (world,), mesh_dim_names=("e",)), shard_mesh_dim=0)
    likewise = HSDPMeshInfo(
        init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b")), shard_mesh_dim=1, replicate_mesh_dim=0
    )
    apart = HSDPMeshInfo(
        init_device_mesh("cpu", (4, 1), mesh_dim_names=("c", "d")), shard_mesh_dim=1, replicate_mesh_dim=0
    )
    rounds = [both(lambda: experts(in_two)), both(lambda: experts(likewise))]
    with pytest.raises(ValueError, match="replicated over different ranks"):
        tithe.torch.attach(experts(apart), **FP32)
    # Four replicas: the order of summation differs, so the gradients are small whole numbers with exact sums.
    ends = []
    for attached in (False, True):
        network = replicated()
        if attached:
            tithe.torch.attach(network, **FP32)
        with torch.no_grad():
            for p in network.parameters():
                p.copy_((p * 16).round())
        (network[0](batch(rank, 0).round()).sum()).backward()
        ends.append([network[0].weight.grad.to_local().numpy().tobytes()])
    assert ends[0] == ends[1]
    return rounds


def test_experts_on_a_mesh_of_their_own_and_replicate():
    assert run_ranks(4, meshes) == [[3, 3]] * 4


def without_replicas(rank, world):
    inside, across = halves()
    native, ours = sharded(mesh_of()), sharded(inside)
    state = tithe.torch.attach(ours, replicas=across, **FP32)
    train(native, sgd(native), range(3), micro=2, sync="set_requires_gradient_sync")
    train(ours, sgd(ours), range(3), micro=2, sync="set_requires_gradient_sync")
    assert bits(native) == bits(ours)
    return state.stats()["rounds"]


def test_mesh_without_replicas_plus_a_group_equals_a_mesh_with_replicas():
    assert run_ranks(4, without_replicas) == [3] * 4


# ---- Overlap


def overlapping(rank, world):
    """Replica 1 begins its backward after that of replica 0 has reached its first layer. A blocking exchange would time
    out."""
    network = sharded(mesh_of())
    state = tithe.torch.attach(network, codec="fp8", **OPTIONS)
    store = dist.distributed_c10d._get_default_store()
    if rank < 2:
        network[1].register_full_backward_hook(lambda *_: store.set(f"reached/{rank}", ""))
    out = network(batch(rank, 0))
    if rank >= 2:
        out.register_hook(lambda _: store.wait([f"reached/{rank - 2}"]))
    began = state.stats()["bytes_sent"] if rank < 2 else None
    out.pow(2).mean().backward()
    return began, state.stats()["rounds"], state.stats()["bytes_sent"] > 0


def test_backward_continues_while_gradients_are_exchanged():
    for began, rounds, sent in run_ranks(4, overlapping):
        assert began in (0, None) and rounds == 1 and sent
