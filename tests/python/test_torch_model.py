# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.record_model: a model of the user's own as a file for `tithe simulate` and `tithe replay`."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
import torch
import torch.nn as nn
from processes import run_ranks
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe.torch

ROOT = Path(__file__).resolve().parents[2]
TITHE = os.environ.get("TITHE_BIN", str(ROOT / "build/tithe"))
WORDS, WIDTH, LENGTH = 50, 16, 6


class Language(nn.Module):
    """A small transformer. The output shares the embedding; one layer is frozen, and no step uses another one."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0, batch_first=True) for _ in range(2)
        )
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.unused = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WORDS)
        self.out.weight = self.embed.weight
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return {"logits": [self.out(self.frozen(x) * self.scale)]}


def step_of(model, parts=1):
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(WORDS, (4, LENGTH), generator=torch.Generator().manual_seed(0))

    def step():
        for _ in range(parts):
            logits = model(tokens)["logits"][0]
            nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def report(*line):
    done = subprocess.run([TITHE, *line, "--json"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(written, model, without):
    """Checks that names, sizes and rows are the model's, each once and in order of readiness."""
    expected = {
        name: (p.numel(), p.numel() // p.shape[0] if p.dim() > 1 else p.numel())
        for name, p in model.named_parameters()
        if p.requires_grad and not name.startswith(without)
    }
    tensors = written["tensors"]
    assert {t["name"]: (t["values"], t["row"]) for t in tensors} == expected
    assert len(tensors) == len(expected)
    assert [t["ready_ms"] for t in tensors] == sorted(t["ready_ms"] for t in tensors)
    assert written["forward_ms"] > 0 and tensors[-1]["ready_ms"] > 0


def test_model_file_lists_gradients_in_order(tmp_path):
    torch.manual_seed(0)
    model = Language()
    written = tithe.torch.record_model(model, step_of(model), tmp_path / "mine.json", name="mine")
    assert json.loads((tmp_path / "mine.json").read_text()) == written
    check(written, model, "unused.")
    names = [t["name"] for t in written["tensors"]]
    assert names.index("out.bias") < names.index("layers.1.linear2.weight") < names.index("layers.0.linear2.weight")
    assert names[-1] == "embed.weight"  # tied: its last use is the input, at the end of backward
    assert "unused.weight" in written["times"]
    assert [p.name for p in tmp_path.iterdir()] == ["mine.json"]
    # No hook of tithe remains on the model.
    assert not model._forward_hooks and not model._forward_pre_hooks
    assert all(not p._post_accumulate_grad_hooks for p in model.parameters())


def test_the_command_reads_it(tmp_path):
    model = Language()
    path = str(tmp_path / "mine.json")
    tithe.torch.record_model(model, step_of(model), path, steps=1)
    (answer,) = report("simulate", "--model", path, "--cluster", "office_1g", "--codec", "fp32")["settings"]
    written = json.loads(Path(path).read_text())
    compute = written["forward_ms"] + written["tensors"][-1]["ready_ms"]
    assert answer["compute_ms"] == pytest.approx(compute, rel=1e-3)
    replayed = report("replay", "--model", path, "--ranks", "2", "--link", "none", "--steps", "2")
    assert replayed["model"] == path


class Slow(torch.autograd.Function):
    """Takes 30 ms forward and 50 ms backward."""

    @staticmethod
    def forward(ctx, x):
        time.sleep(0.03)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.05)
        return gradient


class Timed(nn.Module):
    def __init__(self):
        super().__init__()
        self.early, self.late = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.late(Slow.apply(self.early(x)))


@pytest.mark.parametrize("parts", [1, 3])
def test_times_are_those_of_the_last_backward(tmp_path, parts):
    model = Timed()

    def step():
        for _ in range(parts):
            model(torch.ones(2, 4)).sum().backward()
        with torch.no_grad():
            model(torch.ones(2, 4))  # an evaluation, which must not count

    written = tithe.torch.record_model(model, step, tmp_path / "m.json", steps=2, warmup=0)
    ready = {t["name"]: t["ready_ms"] for t in written["tensors"]}
    # A sleep lasts at least as long as requested; the excess on a busy machine has no bound.
    assert written["forward_ms"] >= 30 * parts + 50 * (parts - 1)
    assert ready["early.weight"] - ready["late.weight"] >= 50
    assert list(ready)[-1].startswith("early.")


def in_ddp(rank, world, folder):
    torch.manual_seed(0)
    net = Language()
    model = DDP(net, find_unused_parameters=True)
    tithe.torch.attach(model)
    written = tithe.torch.record_model(model, step_of(model), folder / "ddp.json", steps=1, warmup=1)
    assert written["model"] == "Language"
    check(written, net, "no such")  # DDP sends unused parameters under find_unused_parameters
    assert written["tensors"][0]["name"].startswith("unused.")


def test_in_ddp_rank_0_writes_the_names_of_the_model(tmp_path):
    run_ranks(2, in_ddp, tmp_path)
    written = json.loads((tmp_path / "ddp.json").read_text())
    assert all(not t["name"].startswith("module.") for t in written["tensors"])
    assert [p.name for p in tmp_path.iterdir()] == ["ddp.json"]


def test_compiled_has_the_names_of_the_model(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    compiled = torch.compile(model, backend="eager")
    step = lambda: compiled(torch.ones(2, 4)).sum().backward()  # noqa: E731
    written = tithe.torch.record_model(compiled, step, tmp_path / "m.json", steps=1)
    assert written["model"] == "Sequential"
    check(written, model, "no such")


def test_unsupported_models_are_refused_without_a_file(tmp_path):
    model, path = Timed(), tmp_path / "m.json"
    step = lambda: model(torch.ones(2, 4)).sum().backward()  # noqa: E731
    with pytest.raises(ValueError, match="ends in .json"):
        tithe.torch.record_model(model, step, tmp_path / "m.txt")
    with pytest.raises(ValueError, match="at least one step"):
        tithe.torch.record_model(model, step, path, steps=0)
    with pytest.raises(ValueError, match="nothing to hand over"):
        tithe.torch.record_model(Timed().requires_grad_(False), step, path)
    with pytest.raises(ValueError, match="did not run the model's forward"):
        tithe.torch.record_model(Timed(), step, path)
    with pytest.raises(ValueError, match="no backward"):
        tithe.torch.record_model(model, lambda: model(torch.ones(2, 4)), path)
    with pytest.raises(ZeroDivisionError):
        tithe.torch.record_model(model, lambda: 1 // 0, path, warmup=0)
    assert not model._forward_hooks and all(not p._post_accumulate_grad_hooks for p in model.parameters())
    with pytest.raises(FileNotFoundError):
        tithe.torch.record_model(model, step, tmp_path / "missing" / "m.json")
    assert list(tmp_path.iterdir()) == []
