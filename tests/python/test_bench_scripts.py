# SPDX-License-Identifier: Apache-2.0
"""The scripts of lab/bench/ start, and their shared functions are only in lab/bench/harness.py."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path for path in (ROOT / "lab" / "bench").glob("*.py") if path.stem not in ("harness", "losses"))


@pytest.mark.parametrize("path", [p for p in SCRIPTS if "argparse" in p.read_text()], ids=lambda p: p.stem)
def test_every_script_has_a_usage_line(path):
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        [sys.executable, path, "--help"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {path.name}")


def test_tests_named_by_the_frameworks_page_exist():
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python")}
    line = [sys.executable, ROOT / "lab/bench/frameworks.py", "--check"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("repeated", ["/proc/cpuinfo", "def answer(", "def all_gather_in("])
def test_scripts_share_their_common_code(repeated):
    assert [path.name for path in SCRIPTS if repeated in path.read_text()] == []
    assert repeated in (ROOT / "lab/bench/harness.py").read_text()


def test_truth_cases_are_those_of_the_page():
    """The command computes the range of its predictions from data/truth_cases.def."""
    code = "import truth; print(truth.truth_cases((truth.ROOT / 'lab/results/truth.md').read_text()), end='')"
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'python'}:{ROOT / 'lab/bench'}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cases = (ROOT / "data/truth_cases.def").read_text()
    assert cases == done.stdout
    total = re.search(r"\| \*\*all\*\* \| (\d+) \|", (ROOT / "lab/results/truth.md").read_text())
    assert total and cases.count("\nTITHE_TRUTH_CASE(") == int(total[1])


def test_published_rows_stay_within_their_accuracy(tmp_path):
    page = tmp_path / "published.md"
    done = subprocess.run(
        [sys.executable, ROOT / "lab/bench/published.py", "--out", page], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(\d+) of 67 rows are within (15|30) %\.$", page.read_text(), flags=re.M)
    counts = {bound: int(count) for count, bound in found}
    assert counts["15"] >= 41
    assert counts["30"] >= 60
