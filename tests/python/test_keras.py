# SPDX-License-Identifier: Apache-2.0
"""tithe.keras under model.fit in two processes. Keras lives in an environment of its own: tools/setup.sh keras."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import tithe

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".setup" / "keras-venv" / "bin" / "python"

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason=f"no Keras in {PYTHON}: run tools/setup.sh keras")


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_fit_trains_alike_on_both_ranks_as_one_process_does_on_both_ranks_data(tmp_path, backend):
    ranks = [
        subprocess.Popen(
            [PYTHON, ROOT / "tests" / "python" / "keras_ranks.py"],
            env={
                **os.environ,
                "PYTHONPATH": str(Path(tithe.__file__).parents[1]),
                "KERAS_BACKEND": backend,
                "KERAS_HOME": str(tmp_path),
                "JAX_PLATFORMS": "cpu",
                "TF_CPP_MIN_LOG_LEVEL": "2",
                "UCX_TLS": "tcp",
                "UCX_NET_DEVICES": "lo",
                "OMP_NUM_THREADS": "1",
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "TITHE_FILE": str(tmp_path / "meet"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outs = [process.communicate(timeout=300) for process in ranks]
    assert all(process.returncode == 0 for process in ranks), outs
    first, second = (json.loads(out.splitlines()[-1]) for out, _ in outs)
    assert first["backend"] == backend
    assert first["exact"] == second["exact"] and first["lossy"] == second["lossy"]
    assert first["rounds"] == 12 and first["off"] < 1e-5 and first["last"] < 0.7 * first["first"]
    assert len(first["keys"]) == 4 and all(any(key.endswith(path) for key in first["keys"]) for path in first["paths"])
    twice, built, whole, *sparse = first["refusals"]
    assert "averages already" in twice and "has been built for a model" in built and "int32" in whole
    assert [("IndexedSlices" in text, "'rows'" in text) for text in sparse] == [(True, True)] * (
        backend == "tensorflow"
    )
