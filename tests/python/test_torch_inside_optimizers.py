# SPDX-License-Identifier: Apache-2.0
"""attach(model, inside=, optimizer=): an adapter's values of a row are on the rank that exchanges the row."""

import io

import pytest
import torch
from inside_jobs import OPTIONS, loss_of, net
from processes import own_part, run_ranks
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe.torch

SGD = {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.02}


def sgd(model):
    return torch.optim.SGD(model.parameters(), **SGD)


def adamw(model, **more):
    return tithe.torch.optim.AdamW(model.parameters(), lr=1e-2, **more)


def torchs(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def start(make, codec, passes_optimizer=True):
    """passes_optimizer: whether attach() receives the optimizer."""
    model = DDP(net(), bucket_cap_mb=0.004)
    optimizer = make(model)
    more = {"optimizer": optimizer} if passes_optimizer else {}
    state = tithe.torch.attach(model, codec, inside="auto", hosts="2x2", **more, **OPTIONS)
    return model, optimizer, state


def train(model, optimizer, rank, steps):
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()


def bits(model):
    return [p.detach().numpy().tobytes() for p in model.parameters()]


def lossless(rank):
    """Compares with torch's own optimizer on the same mean of all gradients."""
    for make, theirs, codec in (
        (sgd, sgd, "fp32"),
        (adamw, torchs, "fp32"),
        (lambda m: adamw(m, exact=100, warmup_codec="fp32"), torchs, "onebit"),
    ):
        ends = []
        for build, given, passes_optimizer in ((make, codec, True), (theirs, "fp32", False)):
            model, optimizer, state = start(build, given, passes_optimizer)
            train(model, optimizer, rank, range(5))
            ends.append((bits(model), [optimizer.state[p] for p in model.parameters()]))
            state.close()
        assert ends[0][0] == ends[1][0]
        for mine, known in zip(ends[0][1], ends[1][1], strict=True):
            assert all(torch.equal(mine[key], value) for key, value in known.items())


def moved(rank):
    """SGD with a codec that sends all values equals torch's."""
    ours, mine, _ = start(sgd, "topk:ratio=1")
    native = DDP(net())
    train(ours, mine, rank, range(20))
    train(native, sgd(native), rank, range(20))
    for p, q in zip(ours.parameters(), native.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=2e-5, atol=2e-6)
    return bits(ours)


def clipped(model):
    return adamw(model, max_norm=0.5)


def lossy(rank):
    """Returns the weights after each of 40 steps, those of a job that begins with this one's checkpoint, and the
    adapters' values."""
    model, optimizer, state = start(clipped, "minmax")
    before = loss_of(model, rank, 0).item()
    train(model, optimizer, rank, range(11))
    file = io.BytesIO()
    torch.save(
        {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "tithe": state.state_dict()}, file
    )
    train(model, optimizer, rank, range(11, 40))
    after, plan = loss_of(model, rank, 0).item(), state.plan()
    again, restored, other = start(clipped, "minmax")
    at = torch.load(io.BytesIO(file.getvalue()))
    again.module.load_state_dict(at["model"])
    restored.load_state_dict(at["optimizer"])
    other.load_state_dict(at["tithe"])
    train(again, restored, rank, range(11, 40))
    kept = own_part(state.state_dict())["optimizer"]["squares"]
    return {
        "losses": (before, after),
        "ends": (bits(model), bits(again)),
        "plan": plan,
        "kept": sum(values.numel() for values in kept.values()),
    }


def exact(rank):
    """Sessions of shares end the exact steps separately; the ranks' steps must still be equal."""
    model, optimizer, state = start(lambda m: adamw(m, exact=6, warmup_codec="bf16"), "minmax")
    exacts, ends = [], []
    for step in range(40):
        train(model, optimizer, rank, [step])
        exacts.append(optimizer._exact.is_exact())
        ends.append(bits(model))
    return exacts, ends, state.tensor_stats()["3.weight"]["codec"]


def job(rank, world):
    lossless(rank)
    return {"moved": moved(rank), "lossy": lossy(rank), "exact": exact(rank)}


@pytest.fixture(scope="module")
def results():
    return run_ranks(4, job, timeout=500)


def test_lossless_codec_is_bit_equal_to_torchs_sgd(results):
    assert all(rank["moved"] == results[0]["moved"] for rank in results)


def test_few_bits_give_equal_ranks_and_resume_bit_identically(results):
    whole = sum(p.numel() for p in net().parameters())
    for rank in results:
        before, after = rank["lossy"]["losses"]
        assert after < 0.6 * before
        first, resumed = rank["lossy"]["ends"]
        assert first == resumed == results[0]["lossy"]["ends"][0]
        assert "(squares)" in rank["lossy"]["plan"]
        assert rank["lossy"]["kept"] < 0.7 * whole
    assert sum(rank["lossy"]["kept"] for rank in results) == 2 * whole  # each value once per host


def test_exact_steps_end_on_all_ranks_at_once(results):
    exacts, ends, codec = results[0]["exact"]
    assert exacts[:6] == [True] * 6 and not exacts[-1] and codec == "minmax"
    assert all(rank["exact"][:2] == (exacts, ends) for rank in results)
