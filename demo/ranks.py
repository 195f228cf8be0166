# SPDX-License-Identifier: Apache-2.0
"""The rank processes, from the orchestrator's side: it starts them once per host, sends them jobs and reads their
events."""

import json
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path

from hosts import Hosts, die_with_parent

SILENCE_SECONDS = 180.0  # if no rank writes anything for this long, the job fails
MASTER_PORT = 29500


class JobFailed(RuntimeError):
    """A job without a result on every rank; the text has the end of the ranks' output."""


class Ranks:
    def __init__(self, hosts: Hosts, data: str, logs: Path):
        self.hosts, self.data, self.logs = hosts, data, logs
        self.processes: list[subprocess.Popen] = []
        self.jobs = 0

    def start(self) -> None:
        """Loads torch and the data on every rank."""
        self.logs.mkdir(parents=True, exist_ok=True)
        for rank in range(self.hosts.ranks):
            environment = {
                **os.environ,
                "OMP_NUM_THREADS": "1",
                # Keeps Gloo and UCX on the shaped link: the ranks share a machine, so UCX would use shared memory.
                "GLOO_SOCKET_IFNAME": self.hosts.interface,
                "UCX_NET_DEVICES": self.hosts.interface,
                "UCX_TLS": "tcp",
            }
            with open(self.logs / f"rank{rank}.log", "ab") as log:
                self.processes.append(
                    subprocess.Popen(
                        [
                            *self.hosts.prefix(rank),
                            *(sys.executable, str(Path(__file__).with_name("train.py")), self.data),
                        ],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        env=environment,
                        start_new_session=True,  # Ctrl-C reaches only the orchestrator
                        preexec_fn=die_with_parent,  # noqa: PLW1509 (no threads here)
                    )
                )
        for _ in self._listen(dict.fromkeys(range(self.hosts.ranks), "ready")):
            pass

    def stop(self) -> None:
        for process in self.processes:
            process.kill()  # its parent-death signal then kills the job that it runs
            process.wait()
            process.stdin.close()
            process.stdout.close()
        self.processes = []

    def run(self, job: dict, on_event=lambda rank, event: None, world: int | None = None) -> list[dict]:
        """Sends this job to every rank, or to the first `world` ranks. Returns their "result" events in rank order, or
        raises JobFailed."""
        if not self.processes:
            self.start()
        # A port per job: the previous port may still be in TIME_WAIT.
        self.jobs += 1
        master = f"{self.hosts.address(0)}:{MASTER_PORT + self.jobs}"
        world = world or self.hosts.ranks
        common = {"world": world, "master": master, "interface": self.hosts.wire}
        for rank in range(world):
            self._tell(rank, {**common, "rank": rank, **job})
        results: list[dict] = [{}] * world
        try:
            for rank, event in self._listen(dict.fromkeys(range(world), "end")):
                if event["event"] == "result":
                    results[rank] = event
                on_event(rank, event)
                if event["event"] == "end" and (event["code"] != 0 or not results[rank]):
                    raise JobFailed(f"rank {rank} ended with status {event['code']}\n{self._log_end(rank)}")
        except BaseException:
            self.stop()
            raise
        return results

    def measure_links(self, rate_bits: float, seconds: float = 1.0) -> list[float]:
        """Returns the Mbit/s that each rank receives from its predecessor, with all ranks sending at the same time."""
        ready = set()

        def on_event(rank, event):
            if event["event"] == "ready":
                ready.add(rank)
                if len(ready) == self.hosts.ranks:
                    for other in range(self.hosts.ranks):
                        self._tell(other, {"go": True})

        self.jobs += 1
        job = {"job": "link", "bytes": int(rate_bits / 8 * seconds), "port": MASTER_PORT + self.jobs}
        addresses = [self.hosts.address(rank) for rank in range(self.hosts.ranks)]
        results = self.run({**job, "addresses": addresses}, on_event)
        return [result["mbit"] for result in results]

    def _tell(self, rank: int, message: dict) -> None:
        try:
            self.processes[rank].stdin.write(json.dumps(message).encode() + b"\n")
            self.processes[rank].stdin.flush()
        except BrokenPipeError:
            pass  # _listen will detect that the process has ended

    def _listen(self, until: dict[int, str]):
        """Yields (rank, event) until each rank has sent its last event."""
        waiting = dict(until)
        rests = dict.fromkeys(waiting, b"")
        with selectors.DefaultSelector() as selector:
            for rank in waiting:
                selector.register(self.processes[rank].stdout, selectors.EVENT_READ, rank)
            heard = time.monotonic()
            while waiting:
                for key, _ in selector.select(timeout=1.0):
                    rank = key.data
                    chunk = os.read(key.fd, 1 << 16)
                    if not chunk:
                        raise JobFailed(f"rank {rank} is gone\n{self._log_end(rank)}")
                    heard = time.monotonic()
                    *lines, rests[rank] = (rests[rank] + chunk).split(b"\n")
                    for line in lines:
                        event = json.loads(line)
                        yield rank, event
                        if event["event"] == waiting.get(rank):
                            del waiting[rank]
                if time.monotonic() - heard > SILENCE_SECONDS:
                    raise JobFailed(f"no rank said anything for {SILENCE_SECONDS:.0f} s\n{self._log_end(0)}")

    def _log_end(self, rank: int) -> str:
        text = (self.logs / f"rank{rank}.log").read_text(errors="replace").strip()
        return "\n".join(text.splitlines()[-12:])
