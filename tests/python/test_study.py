# SPDX-License-Identifier: Apache-2.0
"""The parts of the study, and a small complete study: its settings, gradients, table, and its continuation."""

import itertools
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from test_demo import ROOT, data  # noqa: F401 (a fixture)

import tithe

sys.path.insert(0, str(ROOT))

from lab.study import job, report, specs  # noqa: E402

GRADIENT = (1e-3 * np.random.default_rng(0).standard_t(3, 20_000)).astype(np.float32)
SETTINGS = {codec["name"]: specs.settings_of(codec, GRADIENT, 0.5) for codec in tithe.codecs()}


@pytest.mark.parametrize("name", [codec["name"] for codec in tithe.codecs() if not codec["lossless"]])
def test_every_codec_has_two_settings(name):
    settings = SETTINGS[name]
    assert 2 <= len(settings) <= 3 and len(set(settings)) == len(settings)
    assert all(tithe.check_spec(text) == text and text.split(":")[0] == name for text in settings)


def test_second_setting_sends_about_a_quarter_if_a_ratio_exists():
    assert SETTINGS["fp32"] == ["fp32"]
    assert SETTINGS["topk"] == ["topk", "topk:ratio=0.0025"]
    assert SETTINGS["dgc"][1] == "dgc:ratio=0.0025,feedback=momentum,mu=0.5"
    assert SETTINGS["bf16"] == ["bf16", "bf16:feedback=none"]
    for name in ("qtopk", "randomk", "graddrop", "blocks", "scalecom"):
        first, second = (specs.bytes_of(text, GRADIENT) for text in SETTINGS[name])
        assert 0.2 < second / first < 0.4, name


def test_each_rank_has_the_gradient_of_its_own_part_of_the_batch():
    model = job.Model(3)
    inputs, labels = torch.randn(job.RANKS * 8, job.LAYERS[0]), torch.arange(job.RANKS * 8) % 10
    model.backward(inputs, labels)
    pairs = zip(itertools.pairwise(job.LAYERS), model.weights, model.biases, strict=True)
    layers = []
    for (a, b), weight, bias in pairs:
        layer = torch.nn.Linear(a, b)
        layer.load_state_dict({"weight": weight, "bias": bias})
        layers += [layer, torch.nn.ReLU()]
    plain = torch.nn.Sequential(*layers[:-1])
    for rank in range(job.RANKS):
        part = slice(8 * rank, 8 * (rank + 1))
        plain.zero_grad()
        torch.nn.functional.cross_entropy(plain(inputs[part]), labels[part]).backward()
        for p, name in zip(plain.parameters(), model.gradients, strict=True):
            torch.testing.assert_close(model.gradients[name][rank], p.grad, atol=1e-6, rtol=1e-4)


def runs(spec, *accuracies, sent=1000.0):
    return [
        {"codec": spec, "seed": s, "accuracy": a, "bytes_per_step": sent, "finite": a > 0.1}
        for s, a in enumerate(accuracies)
    ]


def test_rows_are_means_and_the_table_marks_failures(tmp_path):
    rows = report.rows_of(
        runs("fp32", 0.88, 0.90)
        + runs("topk", 0.885, sent=100)
        + runs("onebit:feedback=none", 0.5, 0.54, sent=50)
        + runs("minmax:bits=1", 0.1, 0.1, sent=40)
    )
    assert [round(row["points"], 6) for row in rows] == [0, -0.5, -37, -79]
    assert [row["smaller"] for row in rows] == [1, 10, 20, 25]
    table = report.table(rows, {"onebit:feedback=none": "nothing is kept"})
    assert table.count("more than a point below fp32") == 1
    assert "**more than a point below fp32** nothing is kept" in table
    assert "2 of 2 runs diverged" in table.splitlines()[-1]
    report.draw(tmp_path / "a.png", rows)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def study(data, out, **settings):  # noqa: F811
    environment = {**os.environ, "DATA": str(data), "OUT": str(out), "PYTHONPATH": str(ROOT / "python"), **settings}
    return subprocess.Popen(
        [sys.executable, "-m", "lab.study.accuracy"],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_interrupted_study_keeps_its_runs_and_continues(data, tmp_path):  # noqa: F811
    process = study(data, tmp_path, CODECS="fp32 topk:ratio=0.1", SEEDS="50", EPOCHS="1")
    while not (tmp_path / "study.json").exists():
        assert process.poll() is None, process.communicate()[0]
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 130, text
    first = json.loads((tmp_path / "study.json").read_text())["runs"]
    assert 1 <= len(first) < 50 and {run["codec"] for run in first} == {"fp32"}
    assert "| `fp32` |" in (tmp_path / "study.md").read_text()

    process = study(data, tmp_path, CODECS="topk:ratio=0.1", SEEDS="1", EPOCHS="1", RESUME="1")
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 0, text
    saved = json.loads((tmp_path / "study.json").read_text())
    assert saved["runs"][: len(first)] == first
    assert [row["codec"] for row in saved["rows"]] == ["fp32", "topk:ratio=0.1"]
    assert saved["rows"][1]["bytes_per_step"] < saved["rows"][0]["bytes_per_step"] / 3

    process = study(data, tmp_path, EPOCHS="2", RESUME="1", CODECS="fp32")
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 2 and "another job: epochs" in text


def test_wrong_settings_are_named(data, tmp_path):  # noqa: F811
    process = study(data, tmp_path, CODECS="fp64")
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 2 and "fp64" in text
