# SPDX-License-Identifier: Apache-2.0
"""Runs a program on several ranks in a virtual environment of its own, in .setup/NAME-venv (tools/setup.sh NAME)."""

import os
import subprocess
from pathlib import Path

import tithe

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(Path(tithe.__file__).parents[1]),
    "GLOO_SOCKET_IFNAME": "lo",
    "UCX_TLS": "tcp",
    "UCX_NET_DEVICES": "lo",
    "OMP_NUM_THREADS": "1",
}


def python_of(name):
    return ROOT / ".setup" / f"{name}-venv" / "bin" / "python"


def run_beside(name, program, folder, world=2, **more):
    """Returns the last line of output of each rank of a program of the tree. Ranks connect through a file of the
    folder."""
    ranks = [
        subprocess.Popen(
            [python_of(name), ROOT / program],
            env={
                **ENVIRONMENT,
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
                "TITHE_FILE": str(folder / "meet"),
                **more,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    outs = [process.communicate(timeout=300) for process in ranks]
    assert all(process.returncode == 0 for process in ranks), outs
    return [(out.splitlines() or [""])[-1] for out, _ in outs]
