# SPDX-License-Identifier: Apache-2.0
"""Training loops around tithe.torch.optim.Muon: clipping, GradScaler, NaN, skipped steps, unused matrices."""

import logging
import time

import pytest
import torch
from muon_jobs import OPTIONS, attached, momentum, parts_of, train
from processes import Ranks, run_ranks
from small_jobs import backward, batch, bits
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch
from tithe.torch._optimizer.rank_scales import check_rows, factor_of

pytestmark = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch 2.9 has Muon")


def raised(step):
    try:
        step()
    except tithe.Error as error:
        return error.code, str(error)
    return None


def clipped(rank, world, what):
    model, optimizers, _ = attached("fp32")
    matrices, others = parts_of(model.module)
    train(model, optimizers, rank, range(2))
    before = bits(matrices)
    backward(model, rank, 2)
    given = {"all": model.parameters(), "matrices": matrices, "others": others}[what]
    torch.nn.utils.clip_grad_norm_(given, 1e-3)
    found = raised(optimizers[0].step)
    return found, bits(matrices) == before, bits(matrices)


@pytest.mark.parametrize("what", ["all", "matrices"])
def test_clipping_by_differing_norms_is_named_on_all_ranks(what):
    results = run_ranks(2, clipped, what)
    for (code, text), same, _ in results:
        assert code == "mismatch" and same
        assert "clip_grad_norm_() over all parameters" in text and "clip the other optimizers' parameters alone" in text


def test_other_parameters_can_be_clipped():
    first, second = run_ranks(2, clipped, "others")
    assert first == second and first[:2] == (None, False)


def drifted(rank, world):
    model, optimizers, _ = attached("fp32")
    train(model, optimizers, rank, range(2))
    backward(model, rank, 2)
    if rank == 1:
        with torch.no_grad():
            parts_of(model.module)[1][0].mul_(1.5)
    return raised(optimizers[0].step)


def test_differing_weights_are_named():
    for code, text in run_ranks(2, drifted):
        assert code == "mismatch" and "the ranks have different weights" in text


def scaled(rank, world):
    """With GradScaler: the same steps as without it, and a step that all ranks skip for one rank's overflow."""
    plain, theirs, _ = attached("fp32")
    train(plain, theirs, rank, range(4))
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    model, optimizers, _ = attached("fp32", loss_scale=scaler.get_scale)
    scales = []
    for step in (0, 1, -1, 2, 3):
        inputs, targets = batch(rank, abs(step))
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        if step < 0 and rank == 1:
            loss = loss * torch.inf
        scaler.scale(loss).backward()
        for each in optimizers:
            scaler.step(each)
            each.zero_grad()
        scaler.update()
        scales.append(scaler.get_scale())
    return bits(model.parameters()) == bits(plain.parameters()), scales


def test_grad_scaler_steps_and_skips_equally_on_all_ranks():
    first, second = run_ranks(2, scaled)
    assert first == second == (True, [256.0, 256.0, 128.0, 128.0, 128.0])


def not_finite(rank, world, where):
    messages = []
    log = logging.getLogger("tithe.torch")
    log.addHandler(handler := logging.Handler())
    handler.emit = lambda record: messages.append(record.getMessage())
    model, optimizers, _ = attached(None)
    matrices, _ = parts_of(model.module)
    train(model, optimizers, rank, range(2))
    before, kept = bits(matrices), bits(momentum(optimizers[0]).values())
    optimizers[0].zero_grad()
    if where == "backward" and rank == 1:
        matrices[1].register_hook(lambda grad: grad.index_fill(0, torch.tensor([2]), torch.nan))
    backward(model, rank, 2)
    seen = [bool(p.grad.isnan().all()) for p in model.parameters()]
    if where == "after it" and rank == 1:
        matrices[1].grad[3] = torch.inf
    optimizers[0].step()
    assert bits(matrices) == before and bits(momentum(optimizers[0]).values()) == kept
    return seen, [text for text in messages if "Muon made no step" in text]


@pytest.mark.parametrize("where", ["backward", "after it"])
def test_a_gradient_that_is_not_finite_changes_nothing_on_any_rank(where):
    first, second = run_ranks(2, not_finite, where)
    assert first[0] == second[0] == [where == "backward"] * 8
    assert len(first[1]) == 1 and not second[1]


def without_a_step(rank, world):
    model, optimizers, _ = attached("fp32", timeout=2.0, patience=2.0)
    train(model, optimizers, rank, range(2))
    backward(model, rank, 2)
    if rank == 1:
        time.sleep(8)
        return None
    return raised(optimizers[0].step)


def test_rank_without_a_step_is_named():
    with Ranks(2, without_a_step) as ranks:
        code, text = ranks.result(0, 60)
        assert code == "timeout" and "rank 1" in text


def unused(rank, world):
    """A matrix without a gradient counts as zero if on one rank, and does not change if on all ranks."""
    torch.manual_seed(3)
    body = torch.nn.ModuleList([torch.nn.Linear(24, 24) for _ in range(3)])

    class Some(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.use = body, range(3)

        def forward(self, x):
            for place in self.use:
                x = torch.tanh(self.body[place](x))
            return x

    model = DDP(Some(), find_unused_parameters=True)
    matrices = [each.weight for each in body]
    muon = tithe.torch.optim.Muon(matrices, lr=0.02)
    rest = torch.optim.SGD([each.bias for each in body], lr=0.1)
    tithe.torch.attach(model, "fp32", optimizer=[muon, rest], **OPTIONS)
    before = [p.detach().clone() for p in matrices]
    model.module.use = [0, 1] if rank == 0 else [0]
    backward(model, rank, 0)
    muon.step()
    moved = [not torch.equal(p, q) for p, q in zip(before, matrices, strict=True)]
    return moved, bits(matrices)


def test_matrices_without_a_gradient():
    first, second = run_ranks(2, unused)
    assert first == second and first[0] == [True, True, False]


def test_only_a_pure_factor_is_compared():
    before = torch.randn(50)
    assert factor_of(before, 0.25 * before) == pytest.approx(0.25)
    assert factor_of(before, before + 0.1 * torch.randn(50)) < -1e29
    assert factor_of(None, before) < -1e29
    rows = torch.tensor([[1.0, 2.0, 1.0, -(2.0**100)], [1.0, 2.0, -(2.0**100), 3.0]])
    check_rows(rows, ["a", "b"])
    with pytest.raises(
        tithe.Error, match="the gradient of 'b' was multiplied since backward by 2 on rank 0 and 3 on rank 1"
    ):
        check_rows(torch.tensor([[1.0, 2.0, 1.0, 2.0], [1.0, 2.0, 1.0, 3.0]]), ["a", "b"])
