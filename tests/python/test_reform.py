# SPDX-License-Identifier: Apache-2.0
"""Arguments of reform(), undo() and restore() that are wrong, or differ from those of other ranks."""

import threading
import time

import numpy as np
import pytest
from processes import run_ranks

import tithe

ROUNDS = 2


def step(session, key="w", n=9000):
    session.wait(session.sync({key: np.ones(n, "f4")}))
    session.commit()


class Together:
    """An exchange of addresses between threads."""

    def __init__(self, world):
        self.barrier, self.blobs = threading.Barrier(world), [b""] * world

    def of(self, rank):
        def all_gather(mine):
            self.blobs[rank] = mine
            self.barrier.wait()
            return list(self.blobs)

        return all_gather


def each(world, body):
    out = [None] * world
    threads = [threading.Thread(target=lambda r=r: out.__setitem__(r, body(r))) for r in range(world)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def error_of(call):
    try:
        call()
    except tithe.Error as error:
        return error.code, error.peer, str(error)
    return None


@pytest.mark.parametrize("transport", ["tcp", "ucx"])
def test_undo_on_one_rank_names_it(transport):
    gather = Together(3)

    def rank(r):
        session = tithe.Session.open(r, 3, gather.of(r), codec="fp8", transport=transport, undo=True, timeout=30.0)
        for _ in range(ROUNDS):
            step(session)
        gather.barrier.wait()
        if r == 1:
            session.undo()
        error = error_of(lambda: step(session))
        gather.barrier.wait()
        session.close()
        return error

    for code, peer, text in each(3, rank):
        assert (code, peer) == ("mismatch", 1)
        assert "rank 1 differs: round 1 instead of 2" in text and "undid its last round" in text


@pytest.mark.parametrize("transport", ["tcp", "ucx"])
def test_differing_bucket_in_a_later_round_names_the_rank(transport):
    gather = Together(3)

    def rank(r):
        session = tithe.Session.open(r, 3, gather.of(r), codec="fp8", transport=transport, timeout=30.0)
        for _ in range(ROUNDS):
            step(session)
        began = time.monotonic()
        error = error_of(lambda: step(session, "w2" if r == 1 else "w"))
        took = time.monotonic() - began
        gather.barrier.wait()
        session.close()
        return *error, took

    for code, peer, text, took in each(3, rank):
        assert (code, peer) == ("mismatch", 1)
        assert "sizes, types, bounds or order of tensors" in text
        assert took < 20, "no clock of the session had to run out"


def sharded_rounds(session, n=9):
    """Makes a reduce-scatter and an all-gather. Returns whether this rank has the mean of its range, and all ranges."""
    rank, world = session.rank, session.world
    w, g = np.arange(n, dtype="f4") + rank, np.full(n, rank, "f4")
    session.wait(session.reduce_scatter({"w": w}))
    session.commit()
    session.wait(session.all_gather({"g": g}))
    session.commit()
    part = -(-n // world)
    mine = slice(part * rank, part * (rank + 1))
    mean = np.arange(n, dtype="f4") + (world - 1) / 2
    return bool((w[mine] == mean[mine]).all() and (g == np.arange(n) // part).all())


@pytest.mark.parametrize("codec", ["fp32", "bf16"])
def test_sharded_rounds_go_on_with_fewer_owners(codec):
    before, after = Together(3), Together(2)

    def rank(r):
        session = tithe.Session.open(
            r, 3, before.of(r), members=["a", "b", "c"], codec=codec, transport="tcp", timeout=30.0
        )
        right = [sharded_rounds(session)]
        before.barrier.wait()
        if r != 1:
            place = r // 2
            session.reform(place, 2, after.of(place), ["a", "c"], 1, transport="tcp")
            right.append(sharded_rounds(session))
        before.barrier.wait()
        session.close()
        return right

    assert each(3, rank) == [[True, True], [True], [True, True]]


WRONG = {
    "an old epoch": {"epoch": 0},
    "no names": {"members": []},
    "another name": {"members": ["b"]},
    "a name twice": {"world": 2, "members": ["a", "a"]},
    "too many names": {"members": ["a", "b"]},
    "a rank beyond the world": {"rank": 1},
    "a negative rank": {"rank": -1},
    "no world": {"world": 0, "members": []},
    "an unknown transport": {"transport": "nothing"},
    "an unknown option of a transport": {"transport": "tcp:bogus=1"},
    "a number out of range for a transport": {"transport": "tcp:streams=0"},
    "no number for a transport": {"transport": "tcp:tos=high"},
    "a network that is none": {"transport": "tcp:trust=10.0.0.0/99"},
    "a network of no interface": {"transport": "tcp:trust=203.0.113.0/24"},
    "no folder of certificates": {"transport": "tcp:tls=nowhere"},
    "ranks as threads": {"transport": "loop"},
    "no time": {"timeout": 0},
    "negative time": {"timeout": -1},
    "no number": {"timeout": float("nan")},
    "more than a number": {"timeout": 1e300},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_value_error_of_reform_changes_nothing(wrong):
    def not_called(mine):
        raise AssertionError("nobody was to be met")

    session = tithe.Session.open(0, 1, lambda mine: [mine], members=["a"], codec="topk", min_values=0, transport="tcp")
    step(session)
    state = session.state()
    given = {"rank": 0, "world": 1, "members": ["a"], "epoch": 1} | wrong
    with pytest.raises(ValueError, match=r"."):
        session.reform(all_gather=not_called, **given)
    assert session.state() == state
    step(session)  # the session is not cancelled
    session.reform(0, 1, lambda mine: [mine], ["a"], 1, transport="tcp")
    step(session)
    session.close()


def test_hosts_of_another_world_change_nothing():
    options = {"members": ["a", "b"], "hosts": "2x1", "codec": "fp8", "transport": "tcp"}
    gather = Together(2)

    def rank(r):
        session = tithe.Session.open(r, 2, gather.of(r), **options)
        step(session)
        with pytest.raises(ValueError, match="hosts"):
            session.reform(0, 1, lambda mine: [mine], ["ab"[r]], 1, transport="tcp")
        step(session)
        gather.barrier.wait()
        session.close()
        return True

    assert each(2, rank) == [True, True]


def job(seed, world=4):
    """Returns the states of a job's ranks after two rounds of gradients drawn from a seed."""
    sessions = tithe.Session.loop(world, codec="topk:ratio=0.01", min_values=0, lanes=0)

    def rank(r):
        for k in range(ROUNDS):
            gradient = np.random.default_rng((seed, k, r)).standard_normal(5001).astype("f4")
            sessions[r].wait(sessions[r].sync({"w": gradient}))
            sessions[r].commit()
        return sessions[r].state()

    return each(world, rank)


def test_states_of_two_jobs_are_refused():
    a, b = job(1), job(2)
    session = tithe.Session.loop(3, codec="topk:ratio=0.01", min_values=0, lanes=0)[1]
    before = session.state()
    for mixed in (a[:3] + [b[3]], b[:3] + [a[3]]):
        with pytest.raises(tithe.Error, match="not from the same round of the same job: they differ in jobs") as error:
            session.restore(mixed)
        assert error.value.code == "mismatch" and "'3'" in str(error.value) and "'0'" in str(error.value)
    assert session.state() == before


def resumed(world, states_of, one=False):
    sessions = tithe.Session.loop(world, codec="topk:ratio=0.01", min_values=0, lanes=0, timeout=30.0)

    def rank(r):
        sessions[r].restore(states_of(r))
        return error_of(lambda: step(sessions[r], n=5001))

    return each(world, rank)


def test_rank_with_a_state_of_another_job_is_named():
    a, b = job(1), job(2)
    assert resumed(4, lambda r: a[r]) == [None] * 4
    for error in resumed(4, lambda r: (b if r == 2 else a)[r]):
        assert error[:2] == ("mismatch", 2) and "another job" in error[2]
    for error in resumed(3, lambda r: b if r == 1 else a):
        assert error[:2] == ("mismatch", 1)


def test_rank_with_another_state_of_a_lost_rank_is_named():
    """Both states are of the same round of the same job: rank 3 reverted its last round, and made another one."""
    sessions = tithe.Session.loop(4, codec="topk:ratio=0.01", min_values=0, lanes=0, undo=True)

    def rank(r):
        states = []
        for k in range(2):
            gradient = np.random.default_rng((k, r)).standard_normal(5001).astype("f4")
            sessions[r].wait(sessions[r].sync({"w": gradient}))
            sessions[r].commit()
            states.append(sessions[r].state())
            if k == 0:
                sessions[r].undo()
        return states

    first, second = zip(*each(4, rank), strict=True)
    right = list(first)
    assert resumed(3, lambda r: right) == [None] * 3
    for error in resumed(3, lambda r: [*first[:3], second[3]] if r == 2 else right):
        assert error[:2] == ("mismatch", 2)


def membership_timeout(rank, world, board):
    job = tithe.Membership(board, str(rank), ["0", "1"], timeout=3.0, patience=4.0, codec="fp8", transport="tcp")
    session = job.open()
    step(session)
    began = time.monotonic()
    error = None
    if rank == 0:  # rank 1 is alive, and hands no tensor over
        error = error_of(lambda: step(session))
    else:
        time.sleep(6)
    session.close()
    return error and error[:2], time.monotonic() - began


def test_membership_uses_the_sessions_timeout(tmp_path):
    tmp_path.chmod(0o700)
    error, took = run_ranks(2, membership_timeout, str(tmp_path))[0]
    assert error == ("timeout", 1)
    assert took < 20


def test_membership_checks_session_options(tmp_path):
    for wrong in ({"timeout": 0}, {"codec": "nothing"}, {"members_": 1}, {"epoch": 1}, {"transport": "x"}):
        with pytest.raises(ValueError, match=r"."):
            tithe.Membership(str(tmp_path), "a", ["a"], **wrong)
    with pytest.raises(ValueError, match="join_timeout=0: must be more than 0 seconds"):
        tithe.Membership(str(tmp_path), "a", ["a"], join_timeout=0)
