# SPDX-License-Identifier: Apache-2.0
"""The errors of attach() and backward() for fully_shard() models that cannot be averaged, and for missing ranks."""

import time

import pytest
import torch
import torch.distributed as dist
from processes import run_ranks
from sharded_jobs import OPTIONS, batch, bits, halves, loss_of, mesh_of, model, sharded, train
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch
from tithe.torch._sharded import groups as sharded_groups


def text_of(network, **options):
    with pytest.raises((ValueError, tithe.Error)) as refused:
        tithe.torch.attach(network, **{"codec": "fp32", **OPTIONS, **options})
    return str(refused.value)


def refusals(rank, world):
    texts = {}
    network = sharded(mesh_of())
    tithe.torch.attach(network, codec="fp32", **OPTIONS)
    texts["twice"] = text_of(network)
    inside, across = halves()
    wrong = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    texts["optimizer"] = text_of(sharded(mesh_of()), optimizer=torch.optim.SGD(model().parameters(), lr=0.1))
    texts["replicas of a mesh that has some"] = text_of(sharded(mesh_of()), replicas=across)
    texts["replicas of DDP"] = text_of(DDP(model()), replicas=across)
    texts["replicas with other shards"] = text_of(sharded(inside), replicas=wrong)
    hooked = sharded(inside)
    hooked.set_all_reduce_hook(lambda flat: None)
    texts["hooked"] = text_of(hooked, replicas=across)
    texts["double"] = text_of(sharded(mesh_of(), lambda: model().double()))
    texts["option"] = text_of(sharded(mesh_of()), min_valuse=3)
    with torch.device("meta"):
        empty = model()
    texts["meta"] = text_of(sharded(mesh_of(), lambda: empty))
    network = sharded(mesh_of())
    own, sharded_groups._GROUP = sharded_groups._GROUP, ("fsdp_parameters",)
    texts["another torch"] = text_of(network)
    sharded_groups._GROUP = own
    read, sharded_groups._READ_IN = sharded_groups._READ_IN, "2.12"
    texts["a later torch"] = text_of(network)
    sharded_groups._READ_IN = read
    train(network, torch.optim.SGD(network.parameters(), lr=0.1), range(1))  # the model is unchanged
    return texts


def test_unsupported_models_are_refused_with_the_cure():
    for texts in run_ranks(4, refusals):
        for name, text in {
            "twice": "attached already",
            "optimizer": "has none of this model's parameters",
            "replicas of a mesh that has some": "this one has one: leave it out",
            "replicas of DDP": "replicas= is for models that fully_shard() made",
            "replicas with other shards": "give each rank the group of ranks that hold the same shard",
            "hooked": "has an all-reduce hook already",
            "double": "float64 are not supported: '3.weight'",
            "option": "did you mean 'min_values'",
            "meta": "model.to_empty(...)",
            "a later torch": f"torch {torch.__version__}: attach() finds gradients of fully_shard() where torch 2.12",
            "another torch": f"torch {torch.__version__} has no FSDPParamGroup.fsdp_parameters",
        }.items():
            assert text in texts[name], (name, texts[name])


# ---- Parameters that do not train


class Partly(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.used, self.unused = torch.nn.Linear(24, 8), torch.nn.Linear(24, 8)

    def forward(self, x, both=False):
        return self.used(x) + (self.unused(x) if both else 0.0)


def partly(rank, world):
    mesh = mesh_of()
    ends = []
    for attached in (False, True):
        frozen, zeroed = Partly(), Partly()
        frozen.unused.weight.requires_grad_(False)
        frozen.unused.bias.requires_grad_(False)
        for network in (frozen, zeroed):
            fully_shard(network, mesh=mesh)
            if attached:
                tithe.torch.attach(network, codec="fp32", **OPTIONS)
        zeroed.set_reduce_scatter_unused_params(True)
        for network in (frozen, zeroed):
            optimizer = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.1)
            train(network, optimizer, range(2))
        ends.append((bits(frozen), bits(zeroed)))
    assert ends[0] == ends[1]
    network = fully_shard(Partly(), mesh=mesh)
    state = tithe.torch.attach(network, codec="fp32", **OPTIONS)
    texts = []
    for _ in range(2):  # the error is repeated, and no rank hangs
        with pytest.raises((ValueError, tithe.Error)) as refused:
            loss_of(network, rank, 0).backward()
        texts.append(str(refused.value))
    state.close()
    return texts


def test_frozen_and_unused_parameters_train_like_fsdp():
    for first, again in run_ranks(4, partly):
        assert "took no part in this step" in first and "model.set_reduce_scatter_unused_params(True)" in first
        assert again


# ---- Missing ranks


def not_all_step(rank, world):
    network = sharded(mesh_of())
    state = tithe.torch.attach(network, codec="fp32", **{**OPTIONS, "timeout": 12.0, "patience": 12.0})
    train(network, torch.optim.SGD(network.parameters(), lr=0.1), range(1))
    saved = state.state_dict()
    done = dist.distributed_c10d._get_default_store()
    if rank >= 2:  # this replica takes no further step
        done.wait(["named/0", "named/1"])
        return None
    begin = time.monotonic()
    with pytest.raises(tithe.Error) as failure:
        network(batch(rank, 1)).sum().backward()
    seconds = time.monotonic() - begin
    again = state.state_dict()
    done.set(f"named/{rank}", "")
    return failure.value.peer, failure.value.code, seconds, str(saved) == str(again)


def test_replica_without_a_step_is_named_and_the_state_kept():
    for failure in run_ranks(4, not_all_step)[:2]:
        peer, code, seconds, same = failure
        assert peer == 1 and code == "timeout" and seconds > 10 and same
