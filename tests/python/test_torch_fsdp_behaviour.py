# SPDX-License-Identifier: Apache-2.0
"""Models of fully_shard() over all ranks: the sent bytes, checkpoints, refusals, ranks that differ, values not
finite."""

import io
import logging

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from fsdp_jobs import OPTIONS, Network, loss_of, network_of, one_mesh, plain
from processes import run_ranks
from sharded_jobs import bits
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_collectives
from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, ShardPlacementResult
from torch.distributed.tensor import Shard, distribute_tensor

import tithe
import tithe.torch

STEPS = 40
FP32 = {"codec": "fp32", **OPTIONS}


def adam(network):
    return torch.optim.AdamW(network.parameters(), lr=1e-3)


# ---- The sent bytes


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attend = nn.MultiheadAttention(width, 4, batch_first=True)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.before(x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        return x + self.wide(self.after(x))


class Transformer(nn.Module):
    """Learns to copy the token a few positions earlier."""

    def __init__(self, tokens=32, width=64, blocks=2, length=12):
        super().__init__()
        torch.manual_seed(1)
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, tokens)

    def forward(self, x):
        x = self.tokens(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def transformer(mesh, **policy):
    network = Transformer()
    for block in network.blocks:
        fully_shard(block, mesh=mesh, **policy)
    return fully_shard(network, mesh=mesh, **policy)


def copying(rank, step):
    x = torch.randint(0, 32, (16, 12), generator=torch.Generator().manual_seed(1000 * step + rank))
    return x, x.roll(3, dims=1)


def learned(network, steps):
    optimizer, losses = torch.optim.AdamW(network.parameters(), lr=3e-3), []
    for step in range(steps):
        x, y = copying(dist.get_rank(), step)
        loss = nn.functional.cross_entropy(network(x).float().flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    last = torch.stack(losses[-10:]).mean()
    dist.all_reduce(last, op=dist.ReduceOp.AVG)
    return float(last)


def default(rank, world):
    lines = io.StringIO()
    logging.getLogger("tithe.torch").addHandler(logging.StreamHandler(lines))
    logging.getLogger("tithe.torch").setLevel(logging.INFO)
    mesh, policy = one_mesh(), {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)}
    own = learned(transformer(mesh, **policy), STEPS)
    network = transformer(mesh, **policy)
    state = tithe.torch.attach(network)
    ours = learned(network, STEPS)
    state.close()
    tithe.torch.attach(network_of()).close()
    return own, ours, state.stats(), state.tensor_stats(), str(state), lines.getvalue(), state.plan()


def test_default_learns_like_fsdp2_and_reports_its_bytes():
    results = run_ranks(2, default)
    own, ours, stats, tensors, text, lines, plan = results[0]
    assert own < 1.5 and abs(ours - own) < 0.15, (own, ours)
    scatter, gather = stats["reduce_scatter"], stats["all_gather"]
    values = sum(p.numel() for p in Transformer().parameters())
    assert scatter["bytes"] == STEPS * 4 * values and scatter["dense_bytes"] == scatter["bytes"] // 2
    assert gather["bytes"] == 2 * gather["dense_bytes"]
    assert stats["dense_bytes"] == scatter["dense_bytes"] + gather["dense_bytes"]
    assert 0 <= stats["bytes_sent"] - scatter["bytes_sent"] - gather["bytes_sent"] < 0.01 * stats["bytes_sent"]
    assert scatter["bytes_sent"] < 0.2 * scatter["dense_bytes"], "about 4 of 32 bits, and small tensors as they are"
    assert gather["bytes_sent"] < 0.8 * gather["dense_bytes"], "about 11 of 16 bits"
    assert stats["backward_passes"] == STEPS and scatter["rounds"] == 3 * STEPS
    assert stats["exposed_ns"] == scatter["waited_ns"] + gather["waited_ns"] > 0
    assert tensors["blocks.0.wide.0.weight"]["codec"] == "eden:scale=unbiased,feedback=none"
    assert tensors["blocks.0.wide.0.bias"]["codec"] == "fp32" and not tensors["blocks.0.wide.0.bias"]["side"]
    assert tensors["weights.bfloat16/blocks.1"]["codec"] == "zip" and tensors["weights.bfloat16/blocks.1"]["side"]
    assert "reduce_scatter of eden:scale=unbiased,feedback=none" in plan
    assert f"{STEPS} backward passes, {3 * STEPS} reduce-scatters" in text
    # A slow machine adds warnings about the session.
    bf16, fp32 = [each for each in lines.splitlines() if each.startswith("fully_shard()")]
    blocks = 2 * sum(p.numel() for p in Block(64).parameters())
    needs = "(delta needs 16 bits, as by MixedPrecisionPolicy(torch.bfloat16), and 4,096 weights per rank)"
    assert "gradients by eden:bits=4,scale=unbiased to their owners, no residual; weights by delta, and " in bf16
    assert f"and {values - blocks:,} values by zip {needs}, without loss; {2 * blocks:,} bytes of host memory" in bf16
    assert f"weights by zip {needs}, without loss; no memory beside" in fp32
    assert [r[5] for r in results[1:]] == [""], "rank 0 alone writes to the log"


def lossy(rank, world):
    network = network_of()
    state = tithe.torch.attach(network, weights="fp8", choices={"*.bias": "fp32"}, **OPTIONS)
    plain(network, adam(network), range(2))
    network.enter.unshard()
    gathered = network.enter.weight.detach().clone()
    network.enter.reshard()
    codecs = {key: tensor["codec"] for key, tensor in state.tensor_stats().items()}
    exact = network.enter.weight.full_tensor().detach()
    return gathered.numpy().tobytes(), float((gathered - exact).abs().max()), codecs


def test_weights_with_loss_are_the_same_on_all_ranks():
    (first, lost, codecs), (second, _, _) = run_ranks(2, lossy)
    assert first == second and 0 < lost < 0.1
    assert codecs["weights.float32/enter"] == "fp8:feedback=none" and codecs["enter.bias"] == "fp32"


# ---- Checkpoints


def resumed(rank, world, folder):
    """Returns the bits of a run, and of one that continues from its checkpoint."""

    def begun():
        network = network_of()
        return network, adam(network), tithe.torch.attach(network, **OPTIONS)

    network, optimizer, state = begun()
    plain(network, optimizer, range(5))
    model, optim = get_state_dict(network, optimizer)
    dcp.save({"model": model, "optimizer": optim, "tithe": state}, checkpoint_id=folder)
    plain(network, optimizer, range(5, 9))
    whole = bits(network)
    torch.save(state.gathered_state_dict(), f"{folder}/rank {rank}")
    state.close()
    assert state.state_dict().keys() == {f"rank {rank} of {world}"}

    network, optimizer, state = begun()
    model, optim = get_state_dict(network, optimizer)
    dcp.load({"model": model, "optimizer": optim, "tithe": state}, checkpoint_id=folder)
    set_state_dict(network, optimizer, model_state_dict=model, optim_state_dict=optim)
    plain(network, optimizer, range(5, 9))
    again = bits(network)
    state.close()
    return whole == again


def in_another_world(rank, world, folder):
    network = network_of()
    optimizer, state = adam(network), tithe.torch.attach(network, **OPTIONS)
    model, optim = get_state_dict(network, optimizer)
    dcp.load({"model": model, "optimizer": optim}, checkpoint_id=folder)
    set_state_dict(network, optimizer, model_state_dict=model, optim_state_dict=optim)
    state.load_state_dict(torch.load(f"{folder}/rank 0"))  # a state of two ranks is ignored
    plain(network, optimizer, range(2))
    with pytest.raises(ValueError, match="saved with codec="):
        tithe.torch.attach(network_of(), **FP32).load_state_dict(state.state_dict())
    with pytest.raises(ValueError, match="no state of a model that is sharded over all ranks"):
        state.load_state_dict({"rank 0 of 3": ({"format": 3},)})
    return state.stats()["rounds"]


def test_checkpoint_resumes_bit_identically_and_in_another_world(tmp_path):
    assert run_ranks(2, resumed, str(tmp_path)) == [True, True]
    assert all(rounds > 0 for rounds in run_ranks(3, in_another_world, str(tmp_path)))


# ---- Refusals


def text_of(network, **options):
    with pytest.raises((ValueError, tithe.Error)) as refused:
        tithe.torch.attach(network, **{**FP32, **options})
    return str(refused.value)


class SymmMemAllGather(_fsdp_collectives.DefaultAllGather):
    """Has the name of torch's own class, which needs NCCL."""


class Mine(_fsdp_collectives.DefaultReduceScatter):
    """A user's own reduce-scatter."""


def comm(name, kind):
    network = network_of()
    getattr(network.leave, name)(kind)
    return network


def by_groups():
    """Returns one module with two parameter groups, as for experts."""
    network, mesh = Network(), one_mesh()
    other = FSDPMeshInfo(DeviceMesh.from_group(dist.new_group(range(dist.get_world_size())), "cpu"), shard_mesh_dim=0)
    own = FSDPMeshInfo(mesh, shard_mesh_dim=0)
    fully_shard(
        network.enter,
        mesh=mesh,
        shard_placement_fn=lambda p: ShardPlacementResult(Shard(0), other if p.dim() > 1 else own),
    )
    return fully_shard(network, mesh=mesh)


def distributed():
    """Returns a model as SimpleFSDP makes it: DTensors without FSDPModule."""
    network, mesh = Network(), one_mesh()
    network.head.weight = nn.Parameter(distribute_tensor(network.head.weight.detach(), mesh, [Shard(0)]))
    return network


def refusals(rank, world):
    """Returns the text of each refusal of attach(), by name."""
    attached = network_of()
    state = tithe.torch.attach(attached, **FP32)
    texts = {
        "twice": text_of(attached),
        "groups": text_of(by_groups()),
        "symmetric": text_of(comm("set_custom_all_gather", SymmMemAllGather())),
        "from the group": text_of(
            comm("set_custom_all_gather", _fsdp_collectives.ProcessGroupAllocAllGather(dist.group.WORLD))
        ),
        "custom": text_of(comm("set_custom_reduce_scatter", Mine())),
        "offload": text_of(network_of(offload_policy=CPUOffloadPolicy(pin_memory=False))),
        "simple": text_of(distributed()),
        "float64": text_of(network_of(make=lambda: Network().double())),
        "reduced as float64": text_of(network_of(mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float64))),
        "auto": text_of(network_of(), codec="auto"),
        "feedback": text_of(network_of(), codec="minmax:bits=8,feedback=residual"),
        "feedback of eden": text_of(network_of(), codec="eden"),
        "selected gradients": text_of(network_of(), codec="topk:ratio=0.1,feedback=none"),
        "signs by a rule": text_of(network_of(), choices={"*.bias": "onebit:feedback=none"}),
        "gradients in phases": text_of(network_of(), codec="qsgd_shared:feedback=none"),
        "feedback by a rule": text_of(network_of(), choices={"*.weight": "onebit"}),
        "optimizer": text_of(attached, optimizer=adam(attached)),
        "undo": text_of(network_of(), undo=True),
        "option": text_of(network_of(), weigths="zip"),
        "weights": text_of(network_of(), weights="zap"),
        "selected weights": text_of(network_of(), weights="topk:ratio=0.9"),
        "signs of weights": text_of(network_of(), weights="onebit"),
        "4 bits of weights": text_of(network_of(), weights="eden:bits=4"),
        "weights in phases": text_of(network_of(), weights="fp8_shared"),
        "ranks differ": text_of(network_of(), weights=("zip", "uncompressed")[rank]),
        "inside": text_of(network_of(), inside="auto"),
        "no parameters": text_of(fully_shard(nn.Tanh(), mesh=one_mesh())),
    }
    own = network_of()
    plain(own, adam(own), range(2))
    state.detach()  # FSDP2's own collectives again
    plain(attached, adam(attached), range(2))
    assert bits(own) == bits(attached) and state.stats()["rounds"] == 0
    state.close()
    other = network_of()
    tithe.torch.attach(other, **FP32).close()
    with pytest.raises(ValueError, match="this State is closed"):
        loss_of(other, 0)
    return texts


def test_refusals_name_the_cure():
    for texts in run_ranks(2, refusals):
        for name, text in {
            "twice": "attached already",
            "groups": "'enter' has 2 parameter groups",
            "symmetric": "leave set_symm_mem_for_comm() out",
            "from the group": "leave set_allocate_memory_from_process_group_for_comm() out",
            "custom": "'leave' has a custom reduce_scatter already (Mine)",
            "offload": "CPU offload is not supported",
            "simple": "SimpleFSDP",
            "float64": "float64 are not supported",
            "reduced as float64": "reduces gradients as torch.float64",
            "auto": "leave codec out for eden:bits=4,scale=unbiased",
            "feedback": "'eden:bits=4,scale=unbiased', which needs none",
            "feedback of eden": "in every step by 'eden:feedback=none'",
            "feedback by a rule": "codec 'onebit' works by error feedback",
            "selected gradients": "sends a selection of the values",
            "signs by a rule": "codec 'onebit:feedback=none' has a relative error of 60%, and a model",
            "gradients in phases": "needs several exchanges",
            "optimizer": "any optimizer serves",
            "undo": "undo= is not for",
            "option": "did you mean 'weights'",
            "weights": "zap",
            "selected weights": "weights='topk:ratio=0.9': the codec sends a selection of the values",
            "signs of weights": "has a relative error of 60%, and weights are gathered without error feedback: leave",
            "4 bits of weights": "has a relative error of 10%",
            "weights in phases": "'fp8_shared': the codec needs several exchanges",
            "ranks differ": "weights='zip' on rank 0 and weights='uncompressed' on rank 1",
            "inside": "inside= is for DistributedDataParallel",
            "no parameters": "found no parameters",
        }.items():
            assert text in texts[name], (name, texts[name])


# ---- Ranks that differ, and values that are not finite


def apart(rank, world):
    """The ranks use the modules in different orders."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            first, second = (self.a, self.b) if rank == 0 else (self.b, self.a)
            return second(first(x))

    network, mesh = Two(), one_mesh()
    fully_shard(network.a, mesh=mesh)
    fully_shard(network.b, mesh=mesh)
    fully_shard(network, mesh=mesh)
    state = tithe.torch.attach(network, **FP32)
    with pytest.raises(tithe.Error) as error:
        network(torch.ones(2, 8))
    state.close()
    return error.value.code, str(error.value)


def test_gathers_of_different_modules_fail_at_once():
    for code, text in run_ranks(2, apart):
        assert code == "mismatch" and "the all-gather of weights.float32/" in text, text


def unlike(rank, world):
    """One rank has no gradient for a branch. Gloo would add other parameters' values, or wait."""
    network = network_of()
    tithe.torch.attach(network, **FP32)
    network.with_extra = rank == 0
    with pytest.raises(tithe.Error) as error:
        loss_of(network, 0).backward()
    return error.value.code, str(error.value)


def test_gradients_of_different_parameters_fail_at_once():
    for code, text in run_ranks(2, unlike):
        assert code == "mismatch" and "set_reduce_scatter_unused_params(True)" in text, text


def not_finite(rank, world):
    network = network_of()
    state = tithe.torch.attach(network, **OPTIONS)
    loss = loss_of(network, 0)
    (loss * (float("inf") if rank == 1 else 1.0)).backward()
    nan = [bool(p.grad.to_local().isnan().any()) for p in network.parameters() if p.grad.to_local().numel()]
    network.zero_grad()
    loss_of(network, 1).backward()
    fine = all(bool(p.grad.to_local().isfinite().all()) for p in network.parameters())
    return all(nan), fine, state.stats()["rounds_dropped"]


def test_a_gradient_that_is_not_finite_on_one_rank_is_nan_on_all():
    for nan, fine, dropped in run_ranks(2, not_finite):
        assert nan and fine and dropped == 3


def left_out(rank, world):
    """A backward that ends by an error, and the next steps."""
    network = network_of()
    tithe.torch.attach(network, **FP32)
    optimizer = adam(network)
    plain(network, optimizer, range(1))
    loss = loss_of(network, 1)

    def fail(grad):
        raise RuntimeError("mine")

    loss.register_hook(fail)
    with pytest.raises(RuntimeError, match="mine"):
        loss.backward()
    network.reset_iter_state()
    optimizer.zero_grad()
    plain(network, optimizer, range(2, 4))
    return bits(network)


def test_backward_that_fails_on_all_ranks_can_be_skipped():
    assert all(run_ranks(2, left_out))
