# SPDX-License-Identifier: Apache-2.0
"""Reads from DDP's reducer the buckets that it leaves out of a step, and the parameters that it does not reduce."""

import logging
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from tithe.torch._common.checks import some
from tithe.torch._common.parameter_keys import ParameterKeys
from tithe.torch._hook.session_end import missing_bucket

_log = logging.getLogger("tithe.torch")

_LIST_EVERY = 100  # steps between two lists of all parameters that no bucket has
_CHECK = 256  # parameters of the list to check in one step


def in_backward() -> bool:
    """Returns True if the calling thread runs inside a backward pass."""
    return torch._C._current_graph_task_id() != -1


def backward_is_running() -> bool:
    """Returns True if a thread of this process waits for a backward pass, which may run on another thread."""
    code = torch.autograd.graph._engine_run_backward.__code__
    for top in sys._current_frames().values():
        frame = top
        while frame is not None:
            if frame.f_code is code:
                return True
            frame = frame.f_back
    return False


class Reducer:
    """The reducer of the State's DDP model, if known. The reference is weak, because the model refers to the State."""

    def __init__(self, keys: ParameterKeys) -> None:
        self._keys = keys
        self._model: Callable[[], DistributedDataParallel | None] = lambda: None
        self._key_of: Callable[[torch.Tensor], int | None] = id
        self._steps = 0
        self._outside: list[tuple[str, torch.nn.Parameter, int]] = []
        self._warned = False

    def watch(self, model: DistributedDataParallel, key_of: Callable[[torch.Tensor], int | None] = id) -> None:
        """key_of: a parameter's id in ParameterKeys; None if this rank exchanges no part of it."""
        self._model, self._key_of = weakref.ref(model), key_of

    def has_all(self) -> bool:
        """Returns True if DDP has all gradients of this backward pass although it did not hand over its last bucket.

        DDP(skip_all_reduce_unused_params=True) leaves out a bucket if all its parameters are unused. Before DDP waits
        for its futures, _check_reducer_finalized() always raises: with its own text if gradients are missing, and with
        an assertion's text otherwise.
        """
        model = self._model()
        if model is None or not getattr(model, "skip_all_reduce_unused_params", False):
            return False
        try:
            model.reducer._check_reducer_finalized()
        except RuntimeError as refused:
            return "Expected to have finished reduction" not in str(refused)
        return False

    def joins(self) -> bool:
        """Returns True inside torch's Join, which hands over zero gradients for a rank whose data has ended."""
        model = self._model()
        return model is not None and bool(model._join_config.enable)

    def missing_bucket(self, numbers: Sequence[int], seconds: float, over: bool) -> Exception:
        """Returns the error of a step whose next bucket is missing. over: whether this rank's backward has ended."""
        model = self._model()
        finds = model is not None and (model.find_unused_parameters or model.static_graph)
        return missing_bucket(numbers, self._keys.unseen(), seconds, over, finds)

    # ---- parameters without a bucket

    def check_unfrozen(self) -> None:
        """Warns once, after a step, if the model trains parameters that DDP does not reduce."""
        model = self._model()
        if model is None or self._warned:
            return
        if self._steps % _LIST_EVERY == 0:
            self._outside = self._list(model)
        self._steps += 1
        now, later = self._outside[:_CHECK], self._outside[_CHECK:]
        self._outside = later + now
        found = [name for name, p, key in now if p.requires_grad and p.grad is not None and key not in self._keys.known]
        if found:
            self._warned = True
            self._outside = []
            _log.warning(
                "DistributedDataParallel does not reduce the gradients of %s: when the model was wrapped, these were "
                "frozen or not there. Each rank steps by its own gradients, and the replicas drift apart. After "
                "unfreezing, wrap the model in a new DistributedDataParallel and attach that",
                some(found),
            )

    def _list(self, model: DistributedDataParallel) -> list[tuple[str, torch.nn.Parameter, int]]:
        ignored: Any = model.parameters_to_ignore
        named = [(n, p, self._key_of(p)) for n, p in model.module.named_parameters() if n not in ignored]
        return [(n, p, key) for n, p, key in named if key is not None and key not in self._keys.known]
