# SPDX-License-Identifier: Apache-2.0
"""tithe.jax between processes, each its own JAX. Needs an environment of its own: tools/setup.sh jax."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import tithe

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".setup" / "jax-venv" / "bin" / "python"

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason=f"no JAX in {PYTHON}: run tools/setup.sh jax")


def environment(folder, job, rank, world):
    return {
        **os.environ,
        "PYTHONPATH": str(Path(tithe.__file__).parents[1]),
        "JAX_PLATFORMS": "cpu",
        "UCX_TLS": "tcp",
        "UCX_NET_DEVICES": "lo",
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "TITHE_FILE": str(folder / f"meet-{job}"),
    }


def run(job, folder, world=2, dies=None, **more):
    ranks = [
        subprocess.Popen(
            [PYTHON, ROOT / "tests" / "python" / "jax_ranks.py", job],
            env={**environment(folder, job, rank, world), **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    results = []
    for rank, process in enumerate(ranks):
        out, err = process.communicate(timeout=300)
        if rank == dies:
            continue
        assert process.returncode == 0, err
        results.append(json.loads(out.splitlines()[-1]))
    return results


def test_jitted_step_equals_one_process_bit_for_bit(tmp_path):
    first, second = run("exact", tmp_path)
    assert first == second
    for dtype in ("float32", "bfloat16", "float16"):
        ours, alone = first[dtype]
        assert ours == alone, dtype


def test_lossy_codec_gives_equal_bits_on_all_ranks_under_the_trees_names(tmp_path):
    first, second = run("lossy", tmp_path)
    assert first[0] == second[0] and first[2] < 0.7 * first[1]
    assert first[3] == sorted(f"[{i}]['{name}']" for i in range(4) for name in ("bias", "kernel"))
    assert 0 < first[4] < 40 * 4 * (32 * 32 + 32) * 4 / 2


def test_watch_and_finish_equal_average(tmp_path):
    for ours, alone, rounds in run("overlapped", tmp_path):
        assert ours == alone and rounds == 5


def test_local_steps_exchange_parameter_differences(tmp_path):
    first, second = run("local_steps", tmp_path)
    assert first == second
    assert first[0] == first[1] and first[2] == 3


def test_session_resumes_from_a_saved_state_bit_identically(tmp_path):
    first, second = run("resumes", tmp_path)
    assert first[0] == first[1] == second[0] == second[1]
    assert first[2] > 0 < second[2]


def test_last_layers_are_submitted_before_backward_reaches_the_first(tmp_path):
    """Backward blocks at the first layer until they are handed over; otherwise the wait would time out and return
    False."""
    assert run("early", tmp_path) == [True, True]


def test_the_typed_call_is_bit_equal_to_the_callback_and_names_a_lost_rank(tmp_path):
    """The compiler builds the call, since the cache is empty."""
    (first,) = run("typed", tmp_path, dies=1, TITHE_CACHE=str(tmp_path / "cache"))
    for dtype in ("bfloat16", "float16"):
        callback, typed = first[dtype]
        assert typed == callback, dtype
    total, own, empty = first["outside"]
    assert 0 < total < 2 * own and empty == [0]
    assert len(first["lost"]) == 2 and all("rank 1 is gone" in text for text in first["lost"])
    assert "this session is closed" in first["closed"]
    assert len(list((tmp_path / "cache").glob("jax-*.so"))) == 1


def test_several_devices_of_one_process(tmp_path):
    first, second = run("devices", tmp_path, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert first == second and first[0] == 2 and first[2] == 3
    assert first[3].startswith("ffi=True needs one device, a CPU; this process has 2 of cpu: without it")


def test_other_types_are_refused_by_name_and_a_lost_rank_is_named(tmp_path):
    ((whole, deep, none, open_to_all, unfinished, lost),) = run("refusals", tmp_path, dies=1)
    assert "int32" in whole and "['a']" in whole
    assert "complex64" in deep and "['b']['c']" in deep
    assert none == "TITHE_CXX=none"
    assert open_to_all.startswith("others can write to /") and "set TITHE_CACHE to a folder of your own" in open_to_all
    assert "the gradient of ['w'] came twice before finish(): one finish() to each backward" in unfinished
    assert "rank 1 is gone" in lost


def test_the_example(tmp_path):
    ranks = [
        subprocess.Popen(
            [PYTHON, ROOT / "examples" / "average_jax.py"], env=environment(tmp_path, "example", rank, 2),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    outs = [process.communicate(timeout=300) for process in ranks]
    assert all(process.returncode == 0 for process in ranks), outs
    first, last, sent, dense = re.search(r"loss (\S+) -> (\S+); (\S+) bytes, not (\S+)", outs[0][0]).groups()
    assert float(last) < 0.8 * float(first)
    assert int(sent.replace(",", "")) < int(dense.replace(",", "")) / 3
