# SPDX-License-Identifier: Apache-2.0
"""Residuals of fully_shard() models: those of this rank's shard, saved and loaded bit for bit."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from processes import own_part, run_ranks
from sharded_jobs import OPTIONS, bits, halves, loss_of, mesh_of, sharded, train
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import tithe.torch

LOSSY = {"codec": "topk:ratio=0.1", **OPTIONS}


def residuals(rank, world):
    """Returns gradients plus residuals before, and result plus residuals after, summed over the ranks of one shard."""
    mesh = mesh_of()
    own, ours = sharded(mesh), sharded(mesh)
    state = tithe.torch.attach(ours, **LOSSY)
    loss_of(ours, rank, 0).backward()
    own.set_requires_all_reduce(False)  # only this replica's gradients
    loss_of(own, rank, 0).backward()
    for group, mine in zip(groups_of(own), groups_of(ours), strict=True):
        gradient = group._partial_reduce_output
        after = torch.cat([pad(state.residual(p.sharded_param), p) for p in mine.fsdp_params])
        result = torch.cat([pad(p.sharded_param.grad.to_local(), p) for p in mine.fsdp_params])
        sent = gradient - after
        dist.all_reduce(sent, group=mesh.get_group("replicate"))
        torch.testing.assert_close(sent / 2, result, rtol=1e-6, atol=1e-7)
    for p in ours.parameters():
        assert state.residual(p).shape == p.to_local().shape
    assert any(state.residual(p).abs().sum() > 0 for p in ours.parameters())
    stats = state.tensor_stats()
    assert set(stats) == {name for name, _ in ours.named_parameters()}
    return sum(t["values"] for t in stats.values()), sum(p.numel() for p in ours.parameters()), bits(ours)


def groups_of(network):
    states = [m._get_fsdp_state() for m in network.modules() if hasattr(m, "_get_fsdp_state")]
    return [group for state in states for group in state._fsdp_param_groups]


def pad(values, shard):
    flat = torch.zeros(shard._sharded_param_data.numel())
    flat[: values.numel()] = values.reshape(-1)
    return flat


def test_residuals_cover_only_the_shard_and_the_ledger_is_exact():
    ends = run_ranks(4, residuals)
    for kept, whole, _ in ends:
        assert whole / 2 <= kept < 0.52 * whole  # a little padding
    assert ends[0][2] == ends[2][2] and ends[1][2] == ends[3][2]


# ---- Checkpoints


def resuming(rank, world, folder, part):
    mesh = mesh_of()
    network = sharded(mesh)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    state = tithe.torch.attach(network, **LOSSY)
    if part == "second":
        found = dict(zip(("model", "optimizer"), get_state_dict(network, optimizer), strict=True))
        dcp.load({**found, "tithe": state}, checkpoint_id=folder)
        set_state_dict(network, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    train(network, optimizer, {"whole": range(6), "first": range(3), "second": range(3, 6)}[part], micro=2)
    if part == "first":
        found = dict(zip(("model", "optimizer"), get_state_dict(network, optimizer), strict=True))
        dcp.save({**found, "tithe": state}, checkpoint_id=folder)
    saved = own_part(state.state_dict())["session"].numpy().tobytes()
    return bits(network), saved[:24] + saved[32:-8]  # without the job's random number and the checksum


def test_distributed_checkpoint_resumes_bit_identically(tmp_path):
    whole = run_ranks(4, resuming, str(tmp_path), "whole")
    run_ranks(4, resuming, str(tmp_path), "first")
    assert run_ranks(4, resuming, str(tmp_path), "second") == whole
    assert len({saved for _, saved in whole}) == 4


def others(rank, world):
    """Each rank loads the state of the other shard in its replica, then that of its shard in the other replica."""
    saved, texts = [None] * world, []
    network = sharded(mesh_of())
    state = tithe.torch.attach(network, **LOSSY)
    train(network, torch.optim.SGD(network.parameters(), lr=0.1), range(2))
    dist.all_gather_object(saved, own_part(state.state_dict()))
    with pytest.raises(ValueError) as refused:
        state.gathered_state_dict()
    texts.append(str(refused.value))
    for other in (rank ^ 1, rank ^ 2):
        fresh = tithe.torch.attach(sharded(mesh_of()), **LOSSY)
        with pytest.raises(ValueError) as refused:
            fresh.load_state_dict(saved[other])
        texts.append(str(refused.value))
    inside, across = halves()
    fresh = tithe.torch.attach(sharded(inside), replicas=across, **LOSSY)  # the same shards, by the hook
    fresh.load_state_dict(saved[rank])
    return texts


def test_a_state_of_another_shard_or_replica_is_refused():
    for rank, (gathered, shard, replica) in enumerate(run_ranks(4, others)):
        assert "of its own part of the parameters" in gathered
        assert f"the state has shard {(rank ^ 1) % 2} of 2 of '" in shard
        assert f"this rank has shard {rank % 2} of 2: start with the mesh, or" in shard
        assert "was saved by rank" in replica
