# SPDX-License-Identifier: Apache-2.0
"""Shared by the scripts of lab/bench/: the tree and its command, a description of this machine, ranks on emulated
hosts."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TITHE = Path(os.environ.get("TITHE_BIN", ROOT / "build/tithe"))
sys.path[:0] = [str(ROOT / folder) for folder in ("python", "lab/hosts", ".")]

from hosts import Hosts, die_with_parent, enter  # noqa: E402

# ---- The command


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(TITHE), *map(str, words)], capture_output=True, text=True, check=False)


def answer(*words: object) -> dict[str, Any]:
    """Returns the command's output under --json; ends the script if the command fails."""
    done = run(*words, "--json")
    if done.returncode != 0:
        sys.exit(f"tithe {shlex.join(map(str, words))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


# ---- The machine


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def machine() -> str:
    return f"{processor()}, {os.cpu_count()} cores, Linux {platform.release()}"


# ---- Ranks on emulated hosts (lab/hosts/hosts.py)


def counters() -> tuple[int, int]:
    """Returns retransmitted segments and timeouts of this network namespace since its creation."""
    found = {}
    for name in ("snmp", "netstat"):
        lines = Path(f"/proc/self/net/{name}").read_text().splitlines()
        for heads, values in zip(lines[::2], lines[1::2], strict=True):
            found |= dict(zip(heads.split()[1:], values.split()[1:], strict=True))
    return int(found["RetransSegs"]), int(found["TCPTimeouts"])


def all_gather_in(folder: Path, rank: int, world: int) -> Callable[[bytes], list[bytes]]:
    """Returns an all_gather over files: each rank writes its blob, and waits for the others'."""

    def gather(mine: bytes) -> list[bytes]:
        folder.mkdir(exist_ok=True)
        part = folder / f".{rank}"
        part.write_bytes(mine)
        part.rename(folder / f"{rank}")
        paths = [folder / f"{r}" for r in range(world)]
        while not all(p.exists() for p in paths):
            time.sleep(0.01)
        return [p.read_bytes() for p in paths]

    return gather


def start_ranks(hosts: Hosts, more: Iterable[str], **pipes: Any) -> list[subprocess.Popen[str]]:
    """Starts this script once on each host, with its own arguments, `more` and --rank. Called inside `enter`."""
    env = {**os.environ, "UCX_NET_DEVICES": hosts.interface, "UCX_LOG_LEVEL": "fatal"}
    line = [sys.executable, sys.argv[0], *sys.argv[1:], *more]
    return [
        subprocess.Popen(
            [*hosts.prefix(r), *line, "--rank", str(r)], env=env, text=True, preexec_fn=die_with_parent, **pipes
        )
        for r in range(hosts.ranks)
    ]


def rerun_in_namespaces(*more: str) -> Any:
    """Runs this script with the additional arguments `more`, in private namespaces. Returns its JSON output; ends on
    failure."""
    with tempfile.NamedTemporaryFile("r") as out:
        line = ["sh", "-c", f'"$@" > {out.name}', "sh", sys.executable, sys.argv[0], *sys.argv[1:], *more]
        if (status := enter(line)) != 0:
            sys.exit(status)
        return json.loads(out.read())


def give(text: str, path: Path | None) -> None:
    """Prints a page, and writes it to the path if there is one."""
    if path:
        path.write_text(text)
    print(text, end="")
