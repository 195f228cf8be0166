# SPDX-License-Identifier: Apache-2.0
"""Section 6 of docs/reference/format.md: codecs whose payloads are added as integers. See tithe_format.py."""

import math
import struct

from tithe_numbers import draw32, f32, f32_array, must, u32_array


def read_int_fields(payload: bytes, n: int) -> tuple[int, list[int]]:
    """Reads int fields. Returns the number of added payloads, and the sums."""
    must(len(payload) >= 4, "int fields: no head")
    added, bits, zero = struct.unpack_from("<HBB", payload)
    must(added >= 1 and 1 <= bits <= 16 and zero == 0, "int fields: head")
    f = 32 // bits
    groups, rest = divmod(n, 16 * f)
    must(len(payload) == 4 + 4 * (16 * groups + min(16, rest)), "int fields: length")
    words = u32_array(payload, 4, (len(payload) - 4) // 4)
    numbers = []
    for i in range(n):
        word = i // (16 * f) * 16 + i % 16
        numbers.append(words[word] & 2**bits - 1)
        words[word] >>= bits
    must(not any(words), "int fields: a bit outside the fields")
    return added, numbers


def hadamard(x: list[int]) -> list[int]:
    if len(x) == 1:
        return x
    half = len(x) // 2
    a, b = hadamard(x[:half]), hadamard(x[half:])
    return [p + q for p, q in zip(a, b, strict=True)] + [p - q for p, q in zip(a, b, strict=True)]


def read_thc_ranges(payload: bytes, n: int) -> tuple[int, int, int, list[float]]:
    must(len(payload) == 12 + 4 * -(-n // 1024), "thc: length")
    workers, top, key = struct.unpack_from("<HHQ", payload)
    must(workers >= 1 and 1 <= top <= 255 and workers * top < 2**16, "thc: head")
    ranges = f32_array(payload, 12, -(-n // 1024))
    must(all(r == 0 or 2.0**-126 <= r < math.inf for r in ranges), "thc: range")
    return workers, top, key, ranges


def read_thc(payload: bytes, n: int, agreed: tuple[int, int, int, list[float]]) -> list[float]:
    workers, top, key, ranges = agreed
    last = 1 << (n % 1024 - 1).bit_length() if n % 1024 else 0
    added, sums = read_int_fields(payload, n // 1024 * 1024 + last)
    must(payload[2] == (workers * top).bit_length(), "thc: bits of an int field")
    must(added <= workers and all(s <= added * top for s in sums), "thc: an int field beyond its sum")
    values: list[float] = []
    for block, r in enumerate(ranges):
        x = hadamard([2 * s - added * top for s in sums[1024 * block : 1024 * (block + 1)]])
        unit = f32(r / (top * math.sqrt(len(x))))
        for v in x:
            i = len(values)
            sign = -1 if draw32(key, i // 32) >> i % 32 & 1 else 1
            v = f32(f32(v) * unit) if r else 0.0
            values.append(sign * v if r else 0.0)
    return values[:n]


def read_shared_norms(payload: bytes, n: int) -> tuple[int, int, int, list[float]]:
    must(len(payload) >= 4, "shared levels: no head")
    ranks, b, log2_bucket = struct.unpack_from("<HBB", payload)
    must(ranks >= 1 and 2 <= b <= 8 and 6 <= log2_bucket <= 13, "shared levels: head")
    count = -(-n >> log2_bucket)
    must(len(payload) == 4 + 4 * count, "shared levels: length")
    norms = f32_array(payload, 4, count)
    must(all(0 <= v < math.inf and math.copysign(1, v) > 0 for v in norms), "shared levels: norm")
    return ranks, 2 ** (b - 1) - 1, log2_bucket, norms


def read_qsgd_shared(payload: bytes, n: int, agreed: tuple[int, int, int, list[float]]) -> list[float]:
    ranks, s, log2_bucket, norms = agreed
    added, sums = read_int_fields(payload, n)
    must(payload[2] == (2 * s * ranks).bit_length(), "shared levels: bits of an int field")
    must(added <= ranks and all(v <= 2 * s * added for v in sums), "shared levels: an int field beyond its sum")
    step = f32(1 / s)
    return [f32(f32((v - added * s) * step) * norms[i >> log2_bucket]) for i, v in enumerate(sums)]


def read_terngrad_shared(payload: bytes, n: int, agreed: tuple[int, int, int, list[float]]) -> list[float]:
    must(agreed[1:3] == (1, 10), "terngrad_shared: bits or bucket")
    return read_qsgd_shared(payload, n, agreed)
