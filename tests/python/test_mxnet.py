# SPDX-License-Identifier: Apache-2.0
"""A Session under MXNet 1.9's gluon, by both integrations. Needs an environment of its own: tools/setup.sh mxnet."""

import json
import re

import pytest
from beside import python_of, run_beside

PYTHON = python_of("mxnet")

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason=f"no MXNet in {PYTHON}: run tools/setup.sh mxnet")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return [
        json.loads(output)
        for output in run_beside("mxnet", "tests/python/mxnet_ranks.py", tmp_path_factory.mktemp("mx"))
    ]


def test_trainer_and_kvstore_equal_one_process_bit_for_bit(results):
    for rank in results:
        assert rank["trainer"] == rank["store"] == rank["alone"]
        assert rank["rounds"] == 5 and rank["rounds of the store"] == 5 * 4  # of four parameters
        assert rank["keys"] == [f"net_dense{i}_{name}" for i in range(2) for name in ("bias", "weight")]


def test_lossy_codec_gives_equal_bits_and_resumes_bit_identically(results):
    first, second = results
    assert first["whole"] == second["whole"] == first["resumed"] == second["resumed"]
    assert first["last"] < 0.5 * first["first"]


def test_the_example_trains(tmp_path):
    output, _ = run_beside("mxnet", "examples/train_mxnet.py", tmp_path)
    first, last, sent, dense = re.fullmatch(r"loss (\S+) -> (\S+); (\S+) bytes, not (\S+)", output).groups()
    assert float(last) < 0.8 * float(first)
    assert int(sent.replace(",", "")) < int(dense.replace(",", "")) / 3
