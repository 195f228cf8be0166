# SPDX-License-Identifier: Apache-2.0
"""Weight differences, decoded from docs/reference/format_delta.md alone."""

import struct

from tithe_format import xxh3_64

CHUNK, SCALE, CLASSES = 2**18, 1024, 12
GROUP = 255  # words
EXPONENT = {"bfloat16": (7, 0xFF), "float16": (10, 0x1F)}


def ordered(bits):
    return bits if bits < 0x8000 else (bits ^ 0x7FFF) - 0x10000


def unordered(number):
    number = (number + 0x8000) % 0x10000 - 0x8000
    return number if number >= 0 else (number & 0xFFFF) ^ 0x7FFF


def payload_of(words):
    """Returns the bytes within float32 words."""
    bits = [int.from_bytes(struct.pack("<f", word), "little") for word in words]

    def small(at):
        assert bits[at] >> 23 & 0xFF == 127
        return (bits[at] & 0x7FFFFF) | (bits[at] >> 31) << 23

    size, at, out = small(0) | small(1) << 24, 2, b""
    while len(out) < size:
        mask, count = small(at), min(GROUP, (size - len(out) + 3) // 4)
        group = bits[at + 1 : at + 1 + count]
        assert mask < 256 and all(word >> 23 & 0xFF != 255 for word in group)
        out += struct.pack(f"<{count}I", *(word ^ mask << 23 for word in group))
        at += 1 + count
    return out[:size]


def decode(dtype, before, payload):
    """Returns the new weights, as their bits."""
    assert struct.unpack_from("<Q", payload)[0] == xxh3_64(struct.pack(f"<{len(before)}H", *before))
    at, out = 8, []
    for first in range(0, len(before), CHUNK):
        old = before[first : first + CHUNK]
        at, new = _record(dtype, old, payload, at)
        out += new
    assert at == len(payload)
    return out


def _record(dtype, old, payload, at):
    """Decodes one record of the payload, from offset `at`. Returns the offset after the record, and the new bits."""
    kind, at = payload[at], at + 1
    if kind == 0:
        return at + 2 * len(old), list(struct.unpack_from(f"<{len(old)}H", payload, at))
    assert kind == 1
    units, extra, top = struct.unpack_from("<IIB", payload, at)
    at += 9
    tables = []
    for _ in range(CLASSES):
        count, at = payload[at], at + 1
        slots, start = [], 0
        for symbol, frequency in struct.iter_unpack("<BH", payload[at : at + 3 * count]):
            slots += [(symbol, frequency, start)] * frequency
            start += frequency
        assert start in (0, SCALE)
        tables.append(slots)
        at += 3 * count
    states = list(struct.unpack_from("<32I", payload, at))
    at += 128
    unit = iter(struct.unpack_from(f"<{units}H", payload, at))
    at += 2 * units
    bits = int.from_bytes(payload[at : at + extra], "little")
    shift, mask = EXPONENT[dtype]
    out = []
    for i, b in enumerate(old):
        state = states[i % 32]
        symbol, frequency, start = tables[max(0, min(top - (b >> shift & mask), CLASSES - 1))][state % SCALE]
        state = frequency * (state // SCALE) + state % SCALE - start
        states[i % 32] = state if state >= 2**15 else state << 16 | next(unit)
        z = symbol
        if symbol >= 32:
            width = 4 + (symbol - 32) // 2
            z = (2 | (symbol - 32) % 2) << width | bits & ((1 << width) - 1)
            bits >>= width
        out.append(unordered(ordered(b) + (z // 2 if z % 2 == 0 else -(z + 1) // 2)))
    assert states == [2**15] * 32 and next(unit, None) is None and bits == 0
    return at + extra, out
