# SPDX-License-Identifier: Apache-2.0
"""The second decoder, written from docs/reference/format.md alone, reads the golden frames to the same bits."""

import hashlib
import math
import re
import struct
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden"
sys.path.insert(0, str(ROOT / "tests/second_decoder"))

from tithe_format import decode, parse_frame, read_control, read_state  # noqa: E402
from tithe_numbers import Refused, f32  # noqa: E402
from tithe_payloads import READERS  # noqa: E402

FRAMES = sorted(p for p in GOLDEN.glob("*.bin") if not p.name.startswith(("flag_", "control_")))


LISTED = {line.split()[0]: line.split()[1:] for line in (GOLDEN / "values.sha256").read_text().splitlines()}


def expected(path):
    """Returns the values of a readable sample."""
    values = []
    for line in path.read_text().splitlines():
        value, _, run = line.partition(" *")
        values += [float.fromhex(value)] * int(run or 1)
    return values


def bits(values):
    return [struct.pack("<f", v) for v in values]


def listed_as(values):
    return [str(len(values)), hashlib.sha256(b"".join(bits(values))).hexdigest()]


@pytest.mark.parametrize("path", FRAMES, ids=lambda p: p.stem)
def test_reads_golden_frame(path):
    header, payloads = parse_frame(path.read_bytes())
    beside = path.with_suffix(".context")
    context = beside.read_bytes() if beside.exists() else b""
    values = decode(header, payloads, context)
    sample = path.with_suffix(".txt")
    if sample.exists():
        assert bits(values) == bits(expected(sample))
    assert listed_as(values) == LISTED[path.stem], (
        f"{len(values)} values that begin {[float(v).hex() for v in values[:8]]}; all of the library's are written by "
        "TITHE_GOLDEN_VALUES=folder build/tests/golden_tests"
    )


def test_every_codec_has_a_sample_and_every_frame_is_listed():
    assert set(LISTED) == {path.stem for path in FRAMES}
    codecs = re.findall(r"^TITHE_CODEC\w*\((\w+),", (ROOT / "include/tithe/codecs.def").read_text(), re.MULTILINE)
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {f"{codec}_odd" for codec in codecs}


def test_knows_every_codec_of_the_list():
    listed = re.findall(
        r"^TITHE_CODEC\w*\((\w+), (\d+)\)", (ROOT / "include/tithe/codecs.def").read_text(), re.MULTILINE
    )
    assert listed
    assert {int(number) for _, number in listed} == set(READERS)
    for name, number in listed:
        assert any(p.name.startswith(f"{name}_") for p in FRAMES)
        reader = READERS[int(number)]
        assert (reader[-1] if isinstance(reader, tuple) else reader).__name__ in (
            f"read_{name}",
            "read_sparse",
            "read_ternary",
        )


def test_flagged_frames():
    header, payloads = parse_frame((GOLDEN / "flag_non_finite.bin").read_bytes())
    values = decode(header, payloads)
    assert len(values) == header.values == 5
    assert all(math.isnan(v) for v in values)
    header, payloads = parse_frame((GOLDEN / "flag_empty.bin").read_bytes())
    assert payloads == []
    with pytest.raises(Refused):
        decode(header, payloads)


def test_payload_without_a_checksum_is_read_on_request():
    frame = (GOLDEN / "header_alone.frame").read_bytes()
    header, payloads = parse_frame(frame, header_alone=True)
    assert decode(header, payloads) == [0.25, -0.5, 3.0]
    with pytest.raises(Refused, match="agreed"):
        parse_frame(frame)
    rounded = frame[:-4] + struct.pack("<f", 2.75)
    assert decode(*parse_frame(rounded, header_alone=True)) == [0.25, -0.5, 2.75]
    for bit in range(8 * 64):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Refused):
            parse_frame(bytes(flipped), header_alone=True)
    with pytest.raises(Refused, match="agreed"):
        parse_frame((GOLDEN / "flag_empty.bin").read_bytes(), header_alone=True)


@pytest.mark.parametrize("path", [p for p in FRAMES if p.stat().st_size < 400], ids=lambda p: p.stem)
def test_refuses_every_truncation_and_bit_flip(path):
    frame = path.read_bytes()
    for cut in range(len(frame)):
        with pytest.raises(Refused):
            parse_frame(frame[:cut])
    for bit in range(8 * len(frame)):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Refused):
            parse_frame(bytes(flipped))


def test_control_frames():
    """The decoder reads the golden control frames."""
    assert read_control((GOLDEN / "control_card.bin").read_bytes()) == {
        "number": 1,
        "world": 4,
        "run": 2,
        "seed": 3,
        "tensors": 5,
        "values": 6000,
        "layout": 7,
        "plan": 8,
        "round": 9,
        "ended": 4,
        "job": 10,
        "proposed_job": 11,
        "place": 2,
        "average": 1,
        "codec": "dgc:ratio=0.02",
        "strategy": "gather",
    }
    fields = {"code": "peer_lost", "blamed": 3, "round": 12, "finite": 1, "what": "rank 3 is gone"}
    assert read_control((GOLDEN / "control_farewell.bin").read_bytes()) == fields
    evidence = {"finding": 3, "witness": 2, "silent_peers": [1, 3]}
    assert read_control((GOLDEN / "control_evidence.bin").read_bytes()) == evidence
    here = {"number": 5, "round": 12, "state": 2, "waits_for": 3, "received": 70000, "sent": 80000, "messages_sent": 6}
    assert read_control((GOLDEN / "control_here.bin").read_bytes()) == here
    echo = {"of": 3, "finding": 3, "code": "timeout", "witness": 3, "blamed": 0, "round": 12, "silent_peers": [0, 1]}
    echo |= {"finite": 1, "what": "nothing was heard from it"}
    assert read_control((GOLDEN / "control_echo.bin").read_bytes()) == echo
    bucket = {"ended": 4, "round": 9, "job": 10, "tensors": 5, "values": 6000, "layout": 7, "place": 2, "is_end": 0}
    assert read_control((GOLDEN / "control_announcement.bin").read_bytes()) == bucket
    assert read_control((GOLDEN / "control_done.bin").read_bytes()) == {
        "ended": 13,
        "begun": 14,
        "away_ns": 250_000_000,
        "finite": 1,
    }


def test_state():
    """The decoder reads a golden state, and refuses it if it is truncated or if any bit is changed."""
    state = (GOLDEN / "state.state").read_bytes()
    assert read_state(state) == {
        "rank": 2,
        "world": 4,
        "rounds": 9,
        "job": 0x8877665544332211,
        "codec": "dgc:feedback=momentum",
        "opened": "dgc",
        "decided": "{}",
        "link": "1Gb/s",
        "schedule": "warmup:400+recover:0.05",
        "schedule_state": {"learning_rate": 0.125, "min_loss": 0.75, "steps": 2},
        "members": ["north", "east", "south", "west"],
        "keys": {
            "layer.bias": {"n": 2, "residual": [0.25, -3.0], "velocity": [1.5, 0.0], "kind": 0, "memory": b""},
            "layer.weight": {
                "n": 3,
                "residual": [1.0, -2.0, f32(1e-30)],
                "velocity": [],
                "kind": 0x1122334455667788,
                "memory": b"\7\0\xff",
            },
            "unsent.nothing": {"n": 4, "residual": [], "velocity": [], "kind": 0, "memory": b""},
        },
    }
    for cut in range(len(state)):
        with pytest.raises(Refused):
            read_state(state[:cut])
    for bit in range(8 * len(state)):
        flipped = bytearray(state)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Refused):
            read_state(bytes(flipped))
