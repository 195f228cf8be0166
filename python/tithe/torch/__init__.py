# SPDX-License-Identifier: Apache-2.0
"""tithe for PyTorch's DistributedDataParallel.

    import tithe.torch
    model = DistributedDataParallel(model)
    tithe.torch.attach(model)                              # a quarter of the bytes, any optimizer
    tithe.torch.attach(model, codec="qtopk:ratio=0.03")    # or what suits yours: docs/choosing.md

or the standard pair, where a hook is registered by hand:

    model.register_comm_hook(State(), hook)

or, where the link is slow and far, an exchange every so many steps:

    with tithe.torch.LocalSteps(model, optimizer, every=30, steps=10_000):     # docs/local_steps.md

Trainers have modules of their own, which attach at the right moment and save every rank's residuals with the trainer's
checkpoints: tithe.lightning, tithe.accelerate, tithe.transformers. (Lightning's `DDPStrategy(ddp_comm_hook=...)`
registers hooks on CUDA alone: on other devices it trains as if there were none.)

What DDP users rely on, and how it is here:
  mean             gradients come back averaged over the ranks of the process group, bit-identical on all of them
  no waiting       the hook starts the exchange and returns; a worker thread completes the future
  device           parameters on the CPU, or on an accelerator of torch 2.6 or newer (CUDA and whatever else has
                   torch.accelerator's streams and events; several devices per process too): a bucket is copied to
                   pinned host memory on a stream of its own, sent while backward goes on, and copied back; the future
                   carries the event. Pinned memory is as large as the gradients. Every wait is tested against a
                   stand-in for a GPU; with device="on" a bucket on a CUDA GPU stays there, and so do its kernels
                   (docs/device.md); no GPU has run this yet (tools/gpu_check.sh checks and times it on one)
  nested           a backward inside a backward works: checkpoints (reentrant or not, in one another), autograd.grad and
                   gradient penalties. A hook of your own around this one returns the future and does not wait for it
  accumulation     under no_sync() DDP calls no hook: gradients add up locally and are sent with the next step. Without
                   no_sync() each backward is a round, and the last one carries the sum
  keyed            residuals belong to parameters, by name: those of the model with which the State is attached or
                   registered, or State(parameters=model.named_parameters()). All ranks must name alike. Where the model
                   cannot be found (a State inside an object of your own) they go by the order in which DDP first hands
                   them over, and a saved state is taken back only by parameters that have, one by one, the values with
                   which they were saved
  channels_last    residual() has the parameter's places in any memory format; a state is taken back in the format in
                   which it was saved. Convert before DistributedDataParallel
  partly           a loaded state may lack parameters (nothing of theirs is unsent) or have some that do not train now
                   (kept for them); a line in the log names them. Other shapes are refused, by name
  checkpoints      torch.save one state_dict() per rank, or give the State to torch.distributed.checkpoint; from
                   another thread in mid-step it waits for the end of the step
  copies           PyTorch copies no hook: copy.deepcopy(model) and torch.load() of a whole model say so, and attach()
                   takes such a copy and goes on from its residuals
  compiled         attach before or after torch.compile(); `_orig_mod.` is left out of the names, so that a state fits
                   the model compiled or not
  one model        a State belongs to one model: one that two models have registered is refused by all ranks at the
                   first bucket. For a GAN, attach() each of its models
  together         a step's gradients come back together, when it is known whether the step counts
  not finite       a NaN or Inf on one rank gives NaN on all ranks: GradScaler skips the step on all of them, and
                   residuals stay as they were. With a GradScaler pass loss_scale=scaler.get_scale, so that residuals
                   stay in true gradient units when the scale changes
  uneven inputs    under Join a rank that has run out of data goes on sending what it still owes (its residual) with a
                   zero gradient: nothing is lost. The mean always divides by the group's full size
  momentum         with feedback=momentum in the codec, momentum happens before sending: use an optimizer without it
  sparse           sparse gradients are refused: use nn.Embedding(sparse=False)
  unused           find_unused_parameters works; what was owed to a parameter that no rank used in a step goes out
                   with that step, and DDP drops it as it drops the whole gradient. skip_all_reduce_unused_params works
                   where all ranks leave out the same buckets
  unfrozen         a parameter that was frozen when DDP wrapped the model is not reduced, with tithe or without: one
                   warning names it
  errors           backward() raises tithe.Error with `peer`; the session is over then. Restart from a checkpoint:
                   state_dict() still gives the state of the last step that counted, also after close()
  Ctrl-C           ends whatever waits, on the main thread; the session is over then, peers hear of it, and the step
                   that waited never counts: state_dict() gives the state of before
  waiting          no wait is without an end: a silent rank is named after `timeout`, one that hands nothing over after
                   `patience`; where it is this one, the text has the buckets that were waited for (docs/errors.md), and
                   if its backward has ended already, it waits for `timeout`
  fork             a forked child must not run backward with the parent's State. DataLoader workers are fine, by fork,
                   spawn or forkserver: the end of a rank is noticed at once though its workers live on
"""
# No `from __future__ import annotations` here: DDP compares the hook's annotations with the classes themselves.

import weakref
from collections.abc import Mapping
from typing import Any

try:
    import torch
    import torch.distributed as dist
except ModuleNotFoundError as error:
    from tithe._missing import no_torch

    raise no_torch("tithe.torch", error) from None

from tithe._exchange import together
from tithe._torch_checkpoints import Checkpoints
from tithe._torch_checks import check_model, ddp_of, model_group, scale_of, usable_timeout
from tithe._torch_copies import take_over
from tithe._torch_inside import InsideState, groups_inside
from tithe._torch_keys import by_name
from tithe._torch_local_steps import LocalSteps
from tithe._torch_model import record_model
from tithe._torch_optimizers import optimizers_of, suitable
from tithe._torch_pieces import Pieces
from tithe._torch_sharded import attach_sharded
from tithe._torch_sharded_groups import is_sharded, shards_over_all_ranks
from tithe._torch_shares import Shares
from tithe._torch_state import DEFAULT, State
from tithe._torch_wrappers import check_bucket
from tithe.torch import optim

_DOING = "tithe.torch.attach()"

__all__ = ["Checkpoints", "Gathered", "LocalSteps", "State", "attach", "hook", "optim", "record_model"]


def hook(state: State, bucket: dist.GradBucket, *rest: Any) -> torch.futures.Future[torch.Tensor]:
    """DDP communication hook: the mean of the bucket over all ranks, in place. For register_comm_hook(state, hook).

    rest: what FSDP would give; it is refused with what to do.
    """
    check_bucket(bucket)
    if not isinstance(state, State):
        raise ValueError("tithe.torch.hook needs its state: register_comm_hook(tithe.torch.State(...), hook)")
    return state._start(bucket)


class Gathered:
    """The states of all ranks as one object with state_dict() and load_state_dict(), for frameworks that let rank 0
    alone write a checkpoint: accelerator.register_for_checkpointing(tithe.torch.Gathered(state)).

    Both are called on all ranks: State.gathered_state_dict() is collective.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def state_dict(self) -> dict[str, Any]:
        """All ranks' states on rank 0, none on the others. Collective."""
        return self._state.gathered_state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes this rank's part of what rank 0 saved."""
        self._state.load_state_dict(state)


def attach(
    model: torch.nn.Module,
    codec: str | None = None,
    strategy: str = DEFAULT.strategy,
    *,
    optimizer: Any = None,
    replicas: dist.ProcessGroup | None = None,
    inside: str | dist.ProcessGroup | None = None,
    **options: Any,
) -> State:
    """Makes a model synchronise its gradients through tithe. Collective: all ranks call it, before backward.

    model: a DistributedDataParallel, or what fully_shard() made for a mesh with a replicate dimension, or replicate()
    over FSDP2 (docs/python.md, Sharded models); or what torch.compile() made of one. A model that fully_shard() shards
    over all ranks gets a FullyShardedState, and may have weights="zip" (docs/sharded.md). Options are those of State,
    but for process_group and parameters, which are the model's. Returns the State: state_dict(), load_state_dict(),
    stats(), plan(), trace(), close().
    codec: without a word what suits the optimizer, or any optimizer where none is given; "auto" with an optimizer may
    use all that trains like fp32 under it (docs/choosing.md).
    optimizer: the optimizer that steps the model's parameters, or a list of several. It decides the default codec;
    tithe.torch.optim.AdamW then removes the codec's error from its divisor, others step as they are. One warning says
    if a codec does not suit the optimizer, and one if the loop clears the gradients of a round without step()
    (docs/optimizers.md). Without optimizer= a step that is skipped after backward loses residuals in silence: call
    state.undo() on every rank, with undo=True.
    replicas: of a model that fully_shard() made for a mesh without a replicate dimension, the ranks with its shard.
    inside: "auto", or the process group of the ranks on this host: DDP's gradients are then summed in it first, and
    each rank exchanges a share of them with the other hosts (docs/python.md, Several ranks on a host).
    ValueError names what cannot be: a setting, a parameter of another type (float64, complex), sparse gradients, a
    second hook. What one rank refuses the others hear at once, as tithe.Error with `peer`; who does not come is named
    after `timeout` seconds.
    """
    if is_sharded(model):
        if inside is not None:
            raise ValueError("inside= is for DistributedDataParallel: fully_shard() sums inside hosts by itself")
        if replicas is None and shards_over_all_ranks(model):
            from tithe.torch._sharded.fsdp import attach_fully_sharded  # needs torch's FSDP2

            return attach_fully_sharded(model, codec, strategy, optimizer, options)
        return attach_sharded(model, codec, strategy, optimizer, replicas, options)
    if replicas is not None:
        raise ValueError("replicas= is for models that fully_shard() made: leave it out")
    group = model_group(model)
    patience = usable_timeout(options)
    groups: tuple[dist.ProcessGroup, dist.ProcessGroup] | None = None

    def apart() -> str:
        ddp_of(model)
        return options.pop("hosts", "") if isinstance(inside, str) else ""

    if inside is not None and group is not None:
        hosts = together(group, patience, _DOING, apart)
        groups = groups_inside(inside, hosts, group, patience, _DOING)

    def prepare() -> State:
        ddp = ddp_of(model)
        given = {"process_group", "parameters"} & set(options)
        if given:
            raise ValueError(f"attach() takes {' and '.join(sorted(given))} from the model: leave it out")
        check_model(ddp)
        named = list(ddp.module.named_parameters())
        names = by_name(named)
        optimizers = optimizers_of(optimizer, names)
        chosen = suitable(codec, optimizers)
        if groups is None:
            state = State(ddp.process_group, codec=chosen, strategy=strategy, parameters=named, **options)
        else:
            state = InsideState(groups[1], codec=chosen, strategy=strategy, **options)
        state._unused.detach()  # what goes wrong from here on is told by an exception
        scale_of(state.loss_scale)
        if groups is None:
            state._settled = True
            state._tie(optimizers, Pieces(names))
            take_over(ddp, state)
        else:
            state._take(named, groups[0])
            state._tie(optimizers, Shares(names, state), says=groups[0].rank() == 0)
        state._model = weakref.ref(ddp)
        ddp.register_comm_hook(state, hook)
        return state

    state = prepare() if group is None else together(group, patience, _DOING, prepare)
    state.open()
    return state
