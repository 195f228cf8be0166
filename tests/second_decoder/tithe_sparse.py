# SPDX-License-Identifier: Apache-2.0
"""Section 6 of docs/reference/format.md: payloads of a subset of the values. See tithe_format.py."""

import math
import struct
from dataclasses import dataclass

from tithe_numbers import draw32, f32_array, must, read_bf16, u32_array


@dataclass
class Sparse:
    indices: list[int]
    values: list[float]


def read_sparse(payload: bytes, n: int) -> Sparse:
    must(len(payload) >= 4, "sparse: no count")
    (count,) = u32_array(payload, 0, 1)
    if count == 0xFFFFFFFF:
        return read_packed(payload, n)
    must(len(payload) == 4 + 8 * count, "sparse: length")
    indices = u32_array(payload, 4, count)
    check_indices(indices, n)
    return Sparse(indices, finite(f32_array(payload, 4 + 4 * count, count)))


def read_qtopk(payload: bytes, n: int) -> Sparse:
    must(n < 2**32, "qtopk: too many values")
    blocks = -(-n // 255)
    must(len(payload) >= 6, "qtopk: no head")
    count, top = struct.unpack_from("<IH", payload)
    must(len(payload) == 6 + blocks + 2 * count, "qtopk: length")
    in_block = payload[6 : 6 + blocks]
    within, codes = payload[6 + blocks : 6 + blocks + count], payload[6 + blocks + count :]
    must(sum(in_block) == count, "qtopk: counts of the blocks")
    indices, at = [], 0
    for block, here in enumerate(in_block):
        mine = within[at : at + here]
        must(all(a < b for a, b in zip(mine, mine[1:], strict=False)), "qtopk: indices do not increase")
        must(not mine or mine[-1] < min(255, n - 255 * block), "qtopk: index beyond the block")
        indices += [255 * block + index for index in mine]
        at += here
    steps = [code & 127 for code in codes]
    must(top <= 0x7F7 and min(steps, default=0) == 0 and all(s < top for s in steps), "qtopk: codes")
    must(count > 0 or top == 0, "qtopk: top of nothing")
    bits = [(code >> 7) << 31 | (top - s) << 20 for code, s in zip(codes, steps, strict=True)]
    return Sparse(indices, f32_array(struct.pack(f"<{count}I", *bits), 0, count))


def read_blocks(payload: bytes, n: int) -> Sparse:
    blocks = -(-n // 256)
    at = 1 + (blocks + 7) // 8
    must(len(payload) >= at, "blocks: no bitmap")
    how, bitmap = payload[0], int.from_bytes(payload[1:at], "little")
    must(how <= 6, "blocks: unknown form")
    must(bitmap >> blocks == 0, "blocks: a bit past the last block")
    sent = [range(256 * b, min(256 * b + 256, n)) for b in range(blocks) if bitmap >> b & 1]
    indices = [i for block in sent for i in block]
    if how != 5:
        must(len(payload) == at + value_bytes(how, len(indices)), "blocks: length")
    elif indices:
        must(len(payload) >= at + 4, "blocks: length")
        must(u32_array(payload, len(payload) - 4, 1) == [len(payload) - at], "blocks: length")
    values = read_values(how, payload[at:], len(indices))
    first = 0
    for block in sent:
        here = values[first : first + len(block)]
        must(how > 0 or any(v != 0 for v in here), "blocks: a block of zeros")
        first += len(block)
    return Sparse(indices, values)


def read_scalecom_indices(payload: bytes, n: int) -> tuple[int, list[int]]:
    """Returns the number format of the values, and their indices."""
    must(len(payload) >= 4, "scalecom: no count")
    (count,) = u32_array(payload, 0, 1)
    if count == 0xFFFFFFFF:
        how, indices, end = read_packed_indices(payload, n, values_behind=False)
        must(how <= 4, "scalecom: values that do not add up as arrays")
        must(end == len(payload), "scalecom: length")
        return how, indices
    must(len(payload) == 4 + 4 * count, "scalecom: length")
    indices = u32_array(payload, 4, count)
    check_indices(indices, n)
    return 0, indices


def read_scalecom(payload: bytes, n: int, agreed: tuple[int, list[int]]) -> Sparse:
    how, indices = agreed
    must(len(payload) == value_bytes(how, len(indices)), "scalecom: length")
    return Sparse(indices, read_values(how, payload, len(indices)))


def read_randomk(payload: bytes, n: int) -> Sparse:
    must(len(payload) >= 16, "randomk: no head")
    key, count, how, *zeros = struct.unpack_from("<QI4B", payload)
    must(how <= 4 and not any(zeros), "randomk: unknown form")
    must(count <= n < 2**32 - 1, "randomk: count")
    must(len(payload) == 16 + value_bytes(how, count), "randomk: length")
    starts = [j * n // count for j in range(count)] + [n]
    indices = [a + (draw32(key, j) * (b - a) >> 32) for j, (a, b) in enumerate(zip(starts, starts[1:], strict=False))]
    return Sparse(indices, read_values(how, payload[16:], count))


def read_packed(payload: bytes, n: int) -> Sparse:
    how, indices, split_at = read_packed_indices(payload, n, values_behind=True)
    return Sparse(indices, read_values(how, payload[split_at:], len(indices)))


def read_packed_indices(payload: bytes, n: int, values_behind: bool) -> tuple[int, list[int], int]:
    """Returns the number format of the values, the indices, and the offset after them."""
    must(len(payload) >= 12, "sparse: no head")
    (count,) = u32_array(payload, 4, 1)
    how_values, how_indices, b, zero = payload[8:12]
    must(how_values <= 6 and how_indices <= 2 and zero == 0, "sparse: unknown form")
    must(how_values + how_indices > 0, "sparse: a plain payload is not packed")
    must(count <= n, "sparse: count")
    mean = (n - count) * 177 // 256 // count if count else 0
    must(b == (mean.bit_length() - 1 if how_indices == 1 and mean else 0), "sparse: b")
    size = value_bytes(how_values, count) if values_behind else 0
    if how_values == 5 and count and values_behind:
        must(len(payload) >= 16, "sparse: length")
        (size,) = u32_array(payload, len(payload) - 4, 1)
    split_at = len(payload) - size
    must(split_at >= 12, "sparse: length")
    stream = payload[12:split_at]
    if how_indices == 0:
        must(len(stream) == 4 * count, "sparse: length")
        indices = u32_array(stream, 0, count)
    elif how_indices == 1:
        indices = read_gaps(stream, count, b, n)
    else:
        must(len(stream) == (n + 7) // 8, "sparse: length")
        bits = int.from_bytes(stream, "little")
        must(bits >> n == 0 and bits.bit_count() == count, "sparse: bitmap")
        indices = [i for i in range(n) if bits >> i & 1]
    check_indices(indices, n)
    return how_values, indices, split_at


VALUE_BITS = (32, 16, 16, 8, 4, 0, 2)
VALUE_HEADS = (0, 0, 2, 2, 2, 0, 4)
VALUE_BLOCK = 128


def value_bytes(how: int, count: int) -> int:
    return VALUE_HEADS[how] * -(-count // VALUE_BLOCK) + (count * VALUE_BITS[how] + 7) // 8


def read_values(how: int, data: bytes, count: int) -> list[float]:
    if how == 0:
        return finite(f32_array(data, 0, count))
    if how == 1:
        return finite(read_bf16(data, count))
    if how == 5:
        return read_classes(data, count)
    values: list[float] = []
    for first in range(0, count, VALUE_BLOCK):
        length = min(VALUE_BLOCK, count - first)
        block = data[value_bytes(how, first) : value_bytes(how, first + length)]
        if how == 6:
            values += read_pairs(block, length)
            continue
        (head,) = struct.unpack_from("<H", block)
        body = block[2:]
        values += read_halves(head, body, length) if how == 2 else read_codes(how, head, body, length)
    return values


def read_classes(data: bytes, count: int) -> list[float]:
    must(count == 0 or len(data) >= 4, "sparse: length")
    values: list[float] = []
    at = 0
    for first in range(0, count, VALUE_BLOCK):
        length = min(VALUE_BLOCK, count - first)
        last = at + 1 + (length + 3) // 4
        must(last <= len(data) - 4, "sparse: length")
        e, tags = data[at], [byte >> bit & 3 for byte in data[at + 1 : last] for bit in (0, 2, 4, 6)]
        must(e <= 254 and max(tags) <= 2 and not any(tags[length:]), "sparse: tags of a block")
        at = last
        for tag in tags[:length]:
            must(at + tag <= len(data) - 4, "sparse: length")
            code, width = int.from_bytes(data[at : at + tag], "little"), (0, 7, 15)[tag]
            size = math.ldexp(code & (1 << width) - 1, e - 126 - (0, 12, 15)[tag])
            values.append(-size if code >> width else size)
            at += tag
    must(at == max(0, len(data) - 4), "sparse: length")
    return values


def read_halves(e: int, body: bytes, length: int) -> list[float]:
    must(e <= 254, "sparse: exponent of a block")
    must(all(bits & 0x7FFF <= 0x77FF for bits in struct.unpack(f"<{length}H", body)), "sparse: half out of range")
    return [math.ldexp(half, max(e, 15) - 141) for half in struct.unpack(f"<{length}e", body)]


def read_codes(how: int, top: int, body: bytes, length: int) -> list[float]:
    zero, shift, most = (127, 20, 0x7F7) if how == 3 else (7, 22, 0x1FD)
    codes = list(body) if how == 3 else [byte >> half & 15 for byte in body for half in (0, 4)]
    must(not any(codes[length:]), "sparse: padding")
    must(top <= most, "sparse: top of a block")
    words = []
    for code in codes[:length]:
        sign, s = divmod(code, zero + 1)
        must(s == zero or s < top, "sparse: a code below the smallest value")
        words.append(0 if s == zero else sign << 31 | (top - s) << shift)
    return f32_array(struct.pack(f"<{length}I", *words), 0, length)


def read_pairs(block: bytes, length: int) -> list[float]:
    low, high = finite(read_bf16(block[:4], 2))
    must(math.copysign(1, low) > 0 and math.copysign(1, high) > 0 and low <= high, "sparse: the two sizes")
    codes = [byte >> bit & 3 for byte in block[4:] for bit in (0, 2, 4, 6)]
    must(not any(codes[length:]), "sparse: padding")
    return [(low, high, -low or 0.0, -high or 0.0)[code] for code in codes[:length]]


def read_gaps(stream: bytes, count: int, b: int, n: int) -> list[int]:
    bits, length, at = int.from_bytes(stream, "little"), 8 * len(stream), 0
    indices: list[int] = []
    for _ in range(count):
        high = 0
        while at < length and not bits >> at & 1:
            high, at = high + 1, at + 1
        must(at + 1 + b <= length and high <= n, "sparse: the gaps end early")
        gap = high << b | (bits >> at + 1 & (1 << b) - 1)
        indices.append((indices[-1] + 1 if indices else 0) + gap)
        at += 1 + b
    must((at + 7) // 8 == len(stream), "sparse: length")
    must(bits >> at == 0, "sparse: padding")
    return indices


def finite(values: list[float]) -> list[float]:
    must(all(math.isfinite(v) for v in values), "sparse: a value that is not finite")
    return values


def check_indices(indices: list[int], n: int) -> None:
    must(all(a < b for a, b in zip(indices, indices[1:], strict=False)), "sparse: indices do not increase")
    must(n < 2**32 - 1 and (not indices or indices[-1] < n), "sparse: index beyond the last value")
