# SPDX-License-Identifier: Apache-2.0
"""`import tithe` without a framework: codecs alone, sessions between threads and between processes."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from processes import wait_until

import tithe

PACKAGE = str(Path(tithe.__file__).parents[1])
CODECS = [codec["name"] for codec in tithe.codecs() if len(codec["phases"]) == 1]  # codecs of one phase
LOSSLESS = {codec["name"] for codec in tithe.codecs() if codec["lossless"]}
UNBIASED = {codec["name"] for codec in tithe.codecs() if codec["unbiased"]}  # their error may exceed a value


def gaussian(n, seed=1):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def run_threads(sessions, job):
    """Runs job(session) on a thread per rank. Returns the results in rank order, or raises the first exception."""
    results, errors = [None] * len(sessions), []

    def one(i):
        try:
            results[i] = job(sessions[i])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(sessions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def test_import_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; import tithe; print(tithe.__version__)"
    out = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": PACKAGE}, capture_output=True, text=True
    )
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip() == tithe.__version__


def test_codecs_are_described():
    for codec in tithe.codecs():
        assert codec["phases"] and codec["impls"][-1] == "ref"
        assert codec["bits_per_value"] > 0
        assert isinstance(codec["exact_ledger"], bool)
        assert tithe.check_spec(codec["name"]) == codec["name"]
    fp32 = next(codec for codec in tithe.codecs() if codec["name"] == "fp32")
    assert fp32["bits_per_value"] == 32.0
    assert {"ring", "server", "aggregator", "gather", "tree", "hosts", "hosts_gather", "hosts_ring"} <= set(
        tithe.strategies()
    )


@pytest.mark.parametrize("options", [{"strategy": "hosts", "hosts": "2x2"}, {"servers": 1}, {"strategy": "tree"}])
def test_strategies_of_hosts_and_servers(options):
    sessions = tithe.Session.loop(4, codec="fp32", min_values=0, **options)

    def rank(session):
        values = np.full(1000, session.rank, np.float32)
        session.wait(session.sync({"w": values}))
        session.commit()
        return values[0]

    assert run_threads(sessions, rank) == [1.0 if "servers" in options else 1.5] * 4
    if "hosts" in options:
        assert "fp32 by hosts, fp32 inside" in sessions[0].plan_text()


def test_invalid_hosts_and_servers_are_refused():
    with pytest.raises(ValueError, match="hosts '3x3'"):
        tithe.Session.loop(2, hosts="3x3")
    with pytest.raises(ValueError, match="servers=2"):
        tithe.Session.loop(2, servers=2)


@pytest.mark.parametrize("n", [0, 1, 33, 5000])
@pytest.mark.parametrize("codec", CODECS)
def test_encode_then_decode(codec, n):
    values = gaussian(n)
    decoded = tithe.decode(tithe.encode(codec, values), n)
    assert decoded.dtype == np.float32 and decoded.shape == (n,)
    if codec in LOSSLESS:
        assert np.array_equal(decoded, values)
    elif n:
        assert np.abs(decoded).max() > 0
        assert np.dot(values, decoded) > 0
        assert codec in UNBIASED or np.linalg.norm(values - decoded) < np.linalg.norm(values)
    again = tithe.decode(tithe.encode(codec, values.reshape(-1, 1)))
    assert np.array_equal(again, decoded)


@pytest.mark.parametrize("codec", CODECS)
def test_non_finite_frame_decodes_to_nan(codec):
    values = gaussian(100)
    values[7] = np.inf
    assert np.isnan(tithe.decode(tithe.encode(codec, values))).all()


def test_settings_are_read_from_the_frame_or_passed():
    values = gaussian(3000)
    frame = tithe.encode("topk:ratio=0.5", values)
    assert np.count_nonzero(tithe.decode(frame, spec="topk:ratio=0.5")) == 1500
    with pytest.raises(ValueError, match="not by fp32"):
        tithe.decode(frame, spec="fp32")


@pytest.mark.parametrize("spec", ["qsgd:bits=2,bucket=64", "nuqsgd:bits=7", "tbq:mode=literal", "topk:ratio=0.5"])
def test_frame_is_decoded_with_its_own_settings(spec):
    frame = tithe.encode(spec, gaussian(3000))
    assert np.array_equal(tithe.decode(frame), tithe.decode(frame, spec=spec))


def test_wrong_bytes_and_wrong_calls():
    frame = tithe.encode("fp32", gaussian(10))
    for wrong in (b"", frame[:-1], frame + b"x", frame[:70] + bytes([frame[70] ^ 1]) + frame[71:]):
        with pytest.raises(tithe.Error) as refused:
            tithe.decode(wrong)
        assert refused.value.code == "corrupt"
        assert isinstance(refused.value, RuntimeError)
    with pytest.raises(ValueError, match="holds 10 values, not 11"):
        tithe.decode(frame, 11)
    with pytest.raises(ValueError, match="unknown codec"):
        tithe.encode("gzip", gaussian(1))
    with pytest.raises(ValueError, match="unknown strategy 'star': known: auto, ring"):
        tithe.Session.loop(1, strategy="star")
    with pytest.raises(ValueError, match="unknown option 'codecs': did you mean 'codec'"):
        tithe.Session.loop(1, codecs="fp32")
    with pytest.raises(ValueError, match="lanes"):
        tithe.Session.loop(1, lanes="two")


@pytest.mark.parametrize("strategy", tithe.strategies())
def test_session_averages_in_place(strategy):
    def job(session):
        a = np.full((40, 50), session.rank + 1, dtype=np.float32)
        b = np.full(7, 2.0 * session.rank, dtype=np.float16)
        with session:
            first, second = session.sync({"a": a}), session.sync({"b": b})
            session.wait(second)
            session.wait(first)
            session.commit()
            return a, b, session.stats()

    for a, b, stats in run_threads(tithe.Session.loop(3, codec="fp32", strategy=strategy, timeout=20.0), job):
        assert np.array_equal(a, np.full((40, 50), 2.0, dtype=np.float32))
        assert np.array_equal(b, np.full(7, 2.0, dtype=np.float16))
        assert stats["rounds"] == 1


def test_slices_of_a_flat_array_have_separate_residuals():
    """Framework adapters use slices of one array; wait() may be called on another thread."""

    def job(session):
        with session:
            flat = np.random.default_rng(session.rank).standard_normal(6000).astype(np.float32)
            given = flat.copy()
            ticket = session.sync({"a": flat[:4000], "b": flat[4000:].reshape(50, 40)})
            waiting = threading.Thread(target=session.wait, args=(ticket,))
            waiting.start()
            waiting.join()
            session.commit()
            return given, flat, np.concatenate([session.residual("a", 4000), session.residual("b", 2000)])

    sessions = tithe.Session.loop(2, codec="topk:ratio=0.1", strategy="gather", min_values=0, timeout=20.0)
    (g0, mean, r0), (g1, other, r1) = run_threads(sessions, job)
    assert np.array_equal(mean, other) and 0 < np.count_nonzero(mean[:4000]) <= 800
    assert 0 < np.count_nonzero(mean[4000:]) <= 400
    np.testing.assert_allclose((g0 - r0 + g1 - r1) / 2, mean, rtol=1e-5, atol=1e-6)


def test_poll_reports_readiness_and_the_sessions_error():
    first, second = tithe.Session.loop(2, codec="fp32", timeout=20.0)
    mine, theirs = np.zeros(5000, np.float32), np.ones(5000, np.float32)
    ticket = first.sync({"x": mine})
    with pytest.raises(ValueError, match="ticket 7 was never issued"):
        first.poll(7)
    assert first.poll(ticket) is False, "the other rank has handed over nothing"
    second.sync({"x": theirs})
    wait_until(lambda: first.poll(ticket))
    assert np.all(mine == 0.5)
    run_threads([first, second], lambda session: session.commit())
    assert first.poll(ticket) is True, "its round is committed"
    ticket = first.sync({"x": mine})
    second.close()
    with pytest.raises(tithe.Error, match="rank 1"):
        wait_until(lambda: first.poll(ticket))
    first.close()
    with pytest.raises(ValueError, match="closed"):
        first.poll(ticket)


def test_threads_wait_while_others_pass_buckets_and_sync_during_commit_is_refused():
    """Four threads per rank: each passes a bucket in its turn, since all ranks need the same order, and waits while
    the others pass theirs. A sync() during a commit() is refused."""
    first, second = tithe.Session.loop(2, codec="fp32", timeout=20.0)
    keys = [f"t{i}" for i in range(4)]
    arrays = {(s.rank, key): np.full(3000, s.rank, np.float32) for s in (first, second) for key in keys}
    turns = {s.rank: [threading.Event() for _ in range(5)] for s in (first, second)}

    def pass_and_wait(session, k):
        turns[session.rank][k].wait()
        ticket = session.sync({keys[k]: arrays[session.rank, keys[k]]})
        turns[session.rank][k + 1].set()
        session.wait(ticket)

    threads = [threading.Thread(target=pass_and_wait, args=(s, k)) for s in (first, second) for k in range(4)]
    for thread in threads:
        thread.start()
    for turn in turns.values():
        turn[0].set()
    for thread in threads:
        thread.join()
    run_threads([first, second], lambda session: session.commit())
    assert all(np.all(each == 0.5) for each in arrays.values())
    first.sync({"t0": arrays[0, "t0"]})
    ending = threading.Thread(target=first.commit)
    ending.start()
    text = ""
    while "is running" not in text:  # before the commit it is refused as part of the round
        with pytest.raises(ValueError) as refused:
            first.sync({"t0": arrays[0, "t0"]})
        text = str(refused.value)
    assert text.startswith("commit() of round 1 is running on another thread: pass tensors before commit()"), text
    second.sync({"t0": arrays[1, "t0"]})
    second.commit()
    ending.join()
    first.close(), second.close()


def test_shapes_of_arrays_are_used():
    (session,) = tithe.Session.loop(1, codec="powersgd:rank=2", min_values=0)
    session.sync({"matrix": np.ones((100, 6, 10), np.float32), "values": np.ones(900, np.float32)})
    session.commit()
    assert "powersgd:rank=2,cols=60 " in session.plan_text()
    assert "900 values from 6000, powersgd:rank=2 " in session.plan_text(), "a flat array may be anything"


def test_session_keeps_the_residual():
    """The sum of the gradients equals the sum of results and residuals, and a restored session continues with the same
    bits."""
    n, rounds = 5000, 4

    def job(session):
        given, got = np.zeros(n), np.zeros(n)
        for i in range(rounds):
            g = gaussian(n, seed=10 * session.rank + i)
            given += g
            session.wait(session.sync({"g": g}))
            session.commit()
            got += 2.0 * g
        return given - session.residual("g", n), got, session.state()

    options = {"codec": "topk:ratio=0.01", "timeout": 20.0}
    ranks = run_threads(tithe.Session.loop(2, **options), job)
    sent = ranks[0][0] + ranks[1][0]
    for _, got, _ in ranks:
        np.testing.assert_allclose(got, sent, atol=1e-4)

    def restored(session):
        session.restore(ranks[session.rank][2])
        g = gaussian(n, seed=99)
        session.wait(session.sync({"g": g}))
        session.commit()
        return g

    a, b = run_threads(tithe.Session.loop(2, **options), restored)
    assert np.array_equal(a, b)
    with pytest.raises(ValueError):
        tithe.Session.loop(3, **options)[0].restore(ranks[0][2])
    with pytest.raises(tithe.Error, match="not a saved state"):
        tithe.Session.loop(2, **options)[0].restore(b"no state")


def test_session_refuses_read_only_arrays():
    (session,) = tithe.Session.loop(1, codec="fp32")
    fixed = np.zeros(4, dtype=np.float32)
    fixed.flags.writeable = False
    for wrong in (fixed, np.zeros((4, 4), dtype=np.float32)[:, ::2], np.zeros(4), np.zeros(4, dtype=np.int32), [1.0]):
        with pytest.raises(ValueError, match="'x'"):
            session.sync({"x": wrong})
    with pytest.raises(ValueError):
        session.wait(12345)
    session.close()
    with pytest.raises(ValueError, match="closed"):
        session.sync({"x": np.zeros(4, dtype=np.float32)})


def test_close_ends_a_wait_in_another_thread():
    lonely, silent = tithe.Session.loop(2, codec="fp32", timeout=60.0)
    caught, begun = [], threading.Event()

    def wait():
        ticket = lonely.sync({"x": np.ones(10, dtype=np.float32)})
        begun.set()
        try:
            lonely.wait(ticket)
        except tithe.Error as error:
            caught.append(error.code)

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait()
    thread.join(0.3)
    lonely.close()
    thread.join(50)  # without a cancel it would wait for 60 seconds
    assert not thread.is_alive()
    silent.close()
    assert caught == ["cancelled"]


INTERRUPTED = """
import os, signal, sys, threading
import numpy as np, tithe
lonely, silent = tithe.Session.loop(2, codec="fp32", lanes=int(sys.argv[1]), timeout=600.0)
try:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    lonely.wait(lonely.sync({"x": np.ones(10, dtype=np.float32)}))
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("lanes", [0, 1])
def test_ctrl_c_ends_a_wait(lanes):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(lanes)],
        env={**os.environ, "PYTHONPATH": PACKAGE},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout == "interrupted\n", done.stderr


WORKER = """
import numpy as np, tithe
with tithe.Session.from_environment(codec="fp32", timeout=20.0) as session:
    x = np.full(1000, session.rank, dtype=np.float32)
    session.wait(session.sync({"x": x}))
    session.commit()
    print(session.rank, session.world, x[0], x[-1])
"""


def test_ranks_connect_through_the_environment(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER],
            env={
                **os.environ,
                "PYTHONPATH": PACKAGE,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "TITHE_FILE": str(tmp_path / "meet"),
                "UCX_TLS": "tcp",
                "UCX_NET_DEVICES": "lo",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank, process in enumerate(ranks):
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert out.split() == [str(rank), "2", "0.5", "0.5"]


def test_unsupported_target_is_refused_at_import():
    done = subprocess.run(
        [sys.executable, "-c", "import tithe"],
        env=os.environ | {"PYTHONPATH": PACKAGE, "TITHE_TARGET": "avx9"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert "ValueError: TITHE_TARGET: unknown target 'avx9': this machine has " in done.stderr


def test_stats_know_small_tensors_beside_a_codec_with_momentum() -> None:
    (session,) = tithe.Session.loop(1, codec="dgc:ratio=0.1,feedback=momentum,mu=0.5", measure=1)
    session.sync({"bias": np.ones(8, np.float32), "weight": np.ones(100_000, np.float32)})
    session.commit()
    codecs = sorted(session.stats()["groups"])
    assert [codec.partition(":")[0] for codec in codecs] == ["dgc", "fp32"]
    assert session.stats()["relative_error"] > 0
