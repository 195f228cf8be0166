# SPDX-License-Identifier: Apache-2.0
"""tithe plan: what it decides, what it writes, and what it refuses."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TITHE = os.environ.get("TITHE_BIN", str(ROOT / "build/tithe"))
SLOW = "plan --model bert_base:scale=0.1 --link 100Mb/s --ranks 4"


def run(line, folder=ROOT):
    return subprocess.run(
        [TITHE, *shlex.split(line)], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def told(line, folder=ROOT):
    done = run(f"{line} --json", folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_without_a_word_nothing_is_lost():
    answer = told(SLOW)
    assert {rule["codec"] for rule in answer["rules"]} <= {"fp32", "bf16"}
    assert "--allow CODEC" in run(SLOW).stdout


def test_what_is_allowed_is_used_where_it_pays():
    answer = told(f"{SLOW} --allow onebit --compare bf16 --compare secopa --compare dragonn --compare threshold:1MB")
    steps = {plan["policy"]: plan["step_ms"] for plan in answer["plans"]}
    assert "onebit" in {rule["codec"] for rule in answer["rules"]}
    assert steps["timeline"] < 0.3 * steps["bf16"]
    assert all(steps["timeline"] <= 1.02 * step for step in steps.values())


def test_the_file_is_what_replay_and_simulate_take(tmp_path):
    step = told(f"{SLOW} --allow onebit -o plan.json", tmp_path)["plans"][0]["step_ms"]
    rules = json.loads((tmp_path / "plan.json").read_text())
    assert rules["rules"]
    line = "simulate --model bert_base:scale=0.1 --link 100Mb/s --ranks 4 --choices plan.json"
    assert told(line, tmp_path)["settings"][0]["step_ms"] == pytest.approx(step, rel=0.02)


def test_an_exception_by_key_holds():
    answer = told(f"{SLOW} --allow onebit --allow 'bert.embeddings.*: fp8' --why")
    taken = {w["tensor"]: a["option"].split("@")[0] for w in answer["why"] for a in w["alternatives"] if a["taken"]}
    assert taken["bert.embeddings.word_embeddings.weight"] == "fp8"
    assert {codec for key, codec in taken.items() if key.startswith("bert.embeddings.")} <= {"fp8", "fp32"}
    assert {codec for key, codec in taken.items() if not key.startswith("bert.embeddings.")} == {"onebit"}


def test_why_names_what_bounds_the_step():
    answer = told(f"{SLOW} --why")
    assert answer["bound_by"] == "uplink"
    assert answer["twice_bandwidth_ms"] < 0.7 * answer["plans"][0]["step_ms"]
    first = answer["why"][0]
    assert first["values"] == max(t["values"] for t in answer["why"])
    assert sum(a["taken"] for a in first["alternatives"]) == 1


def test_the_page_needs_nothing_else(tmp_path):
    told(f"{SLOW} --allow onebit --html plan.html", tmp_path)
    page = (tmp_path / "plan.html").read_text()
    assert page.count("<svg") == 2
    assert "http" not in page


def test_the_page_has_names_and_a_time_axis(tmp_path):
    told("plan --model hdc --link 100mbit --ranks 4 --allow onebit --html plan.html --bucket-cap-mb 1", tmp_path)
    page = (tmp_path / "plan.html").read_text()
    assert "hdc on 4 ranks of" in page
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    axes = [
        re.findall(r"text-anchor='middle'>([\d.]+)</text>", p.split("ms since the step began")[0]) for p in pictures
    ]
    assert axes[0] == axes[1] and axes[0][0] == "0" and float(axes[0][-1]) > 0, "both have one scale"
    steps = [float(ms) for ms in re.findall(r"<h2>[^<]*: ([\d.]+) ms,", page)]
    assert float(axes[0][-1]) >= max(steps) > float(axes[0][-2])
    names = {t["name"] for t in json.loads((ROOT / "models/hdc.json").read_text())["tensors"]}
    rows = re.findall(r"<tr><td>(\d+)</td><td>(\d+)</td><td>([^<]+)</td><td>([^<]+)</td>", page)
    buckets = [row for row in rows if row[2] in names]
    assert sum(int(count) for _, count, _, _ in buckets) == len(names) == 10
    for row in ("encoding", "messages", "merging"):
        told_of = {int(b) for b in re.findall(rf"<title>{row} of bucket (\d+): [\d.]+ to [\d.]+ ms", pictures[0])}
        assert told_of == {int(b) for b, *_ in buckets}, row


def test_the_same_question_has_the_same_plan():
    assert told(f"{SLOW} --allow onebit") == told(f"{SLOW} --allow onebit")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"{SLOW} --policy timelime", ["unknown policy 'timelime'", "timeline"]),
        (f"{SLOW} --policy threshold", ["give bytes", "threshold:1MB"]),
        (f"{SLOW} --allow onbit", ["--allow", "onebit"]),
        (f"{SLOW} --allow 'encodr.*: onebit'", ["no tensor of the model has such a key"]),
        ("plan --model nothing --link 1Gb/s --ranks 4", ["nothing"]),
        ("plan --model hdc", ["--cluster"]),
        (f"{SLOW} -o /nowhere/plan.json", ["/nowhere/plan.json"]),
    ],
)
def test_what_is_wrong_is_refused_with_the_cure(line, words):
    done = run(line)
    assert done.returncode != 0
    for word in words:
        assert word in done.stderr, done.stderr
    assert done.stdout == ""
