# SPDX-License-Identifier: Apache-2.0
"""Emulated hosts: one network namespace per rank, joined by a bridge, each behind a shaped link.

    rank i: eth0 (10.77.0.i+1) ---- veth ---- port<i> --+-- bridge "switch"
            tbf on eth0: traffic from the rank          |
            tbf on port<i>: traffic to the rank --------+    its queue is the switch's

With `card`, the command `tithe`, eth0 is a TAP, the link is wire0, and `tithe card` forwards between them
(card/docs/card.md); `use_cards` changes its options.

All namespaces are private mount, network and pid namespaces (`enter` creates them), so the kernel removes everything
when the process that holds them ends, in whatever way.
"""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

SUBNET = "10.77.0"
PR_SET_PDEATHSIG = 1
# The size in bytes of the queue in front of a busy link: a deep one, of 160 ms at 100 Mbit/s. A shallow switch has 64
# KB per port.
QUEUE_BYTES = 2_000_000
LEAST_QUEUE_BYTES = 3_000  # two packets
# Fixed, so that machines with different defaults give comparable figures: the first of these that a namespace may use.
# Linux refuses algorithms that tcp_allowed_congestion_control omits; if the default is bbr, cubic is refused.
CONGESTION_CONTROLS = ("cubic", "reno")
CARD_SECONDS = 20.0  # time limit for a card to create its host's interface


def parse_rate(text: str) -> float:
    """Returns the bits per second of '100mbit' or '1Gb/s', as everywhere in tithe; ValueError otherwise."""
    from tithe import _core  # imported here, because the rest of this file needs no compiled module

    try:
        rate = 0.0 if "+" in text else _core.parse_link(text)[0]
    except ValueError:
        rate = 0.0
    if rate == 0:
        raise ValueError(f"LINK={text!r}: write a rate, such as 100mbit, 1gbit or 1Gb/s")
    return 8 * rate


def parse_bytes(text: str) -> int:
    """Returns the bytes of '65536', '64k' or '2m' (decimal: 1000 per step); ValueError otherwise."""
    match = re.fullmatch(r"\s*([0-9]+)\s*([km]?)b?\s*", text.lower())
    size = int(match[1]) * {"": 1, "k": 1000, "m": 1_000_000}[match[2]] if match else 0
    if size < LEAST_QUEUE_BYTES:
        raise ValueError(f"QUEUE={text!r}: write bytes as 64k, 2m or 65536, at least {LEAST_QUEUE_BYTES}")
    return size


def burst_bytes(rate_bits: float) -> int:
    """Returns the bytes that may leave at once after a pause: half a millisecond of the link, so that the pauses of a
    training step allow no free transfer, and at least four packets, so that the timer can keep the rate."""
    return max(6_250, int(rate_bits / 8 * 0.0005))


def train_bytes(rate_bits: float) -> int:
    """Returns the longest segment train that TCP may hand down. tbf splits a train that is longer than its burst,
    headers included. Each packet then passes bridge and queues separately, which takes most of the processor."""
    return min(65_536, int(0.9 * burst_bytes(rate_bits)))


def die_with_parent() -> None:
    """Makes the kernel kill this process when its parent ends. Runs in a child before exec."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def command(*args: str) -> str:
    done = subprocess.run(args, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(args)}: {done.stderr.strip() or f'exit {done.returncode}'}")
    return done.stdout


@dataclass
class Hosts:
    """The hosts of the ranks. `prefix(rank)` is the command prefix that starts a program on the rank's host."""

    ranks: int
    link: str | None  # the rate; None: no namespaces, all ranks on the loopback interface
    queue: int = QUEUE_BYTES  # bytes in the switch, in front of each rank's link
    card: str | None = None  # the `tithe` command whose `card` runs between each rank and its link
    congestion_control: str = ""  # of TCP, set by build()
    notes: list[str] = field(default_factory=list)
    cards: list[subprocess.Popen] = field(default_factory=list)
    card_options: str = ""  # options of the running cards

    @property
    def interface(self) -> str:
        return "eth0" if self.link else "lo"

    @property
    def wire(self) -> str:
        """Returns the interface that counts the bytes that a rank sends."""
        return "wire0" if self.link and self.card else self.interface

    def address(self, rank: int) -> str:
        return f"{SUBNET}.{rank + 1}" if self.link else "127.0.0.1"

    def prefix(self, rank: int) -> list[str]:
        return ["ip", "netns", "exec", f"rank{rank}"] if self.link else []

    def build(self) -> None:
        """Creates the namespaces and links. Call it only inside `enter`."""
        if not self.link:
            return
        rate = parse_rate(self.link)
        command("mount", "-t", "tmpfs", "tmpfs", "/run")  # `ip netns` keeps its names there
        command("ip", "link", "set", "lo", "up")
        command("ip", "link", "add", "switch", "type", "bridge")
        command("ip", "link", "set", "switch", "up")
        for rank in range(self.ranks):
            name, port = f"rank{rank}", f"port{rank}"
            command("ip", "netns", "add", name)
            command("ip", "link", "add", port, "type", "veth", "peer", "name", self.wire, "netns", name)
            command("ip", "link", "set", port, "master", "switch", "up")
            if self.card:
                self._start_card(rank)
            command("ip", "-n", name, "link", "set", "lo", "up")
            self._enter_network(rank)
            self.shape(rank, rate)
            self._choose_congestion_control(rank)
        if self.congestion_control != (first := CONGESTION_CONTROLS[0]):
            why = f"the system keeps {first} from these hosts (sysctl net.ipv4.tcp_allowed_congestion_control)"
            self.notes.append(f"TCP's congestion control is {self.congestion_control}: {why}")

    def _choose_congestion_control(self, rank: int) -> None:
        file = "/proc/sys/net/ipv4/tcp_congestion_control"
        tries = " || ".join(f"echo {control} > {file}" for control in CONGESTION_CONTROLS)
        script = f"{{ {tries}; }} 2>/dev/null; cat {file}"
        self.congestion_control = command(*self.prefix(rank), "sh", "-c", script).strip()

    def shape(self, rank: int, rate_bits: float) -> None:
        """Sets the rate of the rank's link, in both directions."""
        name, bucket = f"rank{rank}", ["rate", f"{rate_bits:.0f}bit", "burst", str(burst_bytes(rate_bits)), "limit"]
        command("ip", "-n", name, "link", "set", "dev", self.wire, "gso_max_size", str(train_bytes(rate_bits)))
        replace = ["qdisc", "replace", "dev"]
        command("tc", "-n", name, *replace, self.wire, "root", "tbf", *bucket, str(QUEUE_BYTES))
        command("tc", *replace, f"port{rank}", "root", "tbf", *bucket, str(self.queue))

    def _enter_network(self, rank: int) -> None:
        command("ip", "-n", f"rank{rank}", "address", "add", f"{self.address(rank)}/24", "dev", "eth0")
        command("ip", "-n", f"rank{rank}", "link", "set", "eth0", "up")

    def use_cards(self, options: str) -> None:
        """Restarts all cards with these options. Call it between jobs: a card that ends removes eth0."""
        if not self.cards or options == self.card_options:
            return
        for card in self.cards:
            card.kill()
            card.wait()
        self.cards, self.card_options = [], options
        for rank in range(self.ranks):
            self._start_card(rank)
            self._enter_network(rank)

    def _start_card(self, rank: int) -> None:
        options = self.card_options.split()
        card = subprocess.Popen(
            [*self.prefix(rank), self.card, "card", "--host", self.interface, "--wire", self.wire, *options],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 (no threads here)
        )
        end = time.monotonic() + CARD_SECONDS
        while f" {self.interface}:" not in command("ip", "-n", f"rank{rank}", "-o", "link"):
            if card.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"rank {rank} has no card: tithe card ended with {card.poll()}")
            time.sleep(0.01)
        self.cards.append(card)

    def card_seconds(self) -> float:
        """Returns the processor time of all cards so far. A hardware network card would take none of a host's."""
        ticks = 0
        for card in self.cards:
            with open(f"/proc/{card.pid}/stat") as file:
                user, system = file.read().rsplit(")", 1)[1].split()[11:13]
            ticks += int(user) + int(system)
        return ticks / os.sysconf("SC_CLK_TCK")


def unshare_command() -> list[str]:
    """Returns the command prefix for private namespaces. RuntimeError with the reason if this machine does not allow
    them."""
    base = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    ways = [base] if os.geteuid() == 0 else []
    ways.append([base[0], "--user", "--map-root-user", *base[1:]])
    reasons = []
    for way in ways:
        try:
            command(*way, sys.executable, os.path.abspath(__file__))
            return way
        except (RuntimeError, FileNotFoundError) as error:
            reasons.append(str(error).strip().splitlines()[-1])
    raise RuntimeError("; ".join(dict.fromkeys(reasons)))


def enter(argv: list[str]) -> int:
    """Runs argv in private namespaces as their first process and returns its exit status.

    When this process ends, also by SIGKILL, the kernel ends all processes inside.
    """
    child = subprocess.Popen([*unshare_command(), *argv], preexec_fn=die_with_parent)  # noqa: PLW1509 (no threads here)

    def stop(*_):
        child.kill()  # unshare ignores softer signals while its child runs; --kill-child ends the child

    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, stop)
    try:
        return child.wait()
    except KeyboardInterrupt:  # the terminal also sent SIGINT to the child, which closes its progress line
        try:
            child.wait(timeout=3)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            stop()
            child.wait()
        return 130


if __name__ == "__main__":  # the probe of unshare_command()
    trial = Hosts(ranks=1, link="100mbit")
    trial.build()
    command(*trial.prefix(0), "cat", "/sys/class/net/eth0/statistics/tx_bytes")
