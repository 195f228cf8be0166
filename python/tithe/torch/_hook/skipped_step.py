# SPDX-License-Identifier: Apache-2.0
"""Makes one rank skip a step of a DDP model: the rank takes part in all exchanges of the step with weight 0.

If DDP's reducer is idle, this rank hands over zero buckets, as DDP does for a rank without data under Join. If a
backward pass was abandoned before its end, the reducer waits for the missing gradients. A backward pass over the
missing parameters only, with zero gradients, completes the step, and the reducer is ready for the next one.
"""

import re
import weakref
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from tithe.torch._hook.running_session import RunningSession

_UNMARKED = re.compile(r"did not receive grad for rank \d+: ?([\d ]+)")


class SkippedSteps:
    """The skipped steps of a DDP model and its State."""

    def __init__(self, model: DistributedDataParallel, state: Any) -> None:
        self._parameters: list[torch.nn.Parameter] = model._build_params_for_reducer()[0]  # by the reducer's index
        its_state = weakref.ref(state)

        def begin_forward(*_: Any) -> None:
            if torch.is_grad_enabled() and (state := its_state()) is not None and state._running is not None:
                state._current.forward_begun = True

        if model.modules_buffers:  # a forward exchanges the buffers
            model.register_forward_pre_hook(begin_forward)

    def skip(self, model: DistributedDataParallel, state: Any, running: RunningSession) -> None:
        """Skips the step. Raises the error that ended the step, if it failed."""
        missing = self._missing(model)
        if missing is None and running.open:  # the abandoned backward has handed over all its gradients
            with running.between_steps():
                running.check()  # raises: the session is over
        running.skips = True
        try:
            if missing is None:
                self._hand_over_zeros(model, state, running.forward_begun)
            else:
                if running.open and running.weight is not None:
                    running.weight.void = True
                torch.autograd.backward(missing, [p.new_zeros(()).expand_as(p) for p in missing])
        finally:
            running.skips = False

    def _missing(self, model: DistributedDataParallel) -> list[torch.Tensor] | None:
        """Returns the parameters whose gradients the reducer still expects in an abandoned backward; None if it is
        idle."""
        try:
            model.reducer._check_reducer_finalized()
        except RuntimeError as waits:
            found = _UNMARKED.search(str(waits))
            return None if found is None else [self._parameters[int(i)] for i in found[1].split()]
        return None

    def _hand_over_zeros(self, model: DistributedDataParallel, state: Any, forward_begun: bool) -> None:
        """Runs the collectives of a forward and backward, in DDP's order, with zero gradients."""
        if not forward_begun:
            model.reducer._rebuild_buckets()
            if model._check_sync_bufs_pre_fwd():
                model._sync_buffers()
        model.require_forward_param_sync = True
        buckets = model.reducer._get_zeros_like_grad_buckets()
        futures = [state._start(bucket) for bucket in buckets]
        used = self._used(model)
        model.reducer._push_all_rebuilt_params()
        for bucket, future in zip(buckets, futures, strict=True):
            parameters = bucket.parameters()
            parts = future.wait().split([p.numel() for p in parameters])
            for p, part in zip(parameters, parts, strict=True):
                if used is None or id(p) in used:
                    _store(p, part)

    def _used(self, model: DistributedDataParallel) -> set[int] | None:
        """Returns the ids of the parameters that some rank has used; None if all have a gradient."""
        if not model.find_unused_parameters and not model.static_graph:
            return None
        used = model.reducer._get_local_used_map()
        if not model.static_graph:  # else the map is that of the first step, the same on all ranks
            used.zero_()
            model.process_group.allreduce(used).wait()
        return {id(p) for p, count in zip(self._parameters, used.tolist(), strict=True) if count > 0}


def _store(p: torch.Tensor, values: torch.Tensor) -> None:
    """Sets a parameter's gradient to the values, which are in the order of the bucket."""
    gradient = torch.empty_like(p)
    if gradient.stride() == p.stride():
        gradient.as_strided((p.numel(),), (1,)).copy_(values)
    else:
        gradient.copy_(values.view(p.shape))
    if p.grad is None:
        p.grad = gradient
    else:
        p.grad.copy_(gradient)
