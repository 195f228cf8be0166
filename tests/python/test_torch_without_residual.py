# SPDX-License-Identifier: Apache-2.0
"""State.without_residual(): rounds that neither use nor change the residuals."""

import contextlib
import logging

import pytest
import torch
from processes import run_ranks
from sharded_jobs import loss_of, mesh_of, sharded
from small_jobs import OPTIONS, batch, bits, gradient_of, net
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe.torch

SMALL = {"bucket_cap_mb": 0.001}  # two buckets


class Sam:
    """SAM's step: the gradient at a perturbed point is applied."""

    def __init__(self, model, optimizer, around):
        self.model, self.optimizer, self.around = model, optimizer, around

    def step(self, data):
        """Returns the gradients of the first backward."""
        with self.around():
            first = gradient_of(self.model, data)
        with torch.no_grad():
            for p, g in zip(self.model.parameters(), first, strict=True):
                p.add_(g, alpha=0.05)
        gradient_of(self.model, data)
        with torch.no_grad():
            for p, g in zip(self.model.parameters(), first, strict=True):
                p.sub_(g, alpha=0.05)
        self.optimizer.step()
        return first


CODECS = ["topk:ratio=0.05", "onebit", "eden:bits=2"]


def sam(rank, world, codec, choices):
    """Returns the residuals before and after SAM's first backward, its gradients, and those of a codec without
    feedback."""
    caught = []
    handler = logging.Handler()
    handler.emit = caught.append
    logging.getLogger("tithe.torch").addHandler(handler)
    model, plain = DDP(net(), **SMALL), DDP(net(), **SMALL)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    state = tithe.torch.attach(model, codec=codec, optimizer=optimizer, choices=choices, **OPTIONS)
    none = f"{codec}{',' if ':' in codec else ':'}feedback=none"
    without = tithe.torch.attach(plain, codec=none, choices=choices, **OPTIONS)
    kept, equal = [], []

    def residuals():
        return [state.residual(p) for p in model.parameters()] if step else []

    @contextlib.contextmanager
    def around():
        before = residuals()
        with state.without_residual():
            yield
        kept.append(bits(before) == bits(residuals()) and (not step or any(r.any() for r in before)))

    runs = Sam(model, optimizer, around)
    for step in range(5):
        plain.module.load_state_dict(model.module.state_dict())
        expected = gradient_of(plain, batch(rank, step))
        equal.append(bits(expected) == bits(runs.step(batch(rank, step))))
    rounds = state.stats()["rounds"]
    state.close(), without.close()
    cleared = [r.getMessage() for r in caught if "cleared" in r.getMessage()]
    return kept, equal, rounds, cleared, bits(model.parameters())


@pytest.mark.parametrize(("codec", "choices"), [*((c, None) for c in CODECS), ("onebit", {"*.bias": "fp32"})])
def test_sams_first_backward_keeps_residuals_unchanged(codec, choices):
    ranks = run_ranks(2, sam, codec, choices)
    assert ranks[0][4] == ranks[1][4]
    for kept, equal, rounds, warnings, _ in ranks:
        assert kept == [True] * 5
        assert equal == [True] * 5
        assert rounds == 5 and warnings == []


def elsewhere(rank, world):
    """Lossless codecs, weights, skips, other choices, several ranks on a host."""
    model = DDP(net(), **SMALL)
    state = tithe.torch.attach(model, codec="fp32", **OPTIONS)
    with state.without_residual():
        lossless = gradient_of(model, batch(rank, 0))
    same = bits(lossless) == bits(gradient_of(model, batch(rank, 0)))
    state.close()

    model = DDP(net(), **SMALL)
    state = tithe.torch.attach(model, codec="topk:ratio=1", weight=lambda: rank + 1, **OPTIONS)
    outer = gradient_of(model, batch(rank, 0))
    with state.without_residual():
        same = same and bits(outer) == bits(gradient_of(model, batch(rank, 0)))
        if rank == 1:
            model.zero_grad()
            state.skip()
        else:
            gradient_of(model, batch(rank, 0))
    skipped = bits(p.grad for p in model.parameters())
    rounds = state.stats()["rounds"]
    if rank == 0:
        state.propose({"*": "onebit"}, 6)
    for step in range(8):
        gradient_of(model, batch(rank, step))
    with state.without_residual():
        levels = len(gradient_of(model, batch(rank, 8))[0].abs().unique())
    state.close()

    model = DDP(net(), **SMALL)
    state = tithe.torch.attach(model, codec="onebit", inside="auto", hosts="2x2", **OPTIONS)
    for step in range(2):
        gradient_of(model, batch(rank, step))
    before = bits(state.residual(p) for p in model.parameters())
    with state.without_residual():
        gradient = gradient_of(model, batch(rank, 2))
    kept = before == bits(state.residual(p) for p in model.parameters())
    state.close()
    return same, skipped, rounds, levels, kept, bits(gradient)


def test_rounds_without_residuals_work_with_other_features():
    ranks = run_ranks(4, elsewhere)
    for same, skipped, rounds, levels, kept, gradient in ranks:
        assert same and kept and rounds == 1
        assert skipped == ranks[0][1] and gradient == ranks[0][5]
        assert levels < 100  # signs and the mean of a block: few distinct magnitudes


def sharded_jobs_of(rank, world):
    """HSDP: a round without residuals beside one of a codec without feedback. A model sharded over all ranks: its
    error."""
    network, plain = sharded(mesh_of()), sharded(mesh_of())
    state = tithe.torch.attach(network, codec="onebit", **OPTIONS)
    without = tithe.torch.attach(plain, codec="onebit:feedback=none", **OPTIONS)
    for step in range(2):
        loss_of(network, rank, step).backward()
        network.zero_grad()
    before = bits(state.residual(p) for p in network.parameters())
    with state.without_residual():
        loss_of(network, rank, 2).backward()
    loss_of(plain, rank, 2).backward()
    pairs = zip(network.parameters(), plain.parameters(), strict=True)
    equal = all(torch.equal(a.grad.to_local(), b.grad.to_local()) for a, b in pairs)
    kept = before == bits(state.residual(p) for p in network.parameters())
    rounds = state.stats()["rounds"]
    over_all = sharded(init_device_mesh("cpu", (world,)))
    whole = tithe.torch.attach(over_all)
    with whole.without_residual():
        loss_of(over_all, rank, 0).backward()
    texts = []
    for refused in (
        state.skip,
        whole.skip,
        lambda: tithe.torch.attach(sharded(mesh_of()), weight=lambda: 1),
        lambda: tithe.torch.attach(sharded(init_device_mesh("cpu", (world,))), weight=lambda: 1),
    ):
        with pytest.raises(ValueError, match=r"skip\(\) is for|weight= is") as found:
            refused()
        texts.append(str(found.value))
    for each in (state, without, whole):
        each.close()
    return equal, kept, rounds, len(texts)


def test_sharded_models_have_rounds_without_residuals_and_refuse_the_rest():
    assert run_ranks(4, sharded_jobs_of) == [(True, True, 2, 4)] * 4
