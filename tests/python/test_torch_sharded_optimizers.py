# SPDX-License-Identifier: Apache-2.0
"""attach(model, optimizer=) of fully_shard() models: the adapter's values are of this rank's shard only."""

import logging

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from processes import own_part, run_ranks
from sharded_jobs import OPTIONS, bits, halves, loss_of, mesh_of, sharded, train
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy

import tithe
import tithe.torch
from tithe.torch._optimizer.squares import Squares

SGD = {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.02}
# Sends all values, as a lossy codec.
WHOLE = "topk:ratio=1"


def sgd(network, **more):
    return torch.optim.SGD(network.parameters(), **{**SGD, **more})


def adamw(network, **more):
    return tithe.torch.optim.AdamW(network.parameters(), lr=1e-2, **more)


def torchs(network):
    return torch.optim.AdamW(network.parameters(), lr=1e-2)


def pair(make, codec, theirs=None, steps=4, policy=None, prepare=lambda network: None, run=train):
    """Returns a model with tithe and one with FSDP2's own collectives, after the same steps, with their optimizers."""
    out = []
    for given, build in ((codec, make), (None, theirs or make)):
        network = sharded(mesh_of(), **(policy or {}))
        prepare(network)
        optimizer = build(network)
        state = tithe.torch.attach(network, given, optimizer=optimizer, **OPTIONS) if given else None
        run(network, optimizer, range(steps))
        out.append((network, optimizer, state))
    return out


def state_of(network, optimizer):
    """Returns the user's view: whole tensors, by name."""
    _, found = get_state_dict(network, optimizer)
    return {
        name: {key: value.full_tensor() if hasattr(value, "full_tensor") else value for key, value in each.items()}
        for name, each in found["state"].items()
    }


# ---- As torch's


def lossless(rank, world):
    for make, theirs, codec in (
        (sgd, sgd, "fp32"),
        (torchs, torchs, "fp32"),
        (adamw, torchs, "fp32"),
        (lambda n: adamw(n, exact=100, warmup_codec="fp32"), torchs, "onebit"),  # attached, with all that it keeps
    ):
        (ours, mine, state), (native, other, _) = pair(make, codec, theirs)
        assert bits(ours) == bits(native)
        own, known = state_of(ours, mine), state_of(native, other)
        assert own.keys() == known.keys()
        for name, each in known.items():
            for key, value in each.items():
                assert torch.equal(own[name][key], value), (name, key)
        state.close()
    return True


def test_lossless_codec_on_four_ranks_is_bit_equal_to_torch():
    assert run_ranks(4, lossless) == [True] * 4


def near(ours, native):
    for p, q in zip(ours.parameters(), native.parameters(), strict=True):
        torch.testing.assert_close(p.to_local(), q.to_local(), rtol=2e-5, atol=2e-6)


def divided(network):
    for module in network.modules():
        if hasattr(module, "set_gradient_divide_factor"):
            module.set_gradient_divide_factor(2.0)  # the ranks of a replica: Gloo has no other


def kept(network, optimizer, steps):
    """Trains with gradients that are added to those of the previous step, so that each group is a round."""
    for step in steps:
        loss_of(network, dist.get_rank(), step).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def whole(rank, world):
    """SGD with a codec that sends all values: torch's optimizer has the momentum, for all settings of FSDP2."""
    half = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)
    for more in ({}, {"prepare": divided}, {"run": kept}):
        (ours, mine, state), (native, other, _) = pair(sgd, WHOLE, steps=20, **more)
        near(ours, native)
        assert mine.state_dict()["param_groups"] == other.state_dict()["param_groups"]
        state.close()
    (ours, _, _), (native, _, _) = pair(sgd, WHOLE, steps=4, policy={"mp_policy": half})
    for p, q in zip(ours.parameters(), native.parameters(), strict=True):
        torch.testing.assert_close(p.to_local(), q.to_local(), rtol=2e-2, atol=2e-3)
    return True


def test_lossless_sgd_equals_torchs():
    assert run_ranks(4, whole) == [True] * 4


# ---- Few bits: one job, several tests


def parts():
    """Returns the parts under a codec with a small error, also if FSDP2 rescales gradients after the exchange: near
    1."""
    results = []
    half = {"mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.float16)}
    for more in ({}, {"prepare": divided}, {"policy": half}):
        (ours, mine, state), _ = pair(adamw, "fp8", torchs, steps=9, **more)
        assert [type(adapter) for adapter in state._adapters.all] == [Squares]
        found = [mine.state[p]["exp_avg_sq_part"] for p in ours.parameters()]
        assert all(part.placements == p.placements for part, p in zip(found, ours.parameters(), strict=True))
        values = torch.cat([part.to_local().flatten() for part in found])
        results.append((values.median().item(), values.min().item()))
        state.close()
    return results


def clipped(network):
    return adamw(network, max_norm=0.5)


def trained(rank, where):
    inside, across = halves()
    given = {"replicas": across} if where == "by replicas=" else {}
    network = sharded(inside if given else mesh_of())
    optimizer = clipped(network)
    state = tithe.torch.attach(network, "minmax", optimizer=optimizer, **given, **OPTIONS)
    before = loss_of(network, rank, 0).item()
    train(network, optimizer, range(40))
    weights = bits(network)
    return before, loss_of(network, rank, 0).item(), weights, state.plan()


def resumed(folder):
    """Returns the end of a job that continues, and of one that begins with its checkpoint."""
    ends = []
    for second in (False, True):
        network = sharded(mesh_of())
        optimizer = clipped(network)
        state = tithe.torch.attach(network, "minmax", optimizer=optimizer, **OPTIONS)
        if not second:
            train(network, optimizer, range(6))
        at = dict(zip(("model", "optimizer"), get_state_dict(network, optimizer), strict=True))
        if second:
            dcp.load({**at, "tithe": state}, checkpoint_id=folder)
            set_state_dict(network, optimizer, model_state_dict=at["model"], optim_state_dict=at["optimizer"])
        else:
            dcp.save({**at, "tithe": state}, checkpoint_id=folder)
        train(network, optimizer, range(6, 12))
        saved = own_part(state.state_dict())
        keeps = sorted((name, values.numpy().tobytes()) for name, values in saved["optimizer"]["squares"].items())
        ends.append((bits(network), saved["session"].numpy().tobytes(), keeps))
        state.close()
    return ends


def refusals(rank):
    texts = {}
    with pytest.raises((ValueError, tithe.Error)) as refused:
        tithe.torch.attach(sharded(mesh_of()), optimizer=torchs(sharded(mesh_of())), **OPTIONS)
    texts["another model's"] = str(refused.value)
    return texts


def thrown_away(rank):
    """Returns the warnings of a loop that accumulates, and then clears the gradients of a step."""
    warnings = []
    log = logging.Handler(logging.WARNING)
    log.emit = lambda record: warnings.append(record.getMessage())
    network = sharded(mesh_of())
    optimizer = sgd(network)
    state = tithe.torch.attach(network, "fp8", optimizer=optimizer, **OPTIONS)
    logging.getLogger("tithe.torch").addHandler(log)
    for step in range(3):
        for _ in range(2):
            loss_of(network, rank, step).backward()
        optimizer.step()
        optimizer.zero_grad()
    before = len(warnings)
    loss_of(network, rank, 3).backward()
    optimizer.zero_grad()
    loss_of(network, rank, 4).backward()
    logging.getLogger("tithe.torch").removeHandler(log)
    state.close()
    return before, warnings


def few_bits(rank, world, folder):
    return {
        "parts": parts(),
        "trained": {where: trained(rank, where) for where in ("by mesh", "by replicas=")},
        "resumed": resumed(folder),
        "refused": refusals(rank),
        "thrown away": thrown_away(rank),
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_ranks(4, few_bits, str(tmp_path_factory.mktemp("sharded")), timeout=500)


def test_gradient_part_of_the_squares_is_tracked_by_shard(results):
    for rank in results:
        for median, least in rank["parts"]:
            assert 0.9 < median <= 1 and least < 1


def test_few_bits_train_and_replicas_stay_bit_identical(results):
    for rank, mine in enumerate(results):
        for name, (before, after, weights, plan) in mine["trained"].items():
            assert after < 0.6 * before, name
            assert weights == results[rank ^ 2]["trained"][name][2], name
            assert "(squares)" in plan
        assert mine["trained"]["by mesh"][2] == mine["trained"]["by replicas="][2]


def test_distributed_checkpoint_resumes_bit_identically(results):
    for rank in results:
        first, second = rank["resumed"]
        assert second == first
    assert len({str(rank["resumed"][0][2]) for rank in results}) == 4  # products differ between ranks


def test_unsupported_setups_are_refused_with_the_cure(results):
    for rank in results:
        assert "has none of this model's parameters" in rank["refused"]["another model's"]


def test_discarded_step_is_named(results):
    for rank in results:
        before, texts = rank["thrown away"]
        assert before == 0 and len(texts) == 1 and "cleared without a step()" in texts[0]
