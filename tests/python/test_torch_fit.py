# SPDX-License-Identifier: Apache-2.0
"""Saved states and models that differ: memory formats, added and removed parameters, copies, and DCP."""

import copy
import io
import logging

import pytest
import torch
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from processes import own_part, run_ranks
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch

OPTIONS = {"codec": "topk:ratio=0.1", "min_values": 0, "timeout": 20.0}
FORMATS = {"rows": torch.contiguous_format, "channels last": torch.channels_last}


class Lines(logging.Handler):
    """Records the log of tithe.torch inside the context."""

    def __enter__(self):
        self.lines = []
        logging.getLogger("tithe.torch").addHandler(self)
        return self.lines

    def __exit__(self, *exc):
        logging.getLogger("tithe.torch").removeHandler(self)

    def emit(self, record):
        self.lines.append(record.getMessage())


def conv(memory_format="rows", head=4):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.Flatten(), nn.Linear(4 * 36, head))
    return module.to(memory_format=FORMATS[memory_format])


def batch(rank, step):
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(100 * rank + step))


def train(model, rank, steps):
    for step in steps:
        model.zero_grad()
        model(batch(rank, step)).pow(2).mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                if p.grad is not None:
                    p -= 0.05 * p.grad


def bits(module):
    return {name: p.detach().numpy().tobytes() for name, p in module.named_parameters()}


# ---- Memory formats


def residuals_by_place(rank, world):
    """Returns the error of gradient = sent + residual, in a world of one."""
    wrong = {}
    for name in FORMATS:
        module = conv(name)
        model = DDP(module)
        state = tithe.torch.attach(model, **OPTIONS)
        model(batch(rank, 0)).pow(2).mean().backward()
        alone = conv(name)
        alone(batch(rank, 0)).pow(2).mean().backward()
        for (key, p), q in zip(module.named_parameters(), alone.parameters(), strict=True):
            left = state.residual(p)
            assert left.shape == p.shape
            if p.numel() > 20:
                assert (left == 0).any() and (left != 0).any()
            wrong[name, key] = float((p.grad + left - q.grad).abs().max())
        state.close()
    return wrong


def test_residual_of_a_channels_last_parameter_has_its_layout():
    """The residual must not be permuted: the ledger, gradient = sent + residual, must hold for every value."""
    (wrong,) = run_ranks(1, residuals_by_place)
    assert all(error == 0 for error in wrong.values()), wrong


def saved_in(rank, world, folder, memory_format):
    model = DDP(conv(memory_format))
    state = tithe.torch.attach(model, **OPTIONS)
    train(model, rank, range(3))
    torch.save({"model": model.module.state_dict(), "tithe": state.state_dict()}, f"{folder}/{rank}.pt")
    train(model, rank, range(3, 5))
    return bits(model.module)


def loaded_in(rank, world, folder, memory_format):
    saved = torch.load(f"{folder}/{rank}.pt", weights_only=True)
    module = conv(memory_format)
    module.load_state_dict(saved["model"])
    model = DDP(module)
    state = tithe.torch.attach(model, **OPTIONS)
    try:
        state.load_state_dict(saved["tithe"])
    except ValueError as error:
        return str(error)
    train(model, rank, range(3, 5))
    return bits(module)


@pytest.mark.parametrize("saved", FORMATS)
def test_state_of_another_memory_format_is_refused_by_name(tmp_path, saved):
    whole = run_ranks(2, saved_in, str(tmp_path), saved)
    assert run_ranks(2, loaded_in, str(tmp_path), saved) == whole
    (other,) = set(FORMATS) - {saved}
    for error in run_ranks(2, loaded_in, str(tmp_path), other):
        # The second one has at most one dimension above 1: both formats are the same.
        assert "another memory format of '0.weight', and" in error and "channels_last" in error, error


def changed_on_the_way(rank, world):
    model = DDP(conv())
    tithe.torch.attach(model, **OPTIONS)
    train(model, rank, range(2))
    model.module.to(memory_format=torch.channels_last)
    train(model, rank, range(1))  # DDP's views did not change
    late = DDP(conv())
    tithe.torch.attach(late, **OPTIONS)
    late.module.to(memory_format=torch.channels_last)
    with pytest.raises(ValueError, match=r"'0.weight' has another memory format.*before DistributedDataParallel"):
        train(late, rank, range(1))


def test_format_change_after_attach_is_refused_if_buckets_change():
    run_ranks(1, changed_on_the_way)


# ---- Added and removed parameters


def model_of(rank, frozen=(), adds=False, head=4, loads=None):
    module = conv(head=head)
    if loads:
        fitting = {k: v for k, v in loads["model"].items() if v.shape == dict(module.named_parameters())[k].shape}
        module.load_state_dict(fitting, strict=False)
    if adds:
        torch.manual_seed(1)
        module.append(nn.Linear(head, 3))
    for name, p in module.named_parameters():
        p.requires_grad_(name not in frozen)
    model = DDP(module)
    return model, tithe.torch.attach(model, **OPTIONS)


def partly(rank, world):
    """Returns the log or the error of each load, and whether training continues with the residuals."""
    logged = {}
    model, state = model_of(rank, frozen=["0.weight"])
    train(model, rank, range(3))
    lacks_one = {"model": model.module.state_dict(), "tithe": state.state_dict()}
    owed = state.residual(model.module[2].weight)
    state.close()

    with Lines() as lines:  # unfrozen and added
        model, state = model_of(rank, adds=True, loads=lacks_one)
        state.load_state_dict(lacks_one["tithe"])
        assert torch.equal(state.residual(model.module[2].weight), owed)
        train(model, rank, range(3, 6))
    has_all = {"model": model.module.state_dict(), "tithe": state.state_dict()}
    kept = state.residual(model.module[0].weight)
    assert bool((kept != 0).any())
    logged["more"] = lines
    state.close()

    with Lines() as lines:  # frozen and removed
        model, state = model_of(rank, frozen=["0.weight"], loads={"model": lacks_one["model"]})
        state.load_state_dict(has_all["tithe"])
        train(model, rank, range(6, 8))
        again = state.state_dict()
    logged["less"] = lines
    state.close()

    with Lines() as lines:  # and restored: their residuals were kept
        model, state = model_of(rank, adds=True)
        state.load_state_dict(again)
        assert torch.equal(state.residual(model.module[0].weight), kept)
        train(model, rank, range(8, 9))
    logged["back"] = lines
    state.close()

    for name, changes in {"shape": {"head": 7}, "other": {}}.items():
        model, state = model_of(rank, **changes)
        inner = own_part(again)
        names = {f"x.{k}": v for k, v in inner["parameters"].items()} if name == "other" else inner["parameters"]
        with pytest.raises(ValueError) as refused:
            state.load_state_dict({**inner, "parameters": names})
        logged[name] = str(refused.value)
        train(model, rank, range(1))  # nothing has changed
        state.close()
    return logged


def test_partly_matching_state_is_loaded_with_a_message_or_refused():
    """A refusal must come when the state is loaded, and not at the first backward, after other work."""
    logged, others = run_ranks(2, partly)
    assert logged["more"] == ["the loaded state has no residuals of '0.weight', '5.weight', '5.bias': they begin empty"]
    assert logged["less"] == [
        "the loaded residuals of '0.weight', '5.bias', '5.weight' are kept until they train again"
    ]
    assert logged["back"] == []
    assert "'4.weight' (4, 144) in the state and (7, 144) in the model" in logged["shape"]
    assert "of another model" in logged["other"] and "'x." in logged["other"]
    assert others["more"] == others["less"] == []  # rank 0 logs for all ranks


# ---- torch.distributed.checkpoint


def distributed(rank, world, folder, way):
    """Trains to step 6; by `way` through a checkpoint at step 3, in a new model."""
    model = DDP(conv())
    state = tithe.torch.attach(model, **OPTIONS)
    train(model, rank, range(3))
    if way != "whole":
        mine = state if way == "stateful" else state.state_dict()
        dcp.save({"model": model.module.state_dict(), "tithe": mine}, checkpoint_id=folder)
        state.close()
        model = DDP(conv())
        state = tithe.torch.attach(model, **OPTIONS)
        found = {"model": model.module.state_dict(), "tithe": state if way == "stateful" else state.state_dict()}
        dcp.load(found, checkpoint_id=folder)
        model.module.load_state_dict(found["model"])
        if way != "stateful":
            state.load_state_dict(found["tithe"])
    train(model, rank, range(3, 6))
    residuals = [state.residual(p).numpy().tobytes() for p in model.module.parameters()]
    state.close()
    return bits(model.module), residuals


def all_ways(rank, world, folder):
    return {way: distributed(rank, world, f"{folder}/{way}", way) for way in ("whole", "stateful", "state_dict")}


def test_torch_distributed_checkpoint_saves_and_loads_every_ranks_state(tmp_path):
    """The sizes are unknown before the first step, and each rank needs a key of its own, so that not only rank 0's
    state is saved."""
    ranks = run_ranks(2, all_ways, str(tmp_path))
    for ways in ranks:
        assert ways["stateful"] == ways["state_dict"] == ways["whole"]
    assert ranks[0]["whole"][1] != ranks[1]["whole"][1], "residuals of ranks differ, or this says nothing"


def with_optimizer(rank, world, folder, kind, through):
    """As in docs/guide/python.md: trains to step 6, or through a checkpoint at step 3 in a new model and optimizer."""

    def begin():
        model = DDP(conv())
        optimizer = (torch.optim.AdamW if kind == "torch's" else tithe.torch.optim.AdamW)(model.parameters(), lr=0.01)
        given = {} if kind == "torch's" else {"optimizer": optimizer}
        return model, optimizer, tithe.torch.attach(model, "eden:bits=3", min_values=0, timeout=20.0, **given)

    def steps(model, optimizer, numbers):
        for step in numbers:
            optimizer.zero_grad()
            model(batch(rank, step)).pow(2).mean().backward()
            optimizer.step()

    model, optimizer, state = begin()
    steps(model, optimizer, range(3))
    if through:
        weights, moments = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": moments, "tithe": state}, checkpoint_id=folder)
        state.close()
        model, optimizer, state = begin()
        weights, moments = get_state_dict(model, optimizer)
        dcp.load({"model": weights, "optimizer": moments, "tithe": state}, checkpoint_id=folder)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    steps(model, optimizer, range(3, 6))
    state.close()
    return bits(model.module)


def both_ways(rank, world, folder, kind):
    return [with_optimizer(rank, world, f"{folder}/{kind}", kind, through) for through in (False, True)]


@pytest.mark.parametrize("kind", ["torch's", "tithe's"])
def test_distributed_checkpoint_with_the_optimizer_resumes_bit_identically(tmp_path, kind):
    for whole, resumed in run_ranks(2, both_ways, str(tmp_path), kind):
        assert resumed == whole


# ---- Copies of whole models


def copied(rank, world, how):
    model = DDP(conv())
    state = tithe.torch.attach(model, **OPTIONS)
    train(model, rank, range(3))
    with Lines() as lines:
        if how == "deepcopy":
            twin = copy.deepcopy(model)
        else:
            file = io.BytesIO()
            torch.save(model, file)
            file.seek(0)
            twin = torch.load(file, weights_only=False)
    assert any("trains without tithe until tithe.torch.attach(copy)" in line for line in lines), lines
    train(model, rank, range(3, 6))
    whole = bits(model.module), state.stats()["rounds"]
    state.close()
    with pytest.raises(ValueError, match="has a communication hook already"):
        tithe.torch.attach(model, **OPTIONS)
    with Lines() as lines:
        state = tithe.torch.attach(twin, **OPTIONS)
    assert lines == []
    train(twin, rank, range(3, 6))
    assert (bits(twin.module), state.stats()["rounds"]) == (whole[0], 3), "the copy went on from other residuals"
    state.close()
    with Lines() as lines:
        tithe.torch.attach(copy.deepcopy(twin), codec="bf16", timeout=20.0).close()
    assert any("not taken over: they were made with codec topk" in line for line in lines), lines
    return True


@pytest.mark.parametrize("how", ["deepcopy", "torch.load"])
def test_copied_model_warns_without_hook_and_attach_restores_residuals(how):
    """A copy must not silently train without tithe, and attach() must not refuse it because of the copied list of
    hooks."""
    run_ranks(2, copied, how)
