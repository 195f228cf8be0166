# SPDX-License-Identifier: Apache-2.0
"""The figures of stats(), and the numbers that tithe.monitor writes for plots."""

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
from tithe.torch._hook import workers


def trained(rank, world):
    torch.manual_seed(0)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4)))
    state = tithe.torch.attach(model, codec="topk:ratio=0.05", timeout=30.0)
    torch.manual_seed(1 + rank)
    reports = []
    watch = tithe.monitor.Monitor(state, lambda numbers, step: reports.append((step, numbers)), every=2)
    for _ in range(4):
        model(torch.randn(8, 64)).square().sum().backward()
        watch.step()
        model.zero_grad()
    residual = math.hypot(*(state.residual(p).norm().item() for p in model.parameters()))
    stats, tensors = state.stats(), state.tensor_stats()
    state.close()
    assert state.stats() == stats, "also after close()"
    return stats, tensors, reports, residual


def test_stats_report_unsent_saved_and_hidden_bytes():
    for stats, tensors, reports, residual in run_ranks(2, trained):
        values = 64 * 256 + 256 + 256 * 4 + 4
        assert stats["rounds"] == 4 and stats["gradient_bytes"] == 4 * 4 * values
        assert stats["dense_bytes"] == stats["gradient_bytes"], "2 (N - 1) / N of them, with two ranks"
        assert stats["bytes_saved"] == stats["dense_bytes"] - stats["bytes_sent"] > 0
        assert stats["hidden_ns"] == stats["exchange_ns"] - stats["exposed_ns"] >= 0 < stats["exposed_ns"]
        assert stats["measured_round"] == 4
        assert stats["residual_norm"] == pytest.approx(residual, rel=1e-5) and residual > 0
        assert stats["relative_error"] == stats["groups"]["topk:ratio=0.05"]["relative_error"], "compressed ones alone"
        assert stats["relative_error"] > residual / stats["gradient_norm"] > 0
        assert set(stats["groups"]) == {"topk:ratio=0.05", "fp32"}
        assert stats["groups"]["fp32"] == {
            "tensors": 3, "values": values - 64 * 256, "residual_norm": 0.0, "relative_error": 0.0,
            "gradient_norm": stats["groups"]["fp32"]["gradient_norm"],
        }  # fmt: skip
        assert tensors["0.weight"]["relative_error"] == stats["groups"]["topk:ratio=0.05"]["relative_error"] > 0.1
        assert [step for step, _ in reports] == [2, 4]
        numbers = reports[1][1]
        assert 0 < numbers["bytes_sent"] < numbers["dense_bytes"] == 4 * values
        assert numbers["exchange_ms"] == pytest.approx(numbers["exposed_ms"] + numbers["hidden_ms"])
        assert numbers["relative_error/topk:ratio=0.05"] > 0.1 and numbers["rounds_dropped"] == 0


def with_squares(rank, world):
    """Trains with tithe's AdamW at 1 bit: squares are sent beside the gradients in steps 2, 4 and so on."""
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(128, 128))
    optimizer = tithe.torch.optim.AdamW(model.parameters(), lr=1e-3)
    state = tithe.torch.attach(model, codec="eden:bits=1", optimizer=optimizer)
    torch.manual_seed(1 + rank)
    reports = []
    for _ in range(4):
        model(torch.randn(8, 128)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        reports.append(state.stats())
    tensors = state.tensor_stats()
    state.close()
    return reports, tensors


def test_side_tensors_of_optimizers_are_counted_separately():
    for reports, tensors in run_ranks(2, with_squares):
        side = [name for name, t in tensors.items() if t["side"]]
        gradients = {name: t for name, t in tensors.items() if not t["side"]}
        assert side and set(gradients) == {"module.weight", "module.bias"} or set(gradients) == {"weight", "bias"}
        last = reports[-1]
        assert last["measured_round"] == 4
        assert last["relative_error"] == gradients["weight"]["relative_error"] > 0.3
        norms = [t["gradient_norm"] for t in gradients.values()]
        assert last["gradient_norm"] == pytest.approx(math.hypot(*norms))
        assert last["gradient_bytes"] == last["dense_bytes"] == 4 * 4 * (128 * 128 + 128)
        assert last["bytes_saved"] == last["dense_bytes"] - last["bytes_sent"]
        assert set(last["groups"]) == {"eden:bits=1", "fp32"}


def tells(rank, world, codec):
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.levelname, record.getMessage()))
    log = logging.getLogger("tithe.torch")
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)))
    state = tithe.torch.attach(model, **({"codec": codec} if codec else {}))
    before = str(state)
    for _ in range(101):
        model(torch.randn(8, 64)).square().sum().backward()
        model.zero_grad()
    text = str(state)
    plan = state.plan()
    state.close()
    return lines, before, text, plan, str(state)


@pytest.mark.parametrize(
    ("codec", "errors"),
    [
        (None, ("relative error 0.0", "in step 100")),
        ("eden:scale=unbiased,feedback=none", ("the codec keeps no residual",)),
    ],
)
def test_rank_0_logs_two_lines_and_a_state_prints_its_figures(codec, errors):
    (lines, before, text, plan, closed), (other, *_) = run_ranks(2, tells, codec)
    assert other == [] and [level for level, _ in lines] == ["INFO", "INFO"]
    first, second = (line for _, line in lines)
    dense = 4 * (2 * 64 * 256 + 64 + 256)
    named = codec or "fp8"
    for part in (f"codec {named} by ", "over ucx, 2 ranks", "2 of 4 tensors compressed", "gradients on cpu",
                 f"{dense / 1e3:.3g} kB as fp32", f"{dense / 2e3:.3g} kB as bf16", "in the first step"):  # fmt: skip
        assert part in first, (part, first)
    for part in ("after 100 steps", "hidden behind backward", "exposed after it", *errors):
        assert part in second, (part, second)
    assert "0 steps" in before
    for part in (f"codec {named}", "101 steps", "sent per step", errors[0][:14]):
        assert part in text, (part, text)
    assert closed == text and len(text.splitlines()) <= 6
    assert "as asked" not in plan and ("(default)" in plan or codec)


NUMBERS = {"bytes_sent": 10.0, "exposed_ms": 0.5, "relative_error": 0.25, "relative_error/topk:ratio=0.05": 0.5}


def test_session_without_torch_can_be_monitored():
    (session,) = tithe.Session.loop(1, codec="fp8", measure=1)
    reports = []
    watch = tithe.monitor.Monitor(session, lambda *given: reports.append(given), every=1)
    for _ in range(2):
        session.wait(session.sync({"w": np.linspace(-1, 1, 9000, dtype=np.float32)}))
        session.commit()
        watch.step()
    assert [step for _, step in reports] == [1, 2]
    assert 0 < reports[1][0]["relative_error/fp8"] == session.tensor_stats()["w"]["relative_error"] < 0.1
    watch.step()
    assert len(reports) == 2, "no step, no numbers"


@pytest.mark.parametrize("wrong", [{"write": 3}, {"write": print, "every": 0}])
def test_a_wrong_monitor_is_refused(wrong):
    with pytest.raises(ValueError, match="write=|every="):
        tithe.monitor.Monitor(None, **wrong)


def test_wandb_receives_the_numbers():
    logged = []
    run = type("Run", (), {"log": lambda self, numbers: logged.append(numbers)})()
    tithe.monitor.wandb(run)(NUMBERS, 7)
    assert logged == [{"tithe/step": 7, **{f"tithe/{name}": value for name, value in NUMBERS.items()}}]


def needs(package):
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"needs the package {package}")


@needs("tensorboard")
def test_tensorboard_values_round_trip(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        tithe.monitor.tensorboard(writer)(NUMBERS, 7)
    read = EventAccumulator(str(tmp_path)).Reload()
    assert {tag: (read.Scalars(tag)[0].step, read.Scalars(tag)[0].value) for tag in read.Tags()["scalars"]} == {
        f"tithe/{name}": (7, value) for name, value in NUMBERS.items()
    }


@needs("prometheus_client")
def test_prometheus_exports_the_written_values():
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
    """A session whose codec auto has messages."""

    last_round_dropped = False

    def commit(self):
        pass

    def messages(self):
        return ["auto: keeps the current rules: all communication of a step of 48.0 ms is hidden",
                "auto: trouble: the plan was refused: rank 1 has not the memory"]  # fmt: skip


def test_ordinary_news_of_auto_are_no_warnings(caplog):
    with caplog.at_level(logging.INFO, "tithe.torch"):
        workers._commit(Saying(), [])
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.WARNING]


def lets_go(rank, world):
    model = DDP(torch.nn.Linear(64, 256))
    state = tithe.torch.attach(model, codec="fp8", timeout=30.0)
    model(torch.randn(8, 64)).sum().backward()
    deadline = time.monotonic() + 20
    while (kept := [o for o in gc.get_objects() if type(o) is workers.Job]) and time.monotonic() < deadline:
        del kept
        time.sleep(0.05)
    left = len(kept)
    state.close()
    return left


def test_buckets_are_released_after_their_step():
    """The worker must not keep the last bucket until the next step. DDP replaces its buckets after the first step, so
    with 20 million values 80 MB would stay allocated."""
    assert run_ranks(2, lets_go) == [0, 0]
