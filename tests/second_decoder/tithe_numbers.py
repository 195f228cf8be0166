# SPDX-License-Identifier: Apache-2.0
"""Section 1 of docs/format.md: numbers. And how to refuse."""

import math
import struct


class Refused(Exception):
    """The bytes break a rule of docs/format.md."""


def must(rule: bool, why: str) -> None:
    if not rule:
        raise Refused(why)


def f32(x: float) -> float:
    """The nearest binary32, ties to even. A sum, difference or quotient of two binary32 numbers that is rounded to
    binary64 and then to binary32 is the same as rounded once, so Python's floats may stand in between."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def f32_array(data: bytes, at: int, count: int) -> list[float]:
    return list(struct.unpack_from(f"<{count}f", data, at))


def u32_array(data: bytes, at: int, count: int) -> list[int]:
    return list(struct.unpack_from(f"<{count}I", data, at))
