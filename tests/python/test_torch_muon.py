# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.optim.Muon: equal to torch's under lossless codecs, the same bits on all ranks under lossy ones, its
state, and the settings that it refuses. test_torch_muon_loops.py tests loops."""

import copy
import io
import logging

import pytest
import torch
from muon_jobs import OPTIONS, attached, momentum, net, optimizers_of, parts_of, train
from processes import run_ranks
from small_jobs import backward, batch, bits
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch
from tithe.torch._optimizer.muon_rules import check_settings
from tithe.torch._sharded.host_share import HostShare
from tithe.torch._sharded.shards import ShardViews

pytestmark = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch 2.9 has Muon")

# ---- As torch's


def as_torch(rank, world, settings, loop):
    """Makes the same steps with torch's Muon under plain DDP. Returns the largest difference, for 2 ranks 0."""
    model, optimizers, _ = attached("fp32", settings)
    plain = DDP(net())
    theirs = optimizers_of(plain, False, **settings)
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(each, 12) for each in (*optimizers, *theirs)]
    for step in range(8):
        for m, each in ((model, optimizers), (plain, theirs)):
            if loop == "no_sync":
                with m.no_sync():
                    backward(m, rank, 100 + step)
            elif loop == "accumulates":
                backward(m, rank, 100 + step)
            backward(m, rank, step)
            if loop == "scales":
                for p in m.parameters():
                    p.grad.mul_((4.0, 0.25)[step % 2])
            for optimizer in each:
                optimizer.step()
                optimizer.zero_grad()
        for each in schedules:
            each.step()
    mine, known = optimizers[0].state_dict(), theirs[0].state_dict()
    assert mine["param_groups"] == known["param_groups"] and set(mine["state"]) == set(known["state"])
    off = [(mine["state"][k]["momentum_buffer"] - s["momentum_buffer"]).abs().max() for k, s in known["state"].items()]
    off += [(a - b).abs().max() for a, b in zip(model.parameters(), plain.parameters(), strict=True)]
    return float(max(off)), bits(model.parameters())


CASES = [
    (2, {}, "plain"),
    (2, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}, "no_sync"),
    (2, {"adjust_lr_fn": "original", "ns_steps": 3, "momentum": 0.8}, "scales"),
    (2, {"adjust_lr_fn": "match_rms_adamw"}, "accumulates"),
    (3, {}, "plain"),
]


@pytest.mark.parametrize(("world", "settings", "loop"), CASES)
def test_lossless_it_equals_torchs_under_plain_ddp(world, settings, loop):
    results = run_ranks(world, as_torch, settings, loop)
    # Accumulation without no_sync() rounds the mean of each backward in plain DDP; three ranks add in another order.
    # Newton-Schulz computes in bfloat16, so a difference in the last bit of a gradient can become one in the last bit
    # of bfloat16.
    limit = 0.0 if world == 2 and loop != "accumulates" else 0.01
    for off, after in results:
        assert off <= limit and after == results[0][1]


def alone(rank, world):
    model, optimizers, _ = attached("onebit:feedback=none")
    plain = net()
    theirs = optimizers_of(plain, False)
    matrices, _ = parts_of(model.module)
    for step in range(4):
        for m, each in ((model, optimizers), (plain, theirs)):
            each[0].zero_grad()
            backward(m, rank, step)
        for p, q in zip(parts_of(plain)[0], matrices, strict=True):
            p.grad.copy_(q.grad)
        optimizers[0].step()
        theirs[0].step()
    assert bits(matrices) == bits(parts_of(plain)[0])


def test_one_rank_equals_torchs():
    run_ranks(1, alone)


def test_unattached_it_equals_torchs_and_hooks_are_called_once():
    ours, theirs, calls = net(), net(), []
    mine, other = optimizers_of(ours, True), optimizers_of(theirs, False)
    mine[0].register_step_post_hook(lambda *_: calls.append(1))
    train(ours, mine, 0, range(3))
    train(theirs, other, 0, range(3))
    assert bits(ours.parameters()) == bits(theirs.parameters()) and calls == [1, 1, 1]


# ---- The same bits on all ranks


def lossy(rank, world, codec, choices):
    log = logging.getLogger("tithe.torch")
    log.addHandler(handler := logging.Handler())
    handler.emit = lambda record: pytest.fail(record.getMessage())
    model, optimizers, state = attached(codec, choices=choices)
    after = []
    for step in range(6):
        train(model, optimizers, rank, [step])
        after.append(bits(model.parameters()))
    held = [len(optimizers[0].state[p]) for p in parts_of(model.module)[0]]
    return after, held, state.plan()


@pytest.mark.parametrize(
    ("codec", "choices", "plan"),
    [
        (
            None,
            None,
            ["(gradient): 1280 values, eden:scale=unbiased,feedback=none", "(update): 1280 values, eden:bits=2,"],
        ),
        (
            "eden:bits=3",
            {"* (update)": "eden:bits=1,scale=unbiased"},
            ["(gradient): 1280 values, eden:bits=3", "eden:bits=1"],
        ),
        ("fp32", None, ["(gradient): 1280 values, fp32", "(update): 1280 values, bf16"]),
        (None, {"1*": "fp32"}, ["1.0.weight (gradient): 1280 values, fp32", "1.0.weight (update): 1280 values, eden"]),
    ],
)
def test_all_ranks_have_the_same_bits_and_one_rank_has_the_momentum(codec, choices, plan):
    first, *others = run_ranks(3, lossy, codec, choices)
    assert all(other[0] == first[0] for other in others)
    assert [sum(held) for held in zip(first[1], *(other[1] for other in others), strict=True)] == [1, 1, 1]
    assert all(part in first[2] for part in plan), first[2]


def proposed(rank, world):
    model, optimizers, state = attached(None)
    train(model, optimizers, rank, range(2))
    if rank == 0:
        state.propose({"1*": "fp32"})
    for step in range(2, 2000):  # until all ranks have adopted the proposal
        train(model, optimizers, rank, [step % 7])
        if "1.0.weight (gradient): 1280 values, fp32" in state.plan():
            break
    return step, bits(model.parameters()), state.plan()


def test_a_proposal_keeps_the_rules_for_matrices():
    first, second = run_ranks(2, proposed)
    assert first[:2] == second[:2]
    for part in ("1.0.weight (update): 1280 values, eden:bits=2,", "0.0.weight (gradient): 960 values, eden:scale=unb"):
        assert part in first[2]


def test_owners_have_about_the_same_work():
    from tithe.torch._optimizer.matrix_owners import assign  # needs torch's Muon

    costs = {10: 5.0, 11: 1.0, 12: 1.0, 13: 4.0, 14: 1.0, 15: 2.0}
    owners = assign(costs, 2)
    loads = [sum(costs[n] for n, owner in owners.items() if owner == rank) for rank in range(2)]
    assert loads == [7.0, 7.0] and assign(costs, 2) == owners
    assert set(assign({1: 1.0}, 4).values()) == {0}


def learns(rank, world):
    """Returns the losses with the default codecs and with torch's Muon."""
    out = []
    for ours in (True, False):
        model = DDP(net())
        optimizers = optimizers_of(model, ours)
        if ours:
            tithe.torch.attach(model, optimizer=optimizers, **OPTIONS)
        train(model, optimizers, rank, [step % 4 for step in range(60)])
        out.append(
            sum(torch.nn.functional.cross_entropy(model(x), y).item() for x, y in (batch(rank, s) for s in range(4)))
        )
    return out


def test_it_learns_like_torchs():
    for ours, theirs in run_ranks(2, learns):
        assert ours < 1.25 * theirs + 0.05


# ---- State


def resumed(rank, world, saved, codec):
    model, optimizers, state = attached(codec)
    if saved is None:
        train(model, optimizers, rank, range(5))
        at = [model.module.state_dict(), *(each.state_dict() for each in optimizers), state.state_dict()]
        file = io.BytesIO()
        torch.save(at, file)
        saved = file.getvalue()
    else:
        saved = saved[rank]
        at = torch.load(io.BytesIO(saved))
        for target, part in zip((model.module, *optimizers, state), at, strict=True):
            target.load_state_dict(part)
    train(model, optimizers, rank, range(5, 10))
    return saved, bits(model.parameters()), [len(optimizers[0].state[p]) for p in parts_of(model.module)[0]]


def test_a_resumed_job_continues_with_the_same_bits():
    whole = run_ranks(2, resumed, None, None)
    again = run_ranks(2, resumed, [saved for saved, *_ in whole], None)
    assert [bits for _, bits, _ in again] == [bits for _, bits, _ in whole]
    assert [sum(held) for held in zip(*(held for *_, held in again), strict=True)] == [1, 1, 1]


def converted(rank, world):
    """Loads torch's state into a Muon before and after attach(), and its state into torch's; detach()."""
    plain = DDP(net())
    theirs = optimizers_of(plain, False)
    train(plain, theirs, rank, range(3))
    for late in (False, True):
        model = DDP(copy.deepcopy(plain.module))
        optimizers = optimizers_of(model, True)
        if not late:
            optimizers[0].load_state_dict(copy.deepcopy(theirs[0].state_dict()))
        state = tithe.torch.attach(model, "fp32", optimizer=optimizers[:1], **OPTIONS)
        if late:
            optimizers[0].load_state_dict(copy.deepcopy(theirs[0].state_dict()))
        assert bits(momentum(optimizers[0]).values()) == bits(momentum(theirs[0]).values())
    with pytest.raises(ValueError, match="use state_dict"):
        copy.deepcopy(optimizers[0])
    back = optimizers_of(net(), False)
    back[0].load_state_dict(optimizers[0].state_dict())
    assert bits(momentum(back[0]).values()) == bits(momentum(theirs[0]).values())
    state.detach()
    assert bits(momentum(optimizers[0]).values()) == bits(momentum(theirs[0]).values())
    for m, each in ((model, optimizers), (plain, theirs)):
        train(m, each[:1], rank, range(3, 5))
    assert bits(parts_of(model.module)[0]) == bits(parts_of(plain.module)[0])


def test_states_convert_both_ways_with_torchs():
    run_ranks(2, converted)


def checkpointed(rank, world):
    """Calls the functions of torch.distributed.checkpoint, which read the optimizer's state on each rank."""
    model, optimizers, _ = attached(None)
    train(model, optimizers, rank, range(2))
    saved = get_optimizer_state_dict(model, optimizers)
    other, fresh, _ = attached(None)
    set_optimizer_state_dict(other, fresh, optim_state_dict=copy.deepcopy(saved))
    assert bits(momentum(fresh[0]).values()) == bits(momentum(optimizers[0]).values())
    return [len(fresh[0].state[p]) for p in parts_of(other.module)[0]], list(saved["state"])


def test_torchs_functions_for_checkpoints():
    (first, names), (second, others) = run_ranks(2, checkpointed)
    assert [a + b for a, b in zip(first, second, strict=True)] == [1, 1, 1] and names == others


def alone_in_saving(rank, world):
    model, optimizers, state = attached("fp32", timeout=1.0, patience=1.0)
    train(model, optimizers, rank, range(2))
    if rank == 0:
        with pytest.raises(tithe.Error, match=r"rank 1 did not come to .*state_dict\(\), which all ranks call"):
            optimizers[0].state_dict()
    torch.distributed.barrier()
    state.close()


def test_saving_on_one_rank_is_refused():
    run_ranks(2, alone_in_saving)


# ---- Refusals


def refusals(rank, world):
    def refused(match, codec="fp32", **options):
        model = DDP(net())
        with pytest.raises(ValueError, match=match):
            tithe.torch.attach(model, codec, optimizer=optimizers_of(model, True), **{**OPTIONS, **options})

    refused("schedule='warmup:400'", "topk:ratio=0.1", schedule="warmup:400")
    refused("plans all-reduces", "auto")
    refused("'thc'", "thc")
    refused("servers=1", servers=1)
    refused("momentum in both places", "dgc:feedback=momentum")
    refused("weight= does not work", weight=lambda: 1.0)
    model, optimizers, state = attached("fp32")
    with pytest.raises(ValueError, match="whose matrices are exchanged in step"), state.without_residual():
        pass
    with pytest.raises(ValueError, match="attached to a model already"):
        tithe.torch.attach(DDP(model.module), optimizer=optimizers[:1], **OPTIONS)
    first, *others = parts_of(model.module)[0]
    both = [tithe.torch.optim.Muon([first]), tithe.torch.optim.Muon(others)]
    with pytest.raises(ValueError, match="two tithe.torch.optim.Muon"):
        tithe.torch.attach(DDP(model.module), optimizer=both, **OPTIONS)
    with pytest.raises(ValueError, match=r"1\.0\.weight"):
        attached("fp32", choices={"1.0.weight": "fp32"})


def test_mismatched_settings_are_refused_by_name():
    run_ranks(2, refusals)


@pytest.mark.parametrize("kind", [HostShare, ShardViews])
def test_sharded_parameters_are_refused_by_name(kind):
    with pytest.raises(ValueError, match="attach.inside=.|fully_shard"):
        check_settings(tithe._core.Options(), kind.__new__(kind))


def torchs(rank, world):
    model = DDP(net())
    muon, adamw = optimizers_of(model, False)
    optimizers = [muon, tithe.torch.optim.AdamW(adamw.param_groups)]
    state = tithe.torch.attach(model, optimizer=optimizers, **OPTIONS)
    train(model, optimizers, rank, range(2))
    return state.codec, state.plan(), bits(model.parameters())


def test_torchs_muon_gets_the_default_codec_whatever_the_other_optimizer_takes():
    first, second = run_ranks(2, torchs)
    assert first[2] == second[2] and first[0] == "eden:bits=3"
    assert "tensor 1.0.weight: 1280 values, fp8 by" in first[1]
    assert "tensor 3.weight: 288 values, eden:bits=3 by" in first[1]


def by_default(rank, world):
    """Trains as a user would write it: no codec, no options, and matrices of more than 4,096 values."""
    torch.manual_seed(1)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 96)))
    matrices = [p for p in model.parameters() if p.dim() == 2]
    muon = tithe.torch.optim.Muon(matrices, lr=0.02)
    adamw = torch.optim.AdamW([p for p in model.parameters() if p.dim() < 2], lr=1e-2)
    state = tithe.torch.attach(model, optimizer=[muon, adamw])
    losses = []
    for _ in range(12):
        loss = model(torch.randn(32, 64, generator=torch.Generator().manual_seed(rank))).square().mean()
        loss.backward()
        for each in (muon, adamw):
            each.step()
            each.zero_grad()
        losses.append(loss.item())
    plan = state.plan()
    state.close()
    return bits(model.parameters()), losses, plan


def test_with_defaults_the_ranks_agree_and_the_loss_falls():
    first, second = run_ranks(2, by_default)
    assert first[0] == second[0]
    assert all(losses[-1] < 0.7 * losses[0] for _, losses, _ in (first, second))
    assert "0.weight (gradient): 6144 values, eden:scale=unbiased,feedback=none" in first[2]
    assert "(update): 6144 values, eden:bits=2,scale=unbiased,feedback=none" in first[2]
