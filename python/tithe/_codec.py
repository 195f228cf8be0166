# SPDX-License-Identifier: Apache-2.0
"""Codecs without a session: the list of codecs, encode() and decode()."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tithe import _core
from tithe._core import MOST_VALUES, USUAL_MOST_VALUES


def codecs() -> list[dict[str, Any]]:
    """The codecs of this build: name, id, doc, phases with their laws, params, bits_per_value at n=2**20, traits."""
    return _core.codecs()


def strategies() -> list[str]:
    """The names of the strategies of this build."""
    return _core.strategies()


def check_spec(spec: str) -> str:
    """The shortest spec with the same codec and settings. ValueError for a wrong spec."""
    return _core.check_spec(spec)


def encode(spec: str, values: npt.ArrayLike) -> bytes:
    """One frame (docs/reference/format.md) with all of `values`, of any shape, as float32, without error feedback.

    A NaN or Inf among them makes a flagged frame that decodes as NaN throughout.
    """
    return _core.encode(spec, np.ascontiguousarray(values, dtype=np.float32).reshape(-1))


def decode(
    data: bytes, n: int | None = None, *, spec: str | None = None, max_values: int = USUAL_MOST_VALUES
) -> npt.NDArray[np.float32]:
    """The values of a frame that encode() wrote, 1-D.

    n: the expected number of values; another number raises ValueError before anything is decoded.
    spec: the codec's settings, if they were not the defaults.
    max_values: without n, a frame with more values raises ValueError before memory is allocated, since a few bytes can
    stand for any number of zeros. 2**26 unless given, at most 2**40.
    Bytes that no encoder wrote raise tithe.Error with code "corrupt".
    """
    values = _core.frame_values(data, spec, MOST_VALUES if n is not None else max_values)
    if n is not None and n != values:
        raise ValueError(f"the frame holds {values} values, not {n}")
    out = np.empty(values, dtype=np.float32)
    _core.decode(data, out, spec)
    return out
