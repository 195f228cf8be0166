# SPDX-License-Identifier: Apache-2.0
"""tithe.torchft with a lighthouse on the loopback. Needs an environment of its own: tools/setup.sh torchft."""

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
HERE = Path(__file__).parent
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
    """Starts processes, whose output goes to files; ends the remaining ones."""
    started = []

    def begin(name, *args, script="torchft_ranks.py", **environment):
        out = tmp_path / f"{name}.out"
        with out.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, HERE / script, *map(str, args)],
                env={**ENVIRONMENT, **environment},
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        process.output = out.read_text
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def lighthouses(start, number):
    process = start("lighthouse", "lighthouse", number)
    wait_until(lambda: "http" in process.output(), 300)
    return process.output().split()


def steps(process):
    return [int(step) for step in re.findall(r"^step (\d+) of", process.output(), re.M)]


def last(process):
    return steps(process)[-1:] or [-1]


def reaches(process, true, seconds=180):
    wait_until(lambda: true() or process.poll() is not None, seconds)
    assert process.poll() is None, process.output()[-3000:]


def test_one_of_three_is_killed_and_rejoins(start, tmp_path):
    """A replica is killed and restarted, and the ledger holds for every step that counted."""
    folder = tmp_path / "steps"
    folder.mkdir()
    (address,) = lighthouses(start, 1)
    given = {"TORCHFT_LIGHTHOUSE": address}
    replicas = [start(me, "steps", folder, me, **given) for me in range(3)]
    # By then one step ran on one replica only, one did not count, and replica 2 has missed a quorum and returned.
    reaches(replicas[2], lambda: sum(step > 24 for step in steps(replicas[2])) > 5)
    replicas[1].kill()
    replicas[1].wait()
    gone = last(replicas[1])[0]
    reaches(replicas[0], lambda: last(replicas[0]) > [gone + 10])
    replicas[1] = start("again", "steps", folder, 1, **given)
    reaches(replicas[1], lambda: len(re.findall(r"^step \d+ of 3", replicas[1].output(), re.M)) > 10)
    (folder / "stop").write_text(str(last(replicas[0])[0] + 25))
    for process in replicas:
        assert process.wait(timeout=180) == 0, process.output()[-3000:]
    ends = [json.loads(process.output().splitlines()[-1]) for process in replicas]
    assert len({end["weights"] for end in ends}) == 1, ends
    # A replica that missed a quorum restarts its counts.
    assert any(end["rounds_undone"] for end in ends) and any(end["ranks_lost"] for end in ends), ends

    # The ledger of every step that counted on some replica: gradients + residuals before = sum + residuals after.
    tries = {}  # by step and epoch: the participants, and their values
    for path in folder.glob("*.npz"):
        me, process, step, epoch = path.stem.split(".")
        with np.load(path) as arrays:
            tries.setdefault((int(step), int(epoch)), {})[me, process] = {n: arrays[n] for n in arrays.files}
    counted = sorted(key for key, there in tries.items() if any(each["counted"] for each in there.values()))
    assert [step for step, _ in counted] == list(range(counted[-1][0] + 1))
    owed, returned, unreported = {}, set(), 0
    for key in counted:
        there = tries[key]
        totals = {each["sum"].tobytes() for each in there.values() if each["counted"] and each["given"].any()}
        assert len(totals) == 1, key
        now = {who: each["after"].astype(np.float64) for who, each in there.items()}
        before = sum(owed.get(who, 0) for who in there)
        returned |= {who for who, each in there.items() if who in owed and not each["given"].any()}
        owed.update(now)
        if any(each["members"] > len(there) for each in there.values()):
            unreported += 1  # the replica was killed before it wrote its values
            continue
        given = sum(each["given"].astype(np.float64) for each in there.values())
        balanced = np.array_equal(given + before, np.frombuffer(totals.pop()) + sum(now.values()))
        assert balanced, (key, sorted(there), [process.output()[-4000:] for process in replicas])
    assert returned and unreported < 2, "one that owed something healed"


def test_failures_in_a_step_keep_the_ledger(start):
    drill = start("drill", *range(4), script="torchft_drill.py")
    assert drill.wait(timeout=240) == 0, drill.output()[-3000:]
    happened = json.loads(drill.output().splitlines()[-1])
    assert all(happened[what] > 5 for what in ("healed", "counted for some", "counted for nobody", "missed a quorum"))


def test_local_steps_of_torchft(start):
    addresses = lighthouses(start, 2)
    replicas = [start(me, "local", me, *addresses) for me in range(2)]
    ends = []
    for process in replicas:
        assert process.wait(timeout=240) == 0, process.output()[-3000:]
        ends.append(json.loads(process.output().splitlines()[-1]))
    assert ends[0]["diloco"]["weights"] == ends[1]["diloco"]["weights"]
    assert ends[0]["local_sgd"]["weights"] == ends[1]["local_sgd"]["weights"]
    assert ends[0]["diloco"]["steps"] == ends[0]["diloco"]["rounds"] == 12, "a fragment is a round"
    assert ends[0]["diloco"]["saved"] < 0.5 and 0 < ends[0]["local_sgd"]["saved"] < 1, ends
    assert ends[0]["local_sgd"]["rounds"] == 8 * 4, "parameters, by a codec that loses nothing"


def test_unsupported_setups_are_refused(start):
    process = start("refused", "refused")
    assert process.wait(timeout=120) == 0
    output = dict(line.split(": ", 1) for line in process.output().splitlines())
    assert "name a codec" in output["auto"] and "unknown option 'codek'" in output["option"]
    assert "decided by torchft's quorum" in output["decided"] and "feedback=momentum" in output["momentum"]
    assert "fp9" in output["codec"] and "pg=tithe.torchft.ProcessGroup" in output["group"]
