# SPDX-License-Identifier: Apache-2.0
"""attach(model, inside=...): the process group exchanges inside a host, and tithe each rank's share between hosts."""

import os
import time

import pytest
import torch
import torch.distributed as dist
from inside_jobs import OPTIONS, loss_of, net
from processes import Ranks, own_part, run_ranks, wait_until
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch


def truth(alone, per_host, world):
    """Returns the reference: sums inside hosts in rank order, their means, and the mean of hosts likewise."""
    means = []
    for p in alone.parameters():
        parts = [torch.empty_like(p.grad) for _ in range(world)]
        dist.all_gather(parts, p.grad.contiguous())
        hosts = [sum(parts[h + 1 : h + per_host], parts[h]) / per_host for h in range(0, world, per_host)]
        means.append(sum(hosts[1:], hosts[0]) / len(hosts))
    return means


def parity(rank, world, hosts):
    per_host = int(hosts[2:])
    alone = net()
    model = DDP(net(), bucket_cap_mb=0.004, find_unused_parameters=False)
    state = tithe.torch.attach(model, codec="fp32", inside="auto", hosts=hosts, **OPTIONS)
    for step in range(4):  # DDP makes new buckets after the first step
        for each in (alone, model):
            each.zero_grad()
            loss_of(each, rank, step).backward()
        for p, mean in zip(model.parameters(), truth(alone, per_host, world), strict=True):
            if per_host == 2:
                assert torch.equal(p.grad, mean)
            torch.testing.assert_close(p.grad, mean, rtol=1e-5, atol=1e-7)
    names = [name for name, _ in model.module.named_parameters()]
    assert set(state.tensor_stats()) <= set(names)
    kept = sum(each["values"] for each in state.tensor_stats().values())
    return kept, [p.grad.numpy().tobytes() for p in model.parameters()], state.stats()["rounds"]


@pytest.mark.parametrize("hosts", ["2x2", "2x4"])
def test_mean_covers_all_ranks_and_each_rank_exchanges_its_share(hosts):
    per_host = int(hosts[2:])
    ends = run_ranks(2 * per_host, parity, hosts, timeout=400)
    whole = sum(p.numel() for p in net().parameters())
    assert sum(kept for kept, _, _ in ends) == 2 * whole  # each value once per host
    assert max(kept for kept, _, _ in ends) < 1.3 * whole / per_host
    assert {rounds for _, _, rounds in ends} == {4}
    assert all(grads == ends[0][1] for _, grads, _ in ends)


def overlapping(rank, world):
    """Backward blocks at the first layer until this rank has sent data to the other host."""
    model = DDP(net(), bucket_cap_mb=0.004)
    state = tithe.torch.attach(model, codec="fp8", inside="auto", hosts="2x2", **OPTIONS)
    gates = []

    def goes_on(_):
        before = stats["frames_sent"]
        wait_until(lambda: state.stats()["frames_sent"] > before)
        gates.append(state.stats()["rounds"])

    for step in range(3):
        stats = state.stats() if step else {}
        if step == 1:  # in the first step DDP has one bucket, later buckets of its cap
            model.module[1].register_forward_hook(lambda _, given, out: out.register_hook(goes_on) and None)
        model.zero_grad()
        loss_of(model, rank, step).backward()
    return gates


def test_exchange_between_hosts_begins_before_backward_ends():
    """Otherwise each gate would time out. At both gates the previous step is the last complete one."""
    assert run_ranks(4, overlapping) == [[1, 2]] * 4


def by_group(rank, world):
    """Does the same as "auto", with the user's own group; also 16-bit types, channels_last, accumulation, a loss
    scale."""
    mine = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    parts = []
    for dtype, form in ((torch.float32, torch.channels_last), (torch.bfloat16, None), (torch.float16, None)):
        made = [net(dtype) if form is None else net(dtype).to(memory_format=form) for _ in range(2)]
        plain, ours = (DDP(each, bucket_cap_mb=0.004) for each in made)
        state = tithe.torch.attach(ours, codec="fp32", inside=mine, loss_scale=lambda: 4.0, **OPTIONS)
        for step in range(3):
            for each in (plain, ours):
                each.zero_grad()
                with each.no_sync():
                    loss_of(each, rank, 10 * step, dtype).backward()
                loss_of(each, rank, 10 * step + 1, dtype).backward()
            for p, q in zip(plain.parameters(), ours.parameters(), strict=True):
                near = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-3}
                torch.testing.assert_close(q.grad, p.grad, **near)
        parts.append(own_part(state.state_dict())["parts"]["3.weight"])
        state.close()
    return parts


def test_a_group_of_the_users_own_types_formats_and_accumulation():
    for rank, parts in enumerate(run_ranks(4, by_group)):
        assert parts == [("rows 0 to 20 of 41", "rows 20 to 41 of 41")[rank // 2]] * 3


# ---- Residuals


def resuming(rank, world, folder, part):
    module = net()
    # Other bucket sizes in the second part; shares belong to parameters, not to buckets.
    model = DDP(module, bucket_cap_mb=0.002 if part == "second" else 0.006)
    state = tithe.torch.attach(model, codec="topk:ratio=0.1", inside="auto", hosts="2x2", **OPTIONS)
    if part == "second":
        saved = torch.load(f"{folder}/{rank}.pt", weights_only=True)
        module.load_state_dict(saved["model"])
        state.load_state_dict(saved["tithe"])
    for step in {"whole": range(6), "first": range(3), "second": range(3, 6)}[part]:
        module.zero_grad()
        loss_of(model, rank, step).backward()
        with torch.no_grad():
            for p in module.parameters():
                p -= 0.1 * p.grad
    weight = dict(module.named_parameters())["3.weight"]
    left = state.residual(weight)
    assert left.shape == ((20, 28), (21, 28))[rank % 2] and left.abs().sum() > 0
    if part == "first":
        torch.save({"model": module.state_dict(), "tithe": state.state_dict()}, f"{folder}/{rank}.pt")
    return [p.detach().numpy().tobytes() for p in module.parameters()], left.numpy().tobytes()


def test_state_resumes_bit_identically_under_other_buckets(tmp_path):
    whole = run_ranks(4, resuming, str(tmp_path), "whole")
    run_ranks(4, resuming, str(tmp_path), "first")
    assert run_ranks(4, resuming, str(tmp_path), "second") == whole
    assert all(weights == whole[0][0] for weights, _ in whole)
    assert len({left for _, left in whole}) == 4


# ---- Refusals


def text_of(model, **options):
    with pytest.raises((ValueError, tithe.Error)) as refused:
        tithe.torch.attach(model, codec="fp32", **OPTIONS, **options)
    return str(refused.value)


def refusals(rank, world):
    first = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    three = [dist.new_group([0, 1, 2]), dist.new_group([3])][rank // 3]
    everyone = dist.new_group([0, 1, 2, 3])
    half = DDP(net(), process_group=first)
    texts = {
        "uneven": text_of(DDP(net()), inside="auto", hosts="3+1"),
        "uneven group": text_of(DDP(net()), inside=three),
        "too many": text_of(half, inside=everyone),
        "text": text_of(DDP(net()), inside="host"),
        "hosts": text_of(DDP(net()), inside="auto", hosts="3x3"),
        "optimizer": text_of(DDP(net()), inside="auto", optimizer=torch.optim.SGD(net().parameters(), lr=0.1)),
        "not DDP": text_of(net(), inside="auto"),
        "option": text_of(DDP(net()), inside=first, min_valuse=1),
    }
    state = tithe.torch.attach(DDP(net()), inside="auto", hosts="4x1", **OPTIONS)  # no host has two ranks
    assert type(state) is tithe.torch.State
    state.close()
    model = DDP(net())
    state = tithe.torch.attach(model, inside="auto", **OPTIONS)  # all of this test's ranks are on one host
    loss_of(model, rank, 0).backward()
    assert state.stats()["bytes_sent"] == 0
    return texts


def test_mismatched_hosts_are_refused_with_the_cure():
    for texts in run_ranks(4, refusals):
        for name, text in {
            "uneven": "hosts have 1 and 3",
            "uneven group": "strategy 'hosts' takes any number",
            "too many": "of the model's ranks",
            "text": "inside='host'",
            "hosts": "3x3",
            "optimizer": "has none of this model's parameters",
            "not DDP": "wrap it first",
            "option": "did you mean 'min_values'",
        }.items():
            assert text in texts[name], (name, texts[name])


# ---- A rank that dies


def dying(rank, world, victim):
    model = DDP(net())
    state = tithe.torch.attach(
        model, codec="fp32", inside="auto", hosts="2x2", **{**OPTIONS, "timeout": 20.0, "patience": 60.0}
    )
    for step in range(3):  # DDP exchanges sizes of its own when it makes new buckets
        loss_of(model, rank, step).backward()
    saved = str(state.state_dict())
    if rank == victim:
        os._exit(7)
    began = time.monotonic()
    with pytest.raises((tithe.Error, RuntimeError)) as error:
        loss_of(model, rank, 3).backward()
    assert str(state.state_dict()) == saved  # of the last step that counted
    return str(error.value), time.monotonic() - began


def test_dead_rank_is_named_by_all_and_the_committed_state_kept():
    victim = 3
    with Ranks(4, dying, victim) as ranks:
        errors = [ranks.result(r, 240) for r in range(4) if r != victim]
    peer, mate = errors[victim - 2], errors[2]
    assert "rank 1 is gone" in peer[0] or "rank 1 did not" in peer[0], errors
    assert "inside this host, among its 2 ranks" in mate[0], errors
