# SPDX-License-Identifier: Apache-2.0
"""`choices=`: accepted values, the resulting codecs of a model's parameters, and refusals."""

import copy
import json
import threading

import numpy as np
import pytest
import torch
import torch.nn as nn
from processes import run_ranks
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch
from tithe._choices import choices_text, is_lossless

RULES = {"*embedding*": {"codec": "topk:ratio=0.02", "strategy": "gather"}, "*bias": "fp32", "*norm*": "fp32"}


def test_a_dict_a_text_and_a_file_are_the_same(tmp_path):
    file = tmp_path / "choices.json"
    file.write_text(json.dumps(RULES))
    assert choices_text(RULES) == choices_text(json.dumps(RULES)) == choices_text(file) == choices_text(str(file))
    assert choices_text(None) == ""


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("nowhere.json", "nowhere.json.*give a dict, JSON text, or a file"),
        (3, "give a dict, JSON text"),
        ({"*.bias": {1, 2}}, "not JSON"),
        ('{"*.bias": ', "not valid JSON"),
        ({"*.bias": "fp23"}, r"rule 1 \('\*.bias'\).*did you mean 'fp32'"),
        ({"*.bias": {"codek": "fp32"}}, "did you mean 'codec'"),
        ({"*.bias": {"inside": "bf16"}}, "'inside'.*or omit 'inside'"),
        ({"*.bias": {"codec": "powersgd", "group": "g"}}, "remove the group"),
    ],
)
def test_invalid_choices_are_refused_at_the_call(wrong, text):
    for given in (lambda: tithe.Session.loop(1, choices=wrong), lambda: tithe.torch.State(choices=wrong)):
        with pytest.raises(ValueError, match=text):
            given()


@pytest.mark.parametrize("wrong", ["10", "fast", "1Gb/s+3"])
def test_invalid_link_is_reported(wrong):
    with pytest.raises(ValueError, match="such as 10Gb/s"):
        tithe.torch.State(link=wrong)


def test_session_follows_the_choices():
    sessions = tithe.Session.loop(2, codec="topk:ratio=0.01", choices={"raw.*": "fp32"})

    def train(session):
        session.wait(session.sync({k: np.ones(8000, np.float32) for k in ("raw.w", "w")}))
        session.commit()

    ranks = [threading.Thread(target=train, args=(session,)) for session in sessions]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert not sessions[0].residual("raw.w", 8000).any()
    assert sessions[0].residual("w", 8000).sum() == 7920
    assert "tensor raw.w: 8000 values, fp32 by gather, part 0 (rule 1 ('raw.*'))" in sessions[0].plan_text()


def test_lossless_means_all_rules():
    assert is_lossless("fp32") and is_lossless("fp32", {"*.bias": {"strategy": "ring"}})
    assert not is_lossless("fp32", RULES)
    assert not is_lossless("fp8")


class Words(nn.Module):
    """A small transformer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(500, 32)
        self.layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 500)

    def forward(self, words):
        return self.head(self.layer(self.embedding(words)))


def step(model, rank, number):
    words = torch.randint(500, (4, 8), generator=torch.Generator().manual_seed(10 * number + rank))
    model(words).logsumexp(-1).mean().backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
            p.grad = None


def trained(rank, world):
    """Trains a model under choices and resumes it, with the same choices and with others. Returns the bits of the
    parameters."""
    torch.manual_seed(1)
    first = Words()
    model = DDP(first)
    options = {"codec": "fp8", "min_values": 1000, "timeout": 20.0}
    state = tithe.torch.attach(model, choices=RULES, **options)
    step(model, rank, 0)
    step(model, rank, 1)
    plan = state.plan()
    assert "tensor embedding.weight: 16000 values, topk:ratio=0.02 by gather" in plan
    assert "tensor head.weight: 16000 values, fp8 by gather" in plan
    assert "tensor layer.norm1.weight: 32 values, fp32 by" in plan
    assert state.residual(first.embedding.weight).any()
    assert not state.residual(first.layer.norm1.weight).any()

    # A checkpoint with the same choices continues bit for bit; with others it is refused.
    saved, weights = state.state_dict(), copy.deepcopy(first.state_dict())
    step(model, rank, 2)
    for choices in (RULES, {**RULES, "*bias": "bf16"}):
        again = Words()
        again.load_state_dict(weights)
        other = tithe.torch.State(choices=choices, parameters=again.named_parameters(), **options)
        other.load_state_dict(saved)
        ddp = DDP(again)
        ddp.register_comm_hook(other, tithe.torch.hook)
        if choices is not RULES:
            with pytest.raises(ValueError, match="saved with other choices.*rule 2"):
                step(ddp, rank, 2)
            continue
        step(ddp, rank, 2)
        for a, b in zip(first.parameters(), again.parameters(), strict=True):
            assert torch.equal(a, b)
    return [p.detach().numpy().tobytes() for p in first.parameters()]


def test_a_transformer_trains_with_a_rule_for_its_embedding():
    mine, other = run_ranks(2, trained)
    assert mine == other


def misnamed(rank, world):
    with pytest.raises(ValueError, match=r"rule 1 \('head.wieght'\).*did you mean 'head.weight'"):
        tithe.torch.attach(DDP(Words()), choices={"head.wieght": "fp32"}, timeout=20.0)
    with pytest.warns(RuntimeWarning, match=r"rule 2 \('\*conv\*'\) matches no tensor"):
        tithe.torch.attach(DDP(Words()), choices={"*bias": "fp32", "*conv*": "fp32"}, timeout=20.0).close()


def test_unknown_parameter_names_are_reported_before_the_first_step():
    run_ranks(1, misnamed)
