# SPDX-License-Identifier: Apache-2.0
"""Detects gradients that a training loop changed differently on each rank between backward and step().

Muon's matrices have each rank's own gradients until step(). If a loop scales gradients by a function of all of them, as
clip_grad_norm_() does, the factor differs between ranks. The gradients of the other parameters, which were equal on all
ranks, would then differ, and the replicas would diverge. So each rank reports a row of numbers:

    the norm of samples of the other parameters' gradients
    the norm of samples of all weights
    for each matrix, the factor by which its gradient was scaled since backward

Each number must be equal on all ranks. Other changes of a matrix's gradient, such as an addition, are each rank's own
part of a mean, and are not compared.
"""

import math
from collections.abc import Iterable, Sequence

import torch

from tithe._error import error

_SAMPLES = 64  # values of a parameter in its sample
_TOLERANCE = 1e-3  # relative; different machines round a norm differently
_NONE, _NOT_FINITE = -1.0, -2.0  # replace a norm
_UNKNOWN = -(2.0**100)  # replaces a factor; exact in float32
_CURE = (
    "clip_grad_norm_() over all parameters does this, since each rank has its own gradients of Muon's matrices until "
    "muon.step(). Cure: clip the other optimizers' parameters alone; Muon's step does not depend on the scale of a "
    "gradient. This step changed no matrix"
)
_DRIFTED = (
    "The loop changes weights on each rank by itself: by gradients of Muon's matrices, which are each rank's own until "
    "muon.step(), or by a step that some rank skipped. Cure: change weights in optimizers' steps alone, on all ranks, "
    "and go on from the last checkpoint"
)
FIRST = 2  # the index of the first matrix in a row


def sampled(tensor: torch.Tensor) -> torch.Tensor:
    """Returns at most 64 evenly spaced values, as float32."""
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, -(-flat.numel() // _SAMPLES))].float()


def norm_of(tensors: Iterable[torch.Tensor]) -> float:
    """Returns the norm of the samples of all tensors."""
    samples = [sampled(tensor) for tensor in tensors]
    if not samples:
        return _NONE
    device = samples[0].device
    norm = torch.cat([each.to(device) for each in samples]).norm().item()
    return norm if math.isfinite(norm) else _NOT_FINITE


def factor_of(before: torch.Tensor | None, now: torch.Tensor | None) -> float:
    """Returns the factor between two samples of a gradient, or _UNKNOWN if the change was not a scaling."""
    if before is None or now is None or before.shape != now.shape or not bool(now.isfinite().all()):
        return _UNKNOWN
    square = torch.dot(before, before).item()
    factor = torch.dot(before, now).item() / square if square > 0 else math.inf
    if not math.isfinite(factor) or abs(factor) > -_UNKNOWN:
        return _UNKNOWN
    scaled = (now - factor * before).norm() <= _TOLERANCE * now.norm()
    return factor if scaled else _UNKNOWN


def check_rows(rows: torch.Tensor, names: Sequence[str]) -> None:
    """Raises tithe.Error, the same on all ranks, if the rows differ. rows: one per rank. names: of the matrices."""
    for place, column in enumerate(rows.t().tolist()):
        known = {rank: value for rank, value in enumerate(column) if place < FIRST or value != _UNKNOWN}
        first = next(iter(known), 0)
        other = next((rank for rank, value in known.items() if not _alike(known[first], value)), None)
        if other is None:
            continue
        values = f"{known[first]:.6g} on rank {first} and {known[other]:.6g} on rank {other}"
        if place == 0:
            problem = (
                f"the ranks step by different gradients of the parameters beside Muon's, of norm {values}. {_CURE}"
            )
        elif place == 1:
            problem = f"the ranks have different weights, of norm {values}. {_DRIFTED}"
        else:
            problem = f"the gradient of '{names[place - FIRST]}' was multiplied since backward by {values}. {_CURE}"
        raise error("mismatch", other, problem)


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= _TOLERANCE * max(abs(one), abs(other))
