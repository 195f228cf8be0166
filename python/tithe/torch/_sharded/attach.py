# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.attach() for models that fully_shard() or replicate() made (PyTorch's FSDP2).

Such a model has parameter groups. In backward each group has one flat tensor, this rank's shard of the group's
gradients, to average over the ranks with the same shard. In a mesh with a replicate dimension FSDP2 averages it by an
all-reduce on a process group, which tithe replaces by a process group of its own. In a mesh without one tithe uses
FSDP2's all-reduce hook. groups.py has all uses of FSDP2's private parts.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from tithe._exchange import all_gather_bytes, together
from tithe.torch._common.checks import scale_of, usable_timeout
from tithe.torch._common.parameter_keys import by_name
from tithe.torch._hook.backward_times import BackwardTimes
from tithe.torch._hook.state import State
from tithe.torch._optimizer.adapters import adapt, optimizers_of, suitable
from tithe.torch._sharded.groups import Group, check_version, groups_of, over_replicas, shard_text
from tithe.torch._sharded.part_state import PartState
from tithe.torch._sharded.shards import ShardViews

_DOING = "tithe.torch.attach()"


class Gradients:
    """A group's flat tensor, with the methods of a dist.GradBucket."""

    def __init__(self, place: int, parameters: list[torch.Tensor], flat: torch.Tensor) -> None:
        self._place, self._parameters, self._flat = place, parameters, flat

    def index(self) -> int:
        return self._place

    def parameters(self) -> list[torch.Tensor]:
        return self._parameters

    def buffer(self) -> torch.Tensor:
        return self._flat

    def is_last(self) -> bool:
        """Returns False: the last tensor of a step is unknown before the end of backward."""
        return False


class ShardedState(PartState):
    """The State of a model that fully_shard() or replicate() made: residuals are of this rank's shard.

    `rank` and `world` are those among the ranks with the same shard.
    """

    __slots__ = ("_alone", "_error", "_groups", "_module", "_step", "_summed")

    def _take(self, module: torch.nn.Module, groups: Sequence[Group]) -> None:
        """Called before open()."""
        self._model_known = True
        self._module = module
        self._groups = groups
        self._alone = False
        self._error: Exception | None = None
        self._step: list[Any] = []  # jobs of the open step
        self._summed: list[torch.Tensor] = []  # tensors for which FSDP2 expects sums

    def _connect(self, replicas: dist.ProcessGroup | None) -> None:
        """Makes the groups pass their gradients to this State."""
        for group in self._groups:
            group.hand_over(functools.partial(self._reduce, group), replicas)

    def _reduce(self, group: Group, flat: torch.Tensor, sums: bool) -> None:
        """Averages one group's gradients, in place.

        Starts the exchange, and returns at once if FSDP2 does not read the values before the end of backward. Errors
        are raised at the end of backward: FSDP2 cannot recover from an error inside an all-reduce, and torch would
        replace its type.
        """
        try:
            self.open()
            running = self._current
            begun = running.open
            if not begun and self._unapplied is not None:
                self._unapplied.check()
            parameters = group.parameters(flat)
            self._step.append(running.start(Gradients(group.place, parameters, flat), self.loss_scale))
            if sums:
                self._summed.append(flat)
            if group.used_at_once(flat, sums):
                self._finish()
            elif not begun:
                torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        except Exception as error:
            if self._error is None:
                self._error = error
                torch.autograd.Variable._execution_engine.queue_callback(self._raise)

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _finish(self) -> None:
        """Returns when the step's gradients are averaged. Raises the step's error."""
        step, self._step = self._step, []
        summed, self._summed = self._summed, []
        if self._error is not None or not step:
            return
        self._current.end(step[-1].tensor)
        for job in step:
            job.future.wait()  # on an accelerator only the current stream waits
        for flat in summed:
            flat.mul_(self._running.world)

    def residual(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        """Returns this rank's residual of its shard of a parameter, float32, in the shard's shape."""
        for group in self._groups:
            if (found := group.find(parameter)) is not None:
                whole = super().residual(found)
                return whole[tuple(slice(n) for n in parameter.to_local().shape)]
        raise ValueError("the parameter is not a parameter of this State")

    def _whole_state(self) -> dict[str, Any]:
        for group in self._groups:
            group.refresh()
        return super()._whole_state()

    def _parts(self) -> dict[str, str]:
        return {name: group.shard for group in self._groups for name, _ in group.named()}

    def _watch_backward(self) -> None:
        running = self._running
        if running.backward is None and running.session.tracing:
            running.backward = BackwardTimes()
            running.backward.watch(self._module)


def attach_sharded(
    module: torch.nn.Module,
    codec: str | None,
    strategy: str,
    optimizer: Any,
    replicas: dist.ProcessGroup | None,
    options: dict[str, Any],
) -> State:
    """Returns the State of an FSDP2 model, attached and open. Collective over the ranks with the same shard."""
    check_version()
    patience = usable_timeout(options)
    known = over_replicas(module, replicas)

    def prepare() -> ShardedState:
        if options.get("weight") is not None:
            raise ValueError("weight= is for DistributedDataParallel: fully_shard() averages over other ranks first")
        given = {"process_group", "parameters"} & set(options)
        if given:
            raise ValueError(f"attach() takes {' and '.join(sorted(given))} from the model: leave it out")
        groups = groups_of(module, replicas)
        named = [pair for group in groups for pair in group.named()]
        by_name(named)  # raises ValueError for wrong names
        optimizers = optimizers_of(optimizer, by_name(module.named_parameters()))
        chosen = suitable(codec, optimizers)
        state = ShardedState(known, codec=chosen, strategy=strategy, parameters=named, **options)
        state._unused.detach()  # an error from here on raises, so no warning is needed
        scale_of(state.loss_scale)
        adapt(
            state,
            optimizers,
            ShardViews(groups),
            warns=all(group.first for group in groups),
            codec_given=codec is not None,
        )
        state._take(module, groups)
        return state

    state = prepare() if known is None else together(known, patience, _DOING, prepare)
    mine = shard_text(state._parts())
    of_ranks = all_gather_bytes(mine.encode(), state._group(), patience, _DOING)
    for rank, theirs in enumerate(of_ranks):
        if theirs != of_ranks[0]:
            raise ValueError(
                f"replicas= holds ranks with different shards ({of_ranks[0].decode()} on its rank 0, {theirs.decode()} "
                f"on its rank {rank}): give each rank the group of ranks that hold the same shard"
            )
    state.open()
    state._connect(replicas)
    return state
