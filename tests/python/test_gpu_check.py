# SPDX-License-Identifier: Apache-2.0
"""tools/gpu_check: its message without a GPU, and its results on a simulated GPU, correct or not."""

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

from tithe.torch._device import device as devices

load_standin = standin.load


def load():
    load_standin()
    standin.delay(0.02)
    devices.PinnedCopy.wait = lambda self: self.host  # nothing waits for the copy
"""


def check(*arguments, path=HERE):
    return subprocess.run(
        [sys.executable, str(ROOT / "tools/gpu_check.py"), *SMALL, *arguments],
        env={**os.environ, "PYTHONPATH": f"{PACKAGE}:{path}", "UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"},
        capture_output=True, text=True, timeout=600, check=False)  # fmt: skip


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there may be a GPU here")
def test_without_a_gpu_the_check_is_skipped_with_a_message():
    done = subprocess.run([ROOT / "tools/gpu_check.sh"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 3
    assert "no GPU here: nothing was checked" in done.stdout
    done = check()
    assert done.returncode == 3
    assert "no GPU here: nothing was checked" in done.stdout


def part_of(tmp_path, name, program):
    """Runs tools/gpu_check.sh on a machine that seems to have a GPU, with a pack whose programs are all this one."""
    for path in (tmp_path / "gpu_pack/bin", tmp_path / "gpu_pack/tools", tmp_path / "path"):
        path.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "tools/gpu_check.sh", tmp_path / "gpu_pack/tools")
    scripts = [tmp_path / "gpu_pack/bin" / name for name in ("device_tests", "conformance_tests", "device_speed")]
    for script, text in [*((path, program) for path in scripts), (tmp_path / "path/nvidia-smi", "echo GPU 0: none")]:
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)
    done = subprocess.run(
        ["gpu_pack/tools/gpu_check.sh", "--packed", "gpu_pack", "--parts", name],
        env={**os.environ, "PATH": f"{tmp_path}/path:{os.environ['PATH']}"}, cwd=tmp_path,
        capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    out = tmp_path / f"gpu_pack/build/gpu_{name}.json"
    return done.returncode, done.stdout + done.stderr, json.loads(out.read_text()) if out.exists() else None


def test_each_part_of_a_pack_writes_its_result(tmp_path):
    writes = 'for a; do case $a in --gtest_output=json:*) echo 3 >"${a#*json:}";; esac; done'
    assert part_of(tmp_path, "seam", writes)[0::2] == (0, 3)
    assert part_of(tmp_path, "speed", 'echo "{}"')[0::2] == (0, {})
    code, output, found = part_of(tmp_path, "device", "echo there is no CUDA driver; exit 7")
    assert (code, found) == (1, {"ended_with": 7, "cut_off": False}), "what ran last is no result of this"
    assert "there is no CUDA driver" in output and "not as on the CPU: device" in output
    assert part_of(tmp_path, "speed", "exit 124")[2] == {"ended_with": 124, "cut_off": True}
    code, output, found = part_of(tmp_path, "sanitizer", "exit 0")
    if shutil.which("compute-sanitizer") is None:
        assert (code, found) == (0, {"left_out": "compute-sanitizer is not installed"}) and "left out" in output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--parts", "seam,speeds"], "no part 'speeds': there are device,seam,session,torch,sanitizer,speed"),
        (["--packed", "."], "no bin/device_tests in"),
        (["--packed", ".", "--parts", "torch"], "part torch is not in a pack"),
        (["--parts"], "--parts needs some of device,"),
    ],
)
def test_missing_requirements_are_reported_first(tmp_path, options, says):
    done = subprocess.run(
        [ROOT / "tools/gpu_check.sh", *options], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode in (1, 2) and says in done.stdout + done.stderr
    assert not (tmp_path / "build").exists()


def test_gpu_without_a_driver_gives_one_clear_line():
    binary = ROOT / "build/tests/device_tests"
    if not binary.exists():
        pytest.skip("the tests in C++ are not built")
    done = subprocess.run(
        [binary, "--gtest_filter=DeviceSeam.DescribesTheOpenedDevice"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "TITHE_TEST_GPU": "real", "TITHE_CUDA": "/nowhere/libcuda.so.1"},
    )
    assert done.returncode == 1
    assert "there is no CUDA driver: /nowhere/libcuda.so.1" in done.stdout


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
    sharded = {(row["weights"], row["codec"]): row for row in found["sharded"]}
    assert len(sharded) == 4 and all(row["ok"] for row in sharded.values()), sharded
    assert all((row["weights_differ"] == 0) == (codec == "fp32") for (_, codec), row in sharded.items())
    assert found["times"][0]["row"] == "gloo all-reduce" and len(found["times"]) > 3
    assert all(row["ms"] > 0 for row in found["times"])


def test_a_missing_wait_is_found(tmp_path):
    standin.build()
    (tmp_path / "spoiled.py").write_text(SPOILED)
    done = check("--device", "standin", "--preload", "spoiled", "--backend", "standin", "--types", "fp32", *FEW,
                 "--out", str(tmp_path / "found.json"), path=f"{HERE}:{tmp_path}")  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NOT EQUAL" in done.stdout and "WRONG" in done.stdout
    found = json.loads((tmp_path / "found.json").read_text())
    assert [row["codec"] for row in found["sharded"] if row["ok"]] == []


def test_cpu_run_makes_no_claim_about_gpus(tmp_path):
    done = check("--device", "cpu", "--types", "fp16", *FEW, "--out", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "which says nothing about GPUs" in done.stdout
