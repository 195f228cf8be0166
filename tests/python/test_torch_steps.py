# SPDX-License-Identifier: Apache-2.0
"""State.skip(): a rank leaves out a step: before, in or after its forward, or in its backward."""

import contextlib
import logging

import numpy as np
import pytest
import standin
import torch
from processes import run_ranks
from small_jobs import OPTIONS, batch, bits, gradient_of, net
from standin_jobs import make, on_standin
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch

SMALL = {"bucket_cap_mb": 0.001}  # two buckets
LOSS = torch.nn.functional.cross_entropy


class Failure(RuntimeError):
    """Simulates out of memory, a bad sample or a loss that is not finite."""


def arrays(tensors):
    return [None if t is None else t.detach().numpy().copy() for t in tensors]


def rows(rank, step, count):
    inputs, targets = batch(rank, step)
    return inputs[:count], targets[:count]


def poison(model, layer):
    """Makes the next backward fail before it reaches a layer."""

    def fail(gradient):
        handle.remove()
        raise Failure

    handle = model.module[layer].weight.register_hook(fail)


def fails(model, data, where):
    """Runs a forward and backward that fails."""
    try:
        if where == "instead":
            return
        if where == "in forward":
            handle = model.module[1].register_forward_pre_hook(lambda *_: 1 / 0)
            try:
                model(data[0])
            finally:
                handle.remove()
        elif where == "after forward":
            model(data[0])
        else:
            poison(model, {"early in backward": 2, "late in backward": 0}[where])
            LOSS(model(data[0]), data[1]).backward()
    except (Failure, ZeroDivisionError):
        return
    assert where == "after forward"


class Normed(torch.nn.Sequential):
    """A model with buffers, which DDP sends with each forward, and with a layer that no forward uses."""

    def __init__(self):
        torch.manual_seed(3)
        super().__init__(
            torch.nn.Linear(24, 40), torch.nn.BatchNorm1d(40), torch.nn.Linear(40, 6), torch.nn.Linear(6, 6)
        )

    def forward(self, x):
        return self[2](self[1](self[0](x)))


MODELS = {
    "plain": (net, SMALL),
    "views": (net, {**SMALL, "gradient_as_bucket_view": True}),
    "unused": (Normed, {**SMALL, "find_unused_parameters": True}),
    "static": (Normed, {**SMALL, "static_graph": True}),
}
WHOLE = ["instead", "in forward", "after forward", "early in backward"]  # no bucket has been handed over


def skipping(rank, world, name):
    """Rank 1 skips every other step, in each way. Returns, per step: the way, this rank's gradients, its own ones, the
    weights."""
    make, made = MODELS[name]
    model = DDP(make(), **made)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state = tithe.torch.attach(model, codec="fp32", weight=lambda: 1, **OPTIONS)
    ways = ["", *(way for each in [*WHOLE, "late in backward", "instead"] for way in (each, ""))]
    if name != "static":
        ways = ["instead", *ways]  # the first step
    out = []
    for step, where in enumerate(ways):
        optimizer.zero_grad()
        alone = make()
        alone.load_state_dict(model.module.state_dict())
        data = batch(rank, step)
        if where and rank == 1:
            fails(model, data, where)
            state.skip()
        else:
            LOSS(model(data[0]), data[1]).backward()
        gradients = [p.grad for p in model.parameters()]
        LOSS(alone(data[0]), data[1]).backward()
        own = [p.grad for p in alone.parameters()]
        out.append((where, arrays(gradients), arrays(own)))
        optimizer.step()
        out[-1] += (bits(model.parameters()),)
    rounds = state.stats()["rounds"], state.stats()["rounds_dropped"]
    state.close()
    return out, rounds


@pytest.mark.parametrize("name", MODELS)
def test_a_rank_skips_a_step_and_all_ranks_apply_the_mean_of_the_others(name):
    (first, rounds), (second, rounds_there), (third, _) = run_ranks(3, skipping, name)
    # DDP hands over the bucket of unused parameters with the first gradient.
    drops = ["late in backward", *(["early in backward"] if name == "unused" else [])]
    assert rounds == rounds_there and rounds[1] == len(drops)
    assert sum(rounds) == len(first), "a dropped round counts once"
    for (where, gradients, own, weights), (_, theirs, own2, there), (_, _, own3, _) in zip(
        first, second, third, strict=True
    ):
        assert weights == there, where  # the ranks stay identical
        for g, other, *owns in zip(gradients, theirs, own, own2, own3, strict=True):
            assert (g is None) == (other is None), where
            if g is None:
                assert owns[0] is None
                continue
            assert g.tobytes() == other.tobytes(), where
            if where in drops:
                assert not g.any()  # all ranks drop a round that was partly handed over
            elif owns[0] is not None:
                taking_part = [owns[0], owns[2]] if where else owns
                np.testing.assert_allclose(g, sum(taking_part) / len(taking_part), rtol=2e-5, atol=2e-6)


def all_skip(rank, world):
    model = DDP(net(), **SMALL)
    state = tithe.torch.attach(model, codec="topk:ratio=0.1", weight=lambda: 1, **OPTIONS)
    gradient_of(model, batch(rank, 0))
    before = torch.cat([state.residual(p).flatten() for p in model.parameters()])
    model.zero_grad()
    state.skip()
    result = torch.cat([p.grad.flatten() for p in model.parameters()])
    after = torch.cat([state.residual(p).flatten() for p in model.parameters()])
    state.close()
    return before.numpy(), result.numpy(), after.numpy()


def test_if_all_ranks_skip_only_residuals_are_sent():
    ranks = run_ranks(2, all_skip)
    before, after = (sum(each[i] for each in ranks) for i in (0, 2))
    assert ranks[0][1].tobytes() == ranks[1][1].tobytes() and ranks[0][1].any()
    np.testing.assert_allclose(before, 2 * ranks[0][1] + after, rtol=1e-5, atol=1e-7)


def dropped(rank, world):
    """A skip in the middle of backward does not change the residuals; a NaN without skip() stays a NaN on all ranks."""
    caught = []
    handler = logging.Handler()
    handler.emit = caught.append
    logging.getLogger("tithe.torch").addHandler(handler)
    model = DDP(net(), **SMALL)
    optimizer = tithe.torch.optim.AdamW(model.parameters(), lr=1e-3)
    state = tithe.torch.attach(model, codec="eden:bits=2", optimizer=optimizer, weight=lambda: 1, **OPTIONS)
    equal = []
    for step in range(12):
        optimizer.zero_grad()
        before = [state.residual(p) for p in model.parameters()] if step else []
        inputs, targets = batch(rank, step)
        if step == 5 and rank == 1:
            fails(model, (inputs, targets), "late in backward")
            state.skip()
        elif step == 7 and rank == 1:
            LOSS(model(inputs * float("nan")), targets).backward()
        else:
            LOSS(model(inputs), targets).backward()
        if step in (5, 7):
            equal.append(
                all(torch.equal(a, state.residual(p)) for a, p in zip(before, model.parameters(), strict=True))
            )
        if step == 7:
            equal.append(all(p.grad.isnan().all() for p in model.parameters()))
        else:
            optimizer.step()
    finite = all(p.isfinite().all() for p in model.parameters())
    state.close()
    return equal, finite, bits(model.parameters()), [r.getMessage() for r in caught if r.levelno >= logging.WARNING]


def test_a_dropped_round_keeps_residuals_and_is_zero_only_after_skip():
    ranks = run_ranks(2, dropped)
    for equal, finite, _, warnings in ranks:
        assert equal == [True, True, True] and finite and warnings == []
    assert ranks[0][2] == ranks[1][2]


def refusals(rank, world):
    texts = []

    def attached(made=None, **options):
        model = DDP(Normed() if made else net(), **(made or {}))
        return model, tithe.torch.attach(model, codec="fp32", **options, **OPTIONS)

    def ask(model, state):
        try:
            state.skip()
        except ValueError as error:
            texts.append(str(error))
        state.close()

    ask(*attached())
    ask(*attached({"static_graph": True}, weight=lambda: 1))
    ask(*attached({"find_unused_parameters": True, "skip_all_reduce_unused_params": True}, weight=lambda: 1))
    ask(*attached(inside="auto", hosts="1x2"))
    model, state = attached(weight=lambda: 1)
    model.module[0].weight.register_hook(lambda gradient: ask(model, state))
    with contextlib.suppress(ValueError, tithe.Error):
        gradient_of(model, batch(rank, 0))
    return texts


def test_refused_skip_gives_the_reason():
    for texts in run_ranks(2, refusals):
        names = ["weight=lambda: 1", "static_graph", "skip_all_reduce_unused_params", "inside=", "inside a backward"]
        assert len(texts) == len(names)
        for text, name in zip(texts, names, strict=True):
            assert "skip" in text and name in text, text


def on_accelerator(rank, world):
    """Returns the gradients of weighted and skipped steps on the simulated GPU and on the CPU."""
    group, found = on_standin(), []
    for device, of in (("standin:0", group), ("cpu", None)):
        model = make(device, of)
        state = tithe.torch.attach(model, codec="topk:ratio=0.1", weight=lambda: rank + 1, **OPTIONS)
        results = []
        for step in range(8):
            model.zero_grad()
            data = torch.randn(8, 8, generator=torch.Generator().manual_seed(100 * step + rank))
            if rank == 1 and step in (2, 4, 6):
                if step > 2:
                    handle = model.module.layers[0 if step == 4 else 3].weight.register_hook(_raise)
                    with contextlib.suppress(Failure):
                        model(data).pow(2).sum().backward()
                    handle.remove()
                state.skip()
            else:
                model(data).pow(2).sum().backward()
            results.append(torch.cat([p.grad.flatten().cpu() for p in model.parameters()]))
        found.append(bits(results))
        dropped = state.stats()["rounds_dropped"]
        state.close()
    return found[0] == found[1], found[0], dropped


def _raise(gradient):
    raise Failure


def test_weights_and_skips_on_an_accelerator_are_bit_equal_to_the_cpu():
    standin.build()
    ranks = run_ranks(2, on_accelerator)
    assert ranks[0] == ranks[1]
    assert ranks[0][0] and ranks[0][2] == 1


def accumulating(rank, world):
    """skip() in the middle of an accumulation under no_sync(), and codec auto."""
    model = DDP(net(), **SMALL)
    state = tithe.torch.attach(model, codec="fp32", weight=lambda: 1, **OPTIONS)
    for step in range(4):
        model.zero_grad()
        for part in range(3):
            with model.no_sync() if part < 2 else contextlib.nullcontext():
                if step == 2 and rank == 1 and part == 1:
                    state.skip()
                    break
                LOSS(model(batch(rank, step)[0]), batch(rank, step)[1]).backward()
        if step == 2:
            result = arrays(p.grad for p in model.parameters())
    rounds = state.stats()["rounds"]
    state.close()
    own = gradient_of(net(), batch(rank, 2))

    model = DDP(torch.nn.Linear(100, 100))
    options = {name: value for name, value in OPTIONS.items() if name != "min_values"}
    state = tithe.torch.attach(model, codec="auto", weight=lambda: 1, **options)
    for step in range(3):
        model.zero_grad()
        if step == 1 and rank == 1:
            state.skip()
        else:
            model(torch.full((2, 100), rank + 1.0)).sum().backward()
        if step == 1:
            auto = model.module.weight.grad.unique().tolist()
    state.close()
    return rounds, result, arrays(own), auto


def test_skip_ends_an_accumulation_and_works_with_auto():
    (rounds, result, own, auto), (rounds_there, result_there, _, auto_there) = run_ranks(2, accumulating)
    assert rounds == rounds_there == 4
    for mine, there, one in zip(result, result_there, own, strict=True):
        assert mine.tobytes() == there.tobytes()
        np.testing.assert_allclose(mine, 3 * one, rtol=2e-5, atol=2e-6)
    assert auto == auto_there == [2.0]


def left_out(rank, world):
    """With default options and a model above min_values: rank 1 leaves out a batch, and one in its forward."""
    torch.manual_seed(2)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    rows = 0
    state = tithe.torch.attach(model, optimizer=optimizer, weight=lambda: rows)
    for step in range(10):
        optimizer.zero_grad()
        rows = 8 + 4 * rank
        inputs = torch.randn(rows, 64, generator=torch.Generator().manual_seed(10 * step + rank))
        if rank == 1 and step in (0, 4):
            if step == 4:
                model(inputs)  # its loss is discarded
            state.skip()
        else:
            model(inputs).square().mean().backward()
        optimizer.step()
    compressed = "eden" in state.plan()
    state.close()
    return bits(model.parameters()), compressed


def test_with_defaults_a_rank_can_skip_batches_and_stays_equal():
    first, second = run_ranks(2, left_out)
    assert first == second and first[1]
