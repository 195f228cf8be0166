# SPDX-License-Identifier: Apache-2.0
"""Detects gradients that a training loop changed differently on each rank between backward and step().

Muon's matrices have each rank's own gradients until step(). A loop that scales gradients by a function of all of them,
as clip_grad_norm_() does, then scales by another factor on each rank: the gradients of the other parameters, which all
ranks received alike, would differ, and the replicas would drift apart. So each rank reports a row of numbers:

    the norm of samples of the other parameters' gradients, which must agree
    of each matrix the factor by which it was scaled since backward, which must agree as well

Other changes of a matrix, such as an addition, are each rank's own part of a mean, and are not compared.
"""

import math
from collections.abc import Iterable, Sequence

import torch

from tithe._error import error

_SAMPLES = 64  # of a parameter
_TOLERANCE = 1e-3  # relative; machines of other kinds round a norm differently
_NONE, _NOT_FINITE = -1.0, -2.0  # in place of a norm
_UNKNOWN = -1e30  # in place of a factor
_CURE = (
    "clip_grad_norm_() over all parameters does this, since each rank has its own gradients of Muon's matrices until "
    "muon.step(). Cure: clip the other optimizers' parameters alone; Muon's step does not depend on the scale of a "
    "gradient. This step changed no matrix"
)


def sampled(gradient: torch.Tensor) -> torch.Tensor:
    """At most 64 evenly spaced values, as float32."""
    flat = gradient.detach().reshape(-1)
    return flat[:: max(1, -(-flat.numel() // _SAMPLES))].float()


def norm_of(gradients: Iterable[torch.Tensor]) -> float:
    """Of samples of all gradients."""
    samples = [sampled(gradient) for gradient in gradients]
    if not samples:
        return _NONE
    norm = torch.cat(samples).norm().item()
    return norm if math.isfinite(norm) else _NOT_FINITE


def factor_of(before: torch.Tensor | None, now: torch.Tensor | None) -> float:
    """The factor between two samples of a gradient. _UNKNOWN if the change was no scaling."""
    if before is None or now is None or before.shape != now.shape or not bool(now.isfinite().all()):
        return _UNKNOWN
    square = torch.dot(before, before).item()
    factor = torch.dot(before, now).item() / square if square > 0 else math.inf
    if not math.isfinite(factor) or abs(factor) > -_UNKNOWN:
        return _UNKNOWN
    scaled = (now - factor * before).norm() <= _TOLERANCE * now.norm()
    return factor if scaled else _UNKNOWN


def check_rows(rows: torch.Tensor, names: Sequence[str]) -> None:
    """Raises tithe.Error, the same on all ranks, if they differ. rows: one per rank. names: of the matrices."""
    for place, column in enumerate(rows.t().tolist()):
        known = {rank: value for rank, value in enumerate(column) if place == 0 or value != _UNKNOWN}
        if not known:
            continue
        first = next(iter(known))
        other = next((rank for rank, value in known.items() if not _alike(known[first], value)), None)
        if other is None:
            continue
        values = f"{known[first]:.6g} on rank {first} and {known[other]:.6g} on rank {other}"
        if place == 0:
            said = f"the ranks step by different gradients of the parameters beside Muon's: a norm of {values}"
        else:
            said = f"between backward and step() the gradient of '{names[place - 1]}' was multiplied by {values}"
        raise error("mismatch", other, f"{said}. {_CURE}")


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= _TOLERANCE * max(abs(one), abs(other))
