# SPDX-License-Identifier: Apache-2.0
"""attach(optimizer=) under ordinary training loops: accumulation, rescaled and clipped gradients, skipped steps, SAM,
parameters outside DDP, another optimizer object. The reference is the plain optimizer over plain DDP in the same loop.
"""

import logging

import pytest
import torch
from processes import run_ranks
from small_jobs import OPTIONS, batch, bits, net
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch

STEPS = 40


class Loop:
    """One training loop. Subclasses override the methods in which loops differ."""

    def __init__(self, rank):
        self.rank = rank

    def loss(self, model, step):
        inputs, targets = batch(self.rank, step)
        return torch.nn.functional.cross_entropy(model(inputs), targets)

    def backward(self, model, step):
        self.loss(model, step).backward()

    def touch(self, model, step):
        """Called between backward and step()."""

    def run(self, model, optimizer, steps=STEPS):
        """Returns the lengths of the steps of the first weight."""
        lengths = []
        weight = next(iter(model.module.parameters()))
        for step in range(steps):
            optimizer.zero_grad()
            self.backward(model, step)
            self.touch(model, step)
            before = weight.detach().clone()
            optimizer.step()
            lengths.append((weight.detach() - before).norm().item())
        return torch.tensor(lengths)


def scaled(factor):
    class Scaled(Loop):
        def touch(self, model, step):
            for number, p in enumerate(model.parameters()):
                p.grad.mul_(factor(step, number))

    return Scaled


class Accumulated(Loop):
    def backward(self, model, step):
        for part in range(2):
            self.loss(model, 2 * step + part).backward()


class Clipped(Loop):
    def touch(self, model, step):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)


class Decayed(Loop):
    """L2 regularisation in the loop."""

    def touch(self, model, step):
        for p in model.parameters():
            p.grad.add_(p.detach(), alpha=0.05)


class Masked(Loop):
    """Every other row of the first weight is frozen."""

    def touch(self, model, step):
        next(iter(model.parameters())).grad[::2] = 0


class Unscaled(Loop):
    """A loss scale without loss_scale=."""

    def backward(self, model, step):
        (self.loss(model, step) * 1024).backward()

    def touch(self, model, step):
        for p in model.parameters():
            p.grad.div_(1024)


class Sam(Loop):
    """Sharpness-aware minimisation: the gradient at a perturbed point is applied."""

    state = None  # the State of tithe, whose first round is reverted

    def backward(self, model, step):
        self.loss(model, step).backward()
        moves = [0.01 * p.grad for p in model.parameters()]
        if self.state is not None:
            self.state.undo()
        model.zero_grad()
        with torch.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.add_(move)
        self.loss(model, step).backward()
        with torch.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.sub_(move)


LOOPS = {
    "plain": Loop,
    "times 4": scaled(lambda step, number: 4.0),
    "by 1000": scaled(lambda step, number: 1e-3),
    "by step": scaled(lambda step, number: (0.25, 4.0, 1.0)[step % 3]),
    "by parameter": scaled(lambda step, number: (0.1, 10.0)[number % 2]),
    "accumulated": Accumulated,
    "clipped": Clipped,
    "decayed": Decayed,
    "masked": Masked,
    "unscaled": Unscaled,
    "sam": Sam,
}


def trained(rank, loop, make, **options):
    """Returns a model trained by a loop, through tithe if there are options, its optimizer and its steps' lengths."""
    model = DDP(net())
    optimizer = make(model.parameters())
    runs = LOOPS[loop](rank)
    if options:
        runs.state = tithe.torch.attach(model, optimizer=optimizer, undo=loop == "sam", **options, **OPTIONS)
    lengths = runs.run(model, optimizer)
    return model, optimizer, lengths


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.01)


def sgd_everywhere(rank, world, codec):
    for loop in LOOPS:
        ours, _, _ = trained(rank, loop, sgd, codec=codec)
        theirs, _, _ = trained(rank, loop, sgd)
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=2e-5, atol=2e-6, msg=lambda text, loop=loop: f"{loop}: {text}")
    return True


@pytest.mark.parametrize("codec", ["fp32", "topk:ratio=1"])
def test_lossless_sgd_equals_plain_sgd_in_every_loop(codec):
    assert run_ranks(2, sgd_everywhere, codec) == [True] * 2


def lossy_sgd(rank, world):
    out = []
    for loop in ("plain", "accumulated"):
        ours, _, _ = trained(rank, loop, sgd, codec="onebit")
        theirs, _, _ = trained(rank, loop, sgd)
        weights = [torch.cat([p.detach().flatten() for p in m.parameters()]) for m in (ours, theirs)]
        out.append((weights[0].norm() / weights[1].norm()).item())
    return out


def test_two_backwards_in_a_step_do_not_multiply_momentum():
    for ratios in run_ranks(2, lossy_sgd):
        assert all(0.8 < ratio < 1.25 for ratio in ratios)


def adam_everywhere(rank, world):
    """Returns, by loop, the lengths of its last steps beside plain AdamW's, and the median part of the first weight."""
    out = {}
    for loop in LOOPS:
        ours, optimizer, mine = trained(
            rank, loop, lambda p: tithe.torch.optim.AdamW(p, lr=1e-3), codec="eden:bits=2", strategy="gather"
        )
        _, _, theirs = trained(rank, loop, lambda p: torch.optim.AdamW(p, lr=1e-3))
        part = optimizer.state[next(iter(ours.parameters()))]["exp_avg_sq_part"]
        out[loop] = (mine[-10:] / theirs[-10:]).median().item(), part.median().item(), bits(ours.parameters())
    return out


def test_adamw_divides_by_the_true_square_in_every_loop():
    first, second = run_ranks(2, adam_everywhere)
    assert first == second  # replicas are bit-identical
    plain = first["plain"]
    assert 0.5 < plain[1] < 0.95
    for loop, (length, part, _) in first.items():
        assert 0.9 < length < 1.15, (loop, length)
        # Masked rows, and additions to a gradient, count as free of error: steps never become longer.
        assert plain[1] - 0.05 < part, (loop, part)
        if loop in ("times 4", "by 1000", "by parameter", "by step", "clipped", "unscaled"):
            assert part < plain[1] + 0.05, (loop, part)


# ---- Unapplied rounds


class LogTexts(logging.Handler):
    """Records warnings, except those about a codec that does not suit an optimizer."""

    def __init__(self):
        super().__init__(level=logging.WARNING)
        self.texts = []
        logging.getLogger("tithe.torch").addHandler(self)

    def emit(self, record):
        if "does not suit" not in record.getMessage():
            self.texts.append(record.getMessage())


def skipping(rank, world, codec, to_none, cure):
    """Drops every fifth step's gradients. Returns the sum of applied gradients and residuals, the sum of the gradients
    of the applied steps, and the warnings."""
    log_texts = LogTexts()
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(64, 32, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    state = tithe.torch.attach(model, optimizer=optimizer, codec=codec, undo=cure, **OPTIONS)
    weight = model.module.weight
    start, true = weight.detach().clone(), torch.zeros_like(weight)
    for step in range(50):
        pair = [torch.randn(1, 64, generator=torch.Generator().manual_seed(100 * step + r)) for r in range(world)]
        model(pair[rank]).sum().backward()
        if step % 5 == 4:
            if cure:
                state.undo()
        else:
            optimizer.step()
            true += sum(x.expand(32, 64) for x in pair) / world
        optimizer.zero_grad(set_to_none=to_none)
    owed = state.residual(weight)
    torch.distributed.all_reduce(owed)
    off = (start - weight.detach()) + owed / world - true
    return (off.norm() / true.norm()).item(), log_texts.texts


@pytest.mark.parametrize("to_none", [True, False])
def test_discarded_step_is_named_once(to_none):
    for off, texts in run_ranks(2, skipping, "topk:ratio=0.01", to_none, False):
        assert off > 0.1  # the loss that the warning is about
        assert len(texts) == 1 and "round 4 were cleared without a step()" in texts[0] and "state.undo()" in texts[0]


@pytest.mark.parametrize("codec", ["topk:ratio=0.01", "onebit"])
def test_undo_of_a_discarded_step_loses_nothing(codec):
    for off, texts in run_ranks(2, skipping, codec, True, True):
        assert off < 1e-5 and not texts


def unnamed(rank, world):
    """Loops that apply every round get no warning."""
    log_texts = LogTexts()
    for loop in ("plain", "accumulated", "clipped", "masked"):
        for make in (sgd, tithe.torch.optim.AdamW):
            trained(rank, loop, make, codec="eden:bits=3")
    model = DDP(net())
    optimizer = sgd(model.parameters())
    tithe.torch.attach(model, optimizer=optimizer, codec="fp8", **OPTIONS)
    loop = Loop(rank)
    for step in range(6):
        with model.no_sync():
            loop.backward(model, step)
        loop.backward(model, step)
        optimizer.step()
        optimizer.zero_grad()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    model = DDP(net())
    optimizer = sgd(model.parameters())
    tithe.torch.attach(model, optimizer=optimizer, codec="fp8", loss_scale=scaler.get_scale, **OPTIONS)
    for step in range(8):
        loss = loop.loss(model, step) * (float("inf") if (rank, step) == (1, 3) else 1)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return log_texts.texts


def test_loop_that_applies_every_round_gets_no_warning():
    assert run_ranks(2, unnamed) == [[], []]


def clipped_and_undone(rank, world):
    """Makes a step with max_norm, then one that is reverted and repeated: the result must equal a single one."""
    ends = []
    for twice in (False, True):
        model = DDP(net())
        optimizer = tithe.torch.optim.AdamW(model.parameters(), lr=1e-2, max_norm=0.05)
        state = tithe.torch.attach(model, optimizer=optimizer, codec="onebit", undo=True, **OPTIONS)
        loop = Loop(rank)
        for step in range(20):
            if twice and step in (7, 8, 16):
                optimizer.zero_grad()
                loop.backward(model, step)
                state.undo()
            optimizer.zero_grad()
            loop.backward(model, step)
            optimizer.step()
        ends.append(bits(model.parameters()))
    return ends


def test_undo_restores_all_state_of_adamw():
    for once, twice in run_ranks(2, clipped_and_undone):
        assert once == twice


# ---- Another optimizer


def phases(rank, world, make):
    """Trains with a second optimizer object after 20 steps, which attach() did not receive."""
    log_texts = LogTexts()
    ends = []
    for codec in ("topk:ratio=1", None):
        model = DDP(net())
        optimizer = make(model.parameters())
        if codec:
            tithe.torch.attach(model, optimizer=optimizer, codec=codec, **OPTIONS)
        loop = Loop(rank)
        loop.run(model, optimizer, 20)
        loop.run(model, make(model.parameters()), 20)
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    return (ends[0] - ends[1]).norm().item() / ends[1].norm().item(), log_texts.texts


def test_other_optimizer_object_is_named_and_sgd_equals_plain():
    for off, texts in run_ranks(2, phases, sgd):
        assert off < 1e-5
        assert len(texts) == 1 and "another optimizer steps the model" in texts[0]


def ignored(rank, world):
    """A parameter that DDP ignores has torch's own momentum."""
    ends = []
    for codec in ("onebit", None):
        inner = net()
        DDP._set_params_and_buffers_to_ignore_for_model(inner, ["0.weight"])
        model = DDP(inner)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        if codec:
            tithe.torch.attach(model, optimizer=optimizer, codec=codec, **OPTIONS)
        lengths = []
        for _ in range(30):
            optimizer.zero_grad()
            model(torch.ones(4, 24)).sum().backward()
            for name, p in inner.named_parameters():
                if name != "0.weight":
                    p.grad.zero_()
            before = inner[0].weight.detach().clone()
            optimizer.step()
            lengths.append((inner[0].weight.detach() - before).norm().item())
        ends.append(lengths)
    return ends


def test_a_parameter_outside_ddp_keeps_its_momentum():
    for ours, theirs in run_ranks(2, ignored):
        assert ours == theirs


def forgotten(rank, world, optimizer_given, codec, variance="split"):
    log_texts = LogTexts()
    model = DDP(net())
    optimizer = tithe.torch.optim.AdamW(model.parameters(), lr=1e-3, variance=variance)
    tithe.torch.attach(model, codec=codec, optimizer=optimizer if optimizer_given else None, **OPTIONS)
    Loop(rank).run(model, optimizer, 3)
    return log_texts.texts


def test_tithes_adamw_that_was_not_attached_is_named():
    texts, others = run_ranks(2, forgotten, False, "fp8")
    assert len(texts) == 1 and "attach(model, optimizer=optimizer)" in texts[0] and not others  # only rank 0 warns
    assert run_ranks(2, forgotten, True, "fp8") == [[], []]
    assert run_ranks(2, forgotten, False, "fp32") == [[], []]
    for codec, variance in (("auto", "split"), ("eden:bits=3", "sent")):  # attached, without an adapter
        assert not any("was not given" in text for text in run_ranks(2, forgotten, True, codec, variance)[0])
