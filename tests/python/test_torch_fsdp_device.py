# SPDX-License-Identifier: Apache-2.0
"""Models of fully_shard() over all ranks on an accelerator simulated by standin.cc: streams, events and FSDP2 are
PyTorch's own.

The reference is FSDP2 on the same device whose collectives block, through host memory: kernels of a device differ from
the CPU's in the last bit.
"""

import functools
import inspect
import textwrap

import pytest
import standin
import torch
import torch.distributed as dist
from fsdp_jobs import OPTIONS, InRankOrder, Network, loss_of, network_of, plain
from processes import run_ranks
from sharded_jobs import WIDTH
from test_torch_fsdp import accumulated_on_the_way, for_each, hooked, now_and_then, prefetched, sgd
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather

import tithe
import tithe.torch
from tithe.torch._device.device import PinnedCopy, PinnedPool
from tithe.torch._sharded import fsdp_comm, fsdp_figures
from tithe.torch._sharded.fsdp_rounds import AllGatherRound, ReduceScatterRound, Round

DEVICE = "standin"
FP32 = {"codec": "fp32", **OPTIONS}


@pytest.fixture(scope="module", autouse=True)
def built():
    standin.build()


def start(*delays):
    standin.load()
    standin.delay(*delays)
    fsdp_comm.MIN_VALUES = 1
    return init_device_mesh(DEVICE, (dist.get_world_size(),))


def on_device(make=Network):
    return make().to(DEVICE)


class BlockingGather(AllGather):
    allocate = InRankOrder.allocate

    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        whole = torch.empty(output_tensor.shape, dtype=output_tensor.dtype)
        dist.all_gather_single(whole, input_tensor.cpu(), group=group)
        output_tensor.copy_(whole)


class BlockingScatter(InRankOrder):
    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        part = torch.empty(output_tensor.shape, dtype=output_tensor.dtype)
        super().__call__(part, input_tensor.cpu(), group, op)
        output_tensor.copy_(part)


def blocking(network):
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_all_gather(BlockingGather())
            module.set_custom_reduce_scatter(BlockingScatter())


# ---- Training


def evaluated(network, optimizer, steps):
    for step in steps:
        if step > 0:
            with torch.inference_mode():
                loss_of(network, step)
        plain(network, optimizer, [step])


def stepping(network):
    """Makes a step of the optimizer as soon as a parameter has its gradient."""
    for p in network.parameters():
        p.register_post_accumulate_grad_hook(lambda q: (q.data.sub_(q.grad, alpha=0.1), setattr(q, "grad", None)))


def backward_alone(network, _, steps):
    for step in steps:
        loss_of(network, step).backward()


def parity(rank, world):
    """Returns, by setting: whether the bits are equal, how often memory was used too late, how often memory was pinned,
    the number of collectives, the bytes of pinned memory, their bound, and those after close()."""
    mesh = start(0.003, 0.001)
    half, mixed = torch.bfloat16, MixedPrecisionPolicy

    def one(prepare=lambda network: None, run=plain, **policy):
        found, late = [], standin.late()
        for attached in (False, True):
            network = network_of(mesh, on_device, **{"mp_policy": mixed(half, torch.float32), **policy})
            optimizer = sgd(network)
            if attached:
                state = tithe.torch.attach(network, **FP32)
                weights, gradients = zip(*(group.pinned_bytes(world) for group in state._groups), strict=True)
            else:
                blocking(network)
            prepare(network)
            standin.log()
            run(network, optimizer, range(4))
            found.append([p.to_local().detach().cpu() for p in network.parameters()])
        times = sum(event["op"] == "pin" for event in standin.log())
        pinned = standin.pinned(), 2 * max(weights) + 2 * max(gradients)
        state.close()
        equal = all(map(torch.equal, *found))
        return equal, standin.late() - late, times, state.stats()["rounds"], *pinned, standin.pinned()

    return {
        "bf16 weights by delta": one(),
        "fp32": one(mp_policy=mixed()),
        "fp16": one(mp_policy=mixed(torch.float16)),
        "reduced as bf16": one(mp_policy=mixed(half)),
        "kept whole after forward": one(reshard_after_forward=False),
        "accumulated on the way": one(run=accumulated_on_the_way),
        "in backward": one(stepping, backward_alone),
        "now and then": one(run=now_and_then),
        "evaluated": one(run=evaluated),
        "prefetched": one(prefetched),
        "two buffers": one(lambda n: for_each(n, "set_reduce_scatter_max_input_buffers", 2)),
        "hooked": one(hooked),
        "divided by 3": one(lambda n: for_each(n, "set_gradient_divide_factor", 3.0)),
    }


def test_bit_equal_to_fsdp2_within_the_stated_pinned_memory():
    for results in run_ranks(2, parity):
        for name, (equal, late, times, rounds, pinned, bound, closed) in results.items():
            assert equal and late == 0, name
            assert 0 < times < rounds / 2, (name, times, rounds)
            assert pinned <= bound and closed == 0, (name, pinned, bound, closed)


def default_codec(rank, world):
    mesh = start(0.001)
    network = network_of(mesh, on_device, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    state = tithe.torch.attach(network, timeout=30.0, min_values=64)
    text = fsdp_figures.beginning(state._groups, state._running.session, state.codec, state.weights)
    losses = []
    optimizer = sgd(network)
    for _ in range(8):
        losses.append(loss_of(network, 0).item())
        plain(network, optimizer, [0])
    return losses, text, state.stats()["reduce_scatter"]["bytes_sent"] / state.stats()["reduce_scatter"]["dense_bytes"]


def test_default_codec_trains_and_attach_states_the_pinned_memory():
    for losses, text, share in run_ranks(2, default_codec):
        assert losses[-1] < losses[0] and share < 0.5
        assert "on standin:0 through about" in text and "bytes of pinned host memory, for the weights of two" in text


# ---- Waits: each is necessary


class Direct:
    """Calls the rounds of a State without FSDP2, with tensors that are late on their stream."""

    VALUES = 3000

    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.state = tithe.torch.attach(network_of(start(0.0), on_device), **FP32)
        self.rounds, self.stream = self.state._running, torch.Stream(DEVICE)
        self.given, self.count = [], 0

    def gather(self, value):
        given = torch.full((self.VALUES,), float(value + self.rank), device=DEVICE)
        output = torch.zeros(self.world * self.VALUES, device=DEVICE)
        with torch.standin.stream(self.stream):
            output.view(self.world, -1)[self.rank].copy_(given)
            self.given.append(given)
            each = AllGatherRound(self.rounds, "weights.float32/x", output, self.world)
        self.rounds.issue(each)
        return each, output

    def scatter(self, value):
        given = torch.full((self.world * self.VALUES,), float(value + self.rank), device=DEVICE)
        rows, output = torch.zeros_like(given), torch.zeros(self.VALUES, device=DEVICE)
        with torch.standin.stream(self.stream):
            rows.copy_(given)
            self.given += [given, rows]  # FSDP2 keeps the rows until the end of the call's work
            each = ReduceScatterRound(self.rounds, ["x"], [self.VALUES], rows, output, 1.0, 1)
        self.rounds.issue(each)
        return each, output

    def is_gathered(self, output, value):
        return all((row == value + rank).all() for rank, row in enumerate(output.cpu().view(self.world, -1)))

    def is_sum(self, output, value):
        return bool((output.cpu() == sum(value + rank for rank in range(self.world))).all())

    # ---- each returns True if the values are right

    def late_weights(self):
        standin.delay(0.05, 0.1)
        self.count += 1  # other values than those that pinned memory has from an earlier round
        each, output = self.gather(10 * self.count)
        each.wait()
        return self.is_gathered(output, 10 * self.count)

    def late_gradients(self):
        standin.delay(0.05, 0.1)
        self.count += 1
        each, output = self.scatter(10 * self.count)
        each.wait()
        return self.is_sum(output, 10 * self.count)

    def copies_in_order(self):
        """Gathers again in the same pinned memory while the first result is on its way to the device."""
        standin.delay(0.3)
        first, one = self.gather(1)
        first.hold()
        self.rounds.drain()
        standin.delay(0.0)
        second, other = self.gather(5)
        first.wait()
        second.wait()
        return self.is_gathered(one, 1) and self.is_gathered(other, 5)

    def two_open(self):
        """Reduces again while the first result is on its way to the device."""
        standin.delay(0.1)
        pairs = [self.scatter(value) for value in (1, 5)]
        for each, _ in pairs:
            each.wait()
        return self.is_sum(pairs[0][1], 1) and self.is_sum(pairs[1][1], 5)

    def grows(self):
        """Pins more memory while a copy from the smaller one is under way."""
        pool, small, large = PinnedPool(), *(torch.ones(n, device=DEVICE) for n in (1000, 2000))
        standin.delay(0.2)
        copy = pool.borrow(small)
        copy.start(small)
        pool.give_back(copy)
        del copy
        standin.log()
        pool.give_back(pool.borrow(large))
        freed = [event["in_use"] for event in standin.log() if event["op"] == "unpin"]
        pool.close()
        return freed == ["0"]


# The missing wait: the class, its method, the text, the replacement, and the check that detects it.
WAITS = {
    "the copy to the host waits until the weights are there": (
        PinnedCopy, "start", "self.stream.wait_event(self._filled)", "pass", "late_weights"),
    "the copy to the host waits until the gradients are there": (
        PinnedCopy, "start", "self.stream.wait_event(self._filled)", "pass", "late_gradients"),
    "the round waits for the copy of weights": (Round, "load", "copy.wait()", "pass", "late_weights"),
    "the round waits for the copy of gradients": (Round, "load", "copy.wait()", "pass", "late_gradients"),
    "the caller's stream waits for weights": (
        Round, "wait", "if self._returned is not None:", "if False:", "late_weights"),
    "the caller's stream waits for gradients": (
        Round, "wait", "if self._returned is not None:", "if False:", "late_gradients"),
    "the gradients' memory stays until they are copied": (
        Round, "_host", "tensor.record_stream(copy.stream)", "pass", "late_gradients"),
    "pinned memory is filled again after the copy back": (
        PinnedCopy, "start", "with _current(self.stream):", "if True:", "copies_in_order"),
    "a result's memory is written after the copy back": (
        ReduceScatterRound, "committed", "copy.synchronize()", "pass", "two_open"),
    "pinned memory is freed after its copy": (
        PinnedPool, "borrow", "self._idle.pop().synchronize()", "self._idle.pop()", "grows"),
}  # fmt: skip


def changed(kind, method, text, instead):
    """Replaces a method by one with another text. Returns a function that restores it."""
    own = getattr(kind, method)
    source = textwrap.dedent(inspect.getsource(own))
    assert source.count(text) == 1, f"{text!r} stands {source.count(text)} times in {own.__qualname__}"
    made = {}
    exec(compile(source.replace(text, instead), inspect.getsourcefile(own), "exec"), own.__globals__, made)
    setattr(kind, method, made[method])
    return functools.partial(setattr, kind, method, own)


def waits(rank, world):
    """Returns, by wait, whether the values are right with it and without it."""
    direct, found = Direct(rank, world), {}

    def is_right(check):
        late = standin.late()
        right = getattr(direct, check)()
        torch.accelerator.synchronize(DEVICE)
        return right and standin.late() == late

    for name, (*change, check) in WAITS.items():
        whole = is_right(check)
        restore = changed(*change)
        found[name] = whole, is_right(check)
        restore()
    direct.state.close()
    return found


def test_each_wait_is_necessary():
    for found in run_ranks(2, waits):
        assert [name for name, (whole, _) in found.items() if not whole] == []
        assert [name for name, (_, without) in found.items() if without] == []


# ---- Errors


def breaks(rank, world):
    """A copy to the host fails on rank 0 while it runs."""
    network = network_of(start(0.0), on_device)
    state = tithe.torch.attach(network, **FP32)
    if rank == 0:
        standin.break_copy(0)
    network.enter.unshard(async_op=True)
    (group,) = network.enter._get_fsdp_state()._fsdp_param_groups
    texts = []
    for _ in range(2):
        with pytest.raises(RuntimeError) as failed:
            group._all_gather_result.all_gather_work.wait()
        texts.append((type(failed.value).__name__, str(failed.value)))
    state.close()
    return texts


def test_broken_copy_is_an_error_on_all_ranks():
    (first, again), (other, _) = run_ranks(2, breaks)
    assert "a copy failed on the device" in first[1] and again == first
    assert other[0] == "Error", other


def refusals(rank, world):
    texts = {}
    mesh = start(0.0)

    def refused(network):
        with pytest.raises((ValueError, tithe.Error)) as error:
            tithe.torch.attach(network, **FP32)
        return str(error.value)

    network = network_of(mesh, on_device)
    standin.limit_pinned(0)
    texts["no pinned memory"] = refused(network)
    standin.limit_pinned(1000)
    state = tithe.torch.attach(network, **FP32)
    with pytest.raises(RuntimeError) as error:
        loss_of(network, 0)
    texts["too little pinned memory"] = str(error.value)
    standin.limit_pinned(-1)
    state.close()
    mixed = nn.Sequential(nn.Linear(WIDTH, 8), nn.Linear(8, 8).to(DEVICE))
    fully_shard(mixed[0], mesh=init_device_mesh("cpu", (world,)))
    texts["two types of devices"] = refused(fully_shard(mixed, mesh=mesh))
    offload = CPUOffloadPolicy(pin_memory=False)
    texts["offload"] = refused(fully_shard(nn.Linear(8, 8).to(DEVICE), mesh=mesh, offload_policy=offload))
    texts["device="] = ""
    with pytest.raises(ValueError) as error:
        tithe.torch.attach(network_of(mesh, on_device), device="on", **FP32)
    texts["device="] = str(error.value)
    return texts


def test_refusals_have_a_cure():
    for texts in run_ranks(2, refusals):
        for name, text in {
            "no pinned memory": "let the process lock more memory",
            "too little pinned memory": "Let the process lock more memory, or pin less elsewhere",
            "two types of devices": "devices of 2 types, cpu and standin: use one mesh",
            "offload": "leave CPUOffloadPolicy() out",
            "device=": "device= is not for a model that is sharded over all ranks (the codecs of these collectives",
        }.items():
            assert text in texts[name], (name, texts[name])
