# SPDX-License-Identifier: Apache-2.0
"""The backend "tithe" of torch.distributed: named groups compress, everything else behaves as with Gloo."""

import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from processes import Ranks, run_ranks, wait_until
from sharded_jobs import bits, model, sharded, train
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe
import tithe.c10d
import tithe.torch

OPTIONS = {"min_values": 8, "timeout": 30.0}


def of(ranks, **options):
    return dist.new_group(ranks, backend="tithe", pg_options=tithe.c10d.Options(**{**OPTIONS, **options}))


def values(rank, n=1000, dtype=torch.float32):
    return torch.randn(n, generator=torch.Generator().manual_seed(rank)).to(dtype)


def exact(rank, world):
    """Compares codec fp32 with Gloo: sums, means, types, coalesced, asynchronous and functional calls."""
    from torch.distributed import _functional_collectives as functional

    group, plain = of(range(world), codec="fp32"), dist.new_group(range(world))
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
            mine, theirs = (values(rank, dtype=dtype).view(10, 100) for _ in range(2))
            dist.all_reduce(mine, op, group=group)
            dist.all_reduce(theirs, op, group=plain)
            assert torch.equal(mine, theirs), (dtype, op)
    works, many = [], [values(rank + 10 * i) for i in range(5)]
    for tensor in many:
        works.append(dist.all_reduce(tensor, group=group, async_op=True))
    for i, work in enumerate(works):
        work.wait()
        assert torch.equal(many[i], sum(values(r + 10 * i) for r in range(world)))
    pair = [values(rank), values(rank + 1)]
    dist.all_reduce_coalesced(pair, group=group)
    assert torch.equal(pair[1], sum(values(r + 1) for r in range(world)))
    out = functional.all_reduce(values(rank), "sum", group)
    assert torch.equal(out + 0, sum(values(r) for r in range(world)))
    rounds = tithe.c10d.stats(group)["rounds"]
    for small in (torch.ones(3), torch.ones(64, dtype=torch.int64), values(rank)[::2]):  # Gloo does these
        dist.all_reduce(small, group=group)
    ranks_seen = [None] * world
    dist.all_gather_object(ranks_seen, rank, group=group)
    dist.barrier(group)
    parts = [torch.empty(1000) for _ in range(world)]
    dist.all_gather(parts, values(rank), group=group)
    assert torch.equal(parts[1], values(1)) and ranks_seen == list(range(world))
    assert tithe.c10d.stats(group)["rounds"] == rounds
    return rounds


def test_named_group_is_exact_with_fp32_and_delegates_the_rest_to_gloo():
    assert run_ranks(2, exact) == [6 + 5 + 2 + 1] * 2


def anew(rank, world, folder):
    """A job whose default group is of this backend."""
    dist.barrier()
    (Path(folder) / f"past{rank}").touch()
    wait_until(lambda: len(list(Path(folder).glob("past*"))) == world)  # so that no rank's Gloo is still connecting
    dist.destroy_process_group()
    dist.init_process_group(
        "tithe", init_method=f"file://{folder}/again", rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    network = DDP(model())  # DDP on the default group is not compressed
    network(torch.ones(2, 24)).sum().backward()
    with pytest.raises(ValueError, match="default group .* is never compressed"):
        tithe.c10d.compress(dist.group.WORLD, codec="fp8")
    group = dist.new_group(range(world))  # of the default backend, as made by code without tithe
    tensor = values(rank)
    dist.all_reduce(tensor, group=group)
    assert torch.equal(tensor, values(0) + values(1)) and tithe.c10d.stats(group) == {}
    tithe.c10d.compress(group, codec="fp8", **OPTIONS)
    tensor = values(rank)
    dist.all_reduce(tensor, group=group)
    assert not torch.equal(tensor, values(0) + values(1))
    torch.testing.assert_close(tensor, values(0) + values(1), rtol=0.1, atol=0.2)
    with pytest.raises(ValueError, match="compressed already"):
        tithe.c10d.compress(group)
    return tensor.numpy().tobytes()


def test_default_backend_compresses_only_named_groups(tmp_path):
    first, second = run_ranks(2, anew, str(tmp_path))
    assert first == second


def residuals(rank, world):
    """The residual of one step is sent with the same all-reduce of the next step; the optimizer ends steps."""
    group = of(range(world), codec="topk:ratio=0.1", min_values=0)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    weight.grad = torch.zeros(1)
    given, sums = [torch.zeros(1000), torch.zeros(1000)], [torch.zeros(1000), torch.zeros(1000)]
    for step in range(40):
        for i in range(2):
            tensor = values(10 * i + rank) if step == 0 else torch.zeros(1000)
            given[i] += tensor
            dist.all_reduce(tensor, group=group)
            sums[i] += tensor
        optimizer.step()
    dist.all_reduce(given[0]), dist.all_reduce(given[1])
    torch.testing.assert_close(sums[0], given[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sums[1], given[1], rtol=1e-5, atol=1e-5)
    return tithe.c10d.stats(group)["rounds"]


def test_residual_is_sent_by_the_same_all_reduce_of_the_next_step():
    assert run_ranks(2, residuals) == [80, 80]


def at_once(rank, world):
    """All threads hand over the same values, since the order of threads differs between ranks."""
    group = of(range(world), codec="fp32")
    ends = []

    def work():
        for _ in range(5):
            mine = values(rank)
            dist.all_reduce(mine, group=group)
            ends.append(torch.equal(mine, sum(values(r) for r in range(world))))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends, tithe.c10d.stats(group)["rounds"], list(group._counts.values())


def test_concurrent_all_reduces_are_serialised():
    for ends, rounds, numbers in run_ranks(2, at_once):
        assert ends == [True] * 20 and rounds == 20 and numbers == [20]


def steps(group, weight, optimizer, rank, numbers):
    """Makes two gradients of one size per step; a sparse codec sends a tenth of them."""
    for number in numbers:
        grads = [values(100 * number + 10 * i + rank) for i in range(2)]
        for grad in grads:
            dist.all_reduce(grad, dist.ReduceOp.AVG, group=group)
        weight.grad = grads[0] - grads[1]
        optimizer.step()


def resumed(rank, world, folder):
    """Makes six steps; and three of them in another group, which continues from the saved state, or begins without
    one."""

    def group_of():
        return of(range(world), codec="topk:ratio=0.1", min_values=0)

    def optimizer_of(weight):
        return torch.optim.SGD([weight], lr=0.1, momentum=0.9)

    weight, group = torch.nn.Parameter(torch.zeros(1000)), group_of()
    optimizer = optimizer_of(weight)
    assert tithe.c10d.state_dict(group) == {}
    steps(group, weight, optimizer, rank, range(3))
    saved = {"weight": weight.detach(), "sgd": optimizer.state_dict(), "tithe": tithe.c10d.state_dict(group)}
    torch.save(saved, f"{folder}/{rank}.pt")
    steps(group, weight, optimizer, rank, range(3, 6))
    ends = [weight.detach().numpy().tobytes()]
    work = dist.all_reduce(values(rank), group=group, async_op=True)
    for call in (tithe.c10d.state_dict, lambda group: tithe.c10d.load_state_dict(group, saved["tithe"])):
        with pytest.raises(ValueError, match="in the middle of a step: after optimizer.step"):
            call(group)
    tithe.c10d.end_step()
    assert tithe.c10d.state_dict(group) and work.is_completed()  # state_dict() waited for it
    loaded = torch.load(f"{folder}/{rank}.pt")
    plain = dist.new_group(range(world), backend="tithe")
    with pytest.raises(ValueError, match="not compressed"):
        tithe.c10d.load_state_dict(plain, loaded["tithe"])
    for state in (loaded["tithe"], {}):
        again = group_of()
        with pytest.raises(ValueError, match="each rank loads its own"):
            tithe.c10d.load_state_dict(again, {**loaded["tithe"], "rank": 1 - rank})
        with pytest.raises(ValueError, match=r"has no 'rank', 'session', 'world': load what"):
            tithe.c10d.load_state_dict(again, loaded)
        tithe.c10d.load_state_dict(again, state)
        other = torch.nn.Parameter(loaded["weight"].clone())
        optimizer = optimizer_of(other)
        optimizer.load_state_dict(loaded["sgd"])
        steps(again, other, optimizer, rank, range(3, 6))
        ends.append(other.detach().numpy().tobytes())
    return ends


def test_saved_state_resumes_bit_identically(tmp_path):
    first, second = run_ranks(2, resumed, str(tmp_path))
    whole, gone_on, anew = first
    assert first == second and gone_on == whole != anew


def overridden(rank, world):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    ours = init_device_mesh(
        "cpu", (2, 2), mesh_dim_names=("a", "b"),
        backend_override={"a": ("tithe", tithe.c10d.Options(codec="fp32", **OPTIONS))},
    )  # fmt: skip
    ends = []
    for each in (mesh, ours):
        network = sharded(each)
        train(network, torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9), range(3), micro=2)
        ends.append(bits(network))
    assert ends[0] == ends[1]
    return tithe.c10d.stats(ours.get_group("a"))["rounds"]


def test_fully_shard_by_backend_override_is_bit_equal():
    assert all(rounds >= 9 for rounds in run_ranks(4, overridden))


def refusals(rank, world):
    texts = []
    for make in (
        lambda: tithe.c10d.Options(codec="fp9"),
        lambda: tithe.c10d.Options(min_valuse=1),
        lambda: tithe.c10d.compress(dist.new_group(range(world))),
    ):
        with pytest.raises(ValueError) as refused:
            make()
        texts.append(str(refused.value))
    return texts


def test_wrong_options_and_groups_are_refused():
    for texts in run_ranks(2, refusals):
        assert "did you mean" in texts[0] and "min_values" in texts[1] and 'not of backend "tithe"' in texts[2]


def outside(rank, world):
    """Passes a group without this rank to every function that takes one."""
    theirs = [dist.new_group([1 - each], backend="tithe", pg_options=tithe.c10d.Options()) for each in range(world)][
        rank
    ]
    network = DDP(model())
    texts = []
    for call in (
        lambda: tithe.c10d.compress(theirs),
        lambda: tithe.c10d.stats(theirs),
        lambda: tithe.torch.State(theirs),
        lambda: tithe.torch.attach(network, inside=theirs, **OPTIONS),
    ):
        with pytest.raises((ValueError, tithe.Error)) as refused:
            call()
        texts.append(str(refused.value))
    return texts


def test_a_group_of_other_ranks_is_refused_with_the_cure():
    for texts in run_ranks(2, outside):
        assert all("this rank is none of that group's: give each rank a group that it is in" in each for each in texts)


def late(rank, world):
    """Rank 1 takes only the first step with rank 0."""
    group = of(range(world), codec="fp32", timeout=3.0, patience=3.0)
    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(values(rank), group=group)
    if rank == 1:
        store.wait(["named"])
        return None
    with pytest.raises((tithe.Error, RuntimeError)) as error:
        dist.all_reduce(values(rank), group=group)
    store.set("named", "")
    return str(error.value)


def test_rank_without_a_step_is_named():
    first, _ = run_ranks(2, late)
    assert "rank 1 is alive, but did not pass its buckets" in first, first


def waits(rank, world):
    group = of(range(world), codec="fp32")
    dist.all_reduce(values(rank), group=group)
    if rank == 1:
        time.sleep(1.5)
    tensor = values(rank)
    work = dist.all_reduce(tensor, group=group, async_op=True)
    if rank == 0:
        with pytest.raises(tithe.Error, match=r"not over within 0\.2 s") as caught:
            work.wait(timedelta(seconds=0.2))
        assert caught.value.code == "timeout"
    work.wait()
    return torch.equal(tensor, values(0) + values(1))


def test_wait_times_out_while_the_all_reduce_continues():
    assert run_ranks(2, waits) == [True, True]


def later(group, rank):
    dist.all_reduce(values(rank), group=group, async_op=True).wait()


def coalesced(group, rank):
    dist.all_reduce_coalesced([values(rank), values(rank)], group=group)


def functional(group, rank):
    return torch.distributed._functional_collectives.all_reduce(values(rank), "sum", group) + 0


def future_of(group, rank):
    return dist.all_reduce(values(rank), group=group, async_op=True).get_future()


def chained(group, rank):
    future_of(group, rank).then(lambda future: future.value()[0]).wait()


def module_on(group, hook=None):
    network = DDP(torch.nn.Linear(30, 30), process_group=group)
    if hook is not None:
        network.register_comm_hook(group, hook)

    def backward(*_):
        network(torch.ones(2, 30)).sum().backward()

    return backward


WAYS = {
    "sync": lambda group: lambda group, rank: dist.all_reduce(values(rank), group=group),
    "later": lambda group: later,
    "coalesced": lambda group: coalesced,
    "functional": lambda group: functional,
    "future": lambda group: lambda group, rank: future_of(group, rank).wait(),
    "chained": lambda group: chained,
    "ddp": module_on,
    "ddp with a hook": lambda group: module_on(group, allreduce_hook),
}


def dying(rank, world):
    """Rank 1 dies. Every kind of all-reduce on rank 0 raises an error, also when repeated."""
    groups = {name: of(range(world), codec="fp32", timeout=20.0, patience=60.0) for name in WAYS}
    ways = {name: make(groups[name]) for name, make in WAYS.items()}
    for name, way in ways.items():
        for _ in range(2):
            way(groups[name], rank)
            tithe.c10d.end_step()
    if rank == 1:
        import os

        os._exit(3)
    errors = {}
    for name, way in ways.items():
        for _ in range(2):
            with pytest.raises(RuntimeError) as refused:
                way(groups[name], rank)
            why = refused.value
            attributes = getattr(why, "code", ""), getattr(why, "peer", None)
            errors.setdefault(name, []).append((type(why), *attributes, str(why)))
    return errors


def test_dead_rank_is_named_by_every_kind_of_wait():
    with Ranks(2, dying) as ranks:
        errors = ranks.result(0, 240)
    for name, (first, again) in errors.items():
        assert first[:3] == (tithe.Error, "peer_lost", 1) and "rank 1 is gone" in first[3], (name, first)
        assert "ddp" in name or again[:3] == first[:3], (name, again)
