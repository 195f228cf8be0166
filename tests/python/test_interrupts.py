# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends every call that waits, and a program that ends by an error prints that error only."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tithe

PACKAGE = str(Path(tithe.__file__).parents[1])
LOOP = """
sessions = tithe.Session.loop(2, codec="topk:ratio=0.5", min_values=0, timeout=100.0)
mine, other = sessions  # the other rank does nothing
ticket = mine.sync({"w": np.ones(100, np.float32)})
"""
TORCH = """
import torch, torch.distributed as dist, tithe.torch
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=int(sys.argv[2]), world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(40, 40))
state = tithe.torch.attach(model, codec="topk:ratio=0.5", min_values=0, timeout=100.0)
for _ in range(3):  # torch itself meets until DDP has rebuilt its buckets
    model(torch.ones(2, 40)).sum().backward()
if sys.argv[2] == "1":
    print("ready", flush=True)
    time.sleep(1000)
"""
# Each of these calls waits longer than any test, so that only Ctrl-C can end it.
WAITS = {
    "wait": LOOP + 'print("ready", flush=True)\nmine.wait(ticket)',
    "commit": LOOP + 'print("ready", flush=True)\nmine.commit()',
    "state": LOOP + 'print("ready", flush=True)\nmine.state()',
    "restore": LOOP
    + 'saved = tithe.Session.loop(2, codec="topk:ratio=0.5", min_values=0)[0].state()\n'
    + 'print("ready", flush=True)\nmine.restore(saved)',
    "evaluated": LOOP + 'print("ready", flush=True)\nmine.evaluated(loss=1.0)',
    "no lanes": LOOP.replace("timeout=", "lanes=0, timeout=") + 'print("ready", flush=True)\nmine.wait(ticket)',
    "open, peers missing": 'print("ready", flush=True)\ntithe.Session.from_environment()',
    "exchange, peers missing": """
def all_gather(mine):
    print("ready", flush=True)
    time.sleep(1000)
tithe.Session.open(0, 2, all_gather, transport="ucx")
""",
    "backward, a peer does nothing": TORCH + 'print("ready", flush=True)\nmodel(torch.ones(2, 40)).sum().backward()',
}


def script(text, *arguments, **variables):
    head = "import sys, time\nimport numpy as np\nimport tithe\n"
    return subprocess.Popen(
        [sys.executable, "-c", head + text, *arguments],
        env={**os.environ, "PYTHONPATH": PACKAGE, "GLOO_SOCKET_IFNAME": "lo", "UCX_TLS": "tcp",
             "UCX_NET_DEVICES": "lo", **variables},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.parametrize("what", WAITS)
def test_ctrl_c_ends_a_waiting_call(what, tmp_path):
    meeting = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    peer = None
    if "peer does" in what:
        peer = script(TORCH, str(tmp_path), "1")
    process = script(WAITS[what], str(tmp_path), "0", **meeting)
    try:
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        if peer:
            assert peer.stdout.readline() == "ready\n"
        time.sleep(1)
        assert process.poll() is None
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
        seconds = time.monotonic() - begin
        assert process.returncode in (-signal.SIGINT, 130), errors
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert "nanobind" not in errors
        # A second, and the time in which a busy machine ends a process. Without a signal it would be 60 seconds at
        # least.
        assert seconds < 30
    finally:
        for one in (process, peer):
            if one is not None:
                one.kill()
                one.wait()


def test_ctrl_c_ends_the_session_and_informs_peers():
    code = (
        LOOP
        + """
import os, signal, threading
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    mine.wait(ticket)
except KeyboardInterrupt:
    print("interrupted")
for call in (mine.commit, lambda: other.wait(other.sync({"w": np.ones(100, np.float32)}))):
    try:
        call()
    except tithe.Error as error:
        print(error.code, error.peer)
"""
    )
    out, errors = script(code).communicate(timeout=300)
    assert out.split("\n")[:3] == ["interrupted", "cancelled None", "peer_lost 0"], errors


# The rendezvous thread must not continue in the background until its own timeout, and keep the port.
def test_ctrl_c_cancels_the_rendezvous():
    port = free_port()
    code = f"""
import os, signal, socket, threading
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    tithe.Session.from_environment(timeout=600.0)
except KeyboardInterrupt:
    print("interrupted")
for _ in range(200):
    time.sleep(0.1)
    try:
        socket.create_connection(("127.0.0.1", {port}), timeout=1).close()
    except ConnectionRefusedError:
        print("gone")
        break
"""
    meeting = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    out, errors = script(code, **meeting).communicate(timeout=300)
    assert out.split() == ["interrupted", "gone"], errors


# ---- Programs that end by an error

ENDS = {
    "an error of the user's": LOOP + 'raise KeyError("mine")',
    "another thread waits": LOOP
    + """
import threading
threading.Thread(target=mine.wait, args=(ticket,), daemon=True).start()
time.sleep(0.3)
raise KeyError("mine")
""",
    "a lost peer": LOOP + "other.close()\nmine.wait(ticket)",
    "kept for ever": LOOP
    + """
class Holder: pass
holder = Holder()
holder.session, holder.me, sys.holder = mine, holder, holder
layout = tithe._core.Layout(["a"], [5], "float32")
sys.layout = layout
raise KeyError("mine")
""",
    "in a callback": """
def all_gather(mine):
    raise KeyError("mine")
tithe.Session.open(0, 2, all_gather, transport="ucx")
""",
    "sys.exit": LOOP + "sys.holder = mine\nsys.exit(1)",
}


@pytest.mark.parametrize("what", ENDS)
def test_error_is_the_last_output_of_a_program(what):
    process = script(ENDS[what])
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1, errors
    assert "nanobind" not in errors
    last = {"sys.exit": "", "a lost peer": "tithe.Error: round 0: rank 1"}.get(what, "KeyError: 'mine'")
    assert (errors.rstrip().split("\n")[-1]).startswith(last)
    assert what != "sys.exit" or errors == ""


def test_exceptions_of_the_exchange_propagate_unchanged():
    class Mine(Exception):
        pass

    def all_gather(mine):
        raise Mine("no addresses today")

    with pytest.raises(Mine, match="no addresses today"):
        tithe.Session.open(0, 2, all_gather, transport="ucx")
    for wrong, error in ((lambda mine: [1, 2], TypeError), (lambda mine: 3, TypeError), (lambda: [], TypeError)):
        with pytest.raises(error):
            tithe.Session.open(0, 2, wrong, transport="ucx")
    for few in ([], [b""], [b"x", b"y"], [b"x"] * 3):
        with pytest.raises((tithe.Error, ValueError)):
            tithe.Session.open(0, 2, lambda mine, few=few: few, transport="ucx")
