# SPDX-License-Identifier: Apache-2.0
"""tithe hosts: a command per rank on emulated hosts: its environment, the effect of the link, and the exit."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TITHE = os.environ.get("TITHE_BIN", str(ROOT / "build/tithe"))
SEND = """
import os, socket, time
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server((os.environ["MASTER_ADDR"], port)) as s:
        peer = s.accept()[0]
        while peer.recv(1 << 16):
            pass
        open("end", "w").write(str(time.monotonic()))
else:
    for _ in range(200):
        try:
            s = socket.create_connection((os.environ["MASTER_ADDR"], port))
            break
        except OSError:
            time.sleep(0.05)
    open("begin", "w").write(str(time.monotonic()))
    s.sendall(bytes(2_500_000))
"""


def hosts(line, *command, folder=None):
    words = [TITHE, "hosts", *shlex.split(line), "--", *command]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module", autouse=True)
def emulated():
    done = hosts("--hosts 1x1 --link 1Gb/s", "true")
    if done.returncode and "are not available here" in done.stderr:
        pytest.skip(done.stderr.strip())


def test_ranks_get_torchruns_variables(tmp_path):
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "GLOO_SOCKET_IFNAME")
    text = "".join(f"${name} " for name in names)
    done = hosts("--hosts 2+1 --link 1Gb/s", "sh", "-c", f'echo {text} $(hostname) > "$RANK"', folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / str(rank)).read_text().split() for rank in range(3)] == [
        ["0", "3", "0", "2", "0", "10.77.0.1", "eth0", "host0"],
        ["1", "3", "1", "2", "0", "10.77.0.1", "eth0", "host0"],
        ["2", "3", "0", "1", "1", "10.77.0.1", "eth0", "host1"],
    ]
    assert "3 ranks on 2 hosts behind 1Gb/s" in done.stdout


def test_the_link_has_its_rate(tmp_path):
    done = hosts("--hosts 2x1 --link 20Mb/s --json", sys.executable, "-c", SEND, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["hosts"] == report["ranks"] == 2
    assert report["wire_bytes_per_host"] > 2_500_000
    # A second, minus the burst, from before the first byte is sent until the last one is read: no machine is faster.
    begin, end = (float((tmp_path / name).read_text()) for name in ("begin", "end"))
    assert end - begin > 0.9


def test_failing_rank_ends_the_job():
    begin = time.monotonic()
    done = hosts("--hosts 3x1 --link 1Gb/s", "sh", "-c", 'test "$RANK" != 1 || exit 3; sleep 100')
    assert done.returncode == 1
    assert "rank 1: the command ended with status 3" in done.stderr
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize(
    ("line", "command", "says"),
    [
        ("--hosts 2x1 --link 1Gb/s", ["no-such-command"], "no-such-command: command not found"),
        ("--hosts 2x --link 1Gb/s", ["true"], "--hosts"),
        ("--hosts 2x1 --link none", ["true"], "--link: give a rate"),
        ("--hosts 2x1", ["true"], "--link is required"),
        ("--hosts 2x1 --link 1Gb/s", [], "command is required"),
    ],
)
def test_errors_are_reported(line, command, says):
    done = hosts(line, *command)
    assert done.returncode != 0
    assert says in done.stderr


def test_interrupt_leaves_no_processes_and_networks(tmp_path):
    sleep = 'echo $$ > "p$RANK"; exec sleep 100'
    words = [TITHE, "hosts", "--hosts", "2x1", "--link", "1Gb/s", "--", "sh", "-c", sleep]
    job = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE)
    end = time.monotonic() + 60
    while len(list(tmp_path.glob("p*"))) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=60)
    assert job.returncode != 0
    for rank in range(2):
        while Path(f"/proc/{int((tmp_path / f'p{rank}').read_text())}").exists():
            assert time.monotonic() < end
            time.sleep(0.05)
