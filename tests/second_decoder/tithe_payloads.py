# SPDX-License-Identifier: Apache-2.0
"""Section 6 of docs/reference/format.md: the payloads of each codec. See tithe_format.py."""

import math
import struct

from tithe_eden import read_eden
from tithe_few_bits import (
    read_majority_votes,
    read_minmax,
    read_natural,
    read_nuqsgd,
    read_qsgd,
    read_sign,
    read_sign_majority,
    read_ternary,
)
from tithe_fft import read_fft
from tithe_lowrank import read_powersgd, read_powersgd_rows
from tithe_numbers import f32_array, must, range_floats, read_bf16
from tithe_sparse import (
    read_blocks,
    read_qtopk,
    read_randomk,
    read_scalecom,
    read_scalecom_indices,
    read_sparse,
)
from tithe_sums import read_qsgd_shared, read_shared_norms, read_terngrad_shared, read_thc, read_thc_ranges


def read_fp32(payload: bytes, n: int) -> list[float]:
    must(len(payload) == 4 * n, "fp32: length")
    return f32_array(payload, 0, n)


def read_snap(payload: bytes, n: int) -> list[float]:
    must(len(payload) == 4 * n, "snap: length")
    return f32_array(payload, 0, n)


def read_zip(payload: bytes, n: int) -> list[float]:
    """Reads a payload of codec zip. A block of 1,024 values has exponent codes in bit planes, escaped exponents, and
    the other bits of each value."""
    lengths = [min(1024, n - first) for first in range(0, n, 1024)]
    must(len(payload) >= 4 * len(lengths), "zip: heads")
    words, at = [], 4 * len(lengths)
    for block, length in enumerate(lengths):
        kind, first, escapes = struct.unpack_from("<BBH", payload, 4 * block)
        width, lower, plane = kind & 15, not kind & 16, (length + 7) // 8
        must(kind < 32 and width in (0, 2, 3, 4, 8), "zip: width")
        must(width not in (0, 8) or first == escapes == 0, "zip: a window that is not used")
        if width == 0:
            must(lower, "zip: zeros")
            words += [0] * length
            continue
        escape = 2**width - 1
        code_bytes = length if width == 8 else width * plane
        end = at + code_bytes + escapes + (3 if lower else 1) * length
        must(end <= len(payload), "zip: length")
        exponents = list(payload[at : at + length])
        if width < 8:
            must(first + escape <= 256, "zip: window")
            planes = [int.from_bytes(payload[at + k * plane : at + (k + 1) * plane], "little") for k in range(width)]
            must(all(p >> length == 0 for p in planes), "zip: a bit past the last value")
            codes = [sum((p >> i & 1) << k for k, p in enumerate(planes)) for i in range(length)]
            escaped = payload[at + code_bytes : at + code_bytes + escapes]
            must(codes.count(escape) == escapes, "zip: escapes")
            must(not any(first <= e < first + escape for e in escaped), "zip: an escape within its window")
            others = iter(escaped)
            exponents = [next(others) if c == escape else first + c for c in codes]
        middle = payload[at + code_bytes + escapes :]
        low = struct.unpack_from(f"<{length}H", middle, length) if lower else [0] * length
        for e, m, rest in zip(exponents, middle, low, strict=False):
            words.append((m & 1) << 31 | e << 23 | m >> 1 << 16 | rest)
        at = end
    must(at == len(payload), "zip: length")
    return list(struct.unpack(f"<{n}f", struct.pack(f"<{n}I", *words)))


def read_fp16(payload: bytes, n: int) -> list[float]:
    must(len(payload) == 2 * n, "fp16: length")
    return list(struct.unpack(f"<{n}e", payload))


def read_onebit(payload: bytes, n: int) -> list[float]:
    values, at = [], 0
    for first in range(0, n, 2048):
        length = min(2048, n - first)
        sign_bytes = (length + 7) // 8
        must(len(payload) >= at + 8 + sign_bytes, "onebit: length")
        means = f32_array(payload, at, 2)
        must(all(map(math.isfinite, means)) and means[0] <= 0 <= means[1], "onebit: means")
        signs = int.from_bytes(payload[at + 8 : at + 8 + sign_bytes], "little")
        must(signs >> length == 0, "onebit: a bit past the last value")
        values += [means[signs >> i & 1] for i in range(length)]
        at += 8 + sign_bytes
    must(at == len(payload), "onebit: length")
    return values


def read_inceptionn(payload: bytes, n: int) -> list[float]:
    """Reads a payload of codec inceptionn: a two-bit tag per value, which gives the value 0, 1, 2 or 4 bytes."""
    plane = (n + 7) // 8
    must(len(payload) >= 4 + 2 * plane, "inceptionn: length")
    mode, layout, b, zero = payload[:4]
    must(mode <= 1 and layout <= 1 and 1 <= b <= 100 and zero == 0, "inceptionn: head")
    u = min(-(b // 2), 7 - b) - 7 if mode == 0 else -7
    w = min(0, 15 - b) - 15 if mode == 0 else -15
    sizes = (0, 1, 2, 4)

    def value(tag: int, at: int) -> float:
        must(at + sizes[tag] <= len(payload), "inceptionn: length")
        word = int.from_bytes(payload[at : at + sizes[tag]], "little")
        if tag == 1:
            return math.copysign((word & 0x7F) * 2.0**u, -(word >> 7) or 1)
        if tag == 2:
            return math.copysign((word & 0x7FFF) * 2.0**w, -(word >> 15) or 1)
        return f32_array(payload, at, 1)[0] if tag == 3 else 0.0

    values, at = [], 4
    if layout == 0:
        planes = [int.from_bytes(payload[4 + k * plane : 4 + (k + 1) * plane], "little") for k in (0, 1)]
        must(all(p >> n == 0 for p in planes), "inceptionn: a tag past the last value")
        tags = [(planes[0] >> i & 1) | (planes[1] >> i & 1) << 1 for i in range(n)]
        at += 2 * plane
        for first in range(0, n, 1024):
            block = tags[first : first + 1024]
            starts = [at, at, at + block.count(1), at + block.count(1) + 2 * block.count(2)]
            at = starts[3] + 4 * block.count(3)
            for tag in block:
                values.append(value(tag, starts[tag]))
                starts[tag] += sizes[tag]
    else:
        ends = []
        table = list(struct.unpack_from(f"<{(n + 1023) // 1024}H", payload, 4))
        at += 2 * len(table)
        for first in range(0, n, 8):
            if first % 1024 == 0:
                ends.append(at)
            tags = int.from_bytes(payload[at : at + 2], "little")
            at += 2
            must(tags >> 2 * min(8, n - first) == 0, "inceptionn: a tag past the last value")
            for j in range(min(8, n - first)):
                tag = tags >> 2 * j & 3
                values.append(value(tag, at))
                at += sizes[tag]
        ends.append(at)
        must(table == [end - begin for begin, end in zip(ends, ends[1:], strict=False)], "inceptionn: blocks")
    must(at == len(payload), "inceptionn: length")
    return values


def read_rangefloat(payload: bytes, n: int) -> list[float]:
    must(len(payload) >= 4, "rangefloat: no head")
    bits, mantissa, zero = struct.unpack_from("<BBH", payload)
    must(4 <= bits <= 16 and 1 <= mantissa <= bits - 2 and zero == 0, "rangefloat: head")
    values, at = [], 4
    for first in range(0, n, 1024):
        length = min(1024, n - first)
        end = at + 4 + (bits * length + 7) // 8
        must(end <= len(payload), "rangefloat: length")
        values += range_floats(bits, mantissa, payload[at:end], length)
        at = end
    must(at == len(payload), "rangefloat: length")
    return values


def read_fp8(payload: bytes, n: int) -> list[float]:
    blocks = (n + 31) // 32
    must(len(payload) == 1 + blocks + n, "fp8: length")
    must(payload[0] <= 1, "fp8: format")
    fraction_bits, bias, most = (3, 7, 246) if payload[0] == 0 else (2, 15, 239)
    scales, codes = payload[1 : 1 + blocks], payload[1 + blocks :]
    must(all(17 <= s <= most for s in scales), "fp8: scale")
    values = []
    for i, code in enumerate(codes):
        e = (code & 0x7F) >> fraction_bits
        f = (code & 2**fraction_bits - 1) / 2**fraction_bits
        size = (1 + f) * 2.0 ** (e - bias) if e else f * 2.0 ** (1 - bias)
        if payload[0] == 0 and code & 0x7F == 0x7F:
            size = math.nan
        if payload[0] == 1 and e == 31:
            size = math.nan if f else math.inf
        values.append(math.copysign(size * 2.0 ** (scales[i // 32] - 127), -(code >> 7) or 1))
    return values


def read_fp8_shared_scales(payload: bytes, n: int) -> tuple[int, bytes]:
    must(len(payload) == 3 + -(-n // 32), "fp8_shared: length")
    ranks, form = struct.unpack_from("<HB", payload)
    must(ranks >= 1 and form <= 1, "fp8_shared: head")
    must(all(17 <= s <= (246, 239)[form] for s in payload[3:]), "fp8_shared: scale")
    return form, payload[3:]


def read_fp8_shared(payload: bytes, n: int, agreed: tuple[int, bytes]) -> list[float]:
    values = read_fp8(payload, n)
    must(payload[0] == agreed[0], "fp8_shared: format")
    must(all(map(math.isfinite, values)), "fp8_shared: a code that is no number")
    return values


READERS = {
    1: read_fp32,
    2: read_bf16,
    3: read_fp16,
    4: read_onebit,
    5: read_sparse,  # topk
    6: read_sparse,  # dgc
    7: read_sparse,  # dragonn
    8: read_qtopk,
    9: read_sign,
    10: read_ternary,  # tbq
    11: read_ternary,  # terngrad
    12: read_minmax,
    13: read_qsgd,
    14: read_natural,
    15: read_nuqsgd,
    16: read_fp8,
    17: read_inceptionn,
    18: read_rangefloat,
    19: read_randomk,
    20: read_sparse,  # threshold
    21: read_sparse,  # graddrop
    23: read_blocks,
    25: (read_scalecom_indices, read_scalecom),  # by phase; a later phase gets the result of the previous one
    26: (read_thc_ranges, read_thc),
    27: read_fft,
    28: (read_powersgd_rows, read_powersgd),
    29: (read_fp8_shared_scales, read_fp8_shared),
    30: (read_shared_norms, read_terngrad_shared),
    31: (read_shared_norms, read_qsgd_shared),
    32: (read_majority_votes, read_sign_majority),
    33: read_snap,
    34: read_eden,
    35: read_zip,
}
