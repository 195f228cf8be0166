# SPDX-License-Identifier: Apache-2.0
"""Optimizers of attach(): saved and resumed, detached, refusals and warnings."""

import copy
import io
import logging

import pytest
import torch
from processes import own_part, run_ranks
from small_jobs import OPTIONS, batch, bits, net, train
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch
from tithe._studied import DEFAULTS, STUDIED
from tithe.torch._optimizer.adapters import suitable

CASES = ("adamw", "exact")


def make(case, model):
    return tithe.torch.optim.AdamW(model.parameters(), lr=1e-2, exact=4 if case == "exact" else 0, max_norm=0.4)


def start(case, **options):
    model = DDP(net())
    optimizer = make(case, model)
    return model, optimizer, tithe.torch.attach(model, optimizer=optimizer, codec="minmax", **OPTIONS, **options)


# ---- Checkpoints


def interrupted(rank, world, case, saved):
    """Returns the bits after each step from the saved one on, and the saved state."""
    model, optimizer, state = start(case)
    if saved is not None:
        at = torch.load(io.BytesIO(saved[rank][1]))
        model.module.load_state_dict(at["model"])
        optimizer.load_state_dict(at["optimizer"])
        state.load_state_dict(at["tithe"])
    else:
        train(model, optimizer, rank, range(11))
    file = io.BytesIO()
    at = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    if saved is None:
        torch.save({**at, "tithe": state.state_dict()}, file)
    after = []
    for step in range(11, 40):
        train(model, optimizer, rank, [step])
        after.append(bits(model.parameters()))
    assert own_part(state.state_dict())["optimizer"]
    return after, file.getvalue()


@pytest.mark.parametrize("case", CASES)
def test_resumed_job_is_bit_equal_to_an_uninterrupted_one(case):
    whole = run_ranks(3, interrupted, case, None)
    resumed = run_ranks(3, interrupted, case, whole)
    assert [after for after, _ in resumed] == [after for after, _ in whole]


def from_torch(rank, world):
    """Loads a state of torch's AdamW into tithe's, and tithe's into torch's."""
    before = DDP(net())
    theirs = torch.optim.AdamW(before.parameters(), lr=1e-2)
    train(before, theirs, rank, range(5))
    model = DDP(copy.deepcopy(before.module))
    ours = tithe.torch.optim.AdamW(model.parameters(), lr=1e-2)
    ours.load_state_dict(theirs.state_dict())
    tithe.torch.attach(model, optimizer=ours, codec="minmax", **OPTIONS)
    train(model, ours, rank, range(5, 20))
    assert {int(s["step"]) for s in ours.state.values()} == {20}
    assert all("exp_avg_sq_part" in s for s in ours.state.values())
    back = DDP(copy.deepcopy(model.module))
    again = torch.optim.AdamW(back.parameters(), lr=1e-2)
    again.load_state_dict(ours.state_dict())
    train(back, again, rank, range(20, 25))
    return bits(back.parameters())


def test_states_convert_to_torchs_class_and_back():
    first, second = run_ranks(2, from_torch)
    assert first == second


# ---- detach


def detached_adamw(rank, world):
    model, optimizer, state = start("adamw")
    train(model, optimizer, rank, range(5))
    state.detach()
    state.detach()  # a second call has no effect
    twin = copy.deepcopy(model.module)
    theirs = torch.optim.AdamW(twin.parameters(), lr=1e-2, foreach=False)
    theirs.load_state_dict(
        {**copy.deepcopy(optimizer.state_dict()), "param_groups": theirs.state_dict()["param_groups"]}
    )
    for step in range(5, 9):
        train(model, optimizer, rank, [step])
        for p, q in zip(twin.parameters(), model.parameters(), strict=True):
            p.grad = q.grad.clone()
        theirs.step()
    return bits(twin.parameters()) == bits(model.parameters())


def test_detach_restores_torchs_adamw():
    assert run_ranks(2, detached_adamw) == [True] * 2


# ---- Exact steps


def exact(rank, world, choices):
    model = DDP(net())
    optimizer = tithe.torch.optim.AdamW(model.parameters(), lr=1e-2, exact=0.25, steps=40, warmup_codec="bf16")
    state = tithe.torch.attach(model, optimizer=optimizer, codec="onebit", choices=choices, **OPTIONS)
    codecs, sizes = [], []
    for step in range(40):
        before = {p: p.detach().clone() for p in model.parameters()}
        train(model, optimizer, rank, [step])
        codecs.append(state.tensor_stats()["0.weight"]["codec"])
        moved = torch.cat([(p.detach() - q).flatten() for p, q in before.items()])
        sizes.append(moved.norm().item())
    return codecs, sizes, bits(model.parameters()), state.tensor_stats()["2.weight"]["codec"]


@pytest.mark.parametrize("choices", [None, {"2.weight": "fp8"}])
def test_chosen_codec_follows_the_exact_steps(choices):
    results = run_ranks(2, exact, choices)
    codecs, sizes, ends, other = results[0]
    assert results[1][0] == codecs and results[1][2] == ends
    at = codecs.index("onebit")
    assert 10 <= at < 30  # the ranks' agreement takes some steps
    assert codecs == ["bf16"] * at + ["onebit"] * (40 - at)
    assert other == ("fp8" if choices else "onebit")
    assert 0.7 < sizes[at] / sizes[at - 1] < 1.4  # no jump


# ---- A step that does not count


def overflow(rank, world):
    model, optimizer, state = start(
        "adamw", loss_scale=(scaler := torch.amp.GradScaler("cpu", init_scale=8.0)).get_scale
    )
    after, scales = [], []
    for step in range(12):
        inputs, targets = batch(rank, step)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        if step in (3, 7) and rank == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        before = bits(model.parameters())
        scaler.step(optimizer)
        scaler.update()
        assert (bits(model.parameters()) == before) == (step in (3, 7))
        after.append(bits(model.parameters()))
        scales.append(scaler.get_scale())
    assert {int(s["step"]) for s in optimizer.state.values()} == {10}
    kept = own_part(state.state_dict())["optimizer"]["squares"]
    assert len(kept) == 4 and all(v.isfinite().all() for v in kept.values())
    assert all(p.isfinite().all() for p in model.parameters())
    return after, scales


def test_step_is_skipped_by_all_ranks_if_one_cannot_take_it():
    first, second = run_ranks(2, overflow)
    assert first == second
    assert first[1][3] == 4.0 and first[1][7] == 2.0


# ---- Refusals


def refused(rank, world):
    """Checks the text of each refusal of attach() with an optimizer."""

    def attach(optimizer, codec="minmax", model=None, **options):
        return tithe.torch.attach(model or DDP(net()), optimizer=optimizer, codec=codec, **OPTIONS, **options)

    def both():
        return DDP(net())

    for wrong in ("AdamW", torch.optim.AdamW, 0.9):
        with pytest.raises((ValueError, tithe.Error), match=r"takes a torch.optim.Optimizer"):
            attach(wrong)
    model = both()
    weights = [p for p in model.parameters() if p.dim() > 1]
    pair = [torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(weights)]
    with pytest.raises((ValueError, tithe.Error), match="two of the optimizers have '0.weight', '2.weight'"):
        attach(pair, model=model)
    with pytest.raises((ValueError, tithe.Error), match="has none of this model's parameters"):
        attach(torch.optim.SGD(net().parameters(), lr=0.1))
    model = both()
    with pytest.raises((ValueError, tithe.Error), match="make one of them"):
        attach([tithe.torch.optim.AdamW([p]) for p in model.parameters()], model=model)
    for make in (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), tithe.torch.optim.AdamW):
        model = both()
        with pytest.raises((ValueError, tithe.Error), match="momentum in both places"):
            attach(make(model.parameters()), "dgc:feedback=momentum", model=model)
    model = both()
    with pytest.raises((ValueError, tithe.Error), match="capturable=True steps by code"):
        attach(tithe.torch.optim.AdamW(model.parameters(), capturable=True), model=model)
    model = DDP(torch.nn.Embedding(10, 4, sparse=True))
    with pytest.raises((ValueError, tithe.Error), match="sparse"):
        attach(tithe.torch.optim.AdamW(model.parameters()), model=model)
    model = both()
    optimizer = tithe.torch.optim.AdamW(model.parameters())
    attach(optimizer, model=model)
    with pytest.raises((ValueError, tithe.Error), match="attached to a model already"):
        attach(optimizer, model=DDP(model.module))
    return True


def test_unsupported_setups_are_refused_with_the_cure():
    assert run_ranks(2, refused) == [True] * 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"exact": 0.1}, "say steps="),
        ({"exact": -1}, "how many first steps"),
        ({"exact": float("nan")}, "how many first steps"),
        ({"exact": "a tenth"}, "how many first steps"),
        ({"exact": 2.5}, "a whole number of steps"),
        ({"exact": 0.1, "steps": 0}, "1 or more"),
        ({"variance": "splitt"}, "split"),
        ({"max_norm": -1.0}, "or 0 for no clipping"),
        ({"warmup_codec": "fp9"}, "fp9"),
    ],
)
def test_invalid_arguments_of_adamw_are_refused(given, says):
    with pytest.raises(ValueError, match=says):
        tithe.torch.optim.AdamW(net().parameters(), **given)


def added(rank, world):
    """A parameter group is added during training: a layer that did not train before has no earlier step."""
    model = DDP(net())
    first, second = model.module[0].parameters(), list(model.module[2].parameters())
    optimizer = tithe.torch.optim.AdamW(first, lr=1e-2)
    tithe.torch.attach(model, optimizer=optimizer, codec="minmax", **OPTIONS)
    train(model, optimizer, rank, range(5))
    before = bits(second)
    optimizer.add_param_group({"params": second, "lr": 0.005})
    train(model, optimizer, rank, range(5, 20))
    assert bits(second) != before
    return bits(model.parameters()), sorted(len(s) for s in optimizer.state.values())


def test_group_added_during_training():
    first, second = run_ranks(2, added)
    assert first == second
    assert first[1] == [4] * 4  # torch's three keys, and the one of this class


# ---- Warnings


class LogTexts(logging.Handler):
    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append((record.levelname, record.getMessage()))


def warned(rank, world, kind, codec, choices=None):
    log_texts = LogTexts()
    log = logging.getLogger("tithe.torch")
    log.setLevel(logging.INFO)
    log.addHandler(log_texts)
    model = DDP(net())
    optimizer = {
        "AdamW": lambda p: torch.optim.AdamW(p),
        "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
        "SGD 0.9": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "RMSprop": lambda p: torch.optim.RMSprop(p),
        "Muon": lambda p: torch.optim.Muon([each for each in p if each.dim() == 2]),
        "ours": lambda p: tithe.torch.optim.AdamW(p),
        "ours, 0.4": lambda p: tithe.torch.optim.AdamW(p, exact=0.4, steps=5, warmup_codec="eden:bits=3"),
        "ours, 0.2": lambda p: tithe.torch.optim.AdamW(p, exact=0.2, steps=5, warmup_codec="eden:bits=3"),
    }[kind](model.parameters())
    tithe.torch.attach(model, optimizer=optimizer, codec=codec, choices=choices, **OPTIONS)
    train(model, optimizer, rank, range(3))
    return log_texts.texts


@pytest.mark.parametrize(
    ("kind", "codec", "says"),
    [
        ("AdamW", "onebit", "take tithe.torch.optim.AdamW"),
        ("AdamW", "qtopk:ratio=0.05", "0.18 nats"),
        ("AdamW", "fp8", None),
        ("AdamW", "blocks", None),  # the study has no such optimizer
        ("SGD 0.9", "onebit", "diverged"),
        ("SGD 0.9", "eden:bits=1", "leave codec= out for eden:bits=3"),
        ("ours", "onebit", "leave codec= out for eden:bits=3"),
        ("ours", "eden:bits=2", None),
        ("ours", "eden:bits=1", "0.07 nats"),
        ("ours, 0.4", "eden:bits=1", None),
        ("ours, 0.4", "onebit", "leave codec= out for eden:bits=3"),
        ("ours, 0.2", "eden:bits=1", "0.07 nats"),
        ("SGD", "onebit", None),
        ("RMSprop", "onebit", "under SGD 0.9 no: diverged"),
        ("RMSprop", "fp8", None),
        ("Muon", "onebit", "Newton-Schulz amplifies its error"),
        ("Muon", "fp8", None),
    ],
)
def test_unsuitable_pair_gets_one_warning(kind, codec, says):
    texts = run_ranks(2, warned, kind, codec)
    warnings = [text for level, text in texts[0] if level == "WARNING"]
    assert len(warnings) == (says is not None)
    assert says is None or says in warnings[0]
    assert not [text for level, text in texts[1] if level == "WARNING"]  # only rank 0 warns
    assert (kind == "RMSprop") == any("the optimizer is unchanged" in text for _, text in texts[0])


# ---- Codecs without a warning


def optimizers():
    parameters = list(net().parameters())
    return {
        "SGD 0.5, tuned rate": torch.optim.SGD(parameters, lr=0.1),
        "SGD 0.9": torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        "AdamW": torch.optim.AdamW(parameters),
        "tithe's AdamW": tithe.torch.optim.AdamW(parameters),
        "unknown": torch.optim.RMSprop(parameters),
    }


def test_own_codec_of_optimizers_applies_if_all_agree():
    default, known = tithe._core.Options().codec, optimizers()
    assert suitable(None, []) == suitable(None, [known["unknown"]]) == suitable(None, [known["AdamW"]]) == default
    for name in DEFAULTS:
        assert suitable(None, [known[name]]) == DEFAULTS[name]
        assert suitable(None, [known[name], known["unknown"]]) == default
        assert suitable("onebit", [known[name]]) == "onebit"


def test_auto_uses_codecs_that_the_table_allows():
    known = optimizers()
    allowed = {name: suitable("auto", [each]).removeprefix("auto:allow=").split("+") for name, each in known.items()}
    assert allowed["unknown"] == ["auto"] == [suitable("auto", [])]
    assert allowed["tithe's AdamW"] == allowed["AdamW"]  # with "auto" it divides as torch's does
    for name in ("AdamW", "SGD 0.9"):
        assert "fp8" in allowed[name] and "bf16" not in allowed[name]
        assert all(STUDIED[spec][name] == "yes" for spec in allowed[name])
    both = suitable("auto", [known["AdamW"], known["SGD 0.9"]])
    assert set(both.removeprefix("auto:allow=").split("+")) == set(allowed["AdamW"]) & set(allowed["SGD 0.9"])
    assert suitable("auto:allow=onebit", [known["AdamW"]]) == "auto:allow=onebit"


def automatic(rank, world):
    model = DDP(net())
    optimizer = torch.optim.AdamW(model.parameters())
    state = tithe.torch.attach(model, optimizer=optimizer, codec="auto", **OPTIONS)
    train(model, optimizer, rank, range(3))
    plain = DDP(net())
    sgd = torch.optim.SGD(plain.parameters(), lr=0.02, momentum=0.9)
    return state.codec, tithe.torch.attach(plain, optimizer=sgd, **OPTIONS).codec


def test_attach_accepts_optimizers():
    for auto, without_a_word in run_ranks(2, automatic):
        assert auto.startswith("auto:allow=") and "fp8" in auto
        assert without_a_word == DEFAULTS["SGD 0.9"]


@pytest.mark.parametrize(
    "choices", [{"*weight": "onebit"}, {"version": 1, "rules": [{"match": "*weight", "codec": "onebit"}]}]
)
def test_unsuitable_rule_is_reported(choices):
    texts = run_ranks(2, warned, "AdamW", "fp8", choices)
    assert [text for level, text in texts[0] if level == "WARNING" and "codec onebit does not suit" in text]
