# SPDX-License-Identifier: Apache-2.0
"""Section 1 of docs/reference/format.md: numbers. And the exception Refused."""

import math
import struct


class Refused(Exception):
    """The bytes break a rule of docs/reference/format.md."""


def must(rule: bool, why: str) -> None:
    if not rule:
        raise Refused(why)


def f32(x: float) -> float:
    """Returns the nearest binary32, ties to even. A sum, difference or quotient of two binary32 numbers that is rounded
    to binary64 and then to binary32 equals the one that is rounded once, so intermediate results may be Python's
    floats."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def f32_array(data: bytes, at: int, count: int) -> list[float]:
    return list(struct.unpack_from(f"<{count}f", data, at))


def u32_array(data: bytes, at: int, count: int) -> list[int]:
    return list(struct.unpack_from(f"<{count}I", data, at))


def range_floats(bits: int, mantissa: int, data: bytes, count: int) -> list[float]:
    """Reads a base and `count` codes of N = bits each, the layout of rangefloat."""
    must(4 <= bits <= 16 and 1 <= mantissa <= bits - 2, "range: no such float")
    must(len(data) == 4 + (bits * count + 7) // 8, "range: length")
    shift, positive, most = 23 - mantissa, 2 ** (bits - 1) - 1, 0x7F7FFFFF >> 23 - mantissa
    (base,) = u32_array(data, 0, 1)
    must(1 <= base <= most, "range: base")
    codes = int.from_bytes(data[4:], "little")
    must(codes >> bits * count == 0, "range: a bit past the last code")
    words = []
    for i in range(count):
        code = codes >> bits * i & 2**bits - 1
        sign = 1 if code > positive else 0
        steps = min(code - sign * positive + base - 1, base + positive - 1, most)
        words.append(sign << 31 | steps << shift if code else 0)
    return f32_array(struct.pack(f"<{count}I", *words), 0, count)


def mix32(x: int) -> int:
    x ^= x >> 16
    x = x * 0x7FEB352D & 0xFFFFFFFF
    x ^= x >> 15
    x = x * 0x846CA68B & 0xFFFFFFFF
    return x ^ x >> 16


def draw32(key: int, j: int) -> int:
    return mix32(key & 0xFFFFFFFF ^ mix32(j ^ key >> 32))


def read_bf16(payload: bytes, n: int) -> list[float]:
    must(len(payload) == 2 * n, "bf16: length")
    widened = b"".join(b"\0\0" + payload[2 * i : 2 * i + 2] for i in range(n))
    return f32_array(widened, 0, n)
