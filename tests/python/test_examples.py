# SPDX-License-Identifier: Apache-2.0
"""The examples run as by their first lines. test_launch.py and tests/install test torchrun itself."""

import re
import subprocess
import sys

from beside import ENVIRONMENT, ROOT
from processes import run_program


def test_train_ddp():
    output = run_program(ROOT / "examples/train_ddp.py", 2)
    first, last, sent, dense = re.search(
        r"loss (\S+) -> (\S+); (\S+) bytes per step, an fp32 all-reduce sends (\S+)", output
    ).groups()
    assert float(last) < 0.7 * float(first)
    assert int(sent.replace(",", "")) < int(dense.replace(",", "")) / 3
    ours, theirs = re.search(r"step (\S+) ms with tithe, (\S+) ms with DDP's own", output).groups()
    assert float(ours) > 0 < float(theirs)
    assert ("tithe does not pay" in output) == (float(ours) >= float(theirs)) or ours == theirs
    unsent = float(re.search(r"unsent: (\S+)% of the compressed gradients' norm", output)[1])
    assert 0 < unsent < 10


def test_local_steps():
    output = run_program(ROOT / "examples/local_steps.py", 2)
    first, last, exchanges = re.search(r"loss (\S+) -> (\S+), (\d+) exchanges", output).groups()
    assert float(last) < 0.4 * float(first) and exchanges == "9"
    sent, dense = re.search(r"(\S+) bytes per step after the dense start, instead of (\S+) as fp32", output).groups()
    assert int(sent.replace(",", "")) < int(dense.replace(",", "")) / 200


def test_average_numpy(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, ROOT / "examples" / "average_numpy.py"],
            env={**ENVIRONMENT, "RANK": str(r), "WORLD_SIZE": "2", "TITHE_FILE": str(tmp_path / "meet")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in range(2)
    ]
    for r, process in enumerate(ranks):
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert out == f"rank {r} of 2: mean 0.5\n"


def test_train_hsdp():
    output = run_program(ROOT / "examples/train_hsdp.py", 4)
    first, last, sent, dense = re.search(
        r"loss (\S+) -> (\S+); (\S+) bytes to the other replica instead of (\S+)", output
    ).groups()
    assert float(last) < 0.7 * float(first)
    assert int(sent.replace(",", "")) < int(dense.replace(",", "")) / 3


def test_train_inside():
    output = run_program(ROOT / "examples/train_inside.py", 4)
    first, last, sent, dense = re.search(
        r"loss (\S+) -> (\S+); (\S+) bytes per step from this rank, of (\S+) as fp32", output
    ).groups()
    assert float(last) < 0.7 * float(first)
    assert int(sent.replace(",", "")) < int(dense.replace(",", "")) / 6  # half of a quarter, and headers


def test_average_c10d():
    output = run_program(ROOT / "examples/average_c10d.py", 2)
    first, last, sent, dense = re.search(r"loss (\S+) -> (\S+); (\S+) bytes, not (\S+)", output).groups()
    assert float(last) < 0.7 * float(first)
    assert int(sent.replace(",", "")) < int(dense.replace(",", "")) / 3
