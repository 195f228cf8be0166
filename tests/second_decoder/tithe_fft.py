# SPDX-License-Identifier: Apache-2.0
"""Codec fft of docs/reference/format.md: its payloads, and the inverse transform of their sum. See tithe_format.py."""

import math
import struct
from dataclasses import dataclass

from tithe_numbers import f32, must, range_floats

Bin = tuple[float, float]


@dataclass
class Spectrum:
    """The bins of each block. Bins that a payload does not send are 0."""

    blocks: list[list[Bin]]


def read_fft(payload: bytes, n: int) -> Spectrum:
    must(len(payload) >= 8, "fft: no head")
    bits, mantissa, log, zero, kept = struct.unpack_from("<BBBBI", payload)
    must(4 <= log <= 16 and zero == 0 and 1 <= kept <= 2 ** (log - 1), "fft: head")
    must(4 <= bits <= 16 and 1 <= mantissa <= bits - 2, "fft: head")
    blocks, at = [], 8
    for first in range(0, n, 2**log):
        bins = 8
        while bins < 2 ** (log - 1) and 2 * bins < n - first:
            bins *= 2
        k = -(-kept * bins // 2 ** (log - 1))
        bitmap_at, codes_at = at + 4, at + 4 + bins // 8
        end = codes_at + (2 * k * bits + 7) // 8
        must(end <= len(payload), "fft: length")
        bitmap = int.from_bytes(payload[bitmap_at:codes_at], "little")
        must(bitmap.bit_count() == k, "fft: number of bins")
        numbers = iter(range_floats(bits, mantissa, payload[at:bitmap_at] + payload[codes_at:end], 2 * k))
        blocks.append([(next(numbers), next(numbers)) if bitmap >> f & 1 else (0.0, 0.0) for f in range(bins)])
        at = end
    must(at == len(payload), "fft: length")
    return Spectrum(blocks)


def values(spectra: list[Spectrum], n: int) -> list[float]:
    """Returns the values of the sum of the spectra, added bin by bin in their order."""
    out: list[float] = []
    for blocks in zip(*(s.blocks for s in spectra), strict=True):
        total = blocks[0]
        for block in blocks[1:]:
            total = [add(a, b) for a, b in zip(total, block, strict=True)]
        out += inverse(total)[: n - len(out)]
    return out


def add(a: Bin, b: Bin) -> Bin:
    return f32(a[0] + b[0]), f32(a[1] + b[1])


def sub(a: Bin, b: Bin) -> Bin:
    return f32(a[0] - b[0]), f32(a[1] - b[1])


def times(z: Bin, w: Bin) -> Bin:
    return f32(f32(z[0] * w[0]) - f32(z[1] * w[1])), f32(f32(z[0] * w[1]) + f32(z[1] * w[0]))


def inverse(c: list[Bin]) -> list[float]:
    bins = len(c)
    turns = [(f32(math.cos(math.pi * k / bins)), -f32(math.sin(math.pi * k / bins))) for k in range(bins // 2)]
    y = [(0.0, 0.0)] * bins
    y[0] = f32(c[0][0] - c[0][1]), f32(c[0][0] + c[0][1])
    y[bins // 2] = -2 * c[bins // 2][1], 2 * c[bins // 2][0]
    for f in range(1, bins // 2):
        a, b, w = c[f], c[bins - f], turns[f]
        mirror = (b[0], -b[1])
        even, odd = add(a, mirror), times(sub(a, mirror), (w[0], -w[1]))
        y[f] = f32(even[1] + odd[0]), f32(even[0] - odd[1])
        y[bins - f] = f32(odd[0] - even[1]), f32(even[0] + odd[1])
    width = bins.bit_length() - 1
    y = [y[int(f"{j:0{width}b}"[::-1], 2)] for j in range(bins)]
    h = 1
    while h < bins:
        for start in range(0, bins, 2 * h):
            for k in range(h):
                a, t = y[start + k], turned(y[start + k + h], k, h, turns)
                y[start + k], y[start + k + h] = add(a, t), sub(a, t)
        h *= 2
    return [part for re, im in y for part in (im, re)]


def turned(z: Bin, k: int, h: int, turns: list[Bin]) -> Bin:
    quarter = h > 1 and 2 * k >= h
    j = k - h // 2 if quarter else k
    if j:
        z = times(z, turns[j * len(turns) * 2 // h])
    return (z[1], -z[0]) if quarter else z
