# SPDX-License-Identifier: Apache-2.0
"""Two hosts with a card each, in network namespaces of their own, and traffic between them. test_card.py starts this
inside a private network. The output is one line of JSON.

    host h<i>: eth0 (10.9.0.i+1), a TAP ---- tithe card ---- wire0 ---- veth ---- wire1 of the other
"""

import contextlib
import json
import multiprocessing
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from card_frames import floats, kept

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lab/hosts"))
from hosts import command, die_with_parent

SECONDS = 30


def wait_until(is_so):
    end = time.monotonic() + SECONDS
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)


class Hosts:
    def __init__(self, tithe, folder, options=(), cards=(0, 1)):
        """Creates the namespaces and links, and starts the cards. cards: the hosts that have a card."""
        command("mount", "-t", "tmpfs", "tmpfs", "/run")
        for i in (0, 1):
            command("ip", "netns", "add", f"h{i}")
        command("ip", "-n", "h0", "link", "add", "wire0", "type", "veth", "peer", "name", "wire0", "netns", "h1")
        self.cards = {}
        for i in (0, 1):
            if i in cards:
                with open(folder / f"card{i}.json", "w") as out:
                    self.cards[i] = subprocess.Popen(
                        [
                            "ip",
                            "netns",
                            "exec",
                            f"h{i}",
                            tithe,
                            "card",
                            "--host",
                            "eth0",
                            "--wire",
                            "wire0",
                            "--json",
                            *options,
                        ],
                        stdout=out,
                        preexec_fn=die_with_parent,
                    )
            else:
                command("ip", "-n", f"h{i}", "link", "set", "wire0", "name", "eth0")
        self.folder = folder
        for i in (0, 1):
            wait_until(lambda i=i: self.there(i))
            command("ip", "-n", f"h{i}", "address", "add", f"10.9.0.{i + 1}/24", "dev", "eth0")
            command("ip", "-n", f"h{i}", "link", "set", "lo", "up")
            command("ip", "-n", f"h{i}", "link", "set", "eth0", "up")

    def there(self, i):
        return "eth0" in command("ip", "-n", f"h{i}", "-o", "link")

    def wire_bytes(self, i):
        shown = json.loads(command("ip", "-n", f"h{i}", "-s", "-j", "link", "show", "wire0"))
        return shown[0]["stats64"]["tx"]["bytes"]

    def close(self):
        reports = {}
        for i, process in self.cards.items():
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) in (0, -signal.SIGKILL)
            with contextlib.suppress(json.JSONDecodeError):
                reports[i] = json.loads((self.folder / f"card{i}.json").read_text())
        return reports


@contextlib.contextmanager
def inside(host):
    """Moves this thread into the host's network namespace for the body."""
    ours = os.open("/proc/self/ns/net", os.O_RDONLY)
    theirs = os.open(f"/run/netns/h{host}", os.O_RDONLY)
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.setns(theirs, 0) == 0
    try:
        yield
    finally:
        assert libc.setns(ours, 0) == 0
        os.close(ours)
        os.close(theirs)


def listen(kind=socket.SOCK_STREAM):
    with inside(1):
        server = socket.socket(socket.AF_INET, kind)
    server.bind(("10.9.0.2", 0))
    if kind == socket.SOCK_STREAM:
        server.listen()
    return server


def send(address, data, tos, pieces=None):
    """Sends data from host 0, in a separate process."""

    def work():
        die_with_parent()
        with inside(0):
            s = socket.socket()
        s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        s.connect(address)
        for at in range(0, len(data), pieces or len(data)):
            s.sendall(data[at : at + (pieces or len(data))])
        s.close()

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


def receive(server, quiet=SECONDS, enough=1 << 62, after=None):
    """Returns all received data, until the sender closes or is silent for `quiet` seconds."""
    server.settimeout(SECONDS)
    connection, _ = server.accept()
    connection.settimeout(quiet)
    got = bytearray()
    with contextlib.suppress(TimeoutError, ConnectionError):
        while len(got) < enough and (chunk := connection.recv(1 << 16)):
            got += chunk
            if after and len(got) >= after[0]:
                after[1]()
                after = None
    return bytes(got)


def gradients(n, seed):
    draw = random.Random(seed)
    few = [draw.gauss(0, 0.01) for _ in range(5000)]
    return [few[draw.randrange(5000)] for _ in range(n)]


def through(server, data, tos, pieces=None):
    sender = send(server.getsockname(), data, tos, pieces)
    got = receive(server)
    sender.join()
    return got


def traffic(tithe, folder):
    """Sends gradients, other traffic and datagrams. Returns whether each arrived whole, and the bytes on the wire."""
    hosts = Hosts(tithe, folder)
    server = listen()
    data = floats([kept(v) for v in gradients(1 << 20, 1)])
    foreign = random.Random(2).randbytes(1 << 20)
    before = hosts.wire_bytes(0)
    data_whole = through(server, data, 0x28) == data
    middle = hosts.wire_bytes(0)
    foreign_whole = through(server, foreign, 0) == foreign
    end = hosts.wire_bytes(0)
    # On the port of the gradients, in writes without any alignment.
    mixed = data[: 1 << 18] + foreign[:100001] + data[: 1 << 18]
    mixed_whole = through(server, mixed, 0x28, pieces=997) == mixed
    datagrams = listen(socket.SOCK_DGRAM)
    datagrams.settimeout(SECONDS)
    datagrams_whole = True
    with inside(0):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x28)
    for n in (1, 64, 100, 1400, 1472):
        s.sendto(data[:n], datagrams.getsockname())
        datagrams_whole = datagrams_whole and datagrams.recv(2000) == data[:n]
    return {
        "data_whole": data_whole,
        "foreign_whole": foreign_whole,
        "mixed_whole": mixed_whole,
        "datagrams_whole": datagrams_whole,
        "data_bytes": len(data),
        "data_wire_bytes": middle - before,
        "foreign_bytes": len(foreign),
        "foreign_wire_bytes": end - middle,
        "cards": hosts.close(),
    }


def lossy(tithe, folder):
    hosts = Hosts(tithe, folder, ["--lossy"])
    values = struct.unpack(f"<{1 << 18}f", floats(gradients(1 << 18, 3)))
    got = through(listen(), floats(values), 0x28)
    hosts.close()
    back = struct.unpack(f"<{len(got) // 4}f", got)
    codec = {v: struct.unpack("<f", struct.pack("<f", kept(v)))[0] for v in set(values)}
    pairs = list(zip(values, back, strict=True))
    return {
        "arrived": len(got) == 4 * len(values),
        "as_the_codec_keeps": sum(b == codec[v] for v, b in pairs) / len(pairs),
        "as_sent_or_kept": sum(b in (v, codec[v]) for v, b in pairs) / len(pairs),
    }


def one_card(tithe, folder):
    hosts = Hosts(tithe, folder, cards=(0,))
    server = listen()
    data = floats([kept(v) for v in gradients(1 << 18, 4)])
    sender = send(server.getsockname(), data, 0x28)
    got = receive(server, quiet=3)
    sender.kill()
    hosts.close()
    return {
        "sent_bytes": len(data),
        "received_bytes": len(got),
        "prefix_right": data.startswith(got),
    }


def killed(tithe, folder):
    hosts = Hosts(tithe, folder)
    server = listen()
    data = 64 * floats([kept(v) for v in gradients(1 << 18, 5)])
    sender = send(server.getsockname(), data, 0x28)
    got = receive(server, quiet=3, after=(1 << 20, hosts.cards[1].kill))
    sender.kill()
    hosts.close()
    return {"sent_bytes": len(data), "received_bytes": len(got), "prefix_right": data.startswith(got)}


def flap(tithe, folder):
    hosts = Hosts(tithe, folder)
    server = listen()
    data = 64 * floats([kept(v) for v in gradients(1 << 18, 6)])

    def down_and_up():
        command("ip", "-n", "h0", "link", "set", "wire0", "down")
        time.sleep(0.5)
        command("ip", "-n", "h0", "link", "set", "wire0", "up")

    sender = send(server.getsockname(), data, 0x28)
    got = receive(server, after=(1 << 20, down_and_up))
    sender.join()
    return {"data_whole": got == data, "cards": hosts.close()}


def gone(tithe, folder):
    """Removes the link of host 0 permanently."""
    hosts = Hosts(tithe, folder)
    card = hosts.cards.pop(0)
    command("ip", "-n", "h0", "link", "delete", "wire0")
    code = card.wait(SECONDS)
    return {"code": code, "eth0": hosts.there(0), "said": (folder / "card0.json").read_text()}


if __name__ == "__main__":
    scenes = {"traffic": traffic, "lossy": lossy, "one card": one_card, "killed": killed, "flap": flap, "gone": gone}
    print(json.dumps(scenes[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))), flush=True)
