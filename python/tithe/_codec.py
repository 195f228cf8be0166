# SPDX-License-Identifier: Apache-2.0
"""Codecs without a session: the list of codecs, encode() and decode()."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tithe import _core
from tithe._core import DEFAULT_MAX_VALUES, MAX_VALUES


def codecs() -> list[dict[str, Any]]:
    """Returns one dict per codec of this build: name, id, doc, phases with their laws, params, bits_per_value at
    n=2**20, traits."""
    return _core.codecs()


def strategies() -> list[str]:
    """Returns the names of the strategies of this build."""
    return _core.strategies()


def check_spec(spec: str) -> str:
    """Returns the shortest spec with the same codec and settings. ValueError for a wrong spec."""
    return _core.check_spec(spec)


def encode(spec: str, values: npt.ArrayLike) -> bytes:
    """Encodes `values`, of any shape, as float32 in one frame (docs/reference/format.md), without error feedback.

    If a value is NaN or Inf, the frame is flagged and decodes as NaN throughout.
    """
    return _core.encode(spec, np.ascontiguousarray(values, dtype=np.float32).reshape(-1))


def decode(
    data: bytes, n: int | None = None, *, spec: str | None = None, max_values: int = DEFAULT_MAX_VALUES
) -> npt.NDArray[np.float32]:
    """Decodes a frame of encode() to a 1-D float32 array.

    n: the expected number of values. If the frame has another number, decode() raises ValueError before it decodes.
    spec: the codec's settings, if they were not the defaults.
    max_values: the limit without n, 2**26 by default and at most 2**40. A frame with more values raises ValueError
    before memory is allocated, because a frame of a few bytes can encode any number of zeros.
    Bytes that no encoder wrote raise tithe.Error with code "corrupt".
    """
    values = _core.frame_values(data, spec, MAX_VALUES if n is not None else max_values)
    if n is not None and n != values:
        raise ValueError(f"the frame holds {values} values, not {n}")
    out = np.empty(values, dtype=np.float32)
    _core.decode(data, out, spec)
    return out
