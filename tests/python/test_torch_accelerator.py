# SPDX-License-Identifier: Apache-2.0
"""Gradients on an accelerator simulated by standin.cc; DDP, its futures, streams and events are PyTorch's own."""

import threading

import pytest
import standin
import torch
from processes import run_ranks
from standin_jobs import OPTIONS, make, on_standin, same_bits, train
from test_torch_nested_backward import BUCKETS, Layers, batch, reentrant
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe.torch
from tithe.torch._hook import workers


@pytest.fixture(scope="module", autouse=True)
def built():
    standin.build()


# ---- the values


def equal_to_cpu(rank, world, codecs, dtype, devices, **kwargs):
    group = on_standin()
    results = []
    for codec in codecs:
        plain, ours = make("cpu", dtype=dtype, **kwargs), make(devices, group, dtype, **kwargs)
        states = [tithe.torch.attach(model, codec=codec, **OPTIONS) for model in (plain, ours)]
        expected, found = (train(model, rank, range(5), dtype) for model in (plain, ours))
        assert same_bits(found, expected), codec
        owed = [[s.residual(p) for p in m.parameters()] for s, m in zip(states, (plain, ours), strict=True)]
        assert same_bits(*owed), codec
        assert states[0].stats()["bytes_sent"] == states[1].stats()["bytes_sent"]
        assert standin.late() == 0
        results.append(found[-1].float().tolist())
        for state in states:
            state.close()
    return results


CODECS = ("fp32", "bf16", "topk:ratio=0.1", "onebit", "qtopk:ratio=0.1")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_bit_equal_to_the_cpu(dtype):
    one, other = run_ranks(2, equal_to_cpu, CODECS, dtype, ("standin:0",))
    assert one == other


def test_several_devices_in_one_process():
    run_ranks(2, equal_to_cpu, ("topk:ratio=0.1",), torch.float32, ("standin:0", "standin:1"))


def test_three_ranks_by_ring():
    run_ranks(3, equal_to_cpu, ("fp32",), torch.float32, ("standin:1",))


def checkpointed(rank, world):
    group = on_standin()
    found = []
    for device in ("cpu", "standin:0"):
        model = DDP(Layers().to(device), process_group=None if device == "cpu" else group, **BUCKETS)
        state = tithe.torch.attach(model, codec="fp32", **OPTIONS)
        for step in range(3):
            model.zero_grad()
            model(batch(rank, step).detach().to(device).requires_grad_(), reentrant).backward()
        assert state.stats()["rounds"] == 3
        found.append([p.grad.cpu() for p in model.parameters()])
        state.close()
    return same_bits(*found)


def test_nested_backward_equals_the_cpu():
    assert run_ranks(2, checkpointed) == [True, True]


def as_ddp_has_it(rank, world):
    """Gradients that are views of buckets, unused parameters, accumulation: each as on the CPU."""
    group = on_standin()
    for kwargs in ({"gradient_as_bucket_view": True}, {"find_unused_parameters": True}, {"static_graph": True}):
        models = [make(*where, **kwargs) for where in (("cpu",), ("standin:0", group))]
        for model in models:
            tithe.torch.attach(model, codec="topk:ratio=0.1", **OPTIONS)
        expected, found = (train(model, rank, range(4)) for model in models)
        assert same_bits(found, expected), kwargs
        for model in models:
            with model.no_sync():
                model(torch.ones(2, 8)).sum().backward()
        expected, found = (train(model, rank, range(2)) for model in models)
        assert same_bits(found, expected), kwargs


def test_views_of_buckets_unused_parameters_and_accumulation():
    run_ranks(2, as_ddp_has_it)


def scaled(rank, world):
    """The loss scale is on the device, as GradScaler's is."""
    group = on_standin()
    factor = 1000.0  # no power of two: every division rounds
    there = torch.full((), factor, device="standin:0")
    runs = []
    for where, scale in ((("cpu",), lambda: factor), (("standin:0", group), lambda: there.item())):
        model = make(*where)
        state = tithe.torch.attach(model, codec="topk:ratio=0.1", loss_scale=scale, **OPTIONS)
        runs.append(train(model, rank, range(4), scale=factor))
        runs.append([state.residual(p) for p in model.parameters()])
    assert same_bits(runs[0], runs[2]) and same_bits(runs[1], runs[3])


def test_loss_scale_is_removed_like_on_the_cpu():
    run_ranks(2, scaled)


def not_finite(rank, world):
    group = on_standin()
    model = make("standin:0", group)
    state = tithe.torch.attach(model, codec="topk:ratio=0.1", **OPTIONS)
    train(model, rank, range(3))
    before = [state.residual(p) for p in model.parameters()]
    model.zero_grad()
    model(torch.full((2, 8), float("nan") if rank == 1 else 1.0)).sum().backward()
    assert all(torch.isnan(p.grad.cpu()).all() for p in model.parameters())
    assert same_bits(before, [state.residual(p) for p in model.parameters()])


def test_a_nan_on_one_rank_is_nan_on_all_and_touches_no_residual():
    run_ranks(2, not_finite)


def resumed(rank, world):
    group = on_standin()
    kwargs = {"codec": "topk:ratio=0.1", **OPTIONS}
    model = make("standin:0", group)
    tithe.torch.attach(model, **kwargs)
    whole = train(model, rank, range(6))
    model = make("standin:0", group)
    state = tithe.torch.attach(model, **kwargs)
    train(model, rank, range(3))
    saved = {name: value.cpu() for name, value in model.module.state_dict().items()}, state.state_dict()
    model = make("standin:1", group)
    state = tithe.torch.attach(model, **kwargs)
    model.module.load_state_dict(saved[0])
    state.load_state_dict(saved[1])
    assert same_bits(train(model, rank, range(3, 6)), whole[3:])


def test_resume_on_another_device_is_bit_identical():
    run_ranks(2, resumed)


# ---- the order


def early(rank, world):
    group = on_standin()
    seen = []
    commit = workers._commit

    def logged(session, step):
        seen.extend(standin.log())
        seen.append("commit")
        return commit(session, step)

    workers._commit = logged
    model = make("standin:0", group)
    tithe.torch.attach(model, codec="fp32", **OPTIONS)
    train(model, rank, range(2))
    standin.log()
    seen.clear()
    train(model, rank, range(1), scale=float("nan") if rank == 1 else 1.0)
    at = seen.index("commit")
    back = [e for e in seen[:at] if e["op"] == "copy" and e["flags"] == "h2d" and int(e["bytes"]) > 4]
    again = [e for e in standin.log() if e["op"] == "copy" and e["flags"] == "h2d" and int(e["bytes"]) > 4]
    assert all(torch.isnan(p.grad.cpu()).all() for p in model.parameters())
    return len(back), len(again)


def test_bucket_is_copied_back_before_commit_and_again_after_a_dropped_round():
    for back, again in run_ranks(2, early):
        assert back > 1
        assert again >= back


def order(rank, world):
    """Records the operations on the stand-in, and checks their order."""
    group = on_standin()
    model = make("standin:0", group)
    calls, whole = [], []

    def hook(state, bucket):
        before = torch.accelerator.current_stream()
        whole.extend(standin.log())
        future = tithe.torch.hook(state, bucket)
        log = standin.log()
        whole.extend(log)
        calls.append((threading.get_native_id(), bucket.buffer().nbytes, log))
        assert torch.accelerator.current_stream() == before
        return future

    state = tithe.torch.State(None, codec="fp32", loss_scale=lambda: float(one.item()), **OPTIONS)
    state.process_group = group
    one = torch.ones((), device="standin:0")
    model.register_comm_hook(state, hook)
    train(model, rank, range(2))
    assert standin.pinned() == calls[0][1]  # one bucket has become two
    calls.clear()
    whole.extend(standin.log())
    whole.clear()
    train(model, rank, range(1))
    after = whole + standin.log()
    thread = calls[0][0]
    assert len(calls) > 1 and {call[0] for call in calls} == {thread}
    events = {}
    for i, (_, size, log) in enumerate(calls):
        mine = [e for e in log if e.get("thread", str(thread)) == str(thread) and e["op"] not in ("block",)]
        filled, copied, arrived = [e for e in mine if e["op"] in ("record", "copy")][:3]
        blocked = next(e for e in log if e["op"] == "block")
        assert filled["op"] == "record" and filled["stream"] == "0"
        assert (blocked["event"], blocked["stream"]) == (filled["event"], copied["stream"])
        assert copied["op"] == "copy" and copied["flags"] == "d2h", "nothing waits in backward's thread"
        assert int(copied["bytes"]) == size and copied["stream"] != "0"
        assert arrived["op"] == "record" and arrived["stream"] == copied["stream"]
        assert not [e for e in log if e["op"] in ("pin", "unpin", "new")], "steady: nothing is allocated"
        events[i] = arrived["event"], copied["stream"]
    # Each bucket is copied back after its own exchange; then the copies' stream records an event for each.
    thread = str(thread)
    back = [i for i, e in enumerate(after) if e["op"] == "copy" and e["flags"] == "h2d" and int(e["bytes"]) > 4]
    sizes = [size for _, size, _ in calls]
    assert [int(after[i]["bytes"]) for i in back[: len(sizes)]] == sizes
    assert len({after[i]["stream"] for i in back} | {stream for _, stream in events.values()}) == 1
    worker = {after[i]["thread"] for i in back}
    assert len(worker) == 1 and thread not in worker
    arrived = [i for i, e in enumerate(after) if e["op"] == "synchronize" and e["event"] in dict(events.values())]
    assert len(arrived) == len(calls), "each is waited for once"
    assert {after[i]["thread"] for i in arrived}.isdisjoint({thread, *worker})
    assert all(a < b for a, b in zip(arrived, back, strict=True)), "each goes back after it has come"
    # The loss scale is read on a stream of its own, without other work.
    reads = [e for e in after if e["op"] == "copy" and e["bytes"] == "4" and e["thread"] == after[arrived[0]]["thread"]]
    assert len(reads) == len(calls)
    assert {e["stream"] for e in reads}.isdisjoint({"0", after[back[0]]["stream"]})


def test_order_of_copies_streams_and_events():
    run_ranks(2, order)
