# SPDX-License-Identifier: Apache-2.0
"""The lists in data/models/ equal the output of their recipes, complete, in order, and have the published sizes."""

import json
import sys
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[2] / "data" / "models"
MIB = 2**20 / 4  # values

# Tensors, values and the largest tensor, as torchvision's documents and the papers give them.
PUBLISHED = {
    "alexnet": (16, 61_100_840, 4096 * 9216),
    "gpt2": (148, 124_439_808, 50257 * 768),
    "resnet50": (161, 25_557_032, 512 * 512 * 9),
    "resnet101": (None, 44_549_160, 512 * 512 * 9),
    "vgg16": (32, 138_357_544, 4096 * 25088),
    "vit_b_16": (152, 86_567_656, 768 * 3072),
}
# Table 6 of HiPress: tensors, total MiB, MiB of the largest. It counts BERT's shared matrix twice.
HIPRESS = {
    "bert_base": (206, 420.02, 89.42),
    "bert_large": (398, 1282.60, 119.23),
    "lstm": (10, 327.97, 190.42),
    "resnet50_v2": (155, 97.46, 9),
    "transformer": (185, 234.08, 65.84),
    "ugatit": (148, 2558.75, 1024),
    "ugatit_light": (148, 511.25, 128),
    "vgg19": (38, 548.05, 392),
}
# INCEPTIONN describes 5 layers of 500 on MNIST, and 5 MB.
HDC = (10, 784 * 500 + 3 * 500 * 500 + 500 * 10 + 4 * 500 + 10, 784 * 500)
# By the formula of such layers: 12 squares of the width in matrices, 13 widths in vectors; two embeddings, one norm.
WIDTH = 2048
GPT_1B = (24 * 12 + 4, 24 * (12 * WIDTH**2 + 13 * WIDTH) + (50257 + 1024 + 2) * WIDTH, 50257 * WIDTH)
NAMES = sorted([*PUBLISHED, *HIPRESS, "gpt_1b", "hdc"])


def listed(model):
    return json.loads((MODELS / f"{model}.json").read_text())


def sizes(model):
    return [t["values"] for t in listed(model)["tensors"]]


@pytest.fixture(scope="module")
def make():
    sys.path.insert(0, str(MODELS))
    try:
        import make
    finally:
        sys.path.remove(str(MODELS))
    return make


def test_every_file_matches_its_recipe(make):
    for name, text in make.files().items():
        assert (MODELS / name).read_text() == text, f"{name}: run `python data/models/make.py`"
    assert sorted(path.stem for path in MODELS.glob("*.json")) == sorted(make.models()) == NAMES


@pytest.mark.parametrize("model", PUBLISHED)
def test_sizes_match_the_publications(model):
    count, values, largest = PUBLISHED[model]
    assert count in (None, len(sizes(model)))
    assert (sum(sizes(model)), max(sizes(model))) == (values, largest)


@pytest.mark.parametrize("model", HIPRESS)
def test_sizes_match_the_hipress_paper(model):
    count, mib, largest = HIPRESS[model]
    assert len(sizes(model)) == count
    assert sum(sizes(model)) / MIB == pytest.approx(mib, abs=0.0051)
    assert max(sizes(model)) / MIB == pytest.approx(largest, abs=0.0051)


def test_hdc_is_five_dense_layers():
    assert (len(sizes("hdc")), sum(sizes("hdc")), max(sizes("hdc"))) == HDC


def test_gpt_1b_size_matches_its_formula():
    assert (len(sizes("gpt_1b")), sum(sizes("gpt_1b")), max(sizes("gpt_1b"))) == GPT_1B


@pytest.mark.parametrize("model", NAMES)
def test_a_list_is_whole_and_in_order(model):
    whole = listed(model)
    tensors = whole["tensors"]
    assert whole["model"] == model and whole["what"] and whole["source"] and whole["times"]
    assert len({t["name"] for t in tensors}) == len(tensors)
    assert all(t["values"] % t["row"] == 0 for t in tensors)
    ready = [t["ready_ms"] for t in tensors]
    assert ready == sorted(ready) and ready[0] >= 0 and whole["forward_ms"] > 0


@pytest.mark.parametrize(
    ("model", "span"),
    [("vgg16", 85), ("resnet50", 64), ("resnet101", 120), ("bert_base", 66), ("bert_large", 204), ("gpt2", 211)]
    + [("lstm", 71), ("ugatit", 434)],
)
def test_backward_time_matches_the_trace(model, span):
    assert listed(model)["tensors"][-1]["ready_ms"] == pytest.approx(span, abs=0.001)
