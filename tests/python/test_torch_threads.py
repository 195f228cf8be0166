# SPDX-License-Identifier: Apache-2.0
"""Backward on other threads than the one that attached, and on several at once."""

import threading

import torch
import torch.distributed as dist
import torch.nn as nn
from processes import run_ranks
from torch.nn.parallel import DistributedDataParallel as DDP

import tithe.torch

OPTIONS = {"codec": "topk:ratio=0.1", "min_values": 0, "timeout": 30.0}
STEPS = 4


def model_of(seed):
    torch.manual_seed(seed)
    group = dist.new_group()  # of its own, because DDP exchanges through it in the order of one thread
    return DDP(nn.Sequential(nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 10)), bucket_cap_mb=0.002, process_group=group)


def train(model, rank, seed):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        x = torch.randn(8, 40, generator=torch.Generator().manual_seed(100 * step + 10 * seed + rank))
        yield lambda x=x: model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def at_once(rank, world):
    """Trains two models: one after the other on this thread; then both at once, each step on threads of its own."""
    ends, failed = [], []

    def backward(call):
        torch.set_num_threads(1)  # MKL has this setting per thread, and sums of two threads differ in the last bits
        try:
            call()
        except BaseException as why:
            failed.append(repr(why))

    for apart in (False, True):
        models = [model_of(seed) for seed in (0, 1)]
        states = [tithe.torch.attach(model, **OPTIONS) for model in models]
        for state in states:
            state.open()  # collective, so the order of the calls matters
        if apart:
            for calls in zip(*(train(model, rank, seed) for seed, model in enumerate(models)), strict=True):
                threads = [threading.Thread(target=backward, args=(call,)) for call in calls]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        else:
            for seed, model in enumerate(models):
                for call in train(model, rank, seed):
                    backward(call)
        ends.append([p.detach().numpy().tobytes() for model in models for p in model.parameters()])
        for state in states:
            assert state.stats()["rounds"] == STEPS
            state.close()
        dist.barrier()
    return ends, failed


def test_concurrent_backwards_of_two_models_equal_sequential_ones():
    results = run_ranks(2, at_once)
    for ends, failed in results:
        assert failed == [] and ends[0] == ends[1] == results[0][0][0]
