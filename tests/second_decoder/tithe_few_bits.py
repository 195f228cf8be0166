# SPDX-License-Identifier: Apache-2.0
"""Section 6 of docs/reference/format.md: codecs with a few bits per value under the scale of a block. See
tithe_format.py."""

import math
import struct

from tithe_numbers import f32, f32_array, must


def bits_of(data: bytes, count: int, what: str) -> list[int]:
    """Returns `count` bits, the lowest of each byte first. Bits after them must be 0."""
    word = int.from_bytes(data, "little")
    must(word >> count == 0, f"{what}: a bit past the last value")
    return [word >> i & 1 for i in range(count)]


def codes_of(data: bytes, count: int, width: int, what: str) -> list[int]:
    word = int.from_bytes(data, "little")
    must(word >> count * width == 0, f"{what}: a bit past the last code")
    return [word >> i * width & (1 << width) - 1 for i in range(count)]


def scale_of(payload: bytes, at: int, what: str) -> float:
    must(len(payload) >= at + 4, f"{what}: length")
    (scale,) = f32_array(payload, at, 1)
    must(math.isfinite(scale) and math.copysign(1, scale) > 0, f"{what}: scale")
    return scale


def read_sign(payload: bytes, n: int) -> list[float]:
    values, at = [], 0
    for first in range(0, n, 2048):
        length = min(2048, n - first)
        size = scale_of(payload, at, "sign")
        end = at + 4 + (length + 7) // 8
        must(end <= len(payload), "sign: length")
        values += [-size if minus else size for minus in bits_of(payload[at + 4 : end], length, "sign")]
        at = end
    must(at == len(payload), "sign: length")
    return values


def read_majority_votes(payload: bytes, n: int) -> list[int]:
    must(len(payload) >= 2, "sign_majority: no head")
    width, voters = payload[:2]
    must(1 <= width <= 8 and 1 <= voters < 1 << width, "sign_majority: head")
    must(len(payload) == 2 + (n * width + 7) // 8, "sign_majority: length")
    counts = codes_of(payload[2:], n, width, "sign_majority")
    must(all(minus <= voters for minus in counts), "sign_majority: more votes than voters")
    return [(2 * minus < voters) - (2 * minus > voters) for minus in counts]


def read_sign_majority(payload: bytes, n: int, majority: list[int]) -> list[float]:
    must(len(payload) == 4 * -(-n // 2048), "sign_majority: length")
    sizes = f32_array(payload, 0, len(payload) // 4)
    must(all(map(math.isfinite, sizes)), "sign_majority: scale")
    return [sizes[i // 2048] * m for i, m in enumerate(majority)]


def read_ternary(payload: bytes, n: int) -> list[float]:
    values, at = [], 0
    for first in range(0, n, 1024):
        length = min(1024, n - first)
        plane = (length + 7) // 8
        scale = scale_of(payload, at, "ternary")
        must(len(payload) >= at + 4 + 2 * plane, "ternary: length")
        sent = bits_of(payload[at + 4 : at + 4 + plane], length, "ternary")
        minus = bits_of(payload[at + 4 + plane : at + 4 + 2 * plane], length, "ternary")
        must(all(s >= m for s, m in zip(sent, minus, strict=True)), "ternary: the sign of nothing")
        values += [(-scale if m else scale) if s else 0.0 for s, m in zip(sent, minus, strict=True)]
        at += 4 + 2 * plane
    must(at == len(payload), "ternary: length")
    return values


def read_minmax(payload: bytes, n: int) -> list[float]:
    must(len(payload) >= 10, "minmax: no head")
    width, tail, low, high = struct.unpack_from("<BBff", payload)
    must(width in (1, 2, 4, 8) and tail == n % (8 // width), "minmax: head")
    must(math.isfinite(low) and math.isfinite(high) and low <= high, "minmax: range")
    must(len(payload) == 10 + (n * width + 7) // 8, "minmax: length")
    gap = (high - low) / (2**width - 1)
    return [f32(low + code * gap) for code in codes_of(payload[10:], n, width, "minmax")]


def read_qsgd(payload: bytes, n: int) -> list[float]:
    def value(code: int, norm: float, most: int) -> float:
        must(code > 0, "qsgd: a code below the lowest level")
        return f32(f32((code - most - 1) * f32(1 / most)) * norm)

    return read_buckets(payload, n, value)


def read_nuqsgd(payload: bytes, n: int) -> list[float]:
    def value(code: int, norm: float, most: int) -> float:
        k = code & most
        return math.copysign(f32(math.ldexp(norm, k - most)) if k else 0.0, -(code > most) or 1)

    return read_buckets(payload, n, value)


def read_buckets(payload: bytes, n: int, value_of) -> list[float]:
    must(len(payload) >= 2, "qsgd: no head")
    width, log2_bucket = payload[:2]
    must(2 <= width <= 8 and 6 <= log2_bucket <= 13, "qsgd: head")
    bucket, at, values = 1 << log2_bucket, 2, []
    most = (1 << width - 1) - 1
    for first in range(0, n, bucket):
        length = min(bucket, n - first)
        norm = scale_of(payload, at, "qsgd")
        end = at + 4 + (length * width + 7) // 8
        must(end <= len(payload), "qsgd: length")
        values += [value_of(c, norm, most) for c in codes_of(payload[at + 4 : end], length, width, "qsgd")]
        at = end
    must(at == len(payload), "qsgd: length")
    return values


def read_natural(payload: bytes, n: int) -> list[float]:
    must(len(payload) == n + -(-n // 1024), "natural: length")
    words = []
    for at in range(0, len(payload), 1025):
        base = payload[at]
        must(1 <= base <= 127, "natural: base")
        for code in payload[at + 1 : at + 1025]:
            k = code & 127
            words.append((code >> 7) << 31 | ((base + k) << 23 if k else 0))
    return f32_array(struct.pack(f"<{n}I", *words), 0, n)
