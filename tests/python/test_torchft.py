# SPDX-License-Identifier: Apache-2.0
"""tithe.torchft with a lighthouse on the loopback. It is in an environment of its own: tools/setup.sh torchft."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import wait_until

import tithe

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".setup" / "torchft-venv"
TORCHFT = [path.parent for path in VENV.glob("lib/python*/site-packages/torchft")]
RANKS = ROOT / "tests" / "python" / "torchft_ranks.py"
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(map(str, [Path(tithe.__file__).parents[1], *TORCHFT])),
    "PYTHONWARNINGS": "ignore",
    "RUST_LOG": "error",
    "GLOO_SOCKET_IFNAME": "lo",
    "UCX_TLS": "tcp",
    "UCX_NET_DEVICES": "lo",
    "OMP_NUM_THREADS": "1",
}

pytestmark = pytest.mark.skipif(not TORCHFT, reason=f"no torchft in {VENV}: run tools/setup.sh torchft")


@pytest.fixture
def start(tmp_path):
    """Starts processes of torchft_ranks.py, whose output goes to files; ends those that are left."""
    started = []

    def begin(name, *args, **environment):
        out = tmp_path / f"{name}.out"
        with out.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, RANKS, *map(str, args)],
                env={**ENVIRONMENT, **environment},
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        process.said = out.read_text
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def lighthouses(start, number):
    process = start("lighthouse", "lighthouse", number)
    wait_until(lambda: "http" in process.said(), 300)
    return process.said().split()


def last(process):
    return [int(step) for step in re.findall(r"^step (\d+) of", process.said(), re.M)][-1:] or [-1]


def reaches(process, true, seconds=180):
    wait_until(lambda: true() or process.poll() is not None, seconds)
    assert process.poll() is None, process.said()[-3000:]


def test_one_of_three_is_killed_and_comes_again(start, tmp_path):
    folder = tmp_path / "steps"
    folder.mkdir()
    (address,) = lighthouses(start, 1)
    given = {"TORCHFT_LIGHTHOUSE": address}
    replicas = [start(me, "steps", folder, me, **given) for me in range(3)]
    # By then a step was one replica's alone, one counted for nobody, and replica 2 has missed a quorum.
    reaches(replicas[0], lambda: last(replicas[0]) > [30])
    replicas[1].kill()
    replicas[1].wait()
    gone = last(replicas[1])[0]
    reaches(replicas[0], lambda: last(replicas[0]) > [gone + 10])
    replicas[1] = start("again", "steps", folder, 1, **given)
    reaches(replicas[1], lambda: len(re.findall(r"^step \d+ of 3", replicas[1].said(), re.M)) > 10)
    (folder / "stop").write_text(str(last(replicas[0])[0] + 25))
    for process in replicas:
        assert process.wait(timeout=180) == 0, process.said()[-3000:]
    ends = [json.loads(process.said().splitlines()[-1]) for process in replicas]
    assert len({end["weights"] for end in ends}) == 1, ends
    # A replica that missed a quorum counts anew.
    assert any(end["rounds_undone"] for end in ends) and any(end["ranks_lost"] for end in ends), ends

    # The ledger of every step that counted: gradients + residuals before = sum + residuals after.
    dumps = {}
    for path in folder.glob("*.npz"):
        me, process, step = path.stem.split(".")
        with np.load(path) as arrays:
            dumps[me, process, int(step)] = {name: arrays[name] for name in arrays.files}
    counted = sorted({step for _, _, step in dumps})
    assert counted == list(range(counted[-1] + 1))
    owed, healed = {}, 0
    for step in counted:
        there = [key for key in dumps if key[2] == step]
        before = sum(owed.get(key[:2], np.float32(0)) for key in there)
        given = sum(dumps[key]["given"].astype(np.float64) for key in there)
        healed += any(key[:2] in owed and not dumps[key]["given"].any() for key in there)
        after = sum(dumps[key]["after"].astype(np.float64) for key in there)
        # A replica that did not take part in a step has no mean of it, or the same as the others.
        (total,) = {dumps[key]["sum"].tobytes() for key in there if dumps[key]["given"].any()}
        balanced = np.array_equal(given + before, np.frombuffer(total) + after)
        assert balanced, (step, sorted(there), [process.said()[-4000:] for process in replicas])
        owed.update({key[:2]: dumps[key]["after"].astype(np.float64) for key in there})
    assert healed > 0, "one that owed something healed"


def test_local_steps_of_torchft(start):
    addresses = lighthouses(start, 2)
    replicas = [start(me, "local", me, *addresses) for me in range(2)]
    ends = []
    for process in replicas:
        assert process.wait(timeout=240) == 0, process.said()[-3000:]
        ends.append(json.loads(process.said().splitlines()[-1]))
    assert ends[0]["diloco"]["weights"] == ends[1]["diloco"]["weights"]
    assert ends[0]["local_sgd"]["weights"] == ends[1]["local_sgd"]["weights"]
    assert ends[0]["diloco"]["steps"] == ends[0]["diloco"]["rounds"] == 12, "a fragment is a round"
    assert ends[0]["diloco"]["saved"] < 0.5 and 0 < ends[0]["local_sgd"]["saved"] < 1, ends
    assert ends[0]["local_sgd"]["rounds"] == 8 * 4, "parameters, by a codec that loses nothing"


def test_what_is_refused(start):
    process = start("refused", "refused")
    assert process.wait(timeout=120) == 0
    said = dict(line.split(": ", 1) for line in process.said().splitlines())
    assert "name a codec" in said["auto"] and "unknown option 'codek'" in said["option"]
    assert "decided by torchft's quorum" in said["decided"] and "feedback=momentum" in said["momentum"]
    assert "fp9" in said["codec"] and "pg=tithe.torchft.ProcessGroup" in said["group"]
