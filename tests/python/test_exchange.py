# SPDX-License-Identifier: Apache-2.0
"""Opening and evaluating are collective: one timeout, and a missing or refusing rank is named on all ranks."""

import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
from processes import Ranks, run_ranks
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch
from tithe._exchange import all_gather_bytes, together

PATIENCE = 3.0


def gather(rank, world):
    group = dist.group.WORLD
    blobs = [all_gather_bytes(b"x" * n * rank, group, 30.0, "test") for n in (1, 0, 1000)]
    return blobs == [[b"x" * n * r for r in range(world)] for n in (1, 0, 1000)]


def test_bytes_of_any_length_arrive_in_rank_order():
    assert run_ranks(3, gather) == [True] * 3


def refuse(rank, world):
    def body():
        if rank == 1:
            raise ValueError("codec=nothing: \udcff\x1b[31m no such codec")
        return rank

    begin = time.monotonic()
    try:
        together(dist.group.WORLD, 60.0, "opening", body)
    except ValueError as mine:
        return ("refused", rank, str(mine)[:13])
    except tithe.Error as theirs:
        return (theirs.code, theirs.peer, str(theirs), time.monotonic() - begin)
    return None


def test_refusal_reaches_all_ranks_at_once_as_readable_text():
    zero, one, two = run_ranks(3, refuse)
    assert one == ("refused", 1, "codec=nothing")
    for code, peer, text, took in (zero, two):
        assert (code, peer) == ("invalid", 1)
        assert "rank 1 refused opening: ValueError: codec=nothing" in text
        assert "Traceback" not in text and "\x1b" not in text
        assert took < 30


def bad_option(rank, world):
    try:
        state = tithe.torch.State(timeout=60.0)
        if rank == 1:
            state.codec = "nothing"
        state.open()
    except (ValueError, tithe.Error) as wrong:
        return str(wrong)
    return None


def test_invalid_option_on_one_rank_fails_all_ranks():
    zero, one = run_ranks(2, bad_option)
    assert "rank 1 refused tithe.torch.State.open()" in zero and "nothing" in zero
    assert "nothing" in one


def frozen(rank, world, victim):
    if rank == victim:
        os.kill(os.getpid(), signal.SIGSTOP)
    begin = time.monotonic()
    try:
        tithe.torch.State(timeout=PATIENCE).open()
    except tithe.Error as missing:
        return missing.code, missing.peer, str(missing), time.monotonic() - begin
    return None


def test_a_frozen_rank_is_named_within_the_timeout_of_attach():
    with Ranks(3, frozen, 2) as ranks:
        for rank in (0, 1):
            code, peer, text, took = ranks.result(rank, 60)
            assert (code, peer) == ("timeout", 2), text
            assert "rank 2 did not come" in text
            assert PATIENCE <= took < PATIENCE + 10  # the process group's own is 60 s


def not_evaluated(rank, world):
    state = tithe.torch.State(codec="topk", schedule="recover", timeout=PATIENCE)
    state.open()
    try:
        state.evaluated(loss=object() if rank == 1 else 1.0)
    except TypeError:
        return "mine"
    except tithe.Error as theirs:
        return theirs.peer
    return None


def test_rank_that_refuses_to_evaluate_is_named():
    assert run_ranks(2, not_evaluated) == [1, "mine"]


def evaluates_for_long(rank, world, patience):
    state = tithe.torch.State(codec="topk", schedule="recover", timeout=20.0)
    state.open()
    state.options.update(timeout=0.5, patience=patience)  # for the following calls
    errors = set()
    for call in (lambda: state.evaluated(loss=1.0), state.gathered_state_dict):
        if rank == 1:
            time.sleep(2.5)
        while True:
            try:
                call()
                break
            except tithe.Error as error:
                errors.add((error.code, error.peer))
    state.close()
    return errors


def test_long_evaluation_does_not_time_out():
    """The other ranks wait longer than the timeout for a rank that still evaluates."""
    assert run_ranks(2, evaluates_for_long, 60.0) == [set(), set()]


def test_next_call_works_after_a_timeout():
    assert run_ranks(2, evaluates_for_long, 1.0) == [{("timeout", 1)}, set()]


def interrupted(rank, world):
    group = dist.group.WORLD
    if rank == 0:
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    elif rank == 2:
        time.sleep(4)
    try:
        together(group, 100.0, "test", lambda: None)
    except KeyboardInterrupt:
        time.sleep(5)  # the process, and with it the store, still runs
        return "mine"
    except tithe.Error as error:
        return error.peer, str(error)
    return None


def test_ctrl_c_in_an_exchange_fails_the_other_ranks():
    text = "rank 0 refused test: KeyboardInterrupt: Ctrl-C ended its wait"
    assert run_ranks(3, interrupted) == ["mine", (0, text), (0, text)]


def many(rank, world):
    group = dist.group.WORLD
    for _ in range(20):
        together(group, 30.0, "test", lambda: None)
    store = dist.distributed_c10d._get_process_group_store(group)
    dist.barrier()
    return sum(store.check([f"tithe/{n}/{r}"]) for n in range(1, 21) for r in range(world))


def test_a_store_does_not_grow_with_every_exchange():
    assert max(run_ranks(2, many)) <= 2 * 2


def with_token(rank, world, tokens):
    if tokens[rank]:
        os.environ["TITHE_TOKEN"] = tokens[rank]
    state = tithe.torch.State(timeout=20.0)
    try:
        state.open()
    except (ValueError, tithe.Error) as wrong:
        return str(wrong)
    finally:
        state.close()
    return "open"


def test_a_token_is_the_same_on_all_ranks_or_they_do_not_connect():
    one, other = "0123456789abcdef" * 4, "fedcba9876543210" * 4
    assert run_ranks(2, with_token, [one, one]) == ["open", "open"]
    for texts in (run_ranks(2, with_token, [one, other]), run_ranks(2, with_token, [one, ""])):
        assert all("TITHE_TOKEN" in text for text in texts), texts
    assert all("hexadecimal" in text for text in run_ranks(2, with_token, ["secret", "secret"]))


COLLECTIVE = {
    "evaluated": lambda state: state.evaluated(loss=1.0),
    "gathered_state_dict": lambda state: state.gathered_state_dict(),
}


def a_step(model):
    model(torch.ones(2, 40)).sum().backward()


def loses_a_rank(rank, world, call, in_a_step):
    model = DDP(torch.nn.Linear(40, 40))
    state = tithe.torch.attach(model, codec="topk", schedule="recover", min_values=0, timeout=10.0, patience=1000.0)
    for _ in range(3):
        a_step(model)
    if rank == 2:
        if not in_a_step:
            time.sleep(3)  # the others wait for it in the call
        os.kill(os.getpid(), signal.SIGKILL)
    errors = []
    for collective in (*((a_step,) if in_a_step else ()), call):
        try:
            a_step(model) if collective is a_step else COLLECTIVE[call](state)
        except tithe.Error as error:
            errors.append((error.code, error.peer))
    saved = state.state_dict()
    return errors, len(saved)


@pytest.mark.parametrize("call", COLLECTIVE)
@pytest.mark.parametrize("in_a_step", [True, False])
def test_lost_rank_fails_without_waiting_for_the_timeout(call, in_a_step):
    with Ranks(3, loses_a_rank, call, in_a_step) as ranks:
        for rank in (0, 1):
            errors, states = ranks.result(rank, 120)
            assert errors == [("peer_lost", 2)] * (2 if in_a_step else 1)
            assert states == 1
