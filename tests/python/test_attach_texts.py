# SPDX-License-Identifier: Apache-2.0
"""The texts of attach() on other ways to train on several devices, on small tensors, and on clipping."""

import math
import warnings

import pytest
import torch
import torch.distributed as dist
from processes import run_ranks
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe.torch
from tithe import _choices, _core


def refused(model):
    with pytest.raises(ValueError) as wrong:
        tithe.torch.attach(model)
    return str(wrong.value)


def test_data_parallel_is_refused_with_one_process_per_device_as_cure():
    text = refused(torch.nn.DataParallel(torch.nn.Linear(4, 4)))
    assert "not DataParallel" in text and "torchrun" in text and "DistributedDataParallel(model.module)" in text


def test_plain_model_is_refused_with_ddp_as_cure():
    assert "wrap it first, model = DistributedDataParallel(model)" in refused(torch.nn.Linear(4, 4))


def wrappers(rank, world):
    from torch.distributed._composable.replicate import replicate
    from torch.distributed.fsdp import FullyShardedDataParallel

    texts = {}
    for name, make in {
        "replicate": lambda: replicate(torch.nn.Linear(64, 96)),
        "fsdp": lambda: FullyShardedDataParallel(torch.nn.Linear(64, 96), device_id=torch.device("cpu")),
    }.items():
        model = make()
        try:
            tithe.torch.attach(model)
        except (ValueError, tithe.Error) as wrong:
            texts[name] = str(wrong)
    with pytest.raises(ValueError, match="FullyShardedDataParallel calls its communication hooks") as wrong:
        tithe.torch.hook(tithe.torch.State(), torch.zeros(4), torch.zeros(2))
    texts["hook"] = str(wrong.value)
    # The text's statement about replicate() is true.
    torch.manual_seed(0)
    model = replicate(torch.nn.Linear(64, 96))
    state = tithe.torch.State(parameters=model.named_parameters(), codec="fp8", timeout=30.0)
    model.register_comm_hook(state, tithe.torch.hook)
    model(torch.full((2, 64), float(rank + 1))).sum().backward()
    assert torch.allclose(model.weight.grad, torch.full((96, 64), 3.0), rtol=0.05)
    assert state.stats()["rounds"] == 1 and set(state.tensor_stats()) == {"weight", "bias"}
    state.close()
    return texts


def test_sharded_and_replicated_models_are_refused_with_the_cure():
    for texts in run_ranks(2, wrappers):
        assert "which replicate() made" in texts["replicate"] and "register_comm_hook" in texts["replicate"]
        for name in ("fsdp", "hook"):
            assert "use DistributedDataParallel(model) instead" in texts[name], texts[name]
            assert "Use FSDP2, fully_shard(), which attach() takes" in texts[name], texts[name]


class Many(torch.nn.Module):
    def __init__(self, count=1200):
        super().__init__()
        self.parts = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(64)) for _ in range(count))

    def forward(self, x):
        return sum((p * x).sum() for p in self.parts)


def many_small(rank, world, choices):
    model = DDP(Many())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state = tithe.torch.attach(model, timeout=60.0, **({"choices": choices} if choices else {}))
    model(torch.full((64,), float(rank + 1))).backward()
    stats = state.stats()
    state.close()
    return [str(w.message) for w in caught if w.category is RuntimeWarning], stats["bytes_sent"] / stats["dense_bytes"]


def test_many_small_uncompressed_tensors_warn_with_a_working_cure():
    (warned, sent), (others, _) = run_ranks(2, many_small, None)
    assert others == [], "one rank says it"
    (text,) = warned
    assert "1,200 parameters of fewer than 4096 values are sent uncompressed" in text and "100% of all bytes" in text
    assert sent > 0.98
    cure = {"< 4096": {"codec": "fp8", "group": "small ones"}}
    assert f"choices={cure}" in text
    (warned, sent), _ = run_ranks(2, many_small, cure)
    assert warned == [] and sent < 0.3


@pytest.mark.parametrize(
    ("codec", "cure"), [("fp8", "fp8"), ("onebit", "onebit"), ("powersgd", "fp8"), ("fp32", None), ("auto", None)]
)
def test_cure_for_small_tensors_names_a_codec_for_groups(codec, cure):
    options = _core.Options()
    options.codec = codec
    parameters = [(f"p{i}", torch.empty(64)) for i in range(2000)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _choices.warn_uncompressed(options, parameters)
    assert (cure is None and not caught) or f"To send them by {cure}," in str(caught[0].message)


def test_few_small_tensors_do_not_warn():
    options = _core.Options()
    few = [("p", torch.empty(1_000_000))] + [(f"b{i}", torch.empty(512)) for i in range(200)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _choices.warn_uncompressed(options, few)


# ---- Clipping


def clipped_steps(rank, world):
    model = DDP(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 4)))
    state = tithe.torch.attach(model, codec="fp32", clip=0.5, timeout=30.0)
    assert state.codec == "fp32:clip=0.5"
    model(torch.randn(8, 64)).square().sum().backward()
    norms = [p.grad.norm().item() for p in model.parameters()]
    before = {name: t["gradient_norm"] for name, t in state.tensor_stats().items()}
    state.close()
    dist.barrier()
    return norms, before


def test_clip_limits_each_parameters_gradient_on_each_rank_before_it_is_sent():
    for norms, before in run_ranks(2, clipped_steps):
        assert all(norm <= 0.5001 for norm in norms), "raw ones too"
        assert min(before.values()) > 0.5, "and each of them was larger"


def test_clip_works_in_the_codec_or_as_an_argument():
    state = tithe.torch.State(codec="topk:ratio=0.05", clip=2)
    state.close()  # the State was used, so close() must not warn
    assert state.codec == "topk:ratio=0.05,clip=2"
    for wrong in (-1.0, math.nan, math.inf, "1"):
        with pytest.raises(ValueError, match="clip="):
            tithe.torch.State(clip=wrong)
    with pytest.raises(ValueError, match="clip as well"):
        tithe.torch.State(codec="fp8:clip=1", clip=2)
    with pytest.raises(ValueError, match="name one"):
        tithe.torch.State(codec="auto", clip=2)
