# SPDX-License-Identifier: Apache-2.0
"""Figures derived from a session's sums: bytes of an all-reduce, hidden time, relative errors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tithe import _core


def summed_up(session: _core.Session) -> dict[str, Any]:
    """Returns the engine's sums (include/tithe/stats.def) and the figures derived from them."""
    sums = session.stats()
    sums["dense_bytes"] = all_reduce_bytes(sums["gradient_bytes"], session.world)
    sums["bytes_saved"] = sums["dense_bytes"] - sums["bytes_sent"]
    sums["hidden_ns"] = sums["exchange_ns"] - sums["exposed_ns"]
    groups = _groups(session.tensor_stats())
    sums["relative_error"] = relative_error((codec, g) for codec, g in groups.items() if is_compressed(codec))
    sums["groups"] = groups
    return sums


def by_tensor(session: _core.Session) -> dict[str, dict[str, Any]]:
    """Returns the figures of each tensor, by key."""
    all_tensors = {}
    for tensor in session.tensor_stats():
        tensor["relative_error"] = relative_error([(tensor["codec"], tensor)])
        all_tensors[tensor.pop("key")] = tensor
    return all_tensors


def plan_text(session: _core.Session) -> str:
    """Returns the plan of each part and tensor, as text."""
    return session.plan_text()


def all_reduce_bytes(gradient_bytes: int, world: int) -> int:
    """Returns the bytes that each rank sends in a ring all-reduce: 2 (world - 1) / world of the gradient."""
    return gradient_bytes * 2 * (world - 1) // world


def is_compressed(codec: str) -> bool:
    """Returns True if a codec can leave a residual. The codec of a tensor without values is ""."""
    # Small tensors take part in the momentum of the others as "fp32:feedback=momentum", which no user may write.
    name = codec.partition(":")[0]
    return name != "" and not _core.is_lossless(name, "")


def _groups(tensors: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Groups the figures of gradients by codec, without side tensors."""
    groups: dict[str, dict[str, Any]] = {}
    for tensor in tensors:
        if tensor["side"]:
            continue
        group = groups.setdefault(
            tensor["codec"], {"tensors": 0, "values": 0, "gradient_norm": 0.0, "residual_norm": 0.0}
        )
        group["tensors"] += 1
        group["values"] += tensor["values"]
        for norm in ("gradient_norm", "residual_norm"):
            group[norm] = math.hypot(group[norm], tensor[norm])
    for codec, group in groups.items():
        group["relative_error"] = relative_error([(codec, group)])
    return groups


def relative_error(of: Iterable[tuple[str, dict[str, Any]]]) -> float | None:
    """Returns the norm of all residuals over the norm of all gradients, given (codec, norms); 0 before a measurement.
    None: lossy codecs, but none that keeps a residual."""
    given = list(of)
    each = [norms for codec, norms in given if not (is_compressed(codec) and "feedback=none" in codec)]
    if given and not each:
        return None
    residual, gradient = (math.hypot(*(x[norm] for x in each)) for norm in ("residual_norm", "gradient_norm"))
    if residual == 0.0:
        return 0.0
    return residual / gradient if gradient > 0.0 else math.inf
