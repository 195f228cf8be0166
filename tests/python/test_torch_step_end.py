# SPDX-License-Identifier: Apache-2.0
"""The end of a step: DDP may leave out the last bucket, and other threads may save during a step."""

import inspect
import os
import threading

import torch
import torch.nn as nn
from processes import Ranks, own_part, run_ranks, wait_until
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

import tithe
import tithe.torch

WIDTH = 64
SMALL = {"bucket_cap_mb": 0.01}  # a bucket per layer
OPTIONS = {"codec": "fp32", "timeout": 8.0, "patience": 8.0}  # a step that waits for a bucket fails soon
SKIP = {**SMALL, "find_unused_parameters": True, "skip_all_reduce_unused_params": True}


class Layers(nn.Module):
    """forward() uses the given layers, from the last one to the first."""

    def __init__(self, layers=4):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))

    def forward(self, x, used, apart=False, inner=False):
        outs = []
        for i in reversed(used):
            layer = self.layers[i]
            out = checkpoint(layer, x, use_reentrant=True) if inner else layer(x)
            outs.append(out)
            x = x if apart else torch.tanh(out)
        return outs if apart else x


def batch(rank, step):
    torch.manual_seed(100 * step + rank)
    return torch.randn(8, WIDTH, requires_grad=True)


def backward(model, x, used, apart=False, inner=False, accumulates=False):
    """Makes one step. apart: a separate backward for each used layer. accumulates: after one under no_sync()."""
    if accumulates:
        with model.no_sync():
            backward(model, x + 1, used)
    out = model(x, used, apart, inner)
    for each in out if apart else [out]:
        each.pow(2).mean().backward()


STATIC = {**SMALL, "static_graph": True}
CASES = {  # DDP's arguments, the used layers of each step, the way of running them
    "the last bucket is not used": (SKIP, [[1, 2, 3]] * 3, {}),
    "one bucket is used": (SKIP, [[2]] * 3, {}),
    "other buckets in each step": (SKIP, [[0, 1, 2, 3], [1, 2, 3], [2, 3], [0, 3], [0, 1, 2, 3]], {}),
    "a static graph": ({**STATIC, "skip_all_reduce_unused_params": True}, [[1, 2, 3]] * 4, {}),
    "all in inner passes": ({**STATIC, "skip_all_reduce_unused_params": True}, [[1, 2, 3]] * 4, {"inner": True}),
    "a step of four passes": (SMALL, [[0, 1, 2, 3]] * 4, {"apart": True}),
    "nothing is left out": (STATIC, [[0, 1, 2, 3]] * 4, {"inner": True}),
    "batched_grad_copy": ({**SMALL, "batched_grad_copy": True}, [[0, 1, 2, 3]] * 3, {}),
    "bucket_cap_mb_list": ({"bucket_cap_mb_list": [1, 2]}, [[0, 1, 2, 3]] * 3, {}),
    "no_sync": (SMALL, [[0, 1, 2, 3]] * 3, {"accumulates": True}),
    "a static graph and no_sync": (STATIC, [[0, 1, 2, 3]] * 4, {"accumulates": True}),
    "init_sync": ({**SMALL, "init_sync": False}, [[0, 1, 2, 3]] * 3, {}),
    "broadcast_buffers": ({**SMALL, "broadcast_buffers": False}, [[0, 1, 2, 3]] * 3, {}),
    "forward_sync_buffers": ({**SMALL, "forward_sync_buffers": False}, [[0, 1, 2, 3]] * 3, {}),
    "device_mesh": ({**SMALL, "device_mesh": "cpu"}, [[0, 1, 2, 3]] * 3, {}),
    "views": ({**SMALL, "gradient_as_bucket_view": True}, [[0, 1, 2, 3]] * 3, {}),
}


def trains_alike(rank, world):
    """Trains models with tithe's fp32 beside models with DDP alone. Returns which steps end with the same bits, and the
    rounds."""
    found = {}
    for name, (made, steps, how) in CASES.items():
        if "device_mesh" in made:
            made = {**made, "device_mesh": init_device_mesh("cpu", (world,))}
        ours, plain = DDP(Layers(), **made), DDP(Layers(), **made)
        state = tithe.torch.attach(ours, **OPTIONS)
        equal = []
        for step, used in enumerate(steps):
            # torch's static graph does not allow no_sync() in the first step.
            first = {"accumulates": False} if step == 0 and "static_graph" in made else {}
            for model in (plain, ours):
                backward(model, batch(rank, step), used, **{**how, **first})
                for p in model.parameters():
                    if p.grad is not None:
                        p.data.sub_(p.grad, alpha=0.1)
                model.zero_grad()
            equal.append(all(torch.equal(a, b) for a, b in zip(ours.parameters(), plain.parameters(), strict=True)))
        found[name] = equal, state.stats()["rounds"]
        state.close()
    return found


def test_step_ends_like_ddps():
    for found in run_ranks(2, trains_alike):
        for name, (_, steps, _) in CASES.items():
            assert found[name] == ([True] * len(steps), len(steps)), name


REFUSED = {"delay_all_reduce_named_params", "param_to_hook_all_reduce", "mixed_precision"}
BESIDE_GRADIENTS = {"self", "module", "device_ids", "output_device", "dim", "process_group", "check_reduction"}


def test_every_argument_of_ddp_is_tested_or_refused():
    tested = {name for made, _, _ in CASES.values() for name in made}
    assert set(inspect.signature(DDP.__init__).parameters) == tested | REFUSED | BESIDE_GRADIENTS


def lost_in_a_short_step(rank, world):
    model = DDP(Layers(), **SKIP)
    state = tithe.torch.attach(model, **OPTIONS)
    for step in range(2):
        backward(model, batch(rank, step), [1, 2, 3])
    if rank == 1:
        os._exit(0)
    try:
        backward(model, batch(rank, 2), [1, 2, 3])
    except tithe.Error as error:
        return error.code, error.peer, state.stats()["rounds"]


def test_a_step_without_its_last_bucket_fails_by_an_error_of_tithe():
    with Ranks(2, lost_in_a_short_step) as ranks:
        assert ranks.result(0, 120) == ("peer_lost", 1, 2)


def never_all(rank, world):
    """DDP gets no gradient for a layer, without find_unused_parameters."""
    model = DDP(Layers(), **SMALL)
    state = tithe.torch.attach(model, codec="fp32", timeout=1.0, patience=600.0)
    for step in range(2):
        backward(model, batch(rank, step), [0, 1, 2, 3])
    backward(model, batch(rank, 2), [0, 1, 2])
    wait_until(lambda: state._running.workers.causes, 30)
    try:
        state.evaluated(loss=1.0)
    except tithe.Error as error:
        return error.code, str(error)


def test_a_backward_that_ended_without_all_buckets_waits_for_timeout_and_names_parameters():
    for code, text in run_ranks(2, never_all):
        assert code == "timeout" and "ended 1 s ago" in text, text
        assert "'layers.3.weight'" in text and "find_unused_parameters=True" in text, text


def refused(rank, world):
    net, texts = Layers(), {}
    delayed = {"delay_all_reduce_named_params": [("layers.0.weight", net.layers[0].weight)],
               "param_to_hook_all_reduce": net.layers[1].weight}  # fmt: skip
    mixed = DDP(Layers())
    mixed.mixed_precision = object()  # DDP's own needs events, which a CPU does not have
    two_types = Layers()
    two_types.layers[1].to(torch.bfloat16)
    models = {
        "delay_all_reduce_named_params": DDP(net, **delayed),
        "mixed_precision": mixed,
        "static_graph": DDP(two_types, static_graph=True),
    }
    for name, model in models.items():
        try:
            tithe.torch.attach(model, **OPTIONS)
        except ValueError as error:
            texts[name] = str(error)
    return texts


def test_unsupported_ddp_features_are_refused_by_name():
    for texts in run_ranks(2, refused):
        assert len(texts) == 3
        for name, text in texts.items():
            assert f"({name}=" in text and f"leave {name}= out" in text, text


def asks_in_mid_step(rank, world):
    """Calls state_dict() on a second thread during backward; and one call that times out."""
    model = DDP(Layers(), **SMALL)
    state = tithe.torch.attach(model, codec="topk:ratio=0.1", min_values=0, timeout=10.0)
    inside, go_on, states = threading.Event(), threading.Event(), []

    def hold(gradient):
        inside.set()
        go_on.wait(30)

    def save():
        inside.wait(30)
        states.append(state.state_dict())

    backward(model, batch(rank, 0), [0, 1, 2, 3])
    thread = threading.Thread(target=save)
    thread.start()
    handle = model.module.layers[3].weight.register_hook(hold)  # after the first buckets were sent
    threading.Timer(0.5, go_on.set).start()
    backward(model, batch(rank, 1), [0, 1, 2, 3])
    handle.remove()
    thread.join()
    same = torch.equal(own_part(states[0])["session"], own_part(state.state_dict())["session"])
    backward(model, batch(rank, 2), [0, 1, 2, 3])
    rounds = state.stats()["rounds"]

    inside.clear(), go_on.clear()
    state._running.options.timeout = 0.3
    errors = []

    def in_vain():
        inside.wait(30)
        try:
            state.state_dict()
        except tithe.Error as error:
            errors.append((error.code, str(error)))
        go_on.set()

    thread = threading.Thread(target=in_vain)
    thread.start()
    model.module.layers[3].weight.register_hook(hold)
    backward(model, batch(rank, 3), [0, 1, 2, 3])
    thread.join()
    rounds = rounds, state.stats()["rounds"]
    state.close()
    return same, rounds, errors


def test_state_dict_of_another_thread_waits_for_the_step():
    for same, rounds, errors in run_ranks(2, asks_in_mid_step):
        assert same and rounds == (3, 4)
        assert errors[0][0] == "timeout" and "The session goes on" in errors[0][1]


def saves_beside_steps(rank, world):
    """Saves on a second thread all the time, beside a loop of steps."""
    model = DDP(Layers(), **SMALL)
    state = tithe.torch.attach(model, codec="topk:ratio=0.1", min_values=0, timeout=20.0)
    over, saved = threading.Event(), []
    backward(model, batch(rank, 0), [0, 1, 2, 3])

    def save():
        while not over.is_set():
            saved.append(state.state_dict())

    thread = threading.Thread(target=save)
    thread.start()
    for step in range(30):
        backward(model, batch(rank, step), [0, 1, 2, 3])
    over.set()
    thread.join()
    rounds = state.stats()["rounds"]
    state.close()
    return rounds, len(saved) > 0


def test_saving_in_a_thread_ends_no_job():
    assert run_ranks(2, saves_beside_steps) == [(31, True)] * 2


class Slow(nn.Module):
    """Its backward may wait between two buckets."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.wait = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), lambda: None

    def forward(self, x):
        h = self.a(x)
        h.register_hook(lambda gradient: self.wait())
        return self.b(h)


def fails_in_a_hand_over(rank, world):
    model = DDP(Slow(), **SMALL)
    state = tithe.torch.attach(model, codec="fp8", min_values=0)
    for step in range(3):
        model(batch(rank, step)).sum().backward()
    before = state.tensor_stats()
    if rank == 1:
        os._exit(0)
    codes = []
    model.module.wait = lambda: wait_until(lambda: _is_gone(state), 30)
    try:
        model(batch(rank, 3)).sum().backward()
    except tithe.Error as error:
        codes.append(error.code)
    figures = state.stats()["rounds"], state.tensor_stats().keys() == before.keys(), len(state.plan()) > 0
    state.close()
    return codes, figures, state.stats()["rounds"], str(state)


def _is_gone(state):
    try:
        state._running.session.present()
    except tithe.Error:
        return True
    return False


def test_figures_remain_after_a_failed_submission():
    with Ranks(2, fails_in_a_hand_over) as ranks:
        codes, figures, after_close, text = ranks.result(0, 120)
    assert codes == ["peer_lost"] and figures == (3, True, True) and after_close == 3 and "3 steps" in text


def unfreezes(rank, world, late):
    """Returns the number of warnings that a parameter trains without being reduced, and their step."""
    import logging

    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logging.getLogger("tithe.torch").addHandler(handler)
    net = Layers()
    net.layers[0].requires_grad_(False)
    model = DDP(net)
    state = tithe.torch.attach(model, **OPTIONS)
    steps = []
    for step in range(4):
        if step == 2 and late == "unfrozen":
            net.layers[0].requires_grad_(True)
        backward(model, batch(rank, step), [0, 1, 2, 3])
        steps += [step] * sum("drift apart" in text for text in messages) if not steps else []
    text = [text for text in messages if "drift apart" in text]
    state.close()
    return steps, text


def test_a_parameter_unfrozen_after_wrapping_is_named_once():
    for steps, text in run_ranks(2, unfreezes, "unfrozen"):
        assert steps == [2] and len(text) == 1
        assert "'layers.0.weight', 'layers.0.bias'" in text[0] and "new DistributedDataParallel" in text[0]


def test_frozen_parameters_are_not_named():
    assert run_ranks(2, unfreezes, "") == [([], [])] * 2


DIFFERENT = {"codec": ("onebit", "fp8"), "choices": ({}, {"*.bias": "bf16"}), "seed": (0, 7)}


def differs(rank, world):
    errors = {}
    for name, values in DIFFERENT.items():
        try:
            tithe.torch.attach(DDP(Layers()), **{name: values[rank]})
        except tithe.Error as error:
            errors[name] = error.code, error.peer, str(error)
    tithe.torch.attach(DDP(Layers()), codec=("topk", "topk:ratio=0.01")[rank]).close()  # one codec in two texts
    return errors


def test_attach_detects_differing_options():
    for errors in run_ranks(2, differs):
        assert set(errors) == set(DIFFERENT)
        for name, (code, peer, text) in errors.items():
            assert code == "mismatch" and peer == 1 and f"{name}=" in text, text
