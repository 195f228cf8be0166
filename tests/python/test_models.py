# SPDX-License-Identifier: Apache-2.0
"""The lists in models/ are whole, in order, and as large as models/README.md says."""

import json
import re
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[2] / "models"
ROW = re.compile(r"\| \[(\w+)\.json\]\(\w+\.json\) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|")
TOLD = {name: sizes for name, *sizes in ROW.findall((MODELS / "README.md").read_text())}


def test_the_table_names_every_file():
    assert sorted(TOLD) == sorted(path.stem for path in MODELS.glob("*.json"))


@pytest.mark.parametrize("model", TOLD)
def test_a_list_is_what_the_table_says(model):
    listed = json.loads((MODELS / f"{model}.json").read_text())
    tensors = listed["tensors"]
    values = [t["values"] for t in tensors]
    assert listed["model"] == model
    assert [f"{n:,}" for n in (len(tensors), sum(values), max(values))] == TOLD[model]
    assert len({t["name"] for t in tensors}) == len(tensors)
    assert all(t["values"] % t["row"] == 0 for t in tensors)
    ready = [t["ready_ms"] for t in tensors]
    assert ready == sorted(ready) and ready[0] > 0 and listed["forward_ms"] > 0
