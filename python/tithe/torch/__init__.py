# SPDX-License-Identifier: Apache-2.0
"""tithe for PyTorch's DistributedDataParallel.

    import tithe.torch
    model = DistributedDataParallel(model)
    tithe.torch.attach(model)                              # a quarter of the bytes, any optimizer
    tithe.torch.attach(model, codec="qtopk:ratio=0.03")    # or the codec that suits yours: docs/start/choosing.md

or, to register the hook by hand:

    model.register_comm_hook(State(), hook)

or, over a slow and distant link, with an exchange every N steps:

    with tithe.torch.LocalSteps(model, optimizer, every=30, steps=10_000):     # docs/guide/local_steps.md

Trainers have modules of their own, which attach at the right moment and save the residuals of all ranks with the
trainer's checkpoints: tithe.lightning, tithe.accelerate, tithe.transformers. (Lightning's
`DDPStrategy(ddp_comm_hook=...)` registers hooks on CUDA only: on other devices it trains without the hook.)

The properties of DDP under tithe:
  mean             gradients are averaged over the ranks of the process group, with the same bits on all of them
  no waiting       the hook starts the exchange and returns; a worker thread completes the future
  device           parameters are on the CPU or on an accelerator of torch 2.6 or newer (CUDA, or any other with
                   torch.accelerator's streams and events; several devices per process are possible). A bucket is
                   copied to pinned host memory on a stream of its own, sent while backward continues, and copied
                   back; the future has the event of this copy. Pinned memory is as large as the gradients. With
                   device="on" a bucket on a CUDA GPU stays there, and its kernels run there
                   (docs/inside/device.md). The tests of every wait use a simulated GPU; tools/gpu_check.sh checks
                   and times it on a GPU
  nested           a backward inside a backward works: checkpoints (reentrant or not, nested), autograd.grad and
                   gradient penalties. A hook of your own around this one returns the future and does not wait for it
  accumulation     under no_sync() DDP calls no hook: gradients add up locally and are sent with the next step.
  Without
                   no_sync() each backward is a round, and the last one has the sum
  keyed            residuals belong to parameters, by name: the names of the model with which the State is attached or
                   registered, or of State(parameters=model.named_parameters()). All ranks must use the same names. If
                   the State cannot find its model (it is inside an object of yours), keys follow the order in which
                   DDP first hands the parameters over; then a saved state loads only if each parameter has the values
                   with which it was saved
  channels_last    residual() has the parameter's shape in any memory format; a state loads in the format in which it
                   was saved. Convert before DistributedDataParallel
  partly           a loaded state may lack parameters (their residuals begin empty) or have some that do not train now
                   (their residuals are kept); a line in the log names them. Other shapes are refused, by name
  checkpoints      torch.save one state_dict() per rank, or give the State to torch.distributed.checkpoint. A call
  from
                   another thread inside a step waits for the end of the step
  copies           PyTorch copies no hook: copy.deepcopy(model) and torch.load() of a whole model log this, and
                   attach() continues from the residuals of such a copy
  compiled         attach before or after torch.compile(). Names are without `_orig_mod.`, so a state fits the model
                   compiled or not
  one model        a State belongs to one model: if two models have registered it, all ranks refuse it at the first
                   bucket. For a GAN, attach() each of its models
  together         the futures of a step complete together, after all ranks agree whether the step counts
  not finite       a NaN or Inf on one rank gives NaN on all ranks: GradScaler skips the step on all of them, and
                   residuals do not change. With a GradScaler pass loss_scale=scaler.get_scale, so that residuals stay
                   in true gradient units when the scale changes
  uneven inputs    under Join, a rank without data sends its residual with a zero gradient: nothing is lost. The mean
                   always divides by the full size of the group
  weights          attach(weight=) gives a weighted mean. A rank leaves out a step by State.skip(). Gradients that no
                   step applies belong inside State.without_residual() (docs/guide/steps.md)
  momentum         feedback=momentum in the codec applies momentum before sending: use an optimizer without it
  sparse           sparse gradients are refused: use nn.Embedding(sparse=False)
  unused           find_unused_parameters works. The residual of a parameter that no rank used in a step is sent in
                   that step, and DDP drops it with the whole gradient. skip_all_reduce_unused_params works if all
                   ranks leave out the same buckets
  unfrozen         DDP does not reduce a parameter that was frozen when DDP wrapped the model, with tithe or without:
                   one warning names it
  errors           backward() raises tithe.Error with `peer`, and the session is over. Restart from a checkpoint:
                   state_dict() still returns the state of the last step that counted, also after close()
  Ctrl-C           ends every wait on the main thread, and the session; peers get an error. The interrupted step never
                   counts: state_dict() returns the state before it
  waiting          every wait ends: a silent rank is named after `timeout`, a rank that hands nothing over after
                   `patience`. If it is this rank, the text lists the missing buckets (docs/reference/errors.md);
                   after its backward has ended, the wait is `timeout` long
  fork             a forked child must not run backward with the parent's State. DataLoader workers may use fork,
                   spawn or forkserver: peers detect the end of a rank at once even if its workers are still running
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
from tithe.torch import optim
from tithe.torch._checkpoint.checkpoints import Checkpoints
from tithe.torch._common.checks import check_model, ddp_of, model_group, scale_of, usable_timeout
from tithe.torch._common.model_copies import restore_copied_state
from tithe.torch._common.parameter_keys import by_name
from tithe.torch._common.wrappers import check_bucket
from tithe.torch._hook.parameter_views import ParameterViews
from tithe.torch._hook.record_model import record_model
from tithe.torch._hook.skipped_step import SkippedSteps
from tithe.torch._hook.state import DEFAULT, State
from tithe.torch._local_steps.local_steps import LocalSteps
from tithe.torch._optimizer.adapters import adapt, optimizers_of, suitable
from tithe.torch._sharded.attach import attach_sharded
from tithe.torch._sharded.groups import is_sharded, shards_over_all_ranks
from tithe.torch._sharded.host_share import HostShare
from tithe.torch._sharded.inside import InsideState, groups_inside

_DOING = "tithe.torch.attach()"

__all__ = ["Checkpoints", "Gathered", "LocalSteps", "State", "attach", "hook", "optim", "record_model"]


def hook(state: State, bucket: dist.GradBucket, *rest: Any) -> torch.futures.Future[torch.Tensor]:
    """The DDP communication hook: averages the bucket over all ranks, in place. For register_comm_hook(state, hook).

    rest: FSDP's arguments, which are refused with the cure.
    """
    check_bucket(bucket)
    if not isinstance(state, State):
        raise ValueError("tithe.torch.hook needs its state: register_comm_hook(tithe.torch.State(...), hook)")
    return state._start(bucket)


class Gathered:
    """The states of all ranks as one object with state_dict() and load_state_dict(), for frameworks in which only rank
    0 writes a checkpoint: accelerator.register_for_checkpointing(tithe.torch.Gathered(state)).

    Call both on all ranks: State.gathered_state_dict() is collective.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def state_dict(self) -> dict[str, Any]:
        """Returns the states of all ranks on rank 0, no states on the others. Collective."""
        return self._state.gathered_state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads this rank's part of the state that rank 0 saved."""
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

    model: a DistributedDataParallel; or a model of fully_shard() with a mesh that has a replicate dimension, or of
    replicate() over FSDP2 (docs/guide/python.md, Sharded models); or one of these after torch.compile(). A model that
    fully_shard() shards over all ranks gets a FullyShardedState, and may have weights="zip" (docs/guide/sharded.md).
    Options are those of State, except process_group and parameters, which the model supplies. Returns the State:
    state_dict(), load_state_dict(), stats(), plan(), trace(), close().
    codec: by default one that suits the optimizer, or any optimizer if none is given. "auto" with an optimizer may use
    every codec that trains like fp32 under it (docs/start/choosing.md).
    optimizer: the optimizer that steps the model's parameters, or a list of several. It decides the default codec.
    tithe.torch.optim.AdamW then removes the codec's error from its divisor, and tithe.torch.optim.Muon divides its
    matrices among the ranks (docs/guide/muon.md); others step as usual. attach() warns if a codec does not suit the
    optimizer, and the State warns once if the loop clears the gradients of a round without step()
    (docs/guide/optimizers.md). Without optimizer=, a step that is skipped after backward silently loses residuals: call
    state.undo() on every rank, with undo=True, or run backward inside state.without_residual().
    replicas: the group of the ranks with the same shard, for a model of fully_shard() without a replicate dimension.
    inside: "auto", or the process group of the ranks on this host: they first sum DDP's gradients, and each rank then
    exchanges a share of them with the other hosts (docs/guide/python.md, Several ranks on a host).
    ValueError for a wrong setting, a parameter of another type (float64, complex), sparse gradients or a second hook.
    If one rank refuses, the others raise tithe.Error with `peer` at once. A rank that does not call attach() is named
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
        """Constructs the State. Not collective: together() reports a refusal to all ranks."""
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
            if options.get("weight") is not None:
                raise ValueError("weight= does not work with inside=, which averages inside hosts first: leave one out")
            state = InsideState(groups[1], codec=chosen, strategy=strategy, **options)
        state._unused.detach()  # an error from here on raises, so no warning is needed
        scale_of(state.loss_scale)
        if groups is None:
            state._model_known = True
            adapt(state, optimizers, ParameterViews(names), codec_given=codec is not None)
            restore_copied_state(ddp, state)
            if state.weight is not None:
                state._skipped = SkippedSteps(ddp, state)
        else:
            state._take(named, groups[0])
            warns = groups[0].rank() == 0
            adapt(state, optimizers, HostShare(names, state), warns, codec_given=codec is not None)
        state._model = weakref.ref(ddp)
        return state

    state = prepare() if group is None else together(group, patience, _DOING, prepare)
    state.open()
    ddp_of(model).register_comm_hook(state, hook)  # last, since DDP cannot remove a hook: a refused attach() has none
    return state
