# SPDX-License-Identifier: Apache-2.0
"""Checkpoints, lost ranks, and all ways in which a process can end."""

import os
import signal
import threading
import time

import pytest
import torch
import torch.nn as nn
from processes import Ranks, own_part, run_ranks, wait_until
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch

CODEC = {"codec": "dgc:ratio=0.05", "min_values": 0, "timeout": 20.0}


def make(rank, **kwargs):
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)))
    return model, tithe.torch.State(parameters=model.module.named_parameters(), **{**CODEC, **kwargs})


def batch(rank, step):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(8, 16, generator=generator)


def train(model, rank, steps):
    for step in steps:
        model.zero_grad()
        model(batch(rank, step)).pow(2).mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.05 * p.grad


def bits(model):
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


def whole(rank, world):
    model, state = make(rank)
    model.register_comm_hook(state, tithe.torch.hook)
    train(model, rank, range(8))
    return bits(model)


def first_half(rank, world, folder):
    model, state = make(rank)
    model.register_comm_hook(state, tithe.torch.hook)
    train(model, rank, range(4))
    torch.save({"model": model.module.state_dict(), "tithe": state.state_dict()}, f"{folder}/{rank}.pt")


def second_half(rank, world, folder, before_open):
    model, state = make(rank)
    model.register_comm_hook(state, tithe.torch.hook)
    saved = torch.load(f"{folder}/{rank}.pt", weights_only=True)
    model.module.load_state_dict(saved["model"])
    if not before_open:
        state.open()
    state.load_state_dict(saved["tithe"])
    train(model, rank, range(4, 8))
    return bits(model)


@pytest.mark.parametrize("before_open", [False, True])
def test_resume_is_bit_identical(tmp_path, before_open):
    uninterrupted = run_ranks(2, whole)
    run_ranks(2, first_half, str(tmp_path))
    assert run_ranks(2, second_half, str(tmp_path), before_open) == uninterrupted


def refuse(rank, world, folder):
    saved = own_part(torch.load(f"{folder}/{rank % 2}.pt", weights_only=True)["tithe"])
    model, state = make(rank)
    model.register_comm_hook(state, tithe.torch.hook)
    state.open()
    texts = []
    without = {name: value for name, value in saved.items() if name != "proposed"}
    for wrong in (saved, {**saved, "world": world, "rank": (rank + 1) % world}, {**saved, "format": 99}, without):
        with pytest.raises(ValueError) as refused:
            state.load_state_dict(wrong)
        texts.append(str(refused.value))
    train(model, rank, range(1))  # still usable
    with pytest.raises(ValueError, match="before the first step"):
        state.load_state_dict(saved)
    return texts


def test_another_world_size_or_rank_is_refused_with_the_cure(tmp_path):
    run_ranks(2, first_half, str(tmp_path))
    for world_text, rank_text, format_text, without_text in run_ranks(3, refuse, str(tmp_path)):
        assert "saved by 2 ranks and this job has 3" in world_text and "start 2 ranks" in world_text
        assert "one state per rank" in rank_text
        assert "not a state" in format_text and "not a state" in without_text


def another_model(rank, world, folder):
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(16, 33), nn.ReLU(), nn.Linear(33, 4)))
    state = tithe.torch.attach(model, **CODEC)
    saved = torch.load(f"{folder}/{rank}.pt", weights_only=True)["tithe"]
    with pytest.raises(ValueError, match=r"'0.weight' \(32, 16\) in the state and \(33, 16\).*saved with this model"):
        state.load_state_dict(saved)


def test_state_of_another_model_is_refused(tmp_path):
    run_ranks(2, first_half, str(tmp_path))
    run_ranks(2, another_model, str(tmp_path))


def until_killed(rank, world, ready):
    model, state = make(rank)
    model.register_comm_hook(state, tithe.torch.hook)
    train(model, rank, range(3))
    open(f"{ready}/{rank}", "w").close()
    begin = time.monotonic()
    try:
        while time.monotonic() - begin < 60:
            train(model, rank, range(1))
    except tithe.Error as error:
        return error.peer, error.code, str(error), time.time()
    return None


def test_killed_rank_is_named_by_every_survivor_within_10_seconds(tmp_path):
    with Ranks(3, until_killed, str(tmp_path)) as ranks:
        wait_until(lambda: len(os.listdir(tmp_path)) == 3)
        os.kill(ranks.processes[1].pid, signal.SIGKILL)
        killed = time.time()
        for rank in (0, 2):
            peer, code, text, noticed = ranks.result(rank, 30)
            assert (peer, code) == (1, "peer_lost"), text
            assert "rank 1" in text and "docs/guide/elastic.md" in text
            assert noticed - killed < 10
        for rank in (0, 2):
            ranks.end(rank, 20)


def broken_hook(rank, world):
    model, state = make(rank)

    def hook(state, bucket):
        if rank == 0:
            state.close()
            raise ZeroDivisionError("a bug in the user's hook")
        return tithe.torch.hook(state, bucket)

    model.register_comm_hook(state, hook)
    state.open()
    begin = time.monotonic()
    with pytest.raises(ZeroDivisionError if rank == 0 else tithe.Error) as caught:
        train(model, rank, range(1))
    return time.monotonic() - begin, getattr(caught.value, "peer", None)


def test_broken_hook_does_not_hang():
    (_, _), (seconds, peer) = run_ranks(2, broken_hook)
    assert seconds < 10 and peer == 0


def interrupted(rank, world, folder):
    def session():
        return own_part(state.state_dict())["session"].numpy().tobytes()

    model, state = make(rank, timeout=60.0)
    model.register_comm_hook(state, tithe.torch.hook)
    train(model, rank, range(3))
    before, weights = session(), bits(model)
    if rank == 0:
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    else:
        wait_until(lambda: os.path.exists(f"{folder}/interrupted"))
    try:
        train(model, rank, [3])
    except KeyboardInterrupt:
        failure = "Ctrl-C"
        open(f"{folder}/interrupted", "w").close()
        # Otherwise the others would detect the end of the process
        wait_until(lambda: os.path.exists(f"{folder}/heard"))
    except tithe.Error as error:
        failure = error.code, error.peer
        open(f"{folder}/heard", "w").close()
    same = session() == before and bits(model) == weights
    if rank == 0:
        with pytest.raises(tithe.Error, match=r"Ctrl-C ended this rank's wait.*Restart from a checkpoint"):
            state._start(None)  # the call that DDP's next bucket makes
    state.close()
    return failure, same, session() == before


def test_interrupted_backward_never_counts_its_step(tmp_path):
    """The session must not commit the round in a later state_dict(). The weights of ranks would differ, and the saved
    state would be one step ahead of them."""
    assert run_ranks(2, interrupted, str(tmp_path)) == [("Ctrl-C", True, True), (("peer_lost", 0), True, True)]


def leave(rank, world, how):
    model, state = make(rank)
    if how == "in the middle":

        def hook(state, bucket):
            future = tithe.torch.hook(state, bucket)
            if rank == 0:
                raise KeyError("this rank fails after its bucket has started")
            return future

        model.register_comm_hook(state, hook)
        with pytest.raises(KeyError if rank == 0 else RuntimeError):
            train(model, rank, range(2))
    else:
        model.register_comm_hook(state, tithe.torch.hook)
        train(model, rank, range(2))
    if how == "closed":
        state.close()
        state.close()
        with pytest.raises(ValueError, match="closed"):
            train(model, rank, range(1))


@pytest.mark.parametrize("how", ["closed", "without closing", "in the middle"])
def test_process_exits_cleanly(how):
    run_ranks(2, leave, how)  # asserts exit code 0


def forked(rank, world):
    model, state = make(rank)
    model.register_comm_hook(state, tithe.torch.hook)
    train(model, rank, range(1))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            state.stats()
        except ValueError as error:
            del model, state
            code = 0 if "fork" in str(error) else 2
        os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    train(model, rank, range(1, 3))  # the parent continues
    return state.stats()["rounds"]


def test_fork_is_refused_in_the_child_and_harmless_to_the_parent():
    assert run_ranks(2, forked) == [3, 3]
