# SPDX-License-Identifier: Apache-2.0
"""Warns of a State that was never used: DDP called no hook, and nothing was compressed. Lists the States in use."""

import os
import sys
import warnings
import weakref
from typing import Any

_TEXT = (
    "this tithe.torch.State was never used: no gradient went through it. If a model was trained, its gradients "
    "travelled uncompressed. Make it known by tithe.torch.attach(model) or model.register_comm_hook(state, "
    "tithe.torch.hook); Lightning registers hooks on CUDA only, there use tithe.lightning.TitheCallback"
)

opened: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()  # States that are connected, by id


def watch(state: Any) -> weakref.finalize:
    """Warns with the caller's file and line when `state` goes away or the program ends; call detach() on its use."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).split(".")[0] == "tithe":
        frame = frame.f_back
    return weakref.finalize(state, _warn, frame.f_code.co_filename, frame.f_lineno, os.getpid())


def _warn(file: str, line: int, process: int) -> None:
    # A forked child does not own it; and a program that ends by an exception has said something better.
    if os.getpid() == process and getattr(sys, "last_type", None) is None:
        warnings.warn_explicit(_TEXT, RuntimeWarning, file, line)
