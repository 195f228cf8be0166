# SPDX-License-Identifier: Apache-2.0
"""tithe for torchft 0.2: compressed gradients between replicas that may fail and return.

    group = tithe.torchft.ProcessGroup(codec="topk:ratio=0.01")        # the exchange between replicas
    manager = torchft.Manager(pg=group, min_replica_size=2, load_state_dict=load, state_dict=save, ...)
    model = tithe.torchft.DistributedDataParallel(manager, model)      # instead of torchft's: its buckets have names
    optimizer = torchft.Optimizer(manager, torch.optim.AdamW(model.parameters()))

or with local steps, which exchange the change of each replica's parameters:

    with tithe.torchft.DiLoCo(manager, [model], inner, outer, sync_every=100):

torchft decides which replicas take part. tithe does the exchange, and has a rule for residuals (docs/guide/elastic.md):

  quorum       the session continues with the members of each quorum, and keeps their residuals; stats() counts the
               residuals of lost replicas. A restarted replica begins with empty residuals
  dropped      if should_commit() is False on all replicas, the exchange is reverted, and all its values count as unsent
  healing      a replica that receives another's parameters sends zeros, and sends its residual one step later
  mean         over the participants, as torchft counts them
  residuals    are each replica's own: keep them out of the healing state_dict, or the donor's would be sent twice
  no names     LocalSGD's parameters and tensors of Manager.allreduce() go through a lossless codec; with any other
               codec Gloo sends them uncompressed, like all other collectives
  momentum     belongs in the optimizer, which heals: a codec with feedback=momentum is refused
"""
# No `from __future__ import annotations` here: DDP compares the hook's annotations with the classes themselves.

import functools
from collections.abc import Sequence
from typing import Any

try:
    import torch
    import torch.distributed as dist
except ModuleNotFoundError as missing:
    from tithe._missing import no_torch

    raise no_torch("tithe.torchft", missing) from None
try:
    import torchft
    from torchft.local_sgd import DiLoCo as _DiLoCo
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "tithe.torchft needs torchft 0.2: pip install torchft==0.2.0", name=missing.name
    ) from None

from tithe._torchft_group import ProcessGroup, Work
from tithe.torch._common.checks import check_trained

__all__ = ["DiLoCo", "DistributedDataParallel", "ProcessGroup"]


def _group_of(manager: Any) -> ProcessGroup:
    group = getattr(manager, "_pg", None)
    if not isinstance(group, ProcessGroup):
        raise ValueError("the manager needs the group of tithe: torchft.Manager(pg=tithe.torchft.ProcessGroup(...))")
    return group


class DistributedDataParallel(torchft.DistributedDataParallel):
    """torchft's class, whose buckets go through the codec of the manager's group, by name and during backward.

    manager: a torchft.Manager with pg=tithe.torchft.ProcessGroup(...). ValueError for another, and for gradients that
    tithe does not accept (float64, sparse).
    """

    def __init__(self, manager: torchft.Manager, module: torch.nn.Module, **options: Any) -> None:
        group = _group_of(manager)
        check_trained(module)
        super().__init__(manager, module, **options)
        group.take(manager, module.named_parameters())

    @staticmethod
    def _comm_hook(state: torchft.Manager, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return _group_of(state).average(state, bucket)


class _Fragment:
    """A DiLoCo fragment's pseudo-gradients, with the methods of a dist.GradBucket."""

    def __init__(self, number: int, parameters: Sequence[torch.nn.Parameter], values: torch.Tensor) -> None:
        self._number, self._parameters, self._values = number, list(parameters), values

    def index(self) -> int:
        return self._number

    def is_last(self) -> bool:
        return True

    def parameters(self) -> list[torch.nn.Parameter]:
        return self._parameters

    def buffer(self) -> torch.Tensor:
        return self._values


class DiLoCo(_DiLoCo):
    """torchft's class, whose pseudo-gradients go through the codec of the manager's group: a fragment is one round.

    Arguments are torchft's, except for should_quantize and bucketization: the codec replaces the former, and named
    gradients the latter. ValueError for a manager with another group.
    """

    def __init__(
        self,
        manager: torchft.Manager,
        model_fragments: list[torch.nn.Module],
        inner_optimizer: torch.optim.Optimizer,
        outer_optimizer: Any,
        sync_every: int,
        **options: Any,
    ) -> None:
        group = _group_of(manager)
        for name in ("should_quantize", "use_bucketization"):
            if options.get(name):
                raise ValueError(f"{name}: the codec of the group makes gradients small; leave it out")
        super().__init__(manager, model_fragments, inner_optimizer, outer_optimizer, sync_every, **options)
        named = [(f"{i}.{name}", p) for i, f in enumerate(model_fragments) for name, p in f.named_parameters()]
        group.take(manager, named)
        for fragment in self._fragments:
            fragment._average_grads = functools.partial(_average_fragment, manager, fragment)


def _average_fragment(manager: Any, fragment: Any) -> None:
    """Averages a fragment in one round. Replaces torchft's all-reduces, one per parameter."""
    named = list(fragment._model_fragment.named_parameters())
    grads = [fragment._grads[name] for name, _ in named]
    values = torch.cat([grad.reshape(-1) for grad in grads])
    future = _group_of(manager).average(manager, _Fragment(fragment._fragment_id, [p for _, p in named], values))

    def back() -> None:
        for grad, mean in zip(grads, values.split([grad.numel() for grad in grads]), strict=True):
            grad.copy_(mean.view_as(grad))

    fragment._allreduce_work.append(Work(future, back))
