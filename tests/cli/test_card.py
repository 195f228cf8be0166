# SPDX-License-Identifier: Apache-2.0
"""tithe card: over captures, with either engine; and between the interfaces of hosts in network namespaces, with an
unmodified TCP stack (needs root; otherwise skipped with the reason)."""

import contextlib
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from card_frames import floats, frame, kept, read_capture, transport_holds, write_capture

ROOT = Path(__file__).resolve().parents[2]
TITHE = os.environ.get("TITHE_BIN", str(ROOT / "build/tithe"))
RTL = ROOT / "build/rtl/card-256"
sys.path.insert(0, str(ROOT / "lab/hosts"))
import hosts  # noqa: E402


def run(line, folder):
    command = [TITHE, *shlex.split(line)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def report(line, folder):
    done = run(f"{line} --json", folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def some_values(n, seed):
    draw = random.Random(seed)
    return [draw.gauss(0, 0.01) * draw.choice([1, 1, 1, 100]) for _ in range(n)]


KEPT = [kept(v) for v in some_values(362, 1)]
OTHER = some_values(362, 2)


def test_only_data_is_packed_and_it_round_trips(tmp_path):
    foreign = [
        frame(floats(KEPT), tos=0),
        frame(b"ssh and the like" * 20, tos=0x10),
        frame(floats(KEPT), flags=0x02),
        frame(floats(KEPT[:8])),
        b"\xff" * 12 + b"\x08\x06" + bytes(46),  # ARP
        frame(floats(OTHER)),
    ]
    data = [
        frame(floats(KEPT)),
        frame(floats(KEPT), options=3),
        frame(floats(KEPT), udp=True),
        frame(floats(KEPT), tos=0x2A),
    ]
    write_capture(tmp_path / "host.pcap", data + foreign)
    sent = report("card --capture host.pcap --out wire.pcap", tmp_path)["to_wire"]
    assert (sent["packed"], sent["passed"], sent["inexact"], sent["dropped"]) == (4, 6, 1, 0)
    wire = read_capture(tmp_path / "wire.pcap")
    assert wire[4:] == foreign
    for packed, was in zip(wire, data, strict=False):
        assert len(packed) < len(was) / 2 and packed[23] in (253, 254) and transport_holds(packed)
    got = report("card --capture wire.pcap --out back.pcap --to host", tmp_path)["to_host"]
    assert (got["packed"], got["passed"], got["dropped"]) == (4, 6, 0)
    assert got["bytes_out"] == sent["bytes_in"]
    assert read_capture(tmp_path / "back.pcap") == data + foreign


def test_lossy_mode_delivers_the_codecs_values(tmp_path):
    write_capture(tmp_path / "host.pcap", [frame(floats(OTHER))])
    assert report("card --capture host.pcap --out wire.pcap --lossy", tmp_path)["to_wire"]["packed"] == 1
    report("card --capture wire.pcap --out back.pcap --to host", tmp_path)
    (back,) = read_capture(tmp_path / "back.pcap")
    assert transport_holds(back)
    assert back[54:] == floats([kept(v) for v in OTHER])


def test_a_damaged_frame_is_dropped_and_counted(tmp_path):
    write_capture(tmp_path / "host.pcap", [frame(floats(KEPT))])
    report("card --capture host.pcap --out wire.pcap", tmp_path)
    (packed,) = read_capture(tmp_path / "wire.pcap")
    damaged = [packed[:i] + bytes([packed[i] ^ 4]) + packed[i + 1 :] for i in range(34, len(packed))]
    write_capture(tmp_path / "damaged.pcap", [packed[:-1], *damaged])
    got = report("card --capture damaged.pcap --out back.pcap --to host", tmp_path)["to_host"]
    assert got["dropped"] + got["passed"] == len(damaged) + 1 and got["packed"] == 0
    # If the damage makes a frame another kind of frame, the card passes it, and a host discards it as no TCP.
    assert all(other[23] == 253 for other in read_capture(tmp_path / "back.pcap"))


def many_frames(draw):
    """Draws data, other traffic, and damaged frames of both."""
    frames = []
    for i in range(400):
        n = draw.choice([1, 7, 8, 9, 16, 100, 361, 362, 363])
        values = draw.choice([some_values(n, i), [kept(v) for v in some_values(n, i)], [0.0] * n])
        payload = floats(values)[: 4 * n - draw.choice([0, 0, 0, 1, 2, 3])]
        f = bytearray(
            frame(payload, tos=draw.choice([0x28, 0x28, 0x2B, 0]), udp=draw.random() < 0.3, options=draw.randrange(4))
        )
        if draw.random() < 0.3:
            f[draw.randrange(len(f))] ^= 1 << draw.randrange(8)
        if draw.random() < 0.1:
            del f[draw.randrange(1, len(f)) :]
        frames.append(bytes(f))
    return frames


@pytest.mark.parametrize("mode", ["", "--lossy", "--lossy --mode literal --b 8", "--b 6 --least 0"])
def test_both_engines_give_the_same_capture(mode, tmp_path):
    if not RTL.exists():
        if shutil.which("verilator") is None:
            pytest.skip("no Verilator here")
        pytest.skip(f"{RTL} is not built: make -C card/rtl engine")
    write_capture(tmp_path / "host.pcap", many_frames(random.Random(5)))

    def pass_it(came, left, to):
        line = f"card --capture {came} --to {to} {mode}"
        model = report(f"{line} --out {left}", tmp_path)
        rtl = report(f"{line} --out {left}.rtl --engine rtl --rtl {RTL}", tmp_path)
        assert rtl.pop("cycles") > 0 and model.pop("cycles") is None
        assert (rtl.pop("engine"), model.pop("engine")) == ("rtl", "model")
        assert rtl == model
        assert (tmp_path / left).read_bytes() == (tmp_path / f"{left}.rtl").read_bytes()
        return model

    assert pass_it("host.pcap", "wire.pcap", "wire")["to_wire"]["packed"] > 20
    draw = random.Random(6)
    wire = [bytearray(f) for f in read_capture(tmp_path / "wire.pcap")]
    for f in draw.sample(wire, 100):
        f[draw.randrange(len(f))] ^= 1 << draw.randrange(8)
    write_capture(tmp_path / "hurt.pcap", wire)
    got = pass_it("hurt.pcap", "back.pcap", "host")["to_host"]
    assert got["packed"] > 20 and got["dropped"] > 5


@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        ("card", 2, "two interfaces"),
        ("card --host eth9", 2, "two interfaces"),
        ("card --host eth9 --wire eth9", 2, "different interfaces"),
        ("card --capture a --out b --wire eth9", 2, "two interfaces"),
        ("card --capture none.pcap --out b", 1, "none.pcap"),
        ("card --capture odd.pcap --out b", 1, "a pcap magic number"),
        ("card --capture odd.pcap --out b --engine rtl", 2, "make -C card/rtl engine"),
        ("card --capture odd.pcap --out b --rtl x", 2, "--engine rtl"),
        ("card --capture odd.pcap --out b --engine rtl --rtl none", 1, "none"),
        ("card --capture odd.pcap --out b --engine rtl --rtl /bin/true", 1, "not a program built by `make"),
        ("card --capture odd.pcap --out b --b 0", 2, "--b"),
        ("card --host eth9 --wire a/b", 2, "not a valid interface name"),
    ],
)
def test_invalid_arguments_are_refused(line, code, why, tmp_path):
    (tmp_path / "odd.pcap").write_bytes(b"no capture, though long enough")
    done = run(line, tmp_path)
    assert done.returncode == code and why in done.stderr, done.stderr
    assert not (tmp_path / "b").exists()


# ---- Hosts


@pytest.fixture(scope="module")
def namespaces():
    if os.geteuid() != 0:
        pytest.skip("network namespaces and TAP interfaces take root")
    if not os.path.exists("/dev/net/tun"):
        pytest.skip("no /dev/net/tun here")
    try:
        return hosts.unshare_command()
    except RuntimeError as why:
        pytest.skip(f"no network namespaces here: {why}")


def scene(namespaces, name, folder):
    """Returns the report of a scene of card_scenes.py."""
    script = Path(__file__).with_name("card_scenes.py")
    done = subprocess.run(
        [*namespaces, sys.executable, str(script), name, TITHE, str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_traffic_of_an_unmodified_sender_is_unchanged(namespaces, tmp_path):
    got = scene(namespaces, "traffic", tmp_path)
    assert got["data_whole"] and got["foreign_whole"] and got["mixed_whole"] and got["datagrams_whole"]
    assert got["cards"]["0"]["to_wire"]["packed"] > 100
    assert got["cards"]["1"]["to_host"]["packed"] == got["cards"]["0"]["to_wire"]["packed"]
    assert got["cards"]["1"]["to_host"]["dropped"] == 0
    # 4 MB of compressed floats took at most half of that on the wire; other traffic took all of it.
    assert got["data_wire_bytes"] < 0.5 * got["data_bytes"]
    assert got["foreign_wire_bytes"] > got["foreign_bytes"]


def test_lossy_cards_deliver_the_codecs_values(namespaces, tmp_path):
    got = scene(namespaces, "lossy", tmp_path)
    assert got["arrived"] and got["as_the_codec_keeps"] > 0.9 and got["as_sent_or_kept"] == 1


def test_host_without_its_card_gets_no_wrong_data(namespaces, tmp_path):
    """Compressed groups are not valid TCP for a host without a card: the connection stalls."""
    got = scene(namespaces, "one card", tmp_path)
    assert got["received_bytes"] < got["sent_bytes"] and got["prefix_right"]


def test_dead_card_delivers_no_wrong_data(namespaces, tmp_path):
    got = scene(namespaces, "killed", tmp_path)
    assert 0 < got["received_bytes"] < got["sent_bytes"] and got["prefix_right"]


def test_traffic_survives_a_link_that_goes_down_and_up(namespaces, tmp_path):
    got = scene(namespaces, "flap", tmp_path)
    assert got["data_whole"] and got["cards"]["0"]["to_wire"]["lost"] > 0


def test_removed_link_ends_the_card(namespaces, tmp_path):
    got = scene(namespaces, "gone", tmp_path)
    assert got["code"] == 1 and not got["eth0"]
    assert "wire0: the interface was removed" in json.loads(got["said"])["error"]["what"]


# ---- Jobs

ONE_TENSOR = "replay --transport tcp --link 1Gb/s"


def job(line, folder):
    """Returns the report of a job on emulated hosts. A job that stalls fails."""
    done = subprocess.run(
        [TITHE, *shlex.split(line), "--json"], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("strategy", ["ring", "server"])
def test_a_job_through_cards_keeps_the_laws_and_sends_less(namespaces, strategy, tmp_path):
    line = f"{ONE_TENSOR} --ranks 3 --codec snap --strategy {strategy} --n 200000 --steps 3"
    plain = job(line, tmp_path)
    carded = job(f"{line} --card exact", tmp_path)
    assert carded["transport"] == "tcp:trust=10.77.0.0/16,tos=0x28"
    assert carded["identical"] and carded["ledger_exact"]
    assert carded["bytes_sent_per_rank"] == plain["bytes_sent_per_rank"]
    assert carded["wire_bytes_per_host"] < 0.75 * plain["wire_bytes_per_host"]


def test_a_replay_through_cards_sends_less(namespaces, tmp_path):
    line = "replay --model hdc:scale=0.1 --ranks 3 --hosts 2+1 --link 1Gb/s --transport tcp --codec snap --steps 3"
    plain = job(line, tmp_path)
    carded = job(f"{line} --card exact", tmp_path)
    assert (plain["card"], carded["card"]) == ("none", "exact")
    assert carded["bytes_sent_per_rank"] == plain["bytes_sent_per_rank"]
    # Its gradients are normally distributed with a deviation of 1: a third of the values is sent uncompressed.
    assert carded["wire_bytes_per_host"] < 0.9 * plain["wire_bytes_per_host"]


def test_job_detects_a_lossy_card(namespaces, tmp_path):
    line = f"{ONE_TENSOR} --ranks 2 --codec fp32 --strategy ring --n 100000 --steps 1 --card lossy"
    done = subprocess.run(
        [TITHE, *shlex.split(line)], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1 and "checksum" in done.stderr, done.stderr


UNIT = 2**-10  # the error of a card for a value below 1 is less than this
LARGEST = 127 * 127 / 2**20  # of the gradients of `tithe replay --n`


@pytest.mark.parametrize("strategy", ["ring", "server"])
def test_checksums_over_headers_let_cards_round(namespaces, strategy, tmp_path):
    line = ONE_TENSOR.replace("--transport tcp", "--transport tcp:lossy_card=on")
    line += f" --ranks 3 --codec fp32 --strategy {strategy} --n 200000 --steps 3"
    plain = job(f"{line} --card exact", tmp_path)
    assert plain["identical"] and plain["apart"] == 0 and plain["ledger_error"] < 1e-6
    rounded = job(f"{line} --card lossy", tmp_path)
    # Sums are off by less than a unit for each rank; the owner of a sum has the exact value.
    assert not rounded["identical"] and UNIT / 4 < rounded["apart"] < UNIT
    assert UNIT / 4 < rounded["ledger_error"] * LARGEST < 3 * UNIT
    assert rounded["bytes_sent_per_rank"] == plain["bytes_sent_per_rank"]
    assert rounded["wire_bytes_per_host"] < 0.6 * plain["wire_bytes_per_host"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--codec snap --transport tcp:lossy_card=on", "use codec fp32"),
        ("--transport tcp:lossy_card=on", "use codec fp32"),
        ("--codec fp32 --transport tcp:lossy_card=yes", "on or off"),
    ],
)
def test_checksums_over_headers_are_of_plain_floats(line, why, tmp_path):
    done = run(f"replay --n 1000 {line}", tmp_path)
    assert done.returncode == 2 and why in done.stderr, done.stderr


def test_job_fails_with_the_name_of_a_stopped_card(namespaces, tmp_path):
    line = "replay --ranks 3 --link 1Mb/s --card exact --codec snap --n 1000000 --steps 100"
    with subprocess.Popen([TITHE, *shlex.split(line)], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 30
        cards = []
        while len(cards) < 3 and time.monotonic() < end:
            time.sleep(0.05)
            cards = [pid for pid in family(process.pid) if b"\0card\0" in command_line(pid)]
        assert len(cards) == 3
        while sent_on_wire(cards[1]) < 50_000 and time.monotonic() < end:  # a round is under way
            time.sleep(0.05)
        os.kill(cards[1], signal.SIGKILL)
        try:
            _, errors = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == 1 and "card of a host has ended" in errors, errors


def family(pid):
    """Returns a process and all its descendants."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").glob("*/children"):
                found += [int(child) for child in task.read_text().split()]
    return found


def sent_on_wire(pid):
    """Returns the bytes that the link of this process's host has sent."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines():
            name, _, counts = line.strip().partition(":")
            if name == "wire0":
                return int(counts.split()[8])
    return 0


def command_line(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("replay --n 1000 --card exact", "requires --link"),
        ("replay --n 1000 --link 1Gb/s --card exact --transport ucx", "use --transport tcp"),
        ("replay --n 1000 --link 1Gb/s --card fast", "--card"),
        ("replay --n 1000 --link 1Gb/s+50us", "--link"),
        ("replay --n 1000 --link fast", "--link"),
        ("replay --n 1000 --link 1Gb/s --transport loop", "--transport"),
        ("replay --model hdc --card exact", "requires --link"),
        ("replay --model hdc --link 1Gb/s --card exact --transport ucx", "use --transport tcp"),
    ],
)
def test_invalid_card_settings_are_refused(line, why, tmp_path):
    done = run(line, tmp_path)
    assert done.returncode == 2 and why in done.stderr, done.stderr
