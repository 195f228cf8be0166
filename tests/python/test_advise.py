# SPDX-License-Identifier: Apache-2.0
"""tithe advise: observes a training command until it has advice on its steps."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "python")}
TITHE = os.environ.get("TITHE_BIN", str(ROOT / "build/tithe"))
# Ranks as threads. `late`: the delay of rank 1 in every step, which looks like a slow link.
TRAINS = """
import sys, threading, time
import numpy as np, tithe

def train(session, late):
    for step in range(int(sys.argv[2])):
        time.sleep(late * session.rank)
        session.wait(session.sync({"w": np.full(60_000, session.rank + 1.0, np.float32)}))
        session.commit()

ranks = [threading.Thread(target=train, args=(s, float(sys.argv[1]))) for s in tithe.Session.loop(2, codec=sys.argv[3])]
[rank.start() for rank in ranks]
[rank.join() for rank in ranks]
print("trained to the end")
"""


def advise(*words, late=0.02, steps=400, codec="bf16"):
    line = [TITHE, "advise", *words, "--", sys.executable, "-c", TRAINS, str(late), str(steps), codec]
    return subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)


def test_reports_the_current_and_the_possible_step(tmp_path):
    began = time.monotonic()
    done = advise("--json", "--allow", "onebit", "-o", str(tmp_path / "plan.json"), steps=100_000)
    assert done.returncode == 0, done.stderr
    advice = json.loads(done.stdout)
    assert advice["step_ms"] >= 20
    assert advice["no_network_ms"] <= advice["plan_ms"] <= advice["step_ms"]
    assert advice["bytes_per_second"] > 0
    assert advice["allowed"] == "auto:allow=onebit"
    assert len(advice["lines"]) == 3
    assert json.loads((tmp_path / "plan.json").read_text()) == advice["rules"]
    assert "trained to the end" not in done.stderr
    assert time.monotonic() - began < 60, "it stops what it started"


def test_a_full_disk_is_named_and_keeps_no_part(tmp_path):
    """A limit on the size of files simulates a full disk."""
    limited = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    )
    path = tmp_path / "a.json"
    done = subprocess.run(
        [sys.executable, "-c", limited + TRAINS, "0.02", "400", "bf16"],
        env=ENVIRONMENT | {"TITHE_ADVISE": str(path), "TITHE_ADVISE_ALLOW": "auto:allow=fp8"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"TITHE_ADVISE={path}: cannot write: File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_for_people_it_is_a_table_and_three_lines():
    done = advise("--keep")
    assert done.returncode == 0, done.stderr
    assert "trained to the end" in done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["2", "ranks", "step,", "ms", "of", "now"]
    now, bf16 = (row.split("  ")[0] for row in rows[:2])
    assert now == "now"
    assert bf16.startswith("bf16@")
    assert rows[rows.index("") - 1].startswith("without a network")
    assert len(rows) - rows.index("") - 1 == 3


def test_codecs_of_the_job_are_allowed():
    advice = json.loads(advise("--json", codec="onebit").stdout)
    assert advice["allowed"] == "auto:allow=onebit"
    assert advice["plan_ms"] <= 1.02 * advice["bf16_ms"]


@pytest.mark.parametrize(
    ("words", "command", "code", "why"),
    [
        ([], ["/nowhere/python"], 2, "No such file"),
        (["--allow", "onebitt"], ["true"], 2, "did you mean"),
        ([], ["true"], 1, "ended with status 0 before"),
        ([], ["sh", "-c", "exit 3"], 1, "ended with status 3 before"),
        ([], [], 2, "command is required"),
    ],
)
def test_errors_are_reported(words, command, code, why):
    done = subprocess.run(
        [TITHE, "advise", *words, "--", *command], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == code, done.stderr
    assert why in done.stderr


def test_environment_variable_enables_it(tmp_path):
    """If a launcher starts ranks on other machines, rank 0's machine has the file."""
    environment = ENVIRONMENT | {"TITHE_ADVISE": str(tmp_path / "a.json"), "TITHE_ADVISE_ALLOW": "auto:allow=fp8"}
    line = [sys.executable, "-c", TRAINS, "0.02", "40", "bf16"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "a.json").read_text())["allowed"] == "auto:allow=fp8"
    environment["TITHE_ADVISE_ALLOW"] = "fp9"
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0
    assert "TITHE_ADVISE_ALLOW" in done.stderr
