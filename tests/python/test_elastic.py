# SPDX-License-Identifier: Apache-2.0
"""Jobs with changing ranks: states of another world, a reverted round, ranks that are killed and that join."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from processes import wait_until

import tithe

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
N = 3000
OPTIONS = {"codec": "topk:ratio=0.05", "min_values": 0, "lanes": 0, "average": False}


def each(sessions, body):
    failed = []

    def guarded(session):
        try:
            body(session)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(s,)) for s in sessions]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        raise failed[0]


def rounds(session, first, last):
    for k in range(first, last):
        rng = np.random.default_rng(100 * k + session.rank)
        gradient = rng.integers(-32, 33, N).astype(np.float32) / 4
        session.wait(session.sync({"w": gradient}))
        session.commit()


def owed(sessions):
    return sum(s.residual("w", N).astype(np.float64) for s in sessions)


@pytest.mark.parametrize("world", [6, 12])
def test_eight_ranks_continue_in_another_world(world):
    eight = tithe.Session.loop(8, **OPTIONS)
    each(eight, lambda s: rounds(s, 0, 3))
    states = [s.state() for s in eight]
    others = tithe.Session.loop(world, **OPTIONS)
    each(others, lambda s: s.restore(states))
    assert np.array_equal(owed(others), owed(eight))
    each(others, lambda s: rounds(s, 3, 5))
    assert all(s.stats()["ranks_lost"] == 0 for s in others)


def test_dropped_residuals_are_booked():
    three = tithe.Session.loop(3, members=["a", "b", "c"], **OPTIONS)
    each(three, lambda s: rounds(s, 0, 2))
    states = [s.state() for s in three]
    two = tithe.Session.loop(2, members=["a", "c"], **OPTIONS)
    each(two, lambda s: s.restore(states, lost="book"))
    gone = three[1].residual("w", N)
    assert np.array_equal(owed(two) + gone, owed(three))
    assert [s.stats()["sum_lost"] for s in two] == [gone.sum(dtype=np.float64), 0]
    each(two, lambda s: rounds(s, 2, 3))
    assert two[0].tensor_stats()["w"]["values_lost"] == np.count_nonzero(gone)
    with pytest.raises(ValueError, match="'spread' or 'book'"):
        two[0].restore(states, lost="sold")
    with pytest.raises(ValueError, match="its state was not passed"):
        two[0].restore(states[1:])
    with pytest.raises(TypeError):
        two[0].restore([1])


def test_undo_restores_the_state_before_a_round():
    sessions = tithe.Session.loop(2, undo=True, **OPTIONS)
    each(sessions, lambda s: rounds(s, 0, 1))
    before = [s.state() for s in sessions]
    each(sessions, lambda s: rounds(s, 1, 2))
    assert [s.state() for s in sessions] != before
    for s in sessions:
        s.undo()
    assert [s.state() for s in sessions] == before
    assert sessions[0].stats()["rounds_undone"] == 1
    with pytest.raises(ValueError, match="no round can be undone"):
        sessions[0].undo()


class Mild(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layer = torch.nn.Linear(40, 30)

    def forward(self, x):
        return self.layer(x).pow(2).mean()


def under_torch(rank, world, path, first):
    import tithe.torch

    module = Mild()
    model = torch.nn.parallel.DistributedDataParallel(module)
    state = tithe.torch.attach(model, codec="topk:ratio=0.1", min_values=0, timeout=60.0)
    if first > 0:
        saved = torch.load(path, weights_only=True)
        module.load_state_dict(saved["model"])
        state.load_state_dict(saved["tithe"])
    owes = []
    for step in range(first, first + 3):
        if step > 0:
            state.open()
            owes.append(
                sum(float(state.residual(p).double().sum()) for p in module.parameters()) if step == first else 0
            )
        model.zero_grad()
        model(torch.randn(8, 40, generator=torch.Generator().manual_seed(100 * rank + step))).backward()
        with torch.no_grad():
            for p in module.parameters():
                p -= 0.05 * p.grad
    gathered = state.gathered_state_dict()
    left = sum(float(state.residual(p).double().sum()) for p in module.parameters())
    if rank == 0 and first == 0:
        torch.save({"model": module.state_dict(), "tithe": gathered}, path)
    return left, owes[:1], module.layer.weight.detach().numpy().tobytes()


def test_gathered_checkpoint_of_three_resumes_with_two_and_four(tmp_path):
    from processes import run_ranks

    path = str(tmp_path / "checkpoint.pt")
    left = sum(result[0] for result in run_ranks(3, under_torch, path, 0))
    for world in (2, 4):
        results = run_ranks(world, under_torch, path, 3)
        assert sum(result[1][0] for result in results) == pytest.approx(left, rel=1e-4, abs=1e-5)
        assert len({result[2] for result in results}) == 1


def takes_back(rank, world):
    import tithe.torch

    module = Mild()
    model = torch.nn.parallel.DistributedDataParallel(module)
    state = tithe.torch.attach(model, codec="topk:ratio=0.1", min_values=0, timeout=60.0, undo=True)

    def backward(step):
        model.zero_grad()
        model(torch.randn(8, 40, generator=torch.Generator().manual_seed(100 * rank + step))).backward()

    backward(0)
    before = [state.residual(p).numpy().tobytes() for p in module.parameters()]
    backward(1)
    changed = [state.residual(p).numpy().tobytes() for p in module.parameters()] != before
    state.undo()
    same = [state.residual(p).numpy().tobytes() for p in module.parameters()] == before
    backward(2)
    return changed, same


def test_undo_restores_the_state_before_a_torch_step():
    from processes import run_ranks

    assert run_ranks(2, takes_back) == [(True, True)] * 2


def trains(rank, world, folder, total, victim, neighbours=False):
    """Trains as under a launcher: from the newest checkpoint until the end, or until a rank is killed."""
    import tithe.torch

    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(50, 40))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    state = tithe.torch.attach(model, codec="topk:ratio=0.1", min_values=0, timeout=60.0)
    if neighbours:
        folder = f"{folder}/host {rank}"
    kept = tithe.torch.Checkpoints(folder, state, model, optimizer, every=4, neighbours=neighbours)
    first = kept.step
    for step in kept.steps(total):
        if rank == victim and step == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        model.zero_grad()
        model(torch.randn(8, 50, generator=torch.Generator().manual_seed(100 * rank + step))).pow(2).mean().backward()
        optimizer.step()
    state.close()
    return first, model.module.weight.detach().numpy().tobytes()


def test_restart_with_another_number_of_ranks(tmp_path):
    from processes import Ranks, run_ranks

    whole = run_ranks(3, trains, str(tmp_path / "whole"), 10, -1)
    assert len(set(whole)) == 1 and whole[0][0] == 0
    folder = tmp_path / "killed"
    with Ranks(3, trains, str(folder), 10, 1) as lost, pytest.raises(AssertionError, match="rank 1 is gone"):
        lost.result(0, 300)
    again = run_ranks(3, trains, str(folder), 10, -1)
    assert {first for first, _ in again} == {4}, "they went on from the last checkpoint"
    assert {weight for _, weight in again} == {whole[0][1]}, "bit for bit"
    assert sorted(p.name for p in folder.iterdir()) == ["step 4", "step 8"]
    (folder / "step 8").rename(folder / "step 8.new")  # simulates a rank that died during the write
    two = run_ranks(2, trains, str(folder), 14, -1)
    assert len(set(two)) == 1 and two[0][0] == 4


def test_host_is_lost_with_its_residuals(tmp_path):
    """Each rank has a folder of its own, as ranks of several hosts do in their host's memory."""
    from processes import run_ranks

    folder = tmp_path / "hosts"
    folder.mkdir()
    run_ranks(3, trains, str(folder), 8, -1, True)
    names = {host: sorted(p.name for p in (folder / host / "step 8").glob("rank*")) for host in ("host 0", "host 1")}
    assert names["host 1"] == ["rank 0 of 3.pt", "rank 1 of 3.pt"], "its own, and a copy"
    shutil.rmtree(folder / "host 1")
    again = run_ranks(3, trains, str(folder), 10, -1, True)
    assert len(set(again)) == 1 and again[0][0] == 8, again
    shutil.rmtree(folder / "host 1")
    (folder / "host 0" / "step 8" / "rank 0 of 3.pt").unlink()
    with pytest.raises(AssertionError, match=r"step 8: .*No such file .*rank 0 of 3\.pt.*step 4: nobody has"):
        run_ranks(2, trains, str(folder), 10, -1, True)


class Memory:
    """A board for threads. It also shows that a board implemented in Python works."""

    def __init__(self):
        self.texts, self.lock = {}, threading.Lock()

    def put_first(self, key, value):
        with self.lock:
            return self.texts.setdefault(key, value)

    def get(self, key):
        with self.lock:
            return self.texts.get(key)


def run_rank(script, folder, *args):
    environment = {**os.environ, "PYTHONPATH": str(Path(tithe.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, script, str(folder), *args],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_ranks_are_killed_and_join(tmp_path):
    """The example, except for its end: 20 steps after the new rank has joined, on a machine of any speed."""
    text = (ROOT / "examples" / "elastic.py").read_text()
    ending = "while step < STEPS:"
    assert ending in text
    script = tmp_path / "elastic.py"
    script.write_text(text.replace(ending, "while step < 20 or step % 20 != 0 or 'dan' not in job.members:"))
    board = tmp_path / "board"
    board.mkdir(mode=0o700)
    begin = "ann,bob,cay"
    ranks = {name: run_rank(script, board, name, begin) for name in begin.split(",")}
    assert ranks["ann"].stdout.readline() == "ann: step 20\n"
    ranks["ann"].kill()  # rank 0, the rendezvous of the others
    ranks["dan"] = run_rank(script, board, "dan")
    out = {name: p.communicate(timeout=600)[0] for name, p in ranks.items()}
    ends = {name: re.search(r"(\d+ steps, weights \S+)", text) for name, text in out.items() if name != "ann"}
    assert all(ends.values()), out
    assert len({end[1] for end in ends.values()}) == 1, out
    assert re.search(r"epoch 1 with bob, cay(, dan)? after \d+ ms, 1 lost", out["bob"]), out["bob"]
    assert "with bob, cay, dan after" in out["cay"], out["cay"]


def test_one_of_two_halves_continues(tmp_path):
    """Ranks that see different folders are halves of a job; here the smaller half must end."""
    from tithe import _core

    before = ["a", "b", "c"]
    boards = {"a": Memory(), "b": Memory()}
    boards["c"] = boards["b"]
    fates = {}

    def meet(name):
        try:
            fates[name] = _core.rejoin(
                _core.board_of(boards[name]), name, 1, before, ["a", "b", "c"], 1, 9, 0.1, 2.0 if name == "a" else 60.0
            )
        except tithe.Error as error:
            fates[name] = error

    threads = [threading.Thread(target=meet, args=(name,)) for name in before]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert fates["a"].code == "timeout" and "a quorum is more than half" in str(fates["a"])
    assert fates["b"]["members"] == fates["c"]["members"] == ["b", "c"]


def test_store_serves_as_board():
    import torch.distributed as dist

    from tithe._membership import StoreBoard

    board = StoreBoard(dist.HashStore())
    assert board.get("k") is None
    assert board.put_first("k", b"") == b""
    assert board.put_first("k", b"x") == b"" == board.get("k")


def test_rounds_continue_without_a_late_rank():
    with pytest.raises(ValueError, match=r"stragglers=on: must be off, or share=0\.25"):
        tithe.Session.loop(2, stragglers="on")
    with pytest.raises(ValueError, match="stragglers with without=: a late rank cannot undo"):
        tithe.Session.loop(2, stragglers="without=1", undo=True)
    sessions = tithe.Session.loop(2, codec="topk:ratio=0.1", min_values=0, stragglers="share=0.01,without=2")
    results = [[], []]

    def play(rank, rounds):
        for step in rounds:
            gradient = np.arange(100, dtype=np.float32) * (rank + 1) + step
            sessions[rank].wait(sessions[rank].sync({"w": gradient}))
            sessions[rank].commit()
            results[rank].append(gradient)

    first = threading.Thread(target=play, args=(0, range(4)))
    first.start()
    play(1, range(2))
    first.join()  # the job has continued with rounds 2 and 3
    wait_until(lambda: sessions[1].stats()["rounds_behind"] == 2, 30)
    with pytest.raises(ValueError, match="state: 2 rounds continued without this rank"):
        sessions[1].state()
    play(1, range(2, 4))
    assert np.array_equal(results[0], results[1])
    stats = sessions[1].stats()
    assert stats["rounds_missed"] == 2 and stats["rounds_behind"] == 0 and stats["late_rank"] == -1
    assert sessions[1].residual("w", 100).any() and sessions[1].state()
    for session in sessions:
        session.close()
