# SPDX-License-Identifier: Apache-2.0
"""The mistakes that attach() and State detect at once, and the ranks that get the error."""

import copy
import gc
import pickle
import re
import time
import warnings

import pytest
import torch
import torch.nn as nn
from processes import own_part, run_ranks
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.torch

UNUSED = "this tithe.torch.State was never used"


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 24), nn.Linear(24, 4))


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.fine, self.wide = nn.Linear(4, 4), nn.Linear(4, 4).double()
        self.frozen = nn.Parameter(torch.zeros(2, dtype=torch.float64), requires_grad=False)

    def forward(self, x):
        return self.wide(self.fine(x).double())


# ---- One rank passes a wrong argument: it raises ValueError, and the others get the reason at once

WRONG = {
    "codec": ({"codec": "topkk"}, "did you mean 'topk'"),
    "strategy": ({"strategy": "rings"}, "unknown strategy 'rings': did you mean 'ring'"),
    "option": ({"min_valuse": 3}, "unknown option 'min_valuse': did you mean 'min_values'"),
    "option of the transport": ({"transprt": "tcp"}, "did you mean 'transport'"),
    "option of State": ({"los_scale": None}, "did you mean 'loss_scale'"),
    "timeout=inf": ({"timeout": float("inf")}, "timeout: must be a number of seconds"),
    "timeout=nan": ({"timeout": float("nan")}, "timeout: must be a number of seconds"),
    "timeout=text": ({"timeout": "long"}, "timeout='long'"),
    "loss_scale=number": ({"loss_scale": 65536.0}, "loss_scale=65536.0: must be a function.*scaler.get_scale"),
    "loss_scale=zero": ({"loss_scale": lambda: 0.0}, r"loss_scale\(\) gave 0.0: must be a finite number above 0"),
    "loss_scale=nan": ({"loss_scale": lambda: float("nan")}, r"loss_scale\(\) gave nan"),
    "parameters": ({"parameters": ()}, "takes parameters from the model"),
}


def one_rank_is_wrong(rank, world):
    refusals = {}
    for name, (wrong, _) in WRONG.items():
        model = DDP(small())
        begin = time.monotonic()
        with pytest.raises(ValueError if rank == 1 else tithe.Error) as refused:
            tithe.torch.attach(model, **{"timeout": 25.0, **(wrong if rank == 1 else {})})
        refusals[name] = (str(refused.value), getattr(refused.value, "peer", None), time.monotonic() - begin)
    model = DDP(small())
    begin = time.monotonic()
    with pytest.raises(ValueError if rank == 1 else tithe.Error) as refused:
        tithe.torch.attach(model.module if rank == 1 else model, timeout=25.0)
    refusals["not DDP"] = (str(refused.value), getattr(refused.value, "peer", None), time.monotonic() - begin)
    state = tithe.torch.attach(DDP(small()), timeout=25.0)  # all ranks may continue
    state.close()
    return refusals


def test_refusal_of_attach_reaches_all_ranks_at_once_as_readable_text():
    """They must not wait for the whole timeout, and then get only the name of a missing rank."""
    other, mine = run_ranks(2, one_rank_is_wrong)
    for name, text in {**{n: t for n, (_, t) in WRONG.items()}, "not DDP": "wrap it first"}.items():
        assert re.search(text, mine[name][0]), mine[name]
        refusals, peer, seconds = other[name]
        assert refusals == f"rank 1 refused tithe.torch.attach(): ValueError: {mine[name][0]}"
        assert "Traceback" not in refusals and "\n" not in refusals and peer == 1
        assert seconds < 20, name  # the timeout was 25


# ---- Defects of the model, by name


def wrong_models(rank, world):
    texts = []
    flat = DDP(nn.ParameterDict({"phase": nn.Parameter(torch.zeros(3, dtype=torch.complex64))}))
    hooked = DDP(small())
    hooked.register_comm_hook(None, lambda state, bucket: torch.futures.Future())
    for model in (DDP(Mixed()), flat, DDP(nn.EmbeddingBag(8, 4, sparse=True)), hooked, nn.DataParallel(small())):
        with pytest.raises(ValueError) as refused:
            tithe.torch.attach(model)
        texts.append(str(refused.value))
    return texts


def test_unsupported_models_are_refused_by_name_at_once():
    ((wide, phase, sparse, hooked, parallel),) = run_ranks(1, wrong_models)
    assert "float64" in wide and "'wide.weight', 'wide.bias'" in wide and "frozen" not in wide
    assert "complex64" in phase and "'phase'" in phase
    assert "sparse" in sparse and "'weight'" in sparse
    assert "has a communication hook already" in hooked
    assert "not DataParallel" in parallel


def test_positional_mistakes_get_a_suggestion():
    with pytest.raises(ValueError, match=r"process group, not 'qtopk': for a codec write State\(codec='qtopk'\)"):
        tithe.torch.State("qtopk")
    with pytest.raises(ValueError, match=r"not an object of type Sequential: for a model call tithe.torch.attach"):
        tithe.torch.State(small())
    for wrong, text in [
        (small().parameters(), "tensors without names"),
        (small(), "is a model"),
        ([("weight", 3)], "named_parameters"),
        (["weight"], "named_parameters"),
        (3, "parameters=3"),
    ]:
        with pytest.raises(ValueError, match=text):
            tithe.torch.State(parameters=wrong)


# ---- Ranks whose models differ


def other_names(rank, world):
    module = nn.Module()
    for name in ("a", "b") if rank == 0 else ("b", "a"):
        setattr(module, name, nn.Linear(4, 4, bias=False))
    module.forward = lambda x: module.a(module.b(x))
    with pytest.raises(tithe.Error) as error:
        tithe.torch.attach(DDP(module), timeout=20.0)
    return error.value.code, error.value.peer, str(error.value)


def test_different_orders_of_equal_shapes_are_refused():
    """DDP compares only shapes: gradients of one parameter would silently be added to another."""
    for code, peer, text in run_ranks(2, other_names):
        assert (code, peer) == ("mismatch", 1)
        assert "parameter 0 is 'a.weight' (4, 4) float32 on rank 0 and 'b.weight' (4, 4) float32 on rank 1" in text


# ---- An unused State


def test_unused_state_warns_with_its_creation_site():
    def drop():
        tithe.torch.State()
        gc.collect()

    with pytest.warns(RuntimeWarning, match=UNUSED) as caught:
        drop()
    ours = [w.filename for w in caught if w.category is RuntimeWarning]  # States of earlier tests are collected as well
    assert ours == [__file__]


def test_only_the_unpickled_copy_of_a_state_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = tithe.torch.State()
        kept = copy.deepcopy(state)
        blob = pickle.dumps(state)
        state.close()
        del state, kept
        gc.collect()
    with pytest.warns(RuntimeWarning, match=UNUSED):
        pickle.loads(blob)


def used(rank, world):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = DDP(small())
        state = tithe.torch.State(timeout=20.0)
        model.register_comm_hook(state, tithe.torch.hook)
        model(torch.ones(2, 24)).sum().backward()
        state.close()
        del model, state
        gc.collect()


def test_used_state_does_not_warn():
    run_ranks(1, used)


# ---- Two models


def shared_by_a_gan(rank, world, named):
    generator, critic = DDP(small()), DDP(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)))
    pairs = [(f"{i}.{n}", p) for i, m in enumerate((generator, critic)) for n, p in m.module.named_parameters()]
    state = tithe.torch.State(codec="topk:ratio=0.1", timeout=20.0, parameters=pairs if named else ())
    for model in (generator, critic):
        model.register_comm_hook(state, tithe.torch.hook)
    with pytest.raises(ValueError) as refused:
        critic(generator(torch.randn(8, 24))).mean().backward()
    return str(refused.value)


@pytest.mark.parametrize("named", [False, True])
def test_state_shared_by_two_models_is_refused_before_any_send(named):
    """All ranks must fail with the same text, in every run."""
    for text in run_ranks(2, shared_by_a_gan, named):
        assert "2 models have registered it" in text and "tithe.torch.attach()" in text


def gan(rank, world):
    torch.manual_seed(0)
    generator, critic = DDP(small()), DDP(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    states = [tithe.torch.attach(m, codec="topk:ratio=0.3", min_values=0, timeout=20.0) for m in (generator, critic)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (generator, critic)]
    torch.manual_seed(1 + rank)
    for _ in range(3):
        real, noise = torch.randn(8, 4) + 3, torch.randn(8, 24)
        optimizers[1].zero_grad()
        (critic(generator(noise).detach()).mean() - critic(real).mean()).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        critic.requires_grad_(False)  # the generator's step must not change the critic
        (-critic.module(generator(noise)).mean()).backward()
        critic.requires_grad_(True)
        optimizers[0].step()
    return [s.stats()["rounds"] for s in states], [p.detach().numpy().tobytes() for p in generator.parameters()]


def test_a_gan_trains_with_one_attach_per_model():
    (rounds, mine), (_, others) = run_ranks(2, gan)
    assert rounds == [3, 3]
    assert mine == others


# ---- torch.compile


def compiled(rank, world, how):
    module = small()
    if how == "module":
        model = DDP(torch.compile(module, backend="eager"))
        state = tithe.torch.attach(model, codec="topk:ratio=0.1", min_values=0, timeout=30.0)
    elif how == "attached":
        model = DDP(module)
        state = tithe.torch.attach(model, codec="topk:ratio=0.1", min_values=0, timeout=30.0)
        model = torch.compile(model, backend="eager")
    else:
        model = torch.compile(DDP(module), backend="eager")
        state = tithe.torch.attach(model, codec="topk:ratio=0.1", min_values=0, timeout=30.0)
    torch.manual_seed(1 + rank)
    for _ in range(3):
        module.zero_grad()
        model(torch.randn(8, 24)).pow(2).mean().backward()
        with torch.no_grad():
            for p in module.parameters():
                p -= 0.1 * p.grad
    saved = own_part(state.state_dict())
    blob = saved["session"].numpy().tobytes()
    assert b"0.weight" in blob and b"_orig_mod" not in blob
    return (
        list(saved["parameters"]),
        state.stats()["rounds"],
        [p.detach().numpy().tobytes() for p in module.parameters()],
    )


def not_compiled(rank, world):
    return [compiled(rank, world, how) for how in ("module", "attached", "model")], plain(rank)


def plain(rank):
    module = small()
    model = DDP(module)
    state = tithe.torch.attach(model, codec="topk:ratio=0.1", min_values=0, timeout=30.0)
    torch.manual_seed(1 + rank)
    for _ in range(3):
        module.zero_grad()
        model(torch.randn(8, 24)).pow(2).mean().backward()
        with torch.no_grad():
            for p in module.parameters():
                p -= 0.1 * p.grad
    return list(own_part(state.state_dict())["parameters"]), state.stats()["rounds"]


def test_torch_compile_before_and_after_attach_trains_under_the_models_own_names():
    for ways, (names, rounds) in run_ranks(2, not_compiled):
        for theirs, count, _ in ways:
            assert sorted(theirs) == sorted(names) == ["0.bias", "0.weight", "1.bias", "1.weight"]
            assert count == rounds == 3


# ---- Checkpoints that rank 0 writes alone


def gathered(rank, world, folder, part):
    module = small()
    model = DDP(module)
    state = tithe.torch.attach(model, codec="topk:ratio=0.1", min_values=0, timeout=20.0)
    path = f"{folder}/checkpoint.pt"
    if part == "second":
        saved = torch.load(path, weights_only=True)
        module.load_state_dict(saved["model"])
        tithe.torch.Gathered(state).load_state_dict(saved["tithe"])
    for step in {"whole": range(8), "first": range(4), "second": range(4, 8)}[part]:
        module.zero_grad()
        model(torch.randn(8, 24, generator=torch.Generator().manual_seed(10 * step + rank))).pow(2).mean().backward()
        with torch.no_grad():
            for p in module.parameters():
                p -= 0.1 * p.grad
    if part == "first":
        theirs = tithe.torch.Gathered(state).state_dict()
        if rank == 0:
            torch.save({"model": module.state_dict(), "tithe": theirs}, path)
        else:
            with pytest.raises(ValueError, match="load what rank 0 saved"):
                state.load_state_dict(theirs)
    return [p.detach().numpy().tobytes() for p in module.parameters()]


def other_world(rank, world, folder):
    state = tithe.torch.attach(DDP(small()), codec="topk:ratio=0.1", min_values=0, timeout=20.0)
    saved = torch.load(f"{folder}/checkpoint.pt", weights_only=True)["tithe"]
    with pytest.raises(ValueError, match="saved by 2 ranks and this job has 1"):
        state.load_state_dict(saved["ranks"][0])
    state.load_state_dict(saved)  # of all of them: test_elastic.py
    state.close()


def test_a_checkpoint_of_rank_0_alone_resumes_lossy_states_bit_identically(tmp_path):
    whole = run_ranks(2, gathered, str(tmp_path), "whole")
    run_ranks(2, gathered, str(tmp_path), "first")
    assert run_ranks(2, gathered, str(tmp_path), "second") == whole
    run_ranks(1, other_world, str(tmp_path))
