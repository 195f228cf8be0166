# SPDX-License-Identifier: Apache-2.0
"""The extension module: invalid arguments become exceptions, and bytes that are not valid text become errors."""

import os
import resource
import struct
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tithe
from tithe import _core

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = str(Path(tithe.__file__).parents[1])
VARIABLES = {
    k: v for k, v in os.environ.items() if not k.startswith(("RANK", "WORLD_SIZE", "MASTER_", "OMPI_", "PMI_"))
}


def second_decoder():
    sys.path.insert(0, str(ROOT / "tests/second_decoder"))
    import tithe_format

    return tithe_format


def core_session():
    options = _core.Options()
    options.codec = "bf16"
    return _core.open_loop(1, options)[0]


def test_memory_without_strides_is_refused():
    """NumPy exports its dates with a null pointer for strides, which must not be dereferenced."""
    date, session = np.datetime64("2020"), tithe.Session.loop(1, codec="fp32")[0]
    for refused in (
        lambda: _core.encode("fp32", date),
        lambda: _core.decode(tithe.encode("fp32", np.zeros(8, np.float32)), date),
        lambda: session.wait(session.sync({"w": date})),
        lambda: session.residual("w", date),
    ):
        with pytest.raises((TypeError, ValueError)):
            refused()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_odd_arguments_of_every_public_function_end_no_process(seed):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(ROOT / "tests/python/odd_arguments.py"), str(seed), "700"],
        env={**VARIABLES, "PYTHONPATH": PACKAGE}, capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    again = f"tests/python/odd_arguments.py {seed} 700"
    assert done.returncode == 0, f"{again}: exit code {done.returncode}\n{done.stdout[-200:]}\n{done.stderr[-2000:]}"
    assert done.stdout.endswith("done\n")


@pytest.mark.parametrize("key", ["\ud800", "a\udfffb", b"w", 1, None, 1.5, ("w",), object()], ids=repr)
def test_non_text_key_is_a_type_error(key):
    session = core_session()
    with pytest.raises(TypeError, match="key must be a str"):
        session.sync([(key, np.ones(5, np.float32))])
    with pytest.raises(TypeError):
        session.residual(key, np.ones(5, np.float32))
    with pytest.raises((TypeError, ValueError)):
        _core.Layout([key], [5], "float32")
    session.wait(session.sync([("w", np.ones(5, np.float32))]))  # the session continues


@pytest.mark.parametrize("key", ["\0", "a\0b", "x" * 1_000_000, "é", "\U0001f600", " "])
def test_any_text_is_a_valid_key(key):
    session = core_session()
    array = np.full(5, 3, np.float32)
    session.wait(session.sync([(key, array)]))
    session.commit()
    session.residual(key, np.empty(5, np.float32))
    assert array.tolist() == [3] * 5
    core_session().restore(session.state())


@pytest.mark.parametrize("items", [[1], [("w",)], [("w", 1, 2)], ["w1"], [None], [["w", np.ones(3, np.float32)]]])
def test_non_pair_is_a_type_error(items):
    with pytest.raises(TypeError, match="pairs"):
        core_session().sync(items)
    with pytest.raises(TypeError):
        core_session().sync(None)


ONES = np.ones((6, 10), np.float32)
FIXED = ONES.copy()
FIXED.flags.writeable = False
WRONG_ARRAYS = {
    "negative strides": ONES.reshape(-1)[::-1], "every second": ONES.reshape(-1)[::2], "transposed": ONES.T,
    "read-only": FIXED, "Fortran order": np.asfortranarray(ONES), "float64": ONES.astype("f8"),
    "int32": ONES.astype("i4"), "complex": ONES.astype("c8"), "objects": ONES.astype(object),
    "big-endian": ONES.astype(">f4"), "a list": ONES.tolist(), "bytes": b"abcd", "a scalar": 3.0, "None": None,
    "a scalar of numpy": np.float32(3), "broadcast": np.broadcast_to(np.float32(1), (4, 5)),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG_ARRAYS)
def test_non_contiguous_array_is_a_value_error(what):
    session = core_session()
    before = repr(WRONG_ARRAYS[what])
    with pytest.raises((TypeError, ValueError)):
        session.sync([("w", WRONG_ARRAYS[what])])
    with pytest.raises((TypeError, ValueError)):
        session.sync_at(_core.Layout(["w"], [60], "float32"), WRONG_ARRAYS[what])
    # Results are written into the caller's array, never into a copy of it.
    session.wait(session.sync([("w", np.ones(60, np.float32))]))
    session.commit()
    with pytest.raises((TypeError, ValueError)):
        session.residual("w", WRONG_ARRAYS[what])
    with pytest.raises((TypeError, ValueError)):
        _core.decode(tithe.encode("fp32", ONES), WRONG_ARRAYS[what])
    assert repr(WRONG_ARRAYS[what]) == before


def test_empty_arrays_are_arrays():
    session = core_session()
    session.wait(session.sync([("w", np.zeros((0, 5), np.float32)), ("v", np.zeros(0, np.float16))]))
    session.commit()
    assert tithe.decode(tithe.encode("topk", [])).shape == (0,)


def test_bucket_that_differs_from_its_layout_is_refused():
    layout = _core.Layout(["a", "b"], [2, 3], "float32")
    for wrong in (np.ones(4, np.float32), np.ones(6, np.float32), np.ones(5, np.float16), np.ones(0, np.float32)):
        with pytest.raises(ValueError, match="layout"):
            core_session().sync_at(layout, wrong)
    for sizes in ([2**64 - 1, 5], [2**40, 1], [2**63, 2**63]):
        with pytest.raises(ValueError, match="1099511627776"):
            _core.Layout(["a", "b"], sizes, "float32")
    with pytest.raises(ValueError, match="one size per key"):
        _core.Layout(["a"], [1, 2], "float32")


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -float("inf"), 1e300, 0, -1])
def test_invalid_timeout_is_refused(seconds):
    with pytest.raises(ValueError, match="timeout"):
        tithe.Session.loop(1, timeout=seconds)


@pytest.mark.parametrize("world", [0, -1, 257, 2**31 - 1])
def test_excessive_number_of_threads_is_refused(world):
    with pytest.raises(ValueError, match=r"1 \.\. 256"):
        tithe.Session.loop(world)


# ---- Bytes that are not valid text


def state_of(codec):
    """Returns a state with a correct checksum and this codec name."""
    format_ = second_decoder()
    state = core_session().state()
    at = 32  # magic, version, rank, world, round, job
    (length,) = struct.unpack_from("<Q", state, at)
    body = state[:at] + struct.pack("<Q", len(codec)) + codec + state[at + 8 + length : -8]
    return body + struct.pack("<Q", format_.xxh3_64(body))


def test_invalid_utf_8_in_a_state_is_a_value_error():
    core_session().restore(state_of(b"bf16"))
    for codec in (b"\xff\xfe", b"topk:\xed\xa0\x80", b"a\0b\xc3"):
        with pytest.raises(ValueError, match=r"\?") as refused:
            core_session().restore(state_of(codec))
        assert type(refused.value) is ValueError  # and not a UnicodeDecodeError
        assert "saved with codec" in str(refused.value)


# ---- Claims


def claim(codec, values):
    format_ = second_decoder()
    frame = bytearray(tithe.encode(codec, []))
    struct.pack_into("<Q", frame, 32, values)
    struct.pack_into("<Q", frame, 56, format_.checksum(bytes(frame)))
    return bytes(frame)


def test_frame_with_2_to_28_values_allocates_only_if_permitted():
    frame = claim("topk", 1 << 28)
    assert len(frame) < 80
    with pytest.raises(ValueError, match="268435456 values; max_values allows 67108864"):
        tithe.decode(frame)
    with pytest.raises(ValueError, match="max_values allows 5"):
        tithe.decode(claim("topk", 6), max_values=5)
    assert tithe.decode(claim("topk", 6), max_values=6).tolist() == [0] * 6
    assert tithe.decode(claim("topk", 1 << 20), 1 << 20).shape == (1 << 20,)
    with pytest.raises(ValueError, match="holds 268435456 values, not 5"):
        tithe.decode(frame, 5)


GROWTH = """
import resource, sys, tithe
frame, n = open(sys.argv[1], "rb").read(), int(sys.argv[2])
tithe.decode(tithe.encode("topk", [0.0] * 1000))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tithe.decode(frame, n)
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / (4 * n))
"""


@pytest.mark.parametrize("codec", ["topk", "dgc", "qtopk"])
def test_permitted_frame_allocates_its_values(codec, tmp_path):
    """Decoding must not allocate scratch memory that only an encoder uses (3.8 times the values, or 5.6 times with
    qtopk)."""
    n, path = 1 << 25, tmp_path / "frame"
    path.write_bytes(tithe.encode(codec, np.zeros(n, np.float32)) if codec == "qtopk" else claim(codec, n))
    ran = subprocess.run(
        [sys.executable, "-c", GROWTH, str(path), str(n)], stdout=subprocess.PIPE, text=True, check=True
    )
    assert float(ran.stdout) < 1.1


@pytest.mark.parametrize("codec", [c["name"] for c in tithe.codecs() if len(c["phases"]) == 1])
@pytest.mark.parametrize("values", [2**64 - 1, 2**64 - 64, 2**63, 2**40 + 1, 2**39, 2**27])
def test_a_frame_of_nearly_2_to_64_values_is_refused_before_anything_is_allocated(codec, values):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for expected in (None, values):
        if expected is not None and values < 2**40 and codec in SENDS_NO_ZEROS:
            continue  # a size that a payload can have, and that the caller requested
        with pytest.raises((ValueError, tithe.Error)):
            tithe.decode(claim(codec, values), expected)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


SENDS_NO_ZEROS = {
    "topk",
    "dgc",
    "dragonn",
    "randomk",
    "threshold",
    "graddrop",
    "qtopk",
    "blocks",
    "fft",
}


# ---- Failed sessions, as in docs/reference/errors.md


def failed():
    """Returns a session with one committed round whose peer then left, the state after that round, and the error."""
    mine, other = tithe.Session.loop(2, codec="topk:ratio=0.5", min_values=0)
    arrays = [np.arange(20, dtype=np.float32) for _ in range(2)]
    tickets = [s.sync({"w": a}) for s, a in zip((mine, other), arrays, strict=True)]
    for session, ticket in zip((mine, other), tickets, strict=True):
        session.wait(ticket)
    with ThreadPoolExecutor(2) as both:  # a commit waits for the other rank's
        list(both.map(tithe.Session.commit, (mine, other)))
    committed = mine.state()
    other.close()
    with pytest.raises(tithe.Error) as lost:
        mine.wait(mine.sync({"w": arrays[0]}))
    return mine, committed, lost.value


def test_a_failed_session_stays_failed_with_the_same_error():
    session, _, lost = failed()
    assert (lost.code, lost.peer) == ("peer_lost", 1)
    assert "docs/guide/elastic.md" in str(lost)
    for call in (session.commit, lambda: session.sync({"w": np.ones(20, np.float32)})):
        with pytest.raises(tithe.Error) as again:
            call()
        assert (again.value.code, again.value.peer, str(again.value)) == (lost.code, lost.peer, str(lost))


@pytest.mark.parametrize("end", ["close", "drop"])
def test_arrays_of_a_round_outlive_the_lanes_that_write_to_them(end):
    def threads():
        return len(os.listdir("/proc/self/task"))

    before, left = threads(), []
    session, array = core_session(), np.ones(60, np.float32)
    weakref.finalize(array, lambda: left.append(threads() - before))
    session.sync([("w", array)])
    del array
    assert threads() > before and left == []
    if end == "close":
        session.close()
    del session
    assert left == [0]


def test_last_committed_state_is_available_after_failure_and_close():
    session, committed, _ = failed()
    assert session.state() == committed
    session.close()
    assert session.state() == committed
    session.close()
    assert session.state() == committed
    healthy = tithe.Session.loop(1, codec="topk:ratio=0.5", min_values=0)[0]
    with healthy:
        healthy.wait(healthy.sync({"w": np.arange(20, dtype=np.float32)}))
        healthy.commit()
        committed = healthy.state()
    assert healthy.state() == committed
    with pytest.raises(ValueError, match="closed"):
        healthy.commit()
    tithe.Session.loop(1, codec="topk:ratio=0.5", min_values=0)[0].restore(committed)


# ---- Transports


def test_transport_name_includes_its_options():
    assert tithe.transports()[0] == "loop"
    for wrong, meant in {"ucxx": "did you mean 'ucx'", "ucx:device=eth0": "did you mean 'devices'",
                         "loop": "Session.loop"}.items():  # fmt: skip
        with pytest.raises(ValueError, match=meant):
            tithe.Session.open(0, 1, lambda mine: [mine], transport=wrong)
    with pytest.raises(ValueError, match="must be a string"):
        tithe.Session.open(0, 1, lambda mine: [mine], transport=3)
    for gone in ("transports", "devices"):
        with pytest.raises(ValueError, match=f"unknown option '{gone}'"):
            tithe.Session.open(0, 1, lambda mine: [mine], **{gone: "lo"})
    for right in ({}, {"transport": "auto"}, {"transport": "ucx:transports=tcp,devices=lo"}, {"transport": "ucx"}):
        with tithe.Session.open(0, 1, lambda mine: [mine], **right) as session:
            assert session.world == 1
