# SPDX-License-Identifier: Apache-2.0
"""Failures of buckets on an accelerator: copies, memory, peers, processes, settings."""

import gc
import os
import signal
import threading
import time

import pytest
import standin
import torch
import torch.nn as nn
from processes import Ranks, own_part, run_ranks, wait_until
from standin_jobs import OPTIONS, make, on_standin, train

import tithe.torch
from tithe.torch._device import device as devices


@pytest.fixture(scope="module", autouse=True)
def built():
    standin.build()


def failing(rank, world, what):
    group = on_standin()
    model = make("standin:0", group)
    state = tithe.torch.attach(model, codec="topk:ratio=0.1", **OPTIONS)
    train(model, rank, range(3))
    before, pool = state.state_dict(), state._running.workers.pinned
    buckets = len(pool._copies)
    if rank == 1:
        if what == "no pinned memory":
            standin.limit_pinned(100)
            pool.close()  # simulates DDP making new buckets
        else:
            fail = standin.refuse_copy if what.endswith("refused") else standin.break_copy
            fail(buckets - 1 if "last" in what else 0, back="copy back" in what)
    begin = time.monotonic()
    with pytest.raises(RuntimeError if rank == 1 else tithe.Error) as caught:
        train(model, rank, range(3, 5))
    assert time.monotonic() - begin < 15
    # This failure is reported after the commit; any other makes the step not count
    if what != "the last copy back breaks":
        assert torch.equal(own_part(state.state_dict())["session"], own_part(before)["session"])
    with pytest.raises((tithe.Error, ValueError, RuntimeError)):
        train(model, rank, range(1))  # the State is closed, and raises
    state.close()
    assert standin.pinned() == 0  # although the error is kept, with the frames that it passed
    return type(caught.value).__name__, str(caught.value), getattr(caught.value, "peer", None)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("the first copy to the host is refused", "a copy was refused"),
        ("the last copy to the host is refused", "a copy was refused"),
        ("the first copy to the host breaks", "a copy failed on the device"),
        ("the last copy to the host breaks", "a copy failed on the device"),
        ("the first copy back is refused", "a copy was refused"),
        ("the last copy back is refused", "a copy was refused"),
        ("the last copy back breaks", "a copy failed on the device"),
        ("no pinned memory", "pin less elsewhere"),
    ],
)
def test_a_failed_copy_is_raised_here_and_named_elsewhere(what, says):
    other, mine = run_ranks(2, failing, what)
    assert mine[0] == "RuntimeError" and says in mine[1], mine
    assert other[2] == 1, other


def leave(rank, world, how):
    group = on_standin(0.05)
    model = make("standin:0", group)
    state = tithe.torch.State(group, codec="topk:ratio=0.1", **OPTIONS)
    futures = []

    def hook(state, bucket):
        futures.append(tithe.torch.hook(state, bucket))
        if how != "without closing" and rank == 0 and len(futures) > 1:
            if how == "closed":
                state.close()  # with a copy under way
            raise KeyError("this rank fails after its bucket has started")
        return futures[-1]

    model.register_comm_hook(state, hook)
    if how == "without closing":
        train(model, rank, range(2))
        return
    with pytest.raises(KeyError if rank == 0 else RuntimeError):
        train(model, rank, range(2))
    state.close()
    assert standin.pinned() == 0  # although futures and errors are kept
    for future in futures[1:]:
        with pytest.raises(Exception):  # noqa: B017 - any exception, but no endless wait
            future.wait()


@pytest.mark.parametrize("how", ["closed", "in the middle", "without closing"])
def test_process_exits_cleanly(how):
    run_ranks(2, leave, how)


def after_close(rank, world):
    model = make("standin:0", on_standin())
    state = tithe.torch.attach(model, codec="topk:ratio=0.1", **OPTIONS)
    train(model, rank, range(2))
    state.close()
    with pytest.raises(ValueError, match="closed"):
        train(model, rank, range(1))
    assert standin.pinned() == 0


def test_bucket_after_close_is_refused_without_allocation():
    """It must take no pinned memory, and backward must not wait for it forever."""
    run_ranks(2, after_close)


def collected(rank, world):
    group = on_standin()
    model = make("standin:0", group)
    tithe.torch.attach(model, codec="topk:ratio=0.1", **OPTIONS)
    train(model, rank, range(2))
    assert standin.pinned() > 0
    del model
    gc.collect()
    assert standin.pinned() == 0
    assert [t.name for t in threading.enumerate() if t.name == "tithe"] == []


def test_dropped_state_releases_its_threads_and_memory():
    run_ranks(2, collected)


def forked(rank, world):
    group = on_standin()
    model = make("standin:0", group)
    state = tithe.torch.attach(model, codec="topk:ratio=0.1", **OPTIONS)
    train(model, rank, range(2))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            state.stats()
        except ValueError as error:
            state.close()
            del model, state
            gc.collect()
            code = 0 if "fork" in str(error) else 2
        os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    train(model, rank, range(2, 4))  # the parent continues
    return state.stats()["rounds"]


def test_fork_is_refused_in_the_child_and_harmless_to_the_parent():
    assert run_ranks(2, forked) == [4, 4]


def until_killed(rank, world, ready):
    group = on_standin()
    model = make("standin:0", group)
    tithe.torch.attach(model, codec="topk:ratio=0.1", **OPTIONS)
    train(model, rank, range(3))
    open(f"{ready}/{rank}", "w").close()
    begin = time.monotonic()
    try:
        while time.monotonic() - begin < 60:
            train(model, rank, range(1))
    except tithe.Error as error:
        return error.peer, error.code, str(error)
    return None


def test_a_killed_rank_is_named(tmp_path):
    with Ranks(2, until_killed, str(tmp_path)) as ranks:
        wait_until(lambda: len(os.listdir(tmp_path)) == 2)
        os.kill(ranks.processes[1].pid, signal.SIGKILL)
        peer, code, text = ranks.result(0, 30)
        assert (peer, code) == (1, "peer_lost"), text
        ranks.end(0, 20)


def interrupted(rank, world, folder, handles):
    group = on_standin()
    model = make("standin:0", group)
    state = tithe.torch.attach(model, codec="topk:ratio=0.1", **{**OPTIONS, "timeout": 100.0})
    train(model, rank, range(3))
    seen = []
    signal.signal(signal.SIGINT, (lambda *_: seen.append(time.monotonic())) if handles else signal.default_int_handler)
    open(f"{folder}/{rank}", "w").close()
    if rank == 1:  # makes no step for a long time
        while not os.path.exists(f"{folder}/over"):
            time.sleep(0.05)
        if handles:
            train(model, rank, range(1))
        return None
    before = signal.getsignal(signal.SIGINT)
    if handles:
        train(model, rank, range(1))  # waits until the other rank calls
        return len(seen)
    with pytest.raises(KeyboardInterrupt):
        train(model, rank, range(1))
    time.sleep(0.2)  # once, without a repetition
    assert signal.getsignal(signal.SIGINT) is before
    saved = state.state_dict  # works as after every failure
    state.close()
    assert own_part(saved())["rank"] == 0
    with pytest.raises(KeyboardInterrupt):  # Python's own handler is restored
        signal.raise_signal(signal.SIGINT)
    return "ended"


@pytest.mark.parametrize("handles", [False, True])
def test_ctrl_c_ends_backward_unless_the_program_handles_it(tmp_path, handles):
    with Ranks(2, interrupted, str(tmp_path), handles) as ranks:
        wait_until(lambda: len(os.listdir(tmp_path)) == 2, 120)
        time.sleep(1.0)
        os.kill(ranks.processes[0].pid, signal.SIGINT)
        if handles:
            time.sleep(0.5)
            (tmp_path / "over").touch()
            assert ranks.result(0, 60) == 1
        else:
            assert ranks.result(0, 60) == "ended"
            (tmp_path / "over").touch()
        for rank in (0, 1):
            assert ranks.end(rank, 30) == 0


# ---- refusals


def refused(rank, world):
    group = on_standin()
    texts = []
    for kind in ("float64", "sparse"):
        net = nn.Embedding(9, 4, sparse=True) if kind == "sparse" else nn.Linear(2, 2).double()
        model = nn.parallel.DistributedDataParallel(net.to("standin:0"), process_group=group)
        state = tithe.torch.State(group, **OPTIONS)
        model.register_comm_hook(state, tithe.torch.hook)
        data = torch.ones(2, 2, device="standin:0")
        with pytest.raises((ValueError, RuntimeError)) as caught:
            model(data.long() if kind == "sparse" else data.double()).sum().backward()
        texts.append(str(caught.value))
    return texts


def test_unsupported_types_are_refused():
    for double, _ in run_ranks(2, refused):
        assert "torch.float64 are not supported" in double


def test_an_old_torch_is_refused_with_the_cure(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.5.1+cu124")
    with pytest.raises(ValueError, match=r"gradients on cuda:0 need torch 2\.6 or newer, and this is torch 2\.5\.1"):
        devices.check_device(torch.device("cuda", 0))


@pytest.mark.parametrize("version", ["2.6.0", "2.13.0+cpu", "3.0.0a0+git1234"])
def test_a_newer_torch_is_accepted(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    devices.check_device(torch.device("cuda", 0))


def test_a_device_that_is_not_this_torchs_accelerator_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="gradients on meta are not supported: this torch's accelerator is none"):
        devices.check_device(torch.device("meta"))
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    with pytest.raises(ValueError, match="this torch's accelerator is 'cuda'"):
        devices.check_device(torch.device("xla", 0))
