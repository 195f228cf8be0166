# SPDX-License-Identifier: Apache-2.0
"""codec="auto": refusals in Python, and a model that trains through a switch."""

import importlib.util
import logging
import pickle
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn as nn
from processes import own_part, run_ranks
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch

ROOT = Path(__file__).resolve().parents[2]


def test_invalid_options_are_value_errors():
    for codec, why in (
        ("auto:alow=onebit", "auto has one parameter, allow"),
        ("auto:allow=onebitt", "did you mean"),
        ("auto:allow=dgc:feedback=momentum", "momentum belongs to the whole step"),
    ):
        with pytest.raises(ValueError, match=why):
            tithe.torch.State(codec=codec)
    with pytest.raises(ValueError, match="omit choices"):
        tithe.Session.loop(2, codec="auto", choices={"*": "fp8"})
    with pytest.raises(ValueError):
        tithe.Session.loop(2, codec="auto", schedule="warmup:100")
    with pytest.raises(ValueError, match="unknown codec 'auto'"):
        tithe.check_spec("auto")


def test_session_plans_and_reports_it():
    sessions = tithe.Session.loop(2, codec="auto:allow=onebit")

    def train(session):
        for _ in range(25):
            session.wait(session.sync({"w": np.full(60_000, session.rank + 1.0, np.float32)}))
            session.commit()

    messages = []
    deadline = time.monotonic() + 60
    while not messages and time.monotonic() < deadline:
        ranks = [threading.Thread(target=train, args=(session,)) for session in sessions]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        messages = sessions[0].messages()
    assert messages and all(line.startswith("auto: ") for line in messages)
    assert not sessions[1].messages()
    with pytest.raises(ValueError, match="makes its own proposals"):
        sessions[0].propose({"w": "fp32"})


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(512, 1500)
        self.last = nn.Linear(1500, 8)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def training(rank, world, codec, slow):
    """Trains a model with codec auto until after its first switch. slow: the delay of rank 1 in every step. Returns the
    plans, the step, the log and the bits of the parameters."""
    lines = Lines()
    logging.getLogger("tithe.torch").addHandler(lines)
    logging.getLogger("tithe.torch").setLevel(logging.INFO)  # level of informational messages
    torch.manual_seed(1)
    net = Net()
    model = DDP(net)
    state = tithe.torch.attach(model, codec=codec, timeout=60.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    plans, after = [], 0
    for number in range(300):
        x = torch.randn(4, 512, generator=torch.Generator().manual_seed(100 * number + rank))
        loss = model(x).square().mean()
        if rank == 1:
            time.sleep(slow)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        sent = "onebit" if " onebit " in state.plan() else "bf16"  # the same on all ranks after the same step
        if not plans or plans[-1] != sent:
            plans.append(sent)
        if "onebit" in plans:
            after += 1
        if after == 10:
            break
    saved = state.state_dict()
    assert own_part(saved)["codec"] == codec
    other = tithe.torch.State(codec=codec, parameters=net.named_parameters())
    other.load_state_dict(pickle.loads(pickle.dumps(saved)))
    other.close()
    state.close()
    return plans, number, lines.lines, [p.detach().numpy().tobytes() for p in net.parameters()]


def test_a_model_trains_through_a_switch():
    """Rank 1 is late in every step. Rank 0 interprets this as a slow link and plans for one, on any machine."""
    mine, other = run_ranks(2, training, "auto:allow=onebit", 0.05)
    assert mine[0][:2] == ["bf16", "onebit"], mine[2]
    assert mine[:2] == other[:2]
    assert mine[3] == other[3], "weights differ"
    assert any("should take" in line for line in mine[2])
    assert not other[2], "rank 0 alone says so"


def nameless(rank, world):
    state = tithe.torch.State(codec="auto")
    with pytest.raises(ValueError, match="this State knows none"):
        state.open()
    return True


def test_state_without_names_is_refused():
    assert run_ranks(2, nameless) == [True, True]


def differing(rank, world):
    model = DDP(nn.Linear(100, 100))
    with pytest.raises(tithe.Error, match="codec='auto:allow=onebit' on rank 0 and codec='auto' on rank 1"):
        tithe.torch.attach(model, codec="auto:allow=onebit" if rank == 0 else "auto", timeout=20.0)
    return True


def test_ranks_with_different_allowances_are_refused():
    assert run_ranks(2, differing) == [True, True]


def test_bench_counts_steps_by_rules(monkeypatch):
    """With 40 steps, of which 22 precede the plan, the last 50 must not include steps before the plan."""
    monkeypatch.syspath_prepend(str(ROOT / "lab" / "bench"))
    spec = importlib.util.spec_from_file_location("bench_auto", ROOT / "lab/bench/auto.py")
    auto = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(auto)

    def phase(*runs):
        return {"steps": [{"ms": ms, "choices": rules} for count, ms, rules in runs for _ in range(count)]}

    assert auto.counted(phase((22, 100.0, ""), (18, 10.0, "plan")), "") == (100.0, 22, 10.0)
    assert auto.counted(phase((22, 100.0, ""), (8, 10.0, "plan")), "") == (100.0, 22, None), "too few to say"
    assert auto.counted(phase((9, 100.0, ""), (60, 10.0, "plan")), "") == (None, 9, 10.0)
    assert auto.counted(phase((22, 100.0, ""), (20, 30.0, "a"), (20, 10.0, "b")), "") == (100.0, 22, 10.0)
    assert auto.counted(phase((60, 10.0, "plan")), "plan") == (10.0, None, 10.0)
