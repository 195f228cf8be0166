# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's all-reduces through the backend "tithe". Needs an environment of its own: tools/setup.sh deepspeed."""

import json
import socket

import pytest
from beside import python_of, run_beside

PYTHON = python_of("deepspeed")

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason=f"no DeepSpeed in {PYTHON}: run tools/setup.sh deepspeed")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    folder = tmp_path_factory.mktemp("deepspeed")
    return [
        json.loads(output) for output in run_beside("deepspeed", "tests/python/deepspeed_ranks.py", folder, **meeting)
    ]


@pytest.mark.parametrize("stage", ["0", "1", "2"])
def test_a_stage_of_zero_is_bit_equal_to_its_own_all_reduce(results, stage):
    for rank in results:
        assert rank[stage]["exact"] == rank[stage]["own"] == results[0][stage]["own"]
        # A step's gradients are one bucket here; from stage 1 on, the step also gathers the weights.
        assert rank[stage]["rounds"] == (8 if stage == "0" else 16)


def test_stage_3_over_a_group_of_tithe_is_bit_equal_to_gloo(results):
    for rank in results:
        assert rank["3"]["exact"] == rank["3"]["own"] == results[0]["3"]["own"]
        assert rank["3"]["rounds"] > 16, "reduce-scatters and all-gathers"


@pytest.mark.parametrize("stage", ["0", "1", "2", "3"])
def test_lossy_codec_gives_equal_bits_on_both_ranks(results, stage):
    first, second = (rank[stage] for rank in results)
    assert first["lossy"] == second["lossy"] != first["own"]
    assert first["last"] < 0.9 * first["first"]
    assert first["sent"] < 0.5 * first["dense"]


def test_checkpoint_with_the_groups_state_resumes_bit_identically(results):
    first, second = (rank["resumed"] for rank in results)
    whole, gone_on, anew = first
    assert first == second and gone_on == whole != anew
