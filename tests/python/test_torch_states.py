# SPDX-License-Identifier: Apache-2.0
"""The model of a State, the keys of its parameters, and saving after every kind of failure."""

import copy
import io
import os
import pickle
import signal
import time

import pytest
import torch
import torch.nn as nn
from processes import Ranks, own_part, run_ranks, wait_until
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch

OPTIONS = {"codec": "topk:ratio=0.1", "min_values": 0, "timeout": 20.0}
ONE_MB_BUCKETS = {"bucket_cap_mb": 0.001}  # small, so that each parameter has a bucket of its own


class Branches(nn.Module):
    """Two matrices of one shape. `swapped` reverses the order in which DDP hands them over."""

    def __init__(self, swapped=False):
        super().__init__()
        for name in ("b", "a") if swapped else ("a", "b"):
            torch.manual_seed(ord(name))
            setattr(self, name, nn.Linear(24, 24, bias=False))

    def forward(self, x):
        return self.a(x).pow(2).mean() + 3 * self.b(x).abs().mean()


def batch(rank, step):
    return torch.randn(8, 24, generator=torch.Generator().manual_seed(1000 * rank + step))


def train(model, rank, steps):
    for step in steps:
        model.zero_grad()
        model(batch(rank, step)).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.05 * p.grad


def bits(module):
    return {name: p.detach().numpy().tobytes() for name, p in module.named_parameters()}


def ddp(module, state, **kwargs):
    model = DDP(module, **kwargs)
    model.register_comm_hook(state, tithe.torch.hook)
    return model


def hidden_ddp(module, state, **kwargs):
    """Registers a user's own object, so that the State cannot be found from the model."""
    model = DDP(module, **kwargs)
    model.register_comm_hook({"mine": state}, lambda holder, bucket: tithe.torch.hook(holder["mine"], bucket))
    return model


# ---- One State, two models


def shared_in_turns(rank, world, named):
    first, second = Branches(), Branches()
    names = {"parameters": first.named_parameters()} if named else {}
    state = tithe.torch.State(**names, **OPTIONS)
    model = ddp(first, state, **ONE_MB_BUCKETS)
    train(model, rank, range(2))
    with pytest.raises(ValueError, match=r"belongs to another model.*State of its own"):
        train(ddp(second, state, **ONE_MB_BUCKETS), rank, range(1))
    return True


@pytest.mark.parametrize("named", [False, True])
def test_a_state_shared_by_two_models_is_refused_at_the_second_models_first_bucket(named):
    run_ranks(2, shared_in_turns, named)


class Interleaved(nn.Module):
    """Both models in one forward pass: their backward passes interleave in one traversal of the graph."""

    def __init__(self, models):
        super().__init__()
        self.models = models

    def forward(self, x):
        return sum(m(x) for m in self.models)


def interleaved(rank, world, named):
    modules = [Branches(), Branches()]
    pairs = [(f"{i}.{n}", p) for i, m in enumerate(modules) for n, p in m.named_parameters()] if named else ()
    state = tithe.torch.State(parameters=pairs, **OPTIONS)
    both = Interleaved([hidden_ddp(m, state, **ONE_MB_BUCKETS) for m in modules])
    begin = time.monotonic()
    try:
        for step in range(3):
            both(batch(rank, step)).backward()
    except (ValueError, tithe.Error) as error:
        assert time.monotonic() - begin < 20
        return isinstance(error, ValueError), str(error)


@pytest.mark.parametrize("named", [False, True])
def test_a_state_shared_by_two_models_whose_backwards_interleave_is_refused(named):
    results = run_ranks(2, interleaved, named)
    refused = [text for own, text in results if own]  # the other rank may get this error first
    assert refused, results
    assert all("belongs to another model" in text and "State of its own" in text for text in refused)


def own_states(rank, world):
    models = [DDP(Branches(), **ONE_MB_BUCKETS) for _ in range(2)]
    states = [tithe.torch.attach(m, **OPTIONS) for m in models]
    for step in range(4):
        Interleaved(models)(batch(rank, step)).backward()
    return [s.stats()["rounds"] for s in states], [p.grad.numpy().tobytes() for m in models for p in m.parameters()]


def test_two_models_with_separate_states_can_interleave():
    (rounds, grads), (_, others) = run_ranks(2, own_states)
    assert rounds == [4, 4]
    assert grads == others


def test_two_parameters_of_one_name_are_refused():
    pair = [("weight", nn.Parameter(torch.zeros(3))), ("weight", nn.Parameter(torch.zeros(3)))]
    with pytest.raises(ValueError, match="'weight': give each its own"):
        tithe.torch.State(parameters=pair)


# ---- Abandoned steps


class Explodes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, error):
        ctx.error = error
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.error is not None:
            raise ctx.error("in the middle of backward")
        return grad, None


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(24, 24), nn.Linear(24, 24)
        self.raises = None  # between the two layers' buckets

    def forward(self, x):
        return self.last(Explodes.apply(self.first(x), self.raises)).pow(2).mean()


def session_of(state):
    return own_part(state.state_dict())["session"].numpy().tobytes()


def left_in_the_middle(rank, world, error, leavers, folder):
    """Returns the step's error on this rank, and whether its state and weights equal those before the step."""
    module = Chain()
    state = tithe.torch.State(parameters=module.named_parameters(), **OPTIONS)
    model = ddp(module, state, **ONE_MB_BUCKETS)
    train(model, rank, range(3))
    before, weights = session_of(state), bits(module)
    if rank in leavers:
        module.raises = error
    failure = None
    try:
        train(model, rank, [3])
    except (ZeroDivisionError, KeyboardInterrupt) as raised:
        failure = type(raised).__name__
    except tithe.Error as lost:
        failure = lost.code, lost.peer
    saved = state.state_dict()  # does not wait for the missing last bucket
    same = session_of(state) == before and bits(module) == weights
    open(f"{folder}/{rank}", "w").close()
    wait_until(lambda: len(os.listdir(folder)) == world)  # otherwise the others would detect the end of the process
    if rank in leavers:
        over = "a backward was left before its end.*new State"
        with pytest.raises(tithe.Error, match=over):
            state.evaluated(loss=1.0)
        with pytest.raises(tithe.Error, match=over):
            state._start(None)  # the call that DDP's next bucket makes
    state.close()
    module.raises = None
    # Without the hooks of the earlier DDP model, which cannot continue after such a step
    module = copy.deepcopy(module)
    state = tithe.torch.State(parameters=module.named_parameters(), **OPTIONS)
    model = ddp(module, state, **ONE_MB_BUCKETS)
    state.load_state_dict(saved)
    train(model, rank, range(3, 5))
    return failure, same, bits(module)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_step_abandoned_by_one_rank_counts_on_no_rank(tmp_path, error):
    """state_dict() must not commit the part of the step: weights of ranks would differ, and the state would be ahead of
    them."""
    (mine, same, weights), (other, other_same, others) = run_ranks(2, left_in_the_middle, error, [0], str(tmp_path))
    assert (mine, other) == (error.__name__, ("peer_lost", 0))
    assert (same, other_same) == (True, True)
    assert weights == others


def test_step_abandoned_by_all_ranks_blocks_and_counts_nothing(tmp_path):
    (_, same, mine), (_, other_same, others) = run_ranks(
        2, left_in_the_middle, ZeroDivisionError, [0, 1], str(tmp_path)
    )
    assert (same, other_same) == (True, True)
    assert mine == others


# ---- A NaN in one bucket


def one_bucket_of_nan(rank, world):
    module = Branches()
    model = ddp(module, tithe.torch.State(parameters=module.named_parameters(), **OPTIONS), **ONE_MB_BUCKETS)
    train(model, rank, range(2))
    if rank == 1:
        module.a.weight.register_hook(lambda grad: grad * float("nan"))
    model.zero_grad()
    model(batch(rank, 2)).backward()
    return {name: bool(p.grad.isnan().all()) for name, p in module.named_parameters()}


def test_a_nan_in_one_bucket_makes_all_gradients_of_the_step_nan():
    for rank in run_ranks(2, one_bucket_of_nan):
        assert rank == {"a.weight": True, "b.weight": True}


# ---- Names, and keys by order


def wrap(module, state, found):
    return (ddp if found else hidden_ddp)(module, state, **ONE_MB_BUCKETS)


def save_at_4(rank, world, folder, named, found=False):
    module = Branches()
    state = tithe.torch.State(parameters=module.named_parameters() if named else (), **OPTIONS)
    model = wrap(module, state, found)
    train(model, rank, range(4))
    torch.save({"model": module.state_dict(), "tithe": state.state_dict()}, f"{folder}/{rank}.pt")
    train(model, rank, range(4, 7))
    return bits(module)


def resume_at_4(rank, world, folder, named, swapped, fresh, found=False):
    module = Branches(swapped)
    state = tithe.torch.State(parameters=module.named_parameters() if named else (), **OPTIONS)
    saved = torch.load(f"{folder}/{rank}.pt", weights_only=True)
    if not fresh:
        module.load_state_dict(saved["model"])
    model = wrap(module, state, found)
    try:
        state.load_state_dict(saved["tithe"])
        train(model, rank, range(4, 7))
    except (ValueError, tithe.Error) as error:
        return type(error).__name__, str(error)
    return bits(module)


@pytest.mark.parametrize("named", [False, True])
def test_a_saved_state_continues_with_and_without_names(tmp_path, named):
    whole = run_ranks(2, save_at_4, str(tmp_path), named)
    resumed = run_ranks(2, resume_at_4, str(tmp_path), named, False, False)
    assert whole == resumed


def test_with_names_another_order_of_equal_shapes_is_harmless(tmp_path):
    whole = run_ranks(2, save_at_4, str(tmp_path), True)
    resumed = run_ranks(2, resume_at_4, str(tmp_path), True, True, False)
    assert whole == resumed


@pytest.mark.parametrize("swapped", [False, True])
def test_hook_uses_the_names_of_its_registered_model(tmp_path, swapped):
    """If equal shapes come in another order, residuals must not be assigned to the wrong parameter."""
    whole = run_ranks(2, save_at_4, str(tmp_path), False, True)
    resumed = run_ranks(2, resume_at_4, str(tmp_path), False, swapped, False, True)
    assert whole == resumed


@pytest.mark.parametrize(("swapped", "fresh"), [(True, False), (False, True)])
def test_without_names_another_order_of_equal_shapes_is_refused_with_the_cure(tmp_path, swapped, fresh):
    run_ranks(2, save_at_4, str(tmp_path), False)
    for error in run_ranks(2, resume_at_4, str(tmp_path), False, swapped, fresh):
        assert error[0] == "ValueError", error
        assert "parameters=model.named_parameters()" in error[1]


def test_a_state_saved_without_names_is_refused_by_one_with_them(tmp_path):
    run_ranks(2, save_at_4, str(tmp_path), False)
    for error in run_ranks(2, resume_at_4, str(tmp_path), True, False, False):
        assert error[0] == "ValueError", error
        assert "saved without names" in error[1]


@pytest.mark.filterwarnings("ignore:this tithe.torch.State was never used")
def test_indistinguishable_parameters_are_refused_at_once(tmp_path):
    run_ranks(1, save_at_4, str(tmp_path), False)
    saved = own_part(torch.load(f"{tmp_path}/0.pt", weights_only=True)["tithe"])
    entry = next(iter(saved["parameters"].values()))
    alike = {**saved, "parameters": {"#0": entry, "#1": dict(entry)}}
    with pytest.raises(ValueError, match=r"#0, #1 looked alike.*named_parameters"):
        tithe.torch.State(**OPTIONS).load_state_dict(alike)
    tithe.torch.State(codec="fp32").load_state_dict({**alike, "codec": "fp32"})  # there is no residual


# ---- States after failures, and after close()


def settled(state):
    """Returns the state as bytes; all ways of saving must agree."""

    def session(of):
        return own_part(of.state_dict())["session"].numpy().tobytes()

    direct = session(state)
    assert session(pickle.loads(pickle.dumps(state))) == direct
    assert session(copy.deepcopy(state)) == direct
    stream = io.BytesIO()
    torch.save(state.state_dict(), stream)
    return direct


def closed(rank, world):
    module = Branches()
    state = tithe.torch.State(parameters=module.named_parameters(), **OPTIONS)
    model = ddp(module, state)
    train(model, rank, range(3))
    before = settled(state)
    state.close()
    assert settled(state) == before
    state.close()
    assert settled(state) == before
    return len(before)


def test_state_dict_pickle_and_deepcopy_work_after_close():
    assert min(run_ranks(2, closed)) > 24 * 24


def survivor(rank, world, folder, close):
    module = Branches()
    state = tithe.torch.State(parameters=module.named_parameters(), **OPTIONS)
    model = ddp(module, state)
    train(model, rank, range(3))
    model(batch(rank, 3)).backward()  # the last commit
    last = settled(state)
    open(f"{folder}/{rank}", "w").close()
    lost = None
    while lost is None:
        try:
            model(batch(rank, 4)).backward()
            last = settled(state)
            time.sleep(0.05)
        except tithe.Error as error:
            lost = error
    assert lost.peer == 2
    if close:
        state.close()
    assert settled(state) == last
    return True


@pytest.mark.parametrize("close", [False, True])
def test_the_last_committed_state_can_be_saved_after_a_peer_was_lost(tmp_path, close):
    with Ranks(3, survivor, str(tmp_path), close) as ranks:
        wait_until(lambda: len(os.listdir(tmp_path)) == 3, 120)
        os.kill(ranks.processes[2].pid, signal.SIGKILL)
        for rank in (0, 1):
            assert ranks.result(rank, 60)


def resume_after_loss(rank, world, folder, part):
    module = Branches()
    state = tithe.torch.State(parameters=module.named_parameters(), **OPTIONS)
    path = f"{folder}/{rank}.pt"
    if part == "second":
        saved = torch.load(path, weights_only=True)
        module.load_state_dict(saved["model"])
        state.load_state_dict(saved["tithe"])
    model = ddp(module, state)
    if part == "whole":
        train(model, rank, range(8))
    elif part == "second":
        train(model, rank, range(4, 8))
    else:
        train(model, rank, range(4))
        if rank == 1:
            state.close()  # closes; rank 0's next step fails
        else:
            with pytest.raises(tithe.Error):
                model(batch(rank, 4)).backward()
        torch.save({"model": module.state_dict(), "tithe": state.state_dict()}, path)
    return bits(module)


def test_a_state_saved_after_a_failure_continues_bit_identically(tmp_path):
    whole = run_ranks(2, resume_after_loss, str(tmp_path), "whole")
    run_ranks(2, resume_after_loss, str(tmp_path), "first")
    resumed = run_ranks(2, resume_after_loss, str(tmp_path), "second")
    assert whole == resumed
