# SPDX-License-Identifier: Apache-2.0
"""Sessions beside children of their processes: data loader workers, pools, plain os.fork().

A forked child has a copy of every descriptor of its rank. Timeouts are far longer than a test may take, so a test
passes only if the kernel reports each end.
"""

import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import Ranks, run_ranks, wait_until
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

import tithe
import tithe.torch

LONG = 300.0  # seconds; none of these tests may take so long
OPTIONS = {"codec": "fp8", "min_values": 0, "timeout": LONG, "patience": LONG}
TRANSPORTS = ["ucx", "tcp"]


def square(x):
    return x * x


def loaded(how):
    """Starts a persistent worker, and returns after it has delivered a batch."""
    loader = DataLoader(
        TensorDataset(torch.ones(8, 4)), 4, num_workers=1, persistent_workers=True, multiprocessing_context=how
    )
    assert sum(len(x) for (x,) in loader) == 8
    return loader


@contextlib.contextmanager
def children(kind, note):
    """Starts children of this process. `note`: a file that names them, for the case that this process is killed."""
    if kind != "fork":
        kept = loaded(kind)
        yield
        del kept
        return
    pid = os.fork()
    if pid == 0:
        time.sleep(LONG)
        os._exit(0)
    pool = multiprocessing.get_context("fork").Pool(1)
    assert pool.map(square, [1, 2, 3]) == [1, 4, 9]
    note.write_text(" ".join(str(p) for p in [pid, *(child.pid for child in multiprocessing.active_children())]))
    kept = loaded("fork")
    yield
    del kept
    pool.terminate()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def has_ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except FileNotFoundError:
        return True


def job(rank, world, transport, kind, killed, folder):
    """Rank 1 ends, in good order or killed. Rank 0 closes its session, or gets an error in its next step."""
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(64, 64))
    state = tithe.torch.attach(model, transport=transport, **OPTIONS)
    (folder / f"rank {rank}").write_text(str(os.getpid()))
    with children(kind, folder / f"children of {rank}"):
        for _ in range(3):
            model(torch.ones(2, 64)).sum().backward()
        if rank == 1:
            if killed:
                os.kill(os.getpid(), signal.SIGKILL)
            state.close()
            os._exit(0)  # without notice to its process group or its children
        wait_until(lambda: has_ended((folder / "rank 1").read_text()))
        cpu = time.process_time()
        time.sleep(0.5)  # simulates an evaluation
        assert time.process_time() - cpu < 0.4, "rank 0 spins"
        text = ""
        if killed:
            with pytest.raises((tithe.Error, RuntimeError)) as failed:
                model(torch.ones(2, 64)).sum().backward()
            text = str(failed.value)
        state.close()
    return text


@pytest.mark.parametrize(
    ("transport", "kind", "killed"),
    [
        *itertools.product(TRANSPORTS, ["fork"], [False, True]),
        ("ucx", "forkserver", False),
        ("tcp", "forkserver", True),
        ("tcp", "spawn", False),
        ("ucx", "spawn", True),
    ],
)
def test_end_of_a_rank_is_detected_despite_children(tmp_path, transport, kind, killed):
    try:
        with Ranks(2, job, transport, kind, killed, tmp_path) as ranks:
            text = ranks.result(0, 60)
            if killed:
                assert "rank 1 is gone" in text, text
            assert ranks.end(0, 30) == 0
    finally:
        kill(pid for note in tmp_path.glob("children of *") for pid in note.read_text().split())


def kill(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def without_torch(rank, meeting, transport, killed, pipe):
    """Opens a session in a process without torch, forks children, and ends: in good order or killed."""
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "TITHE_FILE": meeting,
        "UCX_TLS": "tcp",
        "UCX_NET_DEVICES": "lo",
    }
    session = tithe.Session.from_environment(transport=transport, **OPTIONS)
    child = os.fork()
    if child == 0:
        time.sleep(LONG)
        os._exit(0)
    Path(f"{meeting} pid of {rank}").write_text(str(os.getpid()))
    pipe.send(child)

    def step():
        session.wait(session.sync({"w": np.ones(70_000, "f4")}))
        session.commit()

    for _ in range(3):
        step()
    if rank == 1:
        if killed:
            os.kill(os.getpid(), signal.SIGKILL)
        session.close()
        os._exit(0)
    wait_until(lambda: has_ended(Path(f"{meeting} pid of 1").read_text()))
    time.sleep(0.3)
    if killed:
        with pytest.raises(tithe.Error) as failed:
            step()
        pipe.send((failed.value.code, failed.value.peer))
    session.close()
    os._exit(0)


@pytest.mark.parametrize("killed", [False, True], ids=["ends", "killed"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_without_torch(tmp_path, transport, killed):
    context = multiprocessing.get_context("forkserver")
    pipes, processes = [], []
    for rank in range(2):
        here, there = context.Pipe()
        processes.append(
            context.Process(target=without_torch, args=(rank, str(tmp_path / "meet"), transport, killed, there))
        )
        processes[-1].start()
        there.close()
        pipes.append(here)
    forked = []
    try:
        for pipe in pipes:
            assert pipe.poll(60)
            forked.append(pipe.recv())
        if killed:
            assert pipes[0].poll(40), "rank 0 did not learn of it"
            assert pipes[0].recv() == ("peer_lost", 1)
        processes[0].join(30)
        assert processes[0].exitcode == 0
    finally:
        for process in processes:
            process.kill()
            process.join()
        kill(forked)


def sessions_of_children(rank, world, transport, meeting):
    """The rank's child opens a session with the other rank's child, and a grandchild opens another."""
    session = tithe.torch.attach(DDP(torch.nn.Linear(64, 64)), transport=transport, **OPTIONS)

    def inner(depth):
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "TITHE_FILE": f"{meeting}{depth}"}
        # UCX would wait for locks that threads of the parent held at the fork.
        with pytest.raises(ValueError, match="forked from a process with an open session"):
            tithe.Session.from_environment(transport="ucx", codec="fp32")
        own = tithe.Session.from_environment(codec="fp32", timeout=60.0)
        values = np.full(10_000, rank, "f4")
        own.wait(own.sync({"w": values}))
        own.commit()
        assert (values == 0.5).all()
        if depth < 1:
            forked(inner, depth + 1)
            values[:] = 1
            own.wait(own.sync({"w": values}))
            own.commit()
        own.close()

    forked(inner, 0)
    session.close()
    return True


def forked(function, *args):
    """Runs the function in a child made by fork()."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            function(*args)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_child_can_open_its_own_session(tmp_path, transport):
    assert run_ranks(2, sessions_of_children, transport, str(tmp_path / "meet")) == [True, True]


def forks_from_a_thread(rank, world, transport):
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(64, 64))
    state = tithe.torch.attach(model, transport=transport, **OPTIONS)
    over = threading.Event()

    def fork():
        while not over.is_set():
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)

    thread = threading.Thread(target=fork)
    thread.start()
    for _ in range(100):
        model(torch.ones(2, 64)).sum().backward()
    over.set()
    thread.join()
    rounds = state.stats()["rounds"]
    state.close()
    return rounds


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_rounds_continue_while_a_thread_forks(transport):
    assert run_ranks(2, forks_from_a_thread, transport) == [100, 100]
