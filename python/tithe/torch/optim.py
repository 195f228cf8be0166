# SPDX-License-Identifier: Apache-2.0
"""Optimizers that correct for the effects of a codec on gradients (docs/guide/optimizers.md)."""

from typing import Any

import torch

from tithe.torch._optimizer.adamw import AdamW

__all__ = ["AdamW"]

if hasattr(torch.optim, "Muon"):
    from tithe.torch._optimizer.muon import Muon

    __all__ += ["Muon"]


def __getattr__(name: str) -> Any:
    if name == "Muon":
        raise AttributeError(
            f"tithe.torch.optim.Muon needs torch.optim.Muon: torch {torch.__version__} has none, 2.9 does"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
