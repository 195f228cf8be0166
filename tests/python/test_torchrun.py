# SPDX-License-Identifier: Apache-2.0
"""torchrun's own restarts: a worker is killed, a new agent joins, an agent is killed with its worker."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

HERE = Path(__file__).parent
LIMIT = 300


class Agents:
    """torchrun --nnodes=2:4 on several "hosts", each an agent with one worker."""

    def __init__(self, folder, steps):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder, self.steps, self.agents = folder, steps, {}

    def start(self, host):
        conf = "last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=5"
        conf += f",is_host={'true' if not self.agents else 'false'}"
        argv = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2:4", "--nproc-per-node=1", "--rdzv-id=job"]
        argv += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}", f"--rdzv-conf={conf}"]
        argv += ["--max-restarts=5", "--monitor-interval=0.1", "--local-addr=127.0.0.1"]
        argv += [str(HERE / "torchrun_ranks.py"), str(self.folder), host, str(self.steps)]
        environment = dict(
            os.environ,
            PYTHONPATH=str(HERE.parents[1] / "python"),
            OMP_NUM_THREADS="1",
            TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
        )
        with open(self.folder / f"{host}.agent", "w") as out:
            self.agents[host] = subprocess.Popen(argv, env=environment, stdout=out, stderr=subprocess.STDOUT)

    def log(self, host):
        path = self.folder / f"{host}.log"
        return path.read_text() if path.exists() else ""

    def until(self, host, pattern, count=1):
        end = time.monotonic() + LIMIT
        while len(found := re.findall(pattern, self.log(host))) < count:
            assert time.monotonic() < end, self.log_tails()
            assert self.agents[host].poll() is None or re.findall(pattern, self.log(host)), self.log_tails()
            time.sleep(0.05)
        return found[-1]

    def log_tails(self):
        return {path.name: path.read_text()[-3000:] for path in self.folder.glob("*.*") if path.is_file()}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for agent in self.agents.values():  # workers have process sessions of their own, and end with their agent
            agent.terminate()
        for agent in self.agents.values():
            try:
                agent.wait(20)
            except subprocess.TimeoutExpired:
                agent.kill()


def test_killed_worker_and_joining_agent(tmp_path):
    (tmp_path / "b at 6").write_text("dies")
    (tmp_path / "a at 10").write_text("waits")
    (tmp_path / "c at 14").write_text("waits")
    with Agents(tmp_path, 18) as job:
        job.start("a")
        job.start("b")
        job.until("a", "waits")
        job.start("c")
        worker = int(job.until("c", r"waits (\d+)"))
        job.agents["c"].kill()
        os.kill(worker, signal.SIGKILL)
        ends = {host: job.until(host, r"done (\S+) owed (\w+)") for host in "ab"}
        assert all(job.agents[host].wait(LIMIT) == 0 for host in "ab"), job.log_tails()
        logs = {host: re.findall(r"world (\d) from (\d+)", job.log(host)) for host in "abc"}
    assert ends["a"] == ends["b"] and ends["a"][1] == "True", ends
    assert logs["a"] == logs["b"] == [("2", "0"), ("2", "4"), ("3", "8"), ("2", "12")], job.log_tails()
    assert logs["c"] == [("3", "8")]
