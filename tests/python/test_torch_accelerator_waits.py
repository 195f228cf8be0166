# SPDX-License-Identifier: Apache-2.0
"""Every wait between backward, the copies and DDP is necessary: these checks fail if any one of them is missing."""

import importlib
import inspect

import pytest
import standin
import torch
from processes import run_ranks
from standin_jobs import OPTIONS, make, on_standin, same_bits, train
from test_torch_accelerator import order

import tithe.torch

DEVICE, ROUTE = "tithe.torch._device.device", "tithe.torch._device.route"
# The missing wait: module, its text, and the replacement.
WAITS = {
    "the copy to the host is to wait until the bucket is filled": (
        DEVICE, "self.stream.wait_event(self._filled)", "pass"),
    "filled is to be what backward's stream has been told": (
        DEVICE, "self._filled.record(torch.accelerator.current_stream(buffer.device))\n        self", "self"),
    "the session is to get the bucket when the copy is there": (
        DEVICE, "self._copied.synchronize()\n        torch.", "torch."),
    "the copy is to say when it is there": (
        DEVICE, "self._copied.record(self.stream)\n\n    def wait", "\n    def wait"),
    "DDP's stream is to wait for the copy back": (
        ROUTE, "self.devices = [tensor.device]\n        self._copy", "self._copy"),
}  # fmt: skip
LIFETIMES = {
    "pinned memory is to stay until no copy uses it": (
        DEVICE, "self._copied.synchronize()\n\n\nclass PinnedPool", "pass\n\n\nclass PinnedPool"),
    "the copy back is one that uses pinned memory": (
        DEVICE, "self._copied.record(self.stream)\n        buffer.record", "buffer.record"),
    "a bucket's memory is to stay until the copy back has been made": (
        DEVICE, "buffer.record_stream(self.stream)", "pass"),
}  # fmt: skip
ORDERS = {
    "the copy to the host is to be on the copies' stream": (DEVICE, "with _current(self.stream):", "if True:"),
    "the copy back is to be on the copies' stream": (
        DEVICE, "torch.accelerator.set_stream(self.stream)\n        buffer.copy_", "buffer.copy_"),
    "the loss scale is to be read where nothing waits": (
        DEVICE, "torch.accelerator.set_stream(self._side)\n        return self.host", "return self.host"),
}  # fmt: skip
RETURNS = {
    "backward is to get its stream back": (DEVICE, "torch.accelerator.set_stream(before)", "pass"),
    "backward is to get its device back": (DEVICE, "torch.accelerator.set_stream(own)", "pass"),
}


@pytest.fixture(scope="module", autouse=True)
def built():
    standin.build()


def without(name, text, instead):
    """Changes a module's text in this process."""
    module = importlib.import_module(name)
    source = inspect.getsource(module)
    assert source.count(text) == 1, f"{text!r} stands {source.count(text)} times in {name}"
    exec(compile(source.replace(text, instead), module.__file__, "exec"), vars(module))
    if name == DEVICE:
        importlib.import_module("tithe.torch._hook.workers").PinnedPool = module.PinnedPool
    else:
        importlib.import_module("tithe.torch._hook.running_session").PinnedRoute = module.PinnedRoute


def values(rank, world, *missing):
    """Returns True if the gradients equal those of the CPU."""
    group = on_standin()
    if missing:
        without(*missing)
    models = make("cpu"), make("standin:0", group)
    for model in models:
        tithe.torch.attach(model, codec="fp32", **OPTIONS)
    right = []
    for delays in ((0.0, 0.0), (0.1, 0.0), (0.0, 0.1)):
        standin.delay(*delays)
        right.append(same_bits(*(train(model, rank, range(2)) for model in models)))
    return all(right)


def lifetimes(rank, world, *missing):
    """Returns True if memory stays allocated while a copy uses it, on the device and on the host."""
    standin.load()
    standin.delay(0.3)
    if missing:
        without(*missing)
    pool = importlib.import_module(DEVICE).PinnedPool()
    bucket, other = torch.ones(1000, device="standin:0"), torch.ones(2000, device="standin:0")
    copy = pool.start_copy(0, True, bucket)
    copy.wait()
    copy.copy_back(bucket)
    del bucket, copy  # no code waits for the copy back
    standin.log()
    pool.start_copy(0, True, other).wait()  # simulates DDP making other buckets
    torch.accelerator.synchronize("standin:0")
    unpinned, pinned = [e for e in standin.log() if e["op"] in ("pin", "unpin")]
    assert (unpinned["op"], unpinned["bytes"], pinned["bytes"]) == ("unpin", "4000", "8000")
    pool.close()
    assert standin.pinned() == 0
    return unpinned["in_use"] == "0" and standin.late() == 0


def orders(rank, world, *missing):
    without(*missing)
    try:
        order(rank, world)
    except AssertionError:
        return False
    return True


def returns(rank, world, *missing):
    """Returns True if a bucket of one device does not change the streams of any device, nor the current device."""
    standin.load()
    if missing:
        without(*missing)
    streams = torch.Stream("standin:1"), torch.Stream("standin:0")
    for stream in streams:
        torch.accelerator.set_stream(stream)
    importlib.import_module(DEVICE).PinnedPool().start_copy(0, True, torch.ones(9, device="standin:1")).synchronize()
    now = torch.accelerator.current_stream("standin:1"), torch.accelerator.current_stream("standin:0")
    return now == streams and torch.accelerator.current_device_index() == 0


def test_with_all_waits_the_values_are_right():
    assert run_ranks(2, values) == [True, True]


def test_memory_is_held_while_it_is_used():
    assert run_ranks(1, lifetimes) == [True]


def test_backward_has_its_streams_and_device_restored():
    assert run_ranks(1, returns) == [True]


@pytest.mark.parametrize("missing", WAITS)
def test_without_a_wait_the_values_are_wrong(missing):
    assert run_ranks(2, values, *WAITS[missing]) == [False, False]


@pytest.mark.parametrize("missing", LIFETIMES)
def test_without_a_hold_memory_is_freed_too_early(missing):
    assert run_ranks(1, lifetimes, *LIFETIMES[missing]) == [False]


@pytest.mark.parametrize("missing", ORDERS)
def test_changed_stream_is_detected(missing):
    assert run_ranks(2, orders, *ORDERS[missing]) == [False, False]


@pytest.mark.parametrize("missing", RETURNS)
def test_without_a_return_backward_has_another_stream(missing):
    assert run_ranks(1, returns, *RETURNS[missing]) == [False]
