# SPDX-License-Identifier: Apache-2.0
"""Sessions with arrays on a simulated GPU (fake_gpu.py): by DLPack, and with missing parts. Each in a process."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import fake_gpu
import pytest

import tithe

HERE = Path(__file__).parent
PACKAGE = Path(tithe.__file__).parents[1]
HEAD = """
import os

import fake_gpu
import numpy as np
import tithe

gpu = fake_gpu.Gpu()
OPTIONS = {"codec": "onebit", "min_values": 0, "device": "on,min_values=1", "seed": 3}


def gradient(step):
    return np.random.default_rng(step).standard_normal((50, 40)).astype(np.float32)
"""


def run(body: str, **environment: str) -> str:
    """Returns the output of the process."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(body)],
        env={**os.environ, **fake_gpu.build(), **environment, "PYTHONPATH": f"{PACKAGE}:{HERE}"},
        capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_gpu_arrays_have_the_bits_of_host_arrays():
    output = run("""
        there, here = tithe.Session.loop(1, **OPTIONS)[0], tithe.Session.loop(1, **OPTIONS)[0]
        for step in range(3):
            values = gradient(step)
            array = fake_gpu.Array(gpu, values)
            there.wait(there.sync({"w": array}))
            there.commit()
            here.wait(here.sync({"w": values}))
            here.commit()
            assert (array.read().view(np.uint32) == values.view(np.uint32)).all()
        of_any_job = [s.state()[:24] + s.state()[32:-8] for s in (there, here)]
        assert of_any_job[0] == of_any_job[1]
        assert gpu.control.problem() == b""
        print(there.plan_text())
        print(there.messages())
        """)
    assert "part 0: on GPU 0, a fake GPU" in output
    assert "MB for residuals and copies of the bucket of 'w'" in output


def test_bucket_must_be_on_one_device():
    output = run("""
        gpu.control.set_devices(2)
        session = tithe.Session.loop(1, **OPTIONS)[0]
        there, other = fake_gpu.Array(gpu, gradient(0)), fake_gpu.Array(gpu, gradient(1), 1)
        for wrong in ({"a": there, "b": gradient(1)}, {"a": gradient(0), "b": there}, {"a": there, "b": other}):
            try:
                session.sync(wrong)
                print("taken")
            except ValueError as error:
                print(error)
        session.wait(session.sync({"a": there}))
        session.commit()
        """)
    assert output.splitlines() == [
        "'b': is in host memory, and other tensors of its bucket in GPU 0: use a separate bucket for each device",
        "'b': is in GPU 0, and other tensors of its bucket in host memory: use a separate bucket for each device",
        "'b': is in GPU 1, and other tensors of its bucket in GPU 0: use a separate bucket for each device",
    ]


TRY = """
session = tithe.Session.loop(1, **OPTIONS)[0]
array = fake_gpu.Array(gpu, gradient(0))
try:
    session.wait(session.sync({"w": array}))
    session.commit()
except (ValueError, tithe.Error) as error:
    print(error)
print(session.messages(), session.plan_text())
"""


@pytest.mark.parametrize(
    ("before", "environment", "expected"),
    [
        ('os.environ["TITHE_CUDA"] = "/nowhere/libcuda.so.1"', {}, "there is no CUDA driver: /nowhere/libcuda.so.1"),
        ("gpu.control.set_version(11080)", {}, "the CUDA driver has version 11.8; it must be 12.0 or newer"),
        ("", {"TITHE_NVRTC": "/nowhere/libnvrtc.so.12"}, "onebit: on the host: there is no NVRTC: /nowhere"),
    ],
)
def test_missing_parts_are_reported(before, environment, expected):
    assert expected in run(f"{before}\n{TRY}", **environment)
