# SPDX-License-Identifier: Apache-2.0
"""Models of fully_shard() over all ranks: with codec fp32 bit-equal to FSDP2's own, under every setting of FSDP2.

Gloo adds the ranks' values in an order of its own, tithe in the order of ranks. The sum of two values does not depend
on the order, so two ranks are compared with FSDP2 on Gloo. Four ranks are compared with FSDP2 whose reduce-scatter adds
in the order of ranks.

Most settings gather bfloat16 and reduce float32, so that weights are sent by `delta`, without its minimum of weights.
"""

import functools

import torch
import torch.distributed as dist
from fsdp_jobs import OPTIONS, Network, loss_of, network_of, one_mesh, plain, use_rank_order
from processes import run_ranks
from sharded_jobs import WIDTH, batch, bits, clipped, kept
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard

import tithe.torch
from tithe.torch._sharded import fsdp_comm

STEPS, FEW = 20, 6  # with four ranks most settings run for a few steps, because the processes share the cores


def sgd(network):
    return torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.1, momentum=0.9)


def ends(make, prepare, run, reference, steps):
    """Returns the bits after the same steps of FSDP2 and of tithe, and tithe's State, which is closed."""
    found = []
    for attached in (False, True):
        network = make()
        if attached:
            state = tithe.torch.attach(network, codec="fp32", **OPTIONS)
        elif reference:
            use_rank_order(network)
        prepare(network)
        run(network, sgd(network), range(steps))
        found.append(bits(network))
    state.close()
    return found[0], found[1], state


# ---- Training loops


def accumulated(network, optimizer, steps, sync=False):
    """Makes three backward passes per step: only the last one is reduced, or each."""
    for step in steps:
        for part in range(3):
            network.set_requires_gradient_sync(sync or part == 2)
            loss_of(network, step, part).backward()
        optimizer.step()
        optimizer.zero_grad()


def accumulated_on_the_way(network, optimizer, steps):
    accumulated(network, optimizer, steps, sync=True)


def in_backward(network, _, steps):
    """Makes a step of the optimizer as soon as a parameter has its gradient."""
    for p in network.parameters():
        p.register_post_accumulate_grad_hook(lambda q: (q.data.sub_(q.grad, alpha=0.1), setattr(q, "grad", None)))
    for step in steps:
        loss_of(network, step).backward()


def two_forwards(network, optimizer, steps):
    """Makes two forward passes before their backward, and one without a backward."""
    for step in steps:
        with torch.no_grad():
            network(batch(dist.get_rank(), step))
        (loss_of(network, step) + loss_of(network, step, 1)).backward()
        optimizer.step()
        optimizer.zero_grad()


def now_and_then(network, optimizer, steps):
    """Uses a branch in every second step only, so that it has no gradient in the others."""
    for step in steps:
        network.with_extra = step % 2 == 0
        plain(network, optimizer, [step])


# ---- Settings


def for_each(network, name, *given):
    for module in network.modules():
        if isinstance(module, FSDPModule):
            getattr(module, name)(*given)


def prefetched(network):
    network.set_modules_to_forward_prefetch([network.enter, network.leave])
    network.leave.set_modules_to_backward_prefetch([network.enter])


def frozen():
    network = Network()
    network.enter.weight.requires_grad_(False)
    for p in network.head.parameters():
        p.requires_grad_(False)
    return network


def with_checkpoint():
    network = Network()
    network.checkpointed = True
    return network


def in_one_group(**policy):
    network, mesh = Network(), one_mesh()
    fully_shard([network.enter, network.leave], mesh=mesh, **policy)
    return fully_shard(network, mesh=mesh, **policy)


def with_columns():
    network = Network()
    network.enter, network.leave = nn.Linear(WIDTH, 48), nn.Linear(48, 16)
    return network


def by_columns(p):
    return Shard(1 if p.dim() > 1 else 0)


def hooked(network):
    """Sets a hook that FSDP2 calls with each result of a reduce-scatter."""
    for_each(network, "set_all_reduce_hook", lambda flat: flat.mul_(0.5))


def parity(rank, world, reference):
    """Compares tithe with FSDP2 under every loop and setting. Returns, by name, whether the bits are equal, the stats,
    and the number of modules whose weights went by delta."""
    half, mixed = torch.bfloat16, MixedPrecisionPolicy
    mesh = one_mesh()
    fsdp_comm.MIN_VALUES = 1

    def one(make=Network, prepare=lambda network: None, run=plain, steps=FEW if world > 2 else STEPS, **policy):
        policy = {"mp_policy": mixed(half, torch.float32), **policy}
        make_sharded = make if make is in_one_group else functools.partial(network_of, mesh, make)
        own, ours, state = ends(functools.partial(make_sharded, **policy), prepare, run, reference, steps)
        return own == ours, state.stats(), sum(key.startswith("weights.delta.") for key in state.tensor_stats())

    results = {
        "plain": one(steps=STEPS),
        "kept whole after forward": one(reshard_after_forward=False),
        "accumulated": one(run=accumulated),
        "accumulated on the way": one(run=accumulated_on_the_way),
        "clipped": one(run=clipped),
        "kept": one(run=kept),
        "in backward": one(run=in_backward),
        "two forwards": one(run=two_forwards),
        "now and then": one(run=now_and_then),
        "unused as zeros": one(prepare=lambda n: n.set_reduce_scatter_unused_params(True), run=now_and_then),
        "frozen": one(frozen),
        "checkpointed": one(with_checkpoint),
        "fp32": one(mp_policy=mixed(), steps=STEPS),
        "fp32, accumulated": one(mp_policy=mixed(), run=accumulated),
        "reduced as bf16": one(mp_policy=mixed(half), steps=STEPS),
        "fp32, reduced as bf16": one(mp_policy=mixed(reduce_dtype=half)),
        "a bf16 model": one(lambda: Network().bfloat16(), mp_policy=mixed(half)),
        "fp16": one(mp_policy=mixed(torch.float16)),
        "sums": one(prepare=lambda n: for_each(n, "set_force_sum_reduction_for_comms", True)),
        "divided by the world": one(prepare=lambda n: for_each(n, "set_gradient_divide_factor", float(world))),
        "prefetched": one(prepare=prefetched),
        "one group of two modules": one(in_one_group),
        "along columns": one(with_columns, shard_placement_fn=by_columns),
        "two buffers": one(prepare=lambda n: for_each(n, "set_reduce_scatter_max_input_buffers", 2)),
        "hooked": one(prepare=hooked),
    }
    if reference:  # Gloo has no such operator
        results["multiplied first"] = one(prepare=lambda n: for_each(n, "set_gradient_divide_factor", 3.0))
    if world == 4:
        results["copies within two ranks"] = one(reshard_after_forward=2)
    return results


def check(results):
    for rank in results:
        assert [name for name, (equal, *_) in rank.items() if not equal] == []
    stats = {name: figures for name, (_, figures, _) in results[0].items()}
    deltas = {name: modules for name, (*_, modules) in results[0].items()}
    assert deltas.pop("one group of two modules") == 2
    assert all(modules == (0 if name.startswith("fp32") else 3) for name, modules in deltas.items()), deltas
    steps = FEW if len(results) > 2 else STEPS
    rounds = {
        name: (figures["reduce_scatter"]["rounds"], figures["all_gather"]["rounds"]) for name, figures in stats.items()
    }
    assert rounds["plain"] == (3 * STEPS, 5 * STEPS), "the root's weights are gathered once"
    assert rounds["kept whole after forward"] == (3 * steps, 3 * steps)
    assert rounds["accumulated"][0] == 3 * steps and rounds["accumulated on the way"][0] == 9 * steps
    assert all(figures["rounds_dropped"] == 0 for figures in stats.values())
    return stats


def test_two_ranks_are_bit_equal_to_fsdp2():
    check(run_ranks(2, parity, False))


def test_four_ranks_are_bit_equal_to_fsdp2_in_rank_order():
    stats = check(run_ranks(4, parity, True))
    own = stats["copies within two ranks"]["all_gather"]["rounds"]
    assert own == 3 * FEW, "backward gathers within two ranks, by FSDP2's own all-gather"
