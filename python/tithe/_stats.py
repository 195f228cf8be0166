# SPDX-License-Identifier: Apache-2.0
"""Figures derived from a session's sums: bytes of an all-reduce, hidden time, relative errors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tithe import _core


def summed_up(session: _core.Session) -> dict[str, Any]:
    """The engine's sums (include/tithe/session.h, SessionStats) and the figures derived from them."""
    sums = session.stats()
    sums["dense_bytes"] = all_reduce_bytes(sums["gradient_bytes"], session.world)
    sums["bytes_saved"] = sums["dense_bytes"] - sums["bytes_sent"]
    sums["hidden_ns"] = sums["exchange_ns"] - sums["exposed_ns"]
    groups = _groups(session.tensor_stats())
    sums["relative_error"] = _relative_error(g for codec, g in groups.items() if is_compressed(codec))
    sums["groups"] = groups
    return sums


def by_tensor(session: _core.Session) -> dict[str, dict[str, Any]]:
    """The figures of each tensor, by key."""
    all_tensors = {}
    for tensor in session.tensor_stats():
        tensor["relative_error"] = _relative_error([tensor])
        all_tensors[tensor.pop("key")] = tensor
    return all_tensors


def plan_text(session: _core.Session) -> str:
    """The plan of each part and tensor, as text."""
    return session.plan_text()


def all_reduce_bytes(gradient_bytes: int, world: int) -> int:
    """The bytes that each rank of a ring all-reduce sends: all chunks but one, twice."""
    return gradient_bytes * 2 * (world - 1) // world


def is_compressed(codec: str) -> bool:
    """Whether a codec may leave a residual. The codec of a tensor without values is ""."""
    return codec != "" and not _core.is_lossless(codec, "")


def _groups(tensors: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The gradients by codec, without side tensors."""
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
    for group in groups.values():
        group["relative_error"] = _relative_error([group])
    return groups


def _relative_error(of: Iterable[dict[str, Any]]) -> float:
    """The norm of all residuals over the norm of all gradients. 0 before a measurement, and if nothing is unsent."""
    each = list(of)
    residual, gradient = (math.hypot(*(x[norm] for x in each)) for norm in ("residual_norm", "gradient_norm"))
    if residual == 0.0:
        return 0.0
    return residual / gradient if gradient > 0.0 else math.inf
