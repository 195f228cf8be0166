# SPDX-License-Identifier: Apache-2.0
"""Warns of a State that was never used, because its model trains uncompressed. Lists the States in use."""

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

opened: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()  # connected States, by id


def watch(state: Any) -> weakref.finalize:
    """Warns with the caller's file and line when `state` is collected or the program ends; detach() prevents it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).split(".")[0] == "tithe":
        frame = frame.f_back
    return weakref.finalize(state, _warn, frame.f_code.co_filename, frame.f_lineno, os.getpid())


def _warn(file: str, line: int, process: int) -> None:
    # No warning in a forked child, or in a program that ends by an exception: its traceback is more useful.
    if os.getpid() == process and getattr(sys, "last_type", None) is None:
        warnings.warn_explicit(_TEXT, RuntimeWarning, file, line)
