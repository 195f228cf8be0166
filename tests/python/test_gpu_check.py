# SPDX-License-Identifier: Apache-2.0
"""tools/gpu_check: it says when there is no GPU, and what it finds on a stand-in for one, right or wrong."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import standin

import tithe

ROOT = Path(__file__).parents[2]
HERE = str(Path(__file__).parent)
PACKAGE = str(Path(tithe.__file__).parents[1])
SMALL = ["--values", "20000", "--steps", "2", "--rounds", "2", "--warm", "1"]
CODECS = ["fp32", "topk:ratio=0.01", "onebit"]
FEW = ["--codecs", "fp32", "--timed", "fp32"]
ON_STANDIN = ["--device", "standin", "--preload", "standin", "--backend", "standin"]
SPOILED = """
import standin

from tithe import _torch_device

load_standin = standin.load


def load():
    load_standin()
    standin.delay(0.02)
    _torch_device.Passage.come = lambda self: self.host  # nothing waits for the copy
"""


def check(*arguments, path=HERE):
    return subprocess.run(
        [sys.executable, str(ROOT / "tools/gpu_check.py"), *SMALL, *arguments],
        env={**os.environ, "PYTHONPATH": f"{PACKAGE}:{path}", "UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"},
        capture_output=True, text=True, timeout=600, check=False)  # fmt: skip


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there may be a GPU here")
def test_without_a_gpu_nothing_is_checked_and_it_says_so():
    done = subprocess.run([ROOT / "tools/gpu_check.sh"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 3
    assert "no GPU here: nothing was checked" in done.stdout
    done = check()
    assert done.returncode == 3
    assert "no GPU here: nothing was checked" in done.stdout


def test_bits_and_times_on_a_stand_in(tmp_path):
    standin.build()
    out = tmp_path / "found.json"
    done = check(*ON_STANDIN, "--types", "bf16", "--codecs", *CODECS, "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all bits equal on standin" in done.stdout
    found = json.loads(out.read_text())
    assert found["ok"] and found["gpus"] == 2
    assert {row["codec"] for row in found["equality"]} == set(CODECS)
    assert {row["loss_scale"] for row in found["equality"]} == {1.0, 1000.0}
    assert all(row["ok"] for row in found["equality"])
    assert found["times"][0]["row"] == "gloo all-reduce" and len(found["times"]) > 3
    assert all(row["ms"] > 0 for row in found["times"])


def test_a_missing_wait_is_found(tmp_path):
    standin.build()
    (tmp_path / "spoiled.py").write_text(SPOILED)
    done = check("--device", "standin", "--preload", "spoiled", "--backend", "standin", "--types", "fp32", *FEW,
                 "--out", str(tmp_path / "found.json"), path=f"{HERE}:{tmp_path}")  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NOT EQUAL" in done.stdout and "WRONG" in done.stdout


def test_the_cpu_says_nothing_about_gpus(tmp_path):
    done = check("--device", "cpu", "--types", "fp16", *FEW, "--out", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "which says nothing about GPUs" in done.stdout
