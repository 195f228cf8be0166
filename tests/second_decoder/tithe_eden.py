# SPDX-License-Identifier: Apache-2.0
"""Codec eden of docs/reference/format.md: its payloads, and the inverse rotation of their sum. See tithe_format.py."""

import math
import struct
from dataclasses import dataclass

from tithe_numbers import draw32, f32, f32_array, must, read_bf16

THREE = 16  # in place of bits: base-3 digits, five to a byte
LEVELS = {1: [1], 2: [3, 10], 3: [3, 9, 16, 26], 4: [2, 6, 10, 15, 20, 26, 33, 43]}
MOST = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


@dataclass
class Rotated:
    """The blocks of a payload: rotated values, or unrotated values."""

    key: int
    blocks: list[tuple[bool, list[float]]]


def width_of(left: int) -> int:
    if left >= 1024:
        return 1024
    if left <= 4:
        return 0
    width = 8
    while width < left:
        width *= 2
    return width if width == 8 or 4 * left > 3 * width else width // 2


def read_codes(data: bytes, bits: int, width: int) -> list[int]:
    codes, at = [0] * width, 0
    for start, field in [(0, 2), (2, 1)] if bits == 3 else [(0, bits)]:
        size = width * field // 8
        for i in range(width):
            codes[i] |= (data[at + i % size] >> field * (i // size) & 2**field - 1) << start
        at += size
    return codes


def read_digits(data: bytes, width: int) -> list[int]:
    size = len(data)
    for j, byte in enumerate(data):
        must(byte < 3 ** len(range(j, width, size)), "eden: digits")
    return [data[i % size] // 3 ** (i // size) % 3 for i in range(width)]


def read_levels(data: bytes, bits: int, width: int) -> list[int]:
    if bits == THREE:
        return [(0, 1, -1)[digit] for digit in read_digits(data, width)]
    minus, sizes = 2 ** (bits - 1), LEVELS[bits]
    return [-sizes[c - minus] if c & minus else sizes[c] for c in read_codes(data, bits, width)]


def read_eden(payload: bytes, n: int) -> Rotated:
    must(len(payload) >= 10, "eden: no head")
    key, bits, zero = struct.unpack_from("<QBB", payload)
    must((bits in LEVELS or bits == THREE) and zero == 0, "eden: head")
    blocks, at, first = [], 10, 0
    while first < n:
        width = width_of(n - first)
        if width == 0:
            must(len(payload) == at + 4 * (n - first), "eden: length")
            blocks.append((False, f32_array(payload, at, n - first)))
            must(all(map(math.isfinite, blocks[-1][1])), "eden: a value that is not finite")
            return Rotated(key, blocks)
        end = at + 2 + (-(-width // 5) if bits == THREE else width * bits // 8)
        must(end <= len(payload), "eden: length")
        (scale,) = read_bf16(payload[at : at + 2], 1)
        levels = read_levels(payload[at + 2 : end], bits, width)
        if payload[at : at + 2] == b"\0\0":
            must(not any(payload[at + 2 : end]), "eden: codes without a scale")
        else:
            must(2.0**-126 <= scale < math.inf, "eden: scale")
            must(scale * sum(map(abs, levels)) <= MOST, "eden: a scale too large for its codes")
        blocks.append((True, [scale * level for level in levels]))
        at, first = end, first + width
    must(at == len(payload), "eden: length")
    return Rotated(key, blocks)


def values(payloads: list[Rotated], n: int) -> list[float]:
    """Returns the values of the sum of the payloads, rotated back once."""
    key = payloads[0].key
    must(all(p.key == key for p in payloads), "eden: different signs")
    out: list[float] = []
    for blocks in zip(*(p.blocks for p in payloads), strict=True):
        total = blocks[0][1]
        for _, block in blocks[1:]:
            total = [f32(a + b) for a, b in zip(total, block, strict=True)]
        if not blocks[0][0]:
            return out + total
        half = 1
        while half < len(total):
            for i in range(len(total)):
                if not i & half:
                    a, b = total[i], total[i + half]
                    total[i], total[i + half] = f32(a + b), f32(a - b)
            half *= 2
        for v in total[: n - len(out)]:
            i = len(out)
            out.append(-v if draw32(key, i // 32) >> i % 32 & 1 else v)
    return out
