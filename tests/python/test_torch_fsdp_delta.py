# SPDX-License-Identifier: Apache-2.0
"""Weights of a sharded model as lossless differences: the same bits as uncompressed weights, in fewer bytes."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn as nn
from fsdp_jobs import one_mesh
from processes import run_ranks
from sharded_jobs import bits
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import tithe.torch
from tithe import _core
from tithe.torch._sharded import fsdp_delta
from tithe.torch._sharded.fsdp_rounds import Tally

sys.path.append(str(Path(__file__).parents[1] / "second_decoder"))

import tithe_delta  # noqa: E402

STEPS = 12


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.ModuleList(nn.Linear(192, 192) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def trained(rank, weights, dtype, reshard):
    torch.manual_seed(2)
    network = Network()
    for layer in network.layers:
        fully_shard(layer, mesh=one_mesh(), mp_policy=MixedPrecisionPolicy(dtype), reshard_after_forward=reshard)
    network = fully_shard(network, mesh=one_mesh(), mp_policy=MixedPrecisionPolicy(dtype))
    state = tithe.torch.attach(network, **({} if weights is None else {"weights": weights}))
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-4)
    for step in range(STEPS):
        torch.manual_seed(100 * step + rank)
        network(torch.randn(16, 192, dtype=dtype)).float().pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    state.close()
    return bits(network), state.stats()["all_gather"], state.tensor_stats(), str(state)


def ways(rank, world):
    return {
        (str(dtype), reshard): [trained(rank, weights, dtype, reshard) for weights in (None, "uncompressed")]
        for dtype in (torch.bfloat16, torch.float16)
        for reshard in (True, False)
    }


@pytest.fixture(scope="module")
def results():
    return run_ranks(2, ways)


def test_weights_are_bit_equal_to_an_uncompressed_gather(results):
    for rank in results:
        for (own, *_), (plain, *_) in rank.values():
            assert own == plain


def test_differences_need_a_fraction_of_the_bytes(results):
    for (name, _), (delta, plain) in results[0].items():
        assert delta[1]["rounds"] == plain[1]["rounds"] and delta[1]["bytes"] == plain[1]["bytes"]
        most = 0.4 if name == "torch.bfloat16" else 0.6
        assert delta[1]["bytes_sent"] < most * plain[1]["bytes_sent"], name
    _, _, tensors, text = results[0]["torch.bfloat16", True][0]
    assert tensors["weights.delta.bfloat16/layers.0"]["side"] and "weights by delta" in text


def test_a_second_gather_of_the_same_weights_costs_little(results):
    (twice, *_), (once, *_) = results[0]["torch.bfloat16", True], results[0]["torch.bfloat16", False]
    more = twice[1]["rounds"] - once[1]["rounds"]
    assert more > 0.5 * once[1]["rounds"]
    assert twice[1]["bytes_sent"] - once[1]["bytes_sent"] < 4096 * more  # one block of zip at most


def recovered(rank, world):
    """Makes three steps; then a gather of weights with a NaN; then three steps with the earlier weights."""
    ends = []
    nans = []  # of the gathers with a NaN, by step
    for weights in (None, "uncompressed"):
        torch.manual_seed(2)
        network = Network()
        for layer in network.layers:
            fully_shard(layer, mesh=one_mesh(), mp_policy=MixedPrecisionPolicy(torch.bfloat16))
        network = fully_shard(network, mesh=one_mesh(), mp_policy=MixedPrecisionPolicy(torch.bfloat16))
        state = tithe.torch.attach(network, codec="fp32", **({} if weights is None else {"weights": weights}))
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for step in range(6):
            layer = network.layers[0]
            own = layer.weight.detach().to_local()
            if step in (0, 3):  # the first gather sends the weights, later ones the differences
                before = own.clone()
                if rank == 0:
                    own[0, 0] = float("nan")
                layer.unshard()
                nans.append(int(layer.weight.isnan().sum()))
                layer.reshard()
                own.copy_(before)
            torch.manual_seed(100 * step + rank)
            network(torch.randn(16, 192, dtype=torch.bfloat16)).float().pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        state.close()
        ends.append((bits(network), bool(torch.isfinite(own).all()), state.stats()["rounds_dropped"]))
    return ends, nans


def test_non_finite_weights_of_one_gather_have_no_later_effect():
    for ((own, finite, dropped), (plain, _, plain_dropped)), nans in run_ranks(2, recovered):
        assert finite and own == plain
        assert nans == [192 * 192, 1, 192 * 192, 192 * 192], "a difference gathers the NaN alone"
        assert (dropped, plain_dropped) == (1, 2)


# ---- Decoding by several threads


def decoded(monkeypatch, decode, damaged=-1):
    """Returns this rank's result of an all-gather of four ranks' differences, and the new weights."""
    monkeypatch.setattr(fsdp_delta, "_PARALLEL", 1)
    random, world, part = np.random.default_rng(1), 4, 5000
    before, now = (random.integers(0, 2**16, (world, part), dtype=np.uint16) for _ in range(2))
    output = torch.from_numpy(now.copy().view(np.int16)).view(torch.bfloat16).flatten()
    output.view(torch.int16)[: part * (world - 1)] = 0  # the last part is this rank's own

    def all_gather(tensors, bounds):
        words = tensors[0][1].view(world, -1)
        for rank in range(world - 1):
            _core.delta_encode("bfloat16", before[rank], now[rank], words[rank].numpy())
            if rank == damaged:
                words[rank, 3] = 0.0
        return 0

    with ThreadPoolExecutor(world - 1) as decoders:
        rounds = SimpleNamespace(rank=world - 1, world=world, gathers=Tally(), decoders=decoders)
        previous = {torch.bfloat16: torch.from_numpy(before.copy().view(np.int16)).flatten()}
        each = fsdp_delta.DeltaRound(rounds, "w", "d", output, world, previous)
        each.start(SimpleNamespace(all_gather=all_gather))
        monkeypatch.setattr(_core, "delta_decode", decode)
        each.received()
    return output.view(torch.int16).numpy().view(np.uint16), now.ravel()


def test_parts_of_other_ranks_are_decoded_at_the_same_time(monkeypatch):
    original, together = _core.delta_decode, threading.Barrier(3)

    def decode(*given):
        together.wait(20.0)  # BrokenBarrierError unless three threads come
        original(*given)

    got, now = decoded(monkeypatch, decode)
    assert (got == now).all()


def test_a_damaged_part_is_named_if_several_threads_decode(monkeypatch):
    with pytest.raises(RuntimeError, match="the weights of rank 1 cannot be decoded"):
        decoded(monkeypatch, _core.delta_decode, damaged=1)


# ---- The coder


def test_coder_accepts_any_bits_and_refuses_other_previous_weights():
    random = np.random.default_rng(1)
    before, now = (random.integers(0, 2**16, 10_000, dtype=np.uint16) for _ in range(2))
    words = np.zeros(_core.delta_words(before.size), np.float32)
    assert _core.delta_encode("bfloat16", before, now, words) <= 2.01 * before.size
    out = before.copy()
    _core.delta_decode("bfloat16", out, words, out)
    assert (out == now).all()
    with pytest.raises(tithe.Error, match="other previous weights") as refused:
        _core.delta_decode("bfloat16", now, words, out)
    assert refused.value.code == "mismatch"
    words[2] = 0.0
    with pytest.raises(tithe.Error, match="damaged"):
        _core.delta_decode("bfloat16", before, words, out)


@pytest.mark.parametrize("size", [fsdp_delta.MIN_VALUES, 10_000, 1_000_000])
def test_incompressible_weights_add_at_most_one_percent_to_a_frame(size):
    random = np.random.default_rng(1)
    before, now = (random.integers(0, 2**16, size, dtype=np.uint16) for _ in range(2))
    words = np.zeros(_core.delta_words(size), np.float32)
    _core.delta_encode("bfloat16", before, now, words)
    assert np.isfinite(words).all()
    uncompressed = len(_core.encode("bf16", np.zeros(size, np.float32)))
    assert uncompressed < len(_core.encode("zip", words)) <= 1.01 * uncompressed


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_second_decoder_reads_the_coders_words(dtype):
    random = np.random.default_rng(2)
    weights = torch.tensor(random.normal(0, 0.02, 3000), dtype=getattr(torch, dtype))
    moved = weights + torch.tensor(random.normal(0, 2e-3, 3000), dtype=weights.dtype)
    moved[:3] = torch.tensor([float("nan"), -0.0, float("-inf")])
    before, now = (each.view(torch.int16).numpy().view(np.uint16) for each in (weights, moved))
    words = np.zeros(_core.delta_words(before.size), np.float32)
    size = _core.delta_encode(dtype, before, now, words)
    payload = tithe_delta.payload_of(words.tolist())
    assert len(payload) == size < 2 * before.size
    assert tithe_delta.decode(dtype, before.tolist(), payload) == now.tolist()


def test_coder_refuses_mismatched_sizes():
    bits_ = np.zeros(10, np.uint16)
    words = np.zeros(_core.delta_words(10), np.float32)
    for dtype, before, now, room in [
        ("float32", bits_, bits_, words),
        ("bfloat16", bits_[:9], bits_, words),
        ("bfloat16", bits_, bits_, words[:3]),
    ]:
        with pytest.raises(ValueError):
            _core.delta_encode(dtype, before, now, room)
