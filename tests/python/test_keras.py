# SPDX-License-Identifier: Apache-2.0
"""tithe.keras under model.fit in two processes. Keras lives in an environment of its own: tools/setup.sh keras."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import tithe

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".setup" / "keras-venv" / "bin" / "python"

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(Path(tithe.__file__).parents[1]),
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "UCX_TLS": "tcp",
    "UCX_NET_DEVICES": "lo",
    "OMP_NUM_THREADS": "1",
}
TENSORFLOW_FIRST = """
import importlib.machinery, sys, types
sys.modules["tensorflow"] = types.ModuleType("tensorflow")
sys.modules["tensorflow"].__spec__ = importlib.machinery.ModuleSpec("tensorflow", None)
import tithe.keras
"""

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason=f"no Keras in {PYTHON}: run tools/setup.sh keras")


def two_ranks(program, folder, backend):
    """The last line that each of two ranks of a program prints."""
    ranks = [
        subprocess.Popen(
            [PYTHON, ROOT / program],
            env={
                **ENVIRONMENT,
                "KERAS_BACKEND": backend,
                "KERAS_HOME": str(folder),
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "TITHE_FILE": str(folder / "meet"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outs = [process.communicate(timeout=300) for process in ranks]
    assert all(process.returncode == 0 for process in ranks), outs
    return [(out.splitlines() or [""])[-1] for out, _ in outs]


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_fit_trains_alike_on_both_ranks_as_one_process_does_on_both_ranks_data(tmp_path, backend):
    first, second = map(json.loads, two_ranks("tests/python/keras_ranks.py", tmp_path, backend))
    assert first["backend"] == backend
    assert first["exact"] == second["exact"] and first["lossy"] == second["lossy"]
    assert first["rounds"] == 12 and first["off"] < 1e-5 and first["last"] < 0.7 * first["first"]
    assert len(first["keys"]) == 4 and all(any(key.endswith(path) for key in first["keys"]) for path in first["paths"])
    twice, built, whole, *sparse = first["refusals"]
    assert "averages already" in twice and "has been built for a model" in built and "int32" in whole
    assert [("IndexedSlices" in text, "'rows'" in text) for text in sparse] == [(True, True)] * (
        backend == "tensorflow"
    )


def test_the_example_trains(tmp_path):
    said, _ = two_ranks("examples/train_keras.py", tmp_path, "torch")
    first, last, sent, dense = re.fullmatch(r"loss (\S+) -> (\S+); (\S+) bytes, not (\S+)", said).groups()
    assert float(last) < float(first)
    assert int(sent.replace(",", "")) < int(dense.replace(",", "")) / 3


def test_tensorflow_in_front_of_tithe_is_refused(tmp_path):
    """A session would crash: TensorFlow brings functions of another OpenSSL under the same names."""
    out = subprocess.run(
        [PYTHON, "-c", TENSORFLOW_FIRST],
        env={**ENVIRONMENT, "KERAS_BACKEND": "torch", "KERAS_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert out.returncode == 1 and "import tithe.keras above import keras" in out.stderr.splitlines()[-1], out.stderr
