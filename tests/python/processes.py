# SPDX-License-Identifier: Apache-2.0
"""Runs a function on several real processes joined by a Gloo process group on 127.0.0.1."""

import contextlib
import io
import multiprocessing
import multiprocessing.connection
import os
import runpy
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch._dynamo", "tithe.torch"])  # once, not once per rank: DDP needs the first


def _on_loopback():
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ.setdefault("UCX_TLS", "tcp")
    os.environ.setdefault("UCX_NET_DEVICES", "lo")


def _rank(job, rank, world, meeting, pipe, args):
    _on_loopback()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=world, timeout=timedelta(seconds=60)
        )
        pipe.send((True, job(rank, world, *args)))
        dist.destroy_process_group()
    except BaseException:
        pipe.send((False, traceback.format_exc()))


class Ranks:
    """The processes of one job. Read `results` and `fates` once each."""

    def __init__(self, world, job, *args):
        self._folder = tempfile.TemporaryDirectory()
        meeting = Path(self._folder.name) / "store"
        self.pipes, self.processes = [], []
        for rank in range(world):
            here, there = _context.Pipe()
            process = _context.Process(target=_rank, args=(job, rank, world, meeting, there, args))
            process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)

    def result(self, rank, timeout):
        """Returns the result of the job on that rank. If the job failed, raises its traceback as an AssertionError."""
        pipe, process = self.pipes[rank], self.processes[rank]
        if not multiprocessing.connection.wait([pipe, process.sentinel], timeout):
            raise AssertionError(f"rank {rank} gave no result within {timeout:.0f} s")
        if not pipe.poll():
            raise AssertionError(f"rank {rank} ended without a result, exit code {process.exitcode}")
        try:
            fine, value = pipe.recv()
        except EOFError:
            raise AssertionError(f"rank {rank} ended without a result") from None
        if not fine:
            raise AssertionError(f"rank {rank} failed:\n{value}")
        return value

    def end(self, rank, timeout):
        """Returns the exit code of a rank that must end by itself."""
        process = self.processes[rank]
        process.join(timeout)
        if process.exitcode is None:
            raise AssertionError(f"rank {rank} did not exit within {timeout:.0f} s")
        return process.exitcode

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()
        self._folder.cleanup()


def own_part(saved):
    """Returns the part of a state_dict() under its rank's key."""
    ((part,),) = saved.values()
    return part


def wait_until(true, seconds=60):
    """Returns when true() returns true; for effects of another process or thread."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not so within {seconds} s"
        time.sleep(0.02)


def run_ranks(world, job, *args, timeout=240):
    """Runs job(rank, world, *args) on every rank. Returns the results in rank order. Every process must end by itself,
    with status 0."""
    with Ranks(world, job, *args) as ranks:
        deadline = time.monotonic() + timeout  # the first start waits for the imports
        results = [ranks.result(r, deadline - time.monotonic()) for r in range(world)]
        for rank in range(world):
            code = ranks.end(rank, max(5.0, deadline - time.monotonic()))
            assert code == 0, f"rank {rank} exited with {code}"
    return results


def _program(path, rank, world, port, pipe):
    _on_loopback()
    environment = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": True}
    os.environ.update({name: str(value) for name, value in environment.items()})
    import torch

    torch.set_num_threads(1)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        runpy.run_path(str(path), run_name="__main__")
    pipe.send(output.getvalue())


def run_program(path, world, timeout=240):
    """Returns the output of the ranks of a program, started as by torchrun, except that torch is preloaded in each."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipes, processes = [], []
    for rank in range(world):
        here, there = _context.Pipe()
        processes.append(_context.Process(target=_program, args=(path, rank, world, store.port, there)))
        processes[-1].start()
        there.close()
        pipes.append(here)
    try:
        deadline = time.monotonic() + timeout
        for rank, process in enumerate(processes):
            process.join(max(0.0, deadline - time.monotonic()))
            assert process.exitcode == 0, f"rank {rank} of {path}: {process.exitcode}"
        return "".join(pipe.recv() for pipe in pipes)
    finally:
        for process in processes:
            process.kill()
            process.join()
