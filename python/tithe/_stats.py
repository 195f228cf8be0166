# SPDX-License-Identifier: Apache-2.0
"""What follows from a session's sums: what an all-reduce would have sent, what time was hidden, how much is unsent."""

from __future__ import annotations

import math
from typing import Any

from tithe import _core


def summed_up(session: _core.Session) -> dict[str, Any]:
    """The engine's sums (include/tithe/session.h, SessionStats), and what follows from them."""
    told = session.stats()
    world = session.world
    # Every rank of a ring sends all but one chunk twice: the usual all-reduce of the same gradients.
    told["dense_bytes"] = told["gradient_bytes"] * 2 * (world - 1) // world
    told["bytes_saved"] = told["dense_bytes"] - told["bytes_sent"]
    told["hidden_ns"] = told["exchange_ns"] - told["exposed_ns"]
    told["relative_error"] = _ratio(told["residual_norm"], told["gradient_norm"])
    told["groups"] = _groups(session.tensor_stats())
    return told


def by_tensor(session: _core.Session) -> dict[str, dict[str, Any]]:
    """Of each tensor, by key."""
    all_tensors = {}
    for tensor in session.tensor_stats():
        tensor["relative_error"] = _ratio(tensor["residual_norm"], tensor["gradient_norm"])
        all_tensors[tensor.pop("key")] = tensor
    return all_tensors


def _groups(tensors: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By codec."""
    groups: dict[str, dict[str, Any]] = {}
    for tensor in tensors:
        group = groups.setdefault(
            tensor["codec"], {"tensors": 0, "values": 0, "gradient_norm": 0.0, "residual_norm": 0.0}
        )
        group["tensors"] += 1
        group["values"] += tensor["values"]
        for norm in ("gradient_norm", "residual_norm"):
            group[norm] = math.hypot(group[norm], tensor[norm])
    for group in groups.values():
        group["relative_error"] = _ratio(group["residual_norm"], group["gradient_norm"])
    return groups


def _ratio(residual: float, gradient: float) -> float:
    """0 before anything was measured, and where nothing is unsent."""
    if residual == 0.0:
        return 0.0
    return residual / gradient if gradient > 0.0 else math.inf
