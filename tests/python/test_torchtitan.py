# SPDX-License-Identifier: Apache-2.0
"""attach() on torchtitan's own mesh and sharding. Needs an environment of its own: tools/setup.sh torchtitan."""

import json
import socket

import pytest
from beside import python_of, run_beside

PYTHON = python_of("torchtitan")

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason=f"no torchtitan in {PYTHON}: run tools/setup.sh torchtitan")


def test_torchtitan_sharding_is_bit_equal_with_fp32_and_trains_with_few_bits(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    results = [
        json.loads(output)
        for output in run_beside("torchtitan", "tests/python/torchtitan_ranks.py", tmp_path, world=4, **meeting)
    ]
    for rank in results:
        own, exact, lossy = (rank[way] for way in ("own", "fp32", "fp8"))
        assert own[0] == exact[0] == results[0]["own"][0]
        assert lossy[0] == results[0]["fp8"][0] != own[0]
        assert lossy[2] < 0.9 * lossy[1]
        assert rank["fp8 rounds"] == rank["fp32 rounds"] > 0
        assert {"layers.0.up.weight", "norm.weight", "tok_embeddings.weight"} <= set(rank["names"])
