# SPDX-License-Identifier: Apache-2.0
"""Calls every public function of tithe and tithe._core with invalid arguments, drawn from a seed.

A program of its own, since a failure ends the process: test_bindings.py runs it and checks the exit code.
usage: odd_arguments.py SEED CALLS
"""

import contextlib
import inspect
import random
import sys
import tempfile

import numpy as np

import tithe
from tithe import _core

FINE = (TypeError, ValueError, tithe.Error, MemoryError, OverflowError, BufferError, IndexError, AttributeError)


HERE = tempfile.TemporaryDirectory()
SAVED = _core.open_loop(1, _core.Options())[0].state()


class Strange:
    """Has every attribute, each with a wrong value."""

    def __len__(self):
        return 1 << 60

    def __iter__(self):
        raise ValueError("no")

    def __dlpack__(self, **_):
        raise ValueError("no")

    def __dlpack_device__(self):
        return (99, 99)


def arrays(rng):
    base = np.arange(60, dtype=np.float32)
    fixed = base.copy()
    fixed.flags.writeable = False
    return rng.choice(
        [base, base[:0], base[::-1], base[::2], base.reshape(6, 10).T, np.asfortranarray(base.reshape(6, 10)), fixed,
         base.astype(">f4"), base.astype("f8"), base.astype("f2"), base.astype("i4"), base.astype(object),
         base.astype("c8"), np.float32(3), np.zeros((), np.float32), np.zeros((0, 5), np.float32),
         np.broadcast_to(np.float32(1), (4, 5)), np.frombuffer(b"\0" * 16, np.float32), np.array(["a", "b"]),
         np.lib.stride_tricks.as_strided(base, (5,), (2,)), np.ma.array(base), np.array([np.nan, np.inf], np.float32),
         np.zeros(3, [("a", "f4")]), np.datetime64("2020"), memoryview(b"abcd"), bytearray(8)]
    )  # fmt: skip


def frames(rng):
    name = rng.choice([c["name"] for c in tithe.codecs() if len(c["phases"]) == 1])
    frame = bytearray(tithe.encode(name, np.arange(rng.choice([0, 1, 40]), dtype=np.float32)))
    for _ in range(rng.randrange(3)):
        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
    return bytes(frame[: rng.choice([len(frame), rng.randrange(len(frame) + 1)])])


def texts(rng):
    return rng.choice(
        ["", "fp32", "topk", "topk:ratio=0.1", "w", "\0", "a\0b", "\ud800", "é\udcff", "x" * 100_000, "topk:\ud800=1",
         "gather", "none", "warmup:3", "float32", "float16", "%s%n", "…", "\U0001f600"]
    )  # fmt: skip


def numbers(rng):
    return rng.choice(
        [0, 1, -1, 2, 7, 60, 2**31, 2**32, 2**40 + 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**30, 0.0, 0.5, -0.0,
         1e308, float("nan"), float("inf"), -float("inf"), True, 1j]
    )  # fmt: skip


def lists(rng, depth=0):
    return rng.choice([list, tuple])(odd(rng, depth + 1) for _ in range(rng.randrange(4)))


def pairs(rng):
    return [(texts(rng), arrays(rng)) for _ in range(rng.randrange(3))]


def odd(rng, depth=0):
    kinds = [arrays, frames, texts, texts, numbers, pairs, options, session, layout]
    if depth < 3:
        kinds.append(lambda r: lists(r, depth))
    plain = [None, b"", b"\xff\xfe", Strange(), Strange, object(), {}, {"w": 1}, {1: 2}, print, lambda *_: None,
             lambda *_: [b""], lambda *_: ["x"], lambda *_: 3, ...]  # fmt: skip
    return rng.choice(kinds)(rng) if rng.random() < 0.8 else rng.choice(plain)


def options(rng):
    made = _core.Options()
    for _ in range(rng.randrange(3)):
        name = rng.choice([n for n in dir(made) if not n.startswith("_")])
        with contextlib.suppress(FINE):
            setattr(made, name, odd(rng, 3))
    if made.lanes is not None:  # the default of users
        made.lanes = min(made.lanes, 3)  # the test needs no thousand threads
    return made


def session(rng):
    made = _core.open_loop(1, _core.Options())[0]
    if rng.random() < 0.3:
        made.sync([("w", np.ones(60, np.float32))])
        if rng.random() < 0.3:
            rng.choice([made.cancel, made.close, made.commit])()
    return made


def layout(rng):
    return _core.Layout(["a", "b"], [20, 40], rng.choice(["float32", "float16"]))


def call(rng, function, *first):
    arguments = [odd(rng) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 3, 4, 6]))]
    if rng.random() < 0.3:  # the correct number of arguments
        with contextlib.suppress(ValueError, TypeError):
            arguments = [odd(rng) for _ in list(inspect.signature(function).parameters)[len(first) :]]
    with contextlib.suppress(FINE):
        function(*first, *arguments)


def nearly(rng):
    """Returns a call with, in most cases, one wrong argument."""
    ones, made = np.ones(60, np.float32), session(rng)
    function, arguments = rng.choice(
        [(_core.encode, ["topk:ratio=0.5", ones]),
         (tithe.encode, ["fp32", ones]),
         (_core.decode, [frames(rng), np.empty(rng.choice([0, 1, 40]), np.float32), None]),
         (tithe.decode, [frames(rng), rng.choice([None, 0, 1, 40])]),
         (_core.frame_values, [frames(rng), None, 100]),
         (_core.check_spec, ["topk"]),
         (_core.is_lossless, ["topk"]),
         (_core.schedule_follows, ["none", "topk"]),
         (_core.open_loop, [1, options(rng)]),
         (_core.Layout, [["a", "b"], [20, 40], "float32", [20, 40]]),
         (made.sync, [[("w", ones), ("v", ones.reshape(6, 10))]]),
         (made.sync, [[(odd(rng), ones)]]),
         (made.sync, [[("w", odd(rng))]]),
         (made.sync_at, [layout(rng), ones]),
         (made.sync_on, [layout(rng), 4096, 0, 0, ones]),  # without a driver, nothing dereferences them
         (made.wait, [1]),
         (made.residual, ["w", ones]),
         (made.restore, [SAVED]),
         (made.evaluated, [0.5]),
         (made.learning_rate, [0.5]),
         (made.trace, [True]),
         (made.close, [True]),
         (tithe.Session.loop, [1])]
    )  # fmt: skip
    if rng.random() < 0.8:
        arguments[rng.randrange(len(arguments))] = odd(rng)
    try:
        function(*arguments)
        for after in (made.commit, made.state, made.stats, made.plan_text, made.take_trace, made.close):
            after()
    except FINE:
        pass


def targets():
    found = []
    for module in (tithe, _core):
        for name in dir(module):
            thing = getattr(module, name)
            # A call that waits for other ranks continues until its timeout.
            if name.startswith("_") or not callable(thing) or name in ("Error", "rejoin"):
                continue
            found.append((thing, None))
            if isinstance(thing, type):
                found += [(getattr(thing, m), thing) for m in dir(thing) if not m.startswith("_")
                          and callable(getattr(thing, m))]  # fmt: skip
    return found


def main(seed, calls):
    rng = random.Random(seed)
    make = {_core.Session: session, _core.Options: options, _core.Layout: layout,
            tithe.Session: lambda r: tithe.Session.loop(1, codec="topk:ratio=0.5", min_values=0)[0],
            _core.MemberMonitor: lambda r: tithe.Session.loop(1)[0]._core.member_monitor(["a"]),
            _core.Board: lambda r: _core.board_in(tempfile.mkdtemp(dir=HERE.name)),
            tithe.Membership: lambda r: tithe.Membership(tempfile.mkdtemp(dir=HERE.name), "a", members=["a"],
                                                         timeout=1)}  # fmt: skip
    all_targets = targets()
    seen = {f"{owner.__name__ if owner else ''}.{function.__name__}" for function, owner in all_targets}
    assert {".decode", ".encode", ".frame_values", ".open", ".open_loop", "Session.sync", "Session.sync_at",
            "Session.residual", "Session.restore", "Session.state", "Session.wait"} <= seen  # fmt: skip
    for number in range(calls):
        nearly(rng)
        function, owner = rng.choice(all_targets)
        if owner is None or getattr(function, "__self__", None) is owner:
            call(rng, function)
        else:
            for _ in range(3):
                call(rng, function, make[owner](rng) if rng.random() < 0.9 else odd(rng))
        if number % 50 == 0:
            # The last line names the call that ended the process
            print(number, getattr(function, "__name__", function), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
    print("done")
