# SPDX-License-Identifier: Apache-2.0
"""The study of local steps: its ranks train and end equally, and its tables are those of its runs."""

import json
import subprocess
import sys

import pytest
from test_examples import ENVIRONMENT, ROOT

sys.path.insert(0, str(ROOT))

from lab.study import local_report  # noqa: E402


def _study(tmp_path, **settings):
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    out = subprocess.run(
        [*run, "-m", "lab.study.local_steps"],
        cwd=ROOT,
        env={**ENVIRONMENT, "OUT": str(tmp_path / "out.json"), **settings},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert out.returncode == 0, out.stderr
    return json.loads((tmp_path / "out.json").read_text())["runs"]


def test_runs_match_their_names(tmp_path):
    runs = _study(tmp_path, SEEDS="2", STEPS="12", ARMS="every step, fp32;H 1, fp32;H 10, eden 4 bits;alone")
    by_arm = local_report.losses(runs)
    assert all(sorted(seeds) == [0, 1] for seeds in by_arm.values())
    fp32, one, ten, alone = (by_arm[a][0] for a in ("every step, fp32", "H 1, fp32", "H 10, eden 4 bits", "alone"))
    assert abs(one["loss"] - fp32["loss"]) < 0.1
    assert (alone["bytes"], ten["start_steps"], ten["steps"]) == (0, 1, 12)
    assert 0 < ten["bytes"] < fp32["bytes"] / 30
    table = local_report.loss_table(runs)
    assert f"| {fp32['bytes'] / 12 * 11 / ten['bytes']:,.0f} |" in table


def test_times_are_compared_with_a_step_without_communication(tmp_path):
    runs = _study(tmp_path, TIMES="1", ARMS="H 10, eden 4 bits")
    assert len(runs) == 1 and runs[0]["step_seconds"] > 0 < runs[0]["alone_seconds"]
    ratio = runs[0]["step_seconds"] / runs[0]["alone_seconds"]
    assert local_report.time_table(runs).endswith(f"| {ratio:.2f} |")


def test_the_page_has_the_tables_of_the_runs():
    results = ROOT / "lab" / "results"
    for file in ("loss.json", "loss_8e-3.json"):
        table = local_report.main([str(results / "local_steps" / file)])
        assert table in (results / "local_steps.md").read_text()


def test_a_gap_is_paired_by_seed():
    def arm(*losses):
        return {seed: {"loss": loss} for seed, loss in enumerate(losses)}

    mean, error, seeds = local_report.gap(arm(2.0, 3.0, 9.0), arm(1.5, 2.3))
    assert (mean, error, seeds) == (pytest.approx(0.6), pytest.approx(0.1), 2)
