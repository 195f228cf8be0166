# SPDX-License-Identifier: Apache-2.0
"""Is it working? What stats() tells, and what tithe.monitor hands to those who draw curves."""

import gc
import importlib.util
import logging
import math
import time

import numpy as np
import pytest
import torch
from processes import run_ranks
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe.monitor
import tithe.torch
from tithe import _torch_live


def trained(rank, world):
    torch.manual_seed(0)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4)))
    state = tithe.torch.attach(model, codec="topk:ratio=0.05", timeout=30.0)
    torch.manual_seed(1 + rank)
    told = []
    watch = tithe.monitor.Monitor(state, lambda numbers, step: told.append((step, numbers)), every=2)
    for _ in range(4):
        model(torch.randn(8, 64)).square().sum().backward()
        watch.step()
        model.zero_grad()
    residual = math.hypot(*(state.residual(p).norm().item() for p in model.parameters()))
    stats, tensors = state.stats(), state.tensor_stats()
    state.close()
    assert state.stats() == stats, "also after close()"
    return stats, tensors, told, residual


def test_stats_tell_what_is_unsent_saved_and_hidden():
    for stats, tensors, told, residual in run_ranks(2, trained):
        values = 64 * 256 + 256 + 256 * 4 + 4
        assert stats["rounds"] == 4 and stats["gradient_bytes"] == 4 * 4 * values
        assert stats["dense_bytes"] == stats["gradient_bytes"], "2 (N - 1) / N of them, with two ranks"
        assert stats["bytes_saved"] == stats["dense_bytes"] - stats["bytes_sent"] > 0
        assert stats["hidden_ns"] == stats["exchange_ns"] - stats["exposed_ns"] >= 0 < stats["exposed_ns"]
        assert stats["measured_rounds"] == 4
        assert stats["residual_norm"] == pytest.approx(residual, rel=1e-5) and residual > 0
        assert stats["relative_error"] == pytest.approx(residual / stats["gradient_norm"], rel=1e-5)
        assert set(stats["groups"]) == {"topk:ratio=0.05", "fp32"}
        assert stats["groups"]["fp32"] == {
            "tensors": 3, "values": values - 64 * 256, "residual_norm": 0.0, "relative_error": 0.0,
            "gradient_norm": stats["groups"]["fp32"]["gradient_norm"],
        }  # fmt: skip
        assert tensors["0.weight"]["relative_error"] == stats["groups"]["topk:ratio=0.05"]["relative_error"] > 0.1
        assert [step for step, _ in told] == [2, 4]
        numbers = told[1][1]
        assert 0 < numbers["bytes_sent"] < numbers["dense_bytes"] == 4 * values
        assert numbers["exchange_ms"] == pytest.approx(numbers["exposed_ms"] + numbers["hidden_ms"])
        assert numbers["relative_error/topk:ratio=0.05"] > 0.1 and numbers["rounds_dropped"] == 0


NUMBERS = {"bytes_sent": 10.0, "exposed_ms": 0.5, "relative_error": 0.25, "relative_error/topk:ratio=0.05": 0.5}


def test_a_session_without_torch_is_watched_too():
    (session,) = tithe.Session.loop(1, codec="fp8", measure=1)
    told = []
    watch = tithe.monitor.Monitor(session, lambda *given: told.append(given), every=1)
    for _ in range(2):
        session.wait(session.sync({"w": np.linspace(-1, 1, 9000, dtype=np.float32)}))
        session.commit()
        watch.step()
    assert [step for _, step in told] == [1, 2]
    assert 0 < told[1][0]["relative_error/fp8"] == session.tensor_stats()["w"]["relative_error"] < 0.1
    watch.step()
    assert len(told) == 2, "no step, no numbers"


@pytest.mark.parametrize("wrong", [{"write": 3}, {"write": print, "every": 0}])
def test_a_wrong_monitor_is_refused(wrong):
    with pytest.raises(ValueError, match="write=|every="):
        tithe.monitor.Monitor(None, **wrong)


def test_wandb_gets_its_numbers():
    logged = []
    run = type("Run", (), {"log": lambda self, numbers: logged.append(numbers)})()
    tithe.monitor.wandb(run)(NUMBERS, 7)
    assert logged == [{"tithe/step": 7, **{f"tithe/{name}": value for name, value in NUMBERS.items()}}]


def needs(package):
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"needs the package {package}")


@needs("tensorboard")
def test_tensorboard_reads_back_what_was_written(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        tithe.monitor.tensorboard(writer)(NUMBERS, 7)
    read = EventAccumulator(str(tmp_path)).Reload()
    assert {tag: (read.Scalars(tag)[0].step, read.Scalars(tag)[0].value) for tag in read.Tags()["scalars"]} == {
        f"tithe/{name}": (7, value) for name, value in NUMBERS.items()
    }


@needs("prometheus_client")
def test_prometheus_shows_what_was_written():
    import prometheus_client

    registry = prometheus_client.CollectorRegistry()
    write = tithe.monitor.prometheus(registry)
    write(NUMBERS, 7)
    write({**NUMBERS, "bytes_sent": 11.0}, 8)
    page = prometheus_client.generate_latest(registry).decode()
    for line in ("tithe_step 8.0", "tithe_bytes_sent 11.0", 'tithe_relative_error{codec="all"} 0.25',
                 'tithe_relative_error{codec="topk:ratio=0.05"} 0.5'):  # fmt: skip
        assert line in page.splitlines()


class Saying:
    """A session whose codec auto has something to say."""

    last_round_dropped = False

    def commit(self):
        pass

    def said(self):
        return ["auto: stays with bf16: of a step of 48.0 ms all communication is hidden",
                "auto: trouble: the plan was refused: rank 1 has not the memory"]  # fmt: skip


def test_ordinary_news_of_auto_are_no_warnings(caplog):
    with caplog.at_level(logging.INFO, "tithe.torch"):
        _torch_live._commit(Saying(), [])
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.WARNING]


def lets_go(rank, world):
    model = DDP(torch.nn.Linear(64, 256))
    state = tithe.torch.attach(model, codec="fp8", timeout=30.0)
    model(torch.randn(8, 64)).sum().backward()
    deadline = time.monotonic() + 20
    while (kept := [o for o in gc.get_objects() if type(o) is _torch_live.Job]) and time.monotonic() < deadline:
        del kept
        time.sleep(0.05)
    left = len(kept)
    state.close()
    return left


def test_a_bucket_of_a_step_that_is_over_is_held_by_nobody():
    """The worker once held the last one until the next step: of 20 million values 80 MB, beside the bucket that DDP
    makes in its place after the first step."""
    assert run_ranks(2, lets_go) == [0, 0]
