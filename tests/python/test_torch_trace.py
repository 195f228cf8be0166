# SPDX-License-Identifier: Apache-2.0
"""Encoding and sending run during backward, by the order of events; and the files of TITHE_TRACE, merged."""

import json
import os
import subprocess
import time
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn as nn
from processes import run_ranks
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe.torch

ROOT = Path(__file__).resolve().parents[2]
TITHE = os.environ.get("TITHE_BIN", str(ROOT / "build/tithe"))
STEPS = 4


class Late(torch.autograd.Function):
    """Blocks backward until true() returns true, so that the test depends on the order of events and not on time."""

    @staticmethod
    def forward(ctx, x, true):
        ctx.true = true
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        deadline = time.monotonic() + 60
        while not ctx.true():
            assert time.monotonic() < deadline, "nothing was sent while backward waited"
            time.sleep(0.001)
        return gradient, None


class Net(nn.Module):
    """48 MB, so DDP makes three buckets by default."""

    def __init__(self):
        super().__init__()
        self.early = nn.Linear(1024, 1024)
        self.rest = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(11)))
        self.goes_on = lambda: True

    def forward(self, x):
        return {"out": [self.rest(Late.apply(self.early(x), self.goes_on))]}


def train(rank, world, folder):
    if folder is not None:
        os.environ["TITHE_TRACE"] = str(folder / "trace.json")
    torch.manual_seed(0)
    net = Net()
    model = DDP(net)
    state = tithe.torch.attach(model)
    if folder is None:
        state.trace()
    before = 0

    def sent():
        return state.stats()["frames_sent"] > before

    for step in range(STEPS):
        if step == 1:  # in the first step DDP has one bucket, later buckets of its cap
            net.goes_on = sent
        before = state.stats()["frames_sent"]
        model.zero_grad()
        model(torch.randn(4, 1024))["out"][0].pow(2).mean().backward()
    events = [] if folder is not None else state.take_trace()
    state.close()
    return events


def test_encoding_and_sending_run_during_backward():
    for events in run_ranks(2, train, None):
        for number in range(1, STEPS):
            of_round = [e for e in events if e["round"] == number]
            handed = sorted((e["begin_ns"], e["bucket"]) for e in of_round if e["op"] == "bucket")
            assert len(handed) > 2, "several buckets"
            (first, early), (last, _) = handed[0], handed[-1]
            (backward,) = (e for e in of_round if e["op"] == "backward")
            assert backward["begin_ns"] < first < last
            assert backward["end_ns"] <= last, "backward is over when its last bucket comes"
            ran = {
                e["op"] for e in of_round if e["bucket"] == early and e["lane"] >= 0 and first < e["begin_ns"] < last
            }
            assert {"encode", "send"} <= ran


def soundness(merged):
    """Checks a real trace for the properties that the merger's unit tests check in synthetic ones."""
    arrows = {"s": {}, "f": {}}
    ends = {"b": {}, "e": {}}
    lanes = {}
    for event in merged["traceEvents"]:
        phase = event["ph"]
        if phase == "M":
            continue
        assert event["ts"] >= 0
        if phase == "X":
            assert event["dur"] >= 0
            begin = round(1000 * event["ts"])
            lanes.setdefault((event["pid"], event["tid"]), []).append((begin, -begin - round(1000 * event["dur"])))
        for kind in (arrows, ends):
            if phase in kind:
                assert event["id"] not in kind[phase]
                kind[phase][event["id"]] = event["ts"]
    assert arrows["s"].keys() == arrows["f"].keys() and arrows["s"]
    assert all(arrows["s"][i] <= arrows["f"][i] for i in arrows["s"]), "a frame arrives before it was sent"
    assert ends["b"].keys() == ends["e"].keys()
    for slices in lanes.values():
        open_until = []
        for begin, minus_end in sorted(slices):
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or -minus_end <= open_until[-1], "slices of a thread overlap"
            open_until.append(-minus_end)


def test_files_of_all_ranks_merge_into_one_trace(tmp_path):
    run_ranks(2, train, tmp_path)
    files = sorted(tmp_path.iterdir())
    assert [f.name for f in files] == ["trace.rank0.json", "trace.rank1.json"]
    out = tmp_path / "out.json"
    done = subprocess.run(
        [TITHE, "trace", *files, "-o", out, "--json"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["frames"] > 0 and report["frames_alone"] == 0
    for rank in report["ranks"]:
        assert rank["steps"] == STEPS
        assert rank["lost"] == 0
        assert rank["encode_ms"] > 0 and rank["hidden_ms"] > 0 and rank["open_ms"] > 0
        assert rank["clock_error_us"] >= abs(rank["clock_ahead_us"]), "the clocks of one machine are one"
    merged = json.loads(out.read_text())
    soundness(merged)
    named = {e["args"]["op"] for e in merged["traceEvents"] if "op" in e.get("args", {})}
    assert {"backward", "bucket", "encode", "send", "recv", "merge", "store", "wait", "commit"} <= named
    keys = {e["args"]["key"] for e in merged["traceEvents"] if e.get("args", {}).get("op") == "encode"}
    assert "rest.10.weight" in keys
    missing = subprocess.run([TITHE, "trace", files[1]], capture_output=True, text=True, check=False, timeout=300)
    assert missing.returncode == 2 and "rank 0 is missing" in missing.stderr


def test_unwritable_trace_is_refused_at_open(tmp_path, monkeypatch):
    with pytest.raises(tithe.Error, match="nowhere.*cannot write there"):
        tithe.Session.loop(1, trace=str(tmp_path / "nowhere" / "trace.json"))
    (tmp_path / "trace.rank0.json").mkdir()
    monkeypatch.setenv("TITHE_TRACE", str(tmp_path / "trace.json"))
    with pytest.raises(tithe.Error, match="is not a regular file"):
        tithe.Session.loop(1)


def test_unfinished_trace_is_reported(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (session,) = tithe.Session.loop(1, trace=str(folder / "{rank}.json"))
    (folder / "0.json.part").unlink()
    folder.rmdir()
    with pytest.warns(RuntimeWarning, match="cannot write there"):
        session.close()


def test_cancelled_session_leaves_a_complete_trace(tmp_path):
    (session,) = tithe.Session.loop(1, trace=str(tmp_path / "{rank}.json"))
    ticket = session.sync({"w": torch.ones(3).numpy()})
    session._core.cancel()  # has the effect of Ctrl-C
    with pytest.raises(tithe.Error):
        session.wait(ticket)
    assert "wait" in {e["name"] for e in json.loads((tmp_path / "0.json").read_text())["traceEvents"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.close()
    assert [f.name for f in tmp_path.iterdir()] == ["0.json"]
