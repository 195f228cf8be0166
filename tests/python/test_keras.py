# SPDX-License-Identifier: Apache-2.0
"""tithe.keras under model.fit in two processes. Needs an environment of its own: tools/setup.sh keras."""

import json
import re
import subprocess

import pytest
from beside import ENVIRONMENT, python_of, run_beside

PYTHON = python_of("keras")
TENSORFLOW_FIRST = """
import importlib.machinery, sys, types
sys.modules["tensorflow"] = types.ModuleType("tensorflow")
sys.modules["tensorflow"].__spec__ = importlib.machinery.ModuleSpec("tensorflow", None)
import tithe.keras
"""

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason=f"no Keras in {PYTHON}: run tools/setup.sh keras")


def on(backend, program, folder):
    """Returns the last line of output of each of two ranks of a program."""
    settings = {
        "KERAS_BACKEND": backend,
        "KERAS_HOME": str(folder),
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    return run_beside("tensorflow" if backend == "tensorflow" else "keras", program, folder, **settings)


@pytest.fixture(scope="module", params=["jax", "torch", "tensorflow"])
def results(request, tmp_path_factory):
    if request.param == "tensorflow" and not python_of("tensorflow").exists():
        pytest.skip("TensorFlow is there for who asks: tools/setup.sh tensorflow")
    folder = tmp_path_factory.mktemp(request.param)
    ranks = [json.loads(output) for output in on(request.param, "tests/python/keras_ranks.py", folder)]
    assert ranks[0]["backend"] == request.param
    return ranks


def test_fit_on_two_ranks_equals_one_process_with_all_data(results):
    first, second = results
    assert first["exact"] == second["exact"] and first["lossy"] == second["lossy"]
    assert first["rounds"] == 12 and first["off"] < 1e-5 and first["last"] < 0.7 * first["first"]
    assert len(first["keys"]) == 4 and all(any(key.endswith(path) for key in first["keys"]) for path in first["paths"])
    twice, built, whole, *of_tensorflow = first["refusals"]
    assert "averages already" in twice and "has been built for a model" in built and "int32" in whole
    if first["backend"] == "tensorflow":
        rows, compiled = of_tensorflow
        assert "IndexedSlices" in rows and "'rows'" in rows
        assert "tithe_needs_compile_with_jit_compile_False" in compiled


def test_fit_equals_means_by_numpy_bit_for_bit(results):
    for rank in results:
        assert rank["exact"] == rank["plain"]


def test_session_resumes_from_a_saved_state_bit_identically(results):
    first, second = results
    assert first["whole"] == first["resumed"] == second["whole"] == second["resumed"]


def test_the_example_trains(tmp_path):
    output, _ = on("torch", "examples/train_keras.py", tmp_path)
    first, last, sent, dense = re.fullmatch(r"loss (\S+) -> (\S+); (\S+) bytes, not (\S+)", output).groups()
    assert float(last) < float(first)
    assert int(sent.replace(",", "")) < int(dense.replace(",", "")) / 3


def test_tensorflow_in_front_of_tithe_is_refused(tmp_path):
    """A session would crash: TensorFlow exports functions of another OpenSSL under the same names."""
    out = subprocess.run(
        [PYTHON, "-c", TENSORFLOW_FIRST],
        env={**ENVIRONMENT, "KERAS_BACKEND": "torch", "KERAS_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert out.returncode == 1 and "import tithe.keras above import keras" in out.stderr.splitlines()[-1], out.stderr
