# SPDX-License-Identifier: Apache-2.0
"""A second reader of tithe's frames, written from docs/format.md alone and in its order. It is meant to be read.

    header, payloads = parse_frame(bytes)      # sections 2 to 5
    values = decode(header, payloads)          # sections 6 and 7

It refuses with Refused what the document says that a reader must refuse. It uses nothing of tithe.
"""

import math
import struct
from dataclasses import dataclass

from xxh3 import xxh3_64


class Refused(Exception):
    """The bytes break a rule of docs/format.md."""


def must(rule: bool, why: str) -> None:
    if not rule:
        raise Refused(why)


# ---- 1. Numbers ----


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


# ---- 2. Header ----

HEADER = struct.Struct("<IBBHQIIHBBHHQQQQ")
HEADER_BYTES = 64
MAGIC = 0x48544954
VERSION = 1
NON_FINITE, CONCAT, EMPTY = 1, 2, 4
MOST_PARTS = 256


@dataclass
class Header:
    magic: int
    version: int
    header_bytes: int
    codec: int
    run: int
    round: int
    tensor: int
    chunk: int
    phase: int
    flags: int
    source: int
    parts: int
    values: int
    payload_bytes: int
    plan: int
    checksum: int


def check_flags(h: Header) -> None:
    must(h.flags in (0, NON_FINITE, CONCAT, EMPTY), f"flags {h.flags:#x}")
    must(1 <= h.parts <= MOST_PARTS, f"{h.parts} parts")
    if h.flags in (NON_FINITE, EMPTY):
        must(h.payload_bytes == 0, "a payload in a frame that says it has none")
    if h.flags == CONCAT:
        must(h.payload_bytes >= 8 * h.parts, "no room for the table of lengths")
    else:
        must(h.parts == 1, "several parts without the concat flag")


# ---- 3. Checksum ----


def checksum(frame: bytes) -> int:
    return xxh3_64(frame[: HEADER_BYTES - 8] + frame[HEADER_BYTES:])


# ---- 4. Payload area ----


def split(h: Header, area: bytes) -> list[bytes]:
    if h.flags in (NON_FINITE, EMPTY):
        return []
    if h.flags != CONCAT:
        return [area]
    lengths = struct.unpack_from(f"<{h.parts}Q", area)
    at = 8 * h.parts
    must(at + sum(lengths) == len(area), "lengths do not add up to the payload area")
    payloads = []
    for length in lengths:
        payloads.append(area[at : at + length])
        at += length
    return payloads


# ---- 5. Reading a frame ----


def parse_frame(frame: bytes) -> tuple[Header, list[bytes]]:
    must(len(frame) >= HEADER_BYTES, "shorter than a header")
    h = Header(*HEADER.unpack_from(frame))
    must(h.magic == MAGIC, "magic")
    must(h.version == VERSION, f"version {h.version}")
    must(h.header_bytes == HEADER_BYTES, f"header of {h.header_bytes} bytes")
    must(h.payload_bytes == len(frame) - HEADER_BYTES, "length")
    check_flags(h)
    must(h.checksum == checksum(frame), "checksum")
    return h, split(h, frame[HEADER_BYTES:])


# ---- 6. Payloads, codec by codec ----


def read_fp32(payload: bytes, n: int) -> list[float]:
    must(len(payload) == 4 * n, "fp32: length")
    return f32_array(payload, 0, n)


def read_bf16(payload: bytes, n: int) -> list[float]:
    must(len(payload) == 2 * n, "bf16: length")
    widened = b"".join(b"\0\0" + payload[2 * i : 2 * i + 2] for i in range(n))
    return f32_array(widened, 0, n)


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
    return Sparse(indices, f32_array(payload, 4 + 4 * count, count))


def read_qtopk(payload: bytes, n: int) -> Sparse:
    must(n < 2**32, "qtopk: too many values")
    blocks = -(-n // 255)
    must(len(payload) >= 6, "qtopk: no head")
    count, top = struct.unpack_from("<IH", payload)
    must(len(payload) == 6 + blocks + 2 * count, "qtopk: length")
    in_block = payload[6 : 6 + blocks]
    places, codes = payload[6 + blocks : 6 + blocks + count], payload[6 + blocks + count :]
    must(sum(in_block) == count, "qtopk: counts of the blocks")
    indices, at = [], 0
    for block, here in enumerate(in_block):
        mine = places[at : at + here]
        must(all(a < b for a, b in zip(mine, mine[1:], strict=False)), "qtopk: places do not increase")
        must(not mine or mine[-1] < min(255, n - 255 * block), "qtopk: place beyond the block")
        indices += [255 * block + place for place in mine]
        at += here
    steps = [code & 127 for code in codes]
    must(top <= 0x7F7 and min(steps, default=0) == 0 and all(s < top for s in steps), "qtopk: codes")
    must(count > 0 or top == 0, "qtopk: top of nothing")
    bits = [(code >> 7) << 31 | (top - s) << 20 for code, s in zip(codes, steps, strict=True)]
    return Sparse(indices, f32_array(struct.pack(f"<{count}I", *bits), 0, count))


def read_packed(payload: bytes, n: int) -> Sparse:
    must(len(payload) >= 12, "sparse: no head")
    (count,) = u32_array(payload, 4, 1)
    how_values, how_indices, b, zero = payload[8:12]
    must(how_values <= 1 and how_indices <= 1 and zero == 0, "sparse: unknown form")
    must(how_values + how_indices > 0, "sparse: a plain payload is not packed")
    must(count <= n, "sparse: count")
    mean = (n - count) * 177 // 256 // count if count else 0
    must(b == (mean.bit_length() - 1 if how_indices == 1 and mean else 0), "sparse: b")
    value_bytes = (2 if how_values else 4) * count
    split_at = len(payload) - value_bytes
    must(split_at >= 12, "sparse: length")
    indices = read_gaps(payload[12:split_at], count, b, n) if how_indices else None
    if indices is None:
        must(split_at == 12 + 4 * count, "sparse: length")
        indices = u32_array(payload, 12, count)
    check_indices(indices, n)
    return Sparse(indices, read_bf16(payload[split_at:], count) if how_values else f32_array(payload, split_at, count))


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


def check_indices(indices: list[int], n: int) -> None:
    must(all(a < b for a, b in zip(indices, indices[1:], strict=False)), "sparse: indices do not increase")
    must(n < 2**32 - 1 and (not indices or indices[-1] < n), "sparse: index beyond the last value")


def read_inceptionn(payload: bytes, n: int) -> list[float]:
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
    shift, positive, most = 23 - mantissa, 2 ** (bits - 1) - 1, 0x7F7FFFFF >> 23 - mantissa
    words, at = [], 4
    for first in range(0, n, 1024):
        length = min(1024, n - first)
        end = at + 4 + (bits * length + 7) // 8
        must(end <= len(payload), "rangefloat: length")
        (base,) = u32_array(payload, at, 1)
        must(1 <= base <= most, "rangefloat: base")
        codes = int.from_bytes(payload[at + 4 : end], "little")
        must(codes >> bits * length == 0, "rangefloat: a bit past the last code")
        for i in range(length):
            code = codes >> bits * i & 2**bits - 1
            sign = 1 if code > positive else 0
            steps = min(code - sign * positive + base - 1, base + positive - 1, most)
            words.append(sign << 31 | steps << shift if code else 0)
        at = end
    must(at == len(payload), "rangefloat: length")
    return f32_array(struct.pack(f"<{n}I", *words), 0, n)


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


READERS = {
    1: read_fp32,
    2: read_bf16,
    3: read_fp16,
    4: read_onebit,
    5: read_sparse,  # topk
    6: read_sparse,  # dgc
    7: read_sparse,  # dragonn
    8: read_qtopk,
    16: read_fp8,
    17: read_inceptionn,
    18: read_rangefloat,
}


# ---- 7. From payloads to values ----


def combine(payloads: list, n: int, base: list[float] | None = None, divide: float = 1.0) -> list[float]:
    out = list(base) if base is not None else None
    for p in payloads:
        if isinstance(p, Sparse):
            out = [0.0] * n if out is None else out
            for i, v in zip(p.indices, p.values, strict=True):
                out[i] = f32(out[i] + v)
        else:
            out = list(p) if out is None else [f32(a + b) for a, b in zip(out, p, strict=True)]
    return out if divide == 1.0 else [f32(v / divide) for v in out]


def decode(h: Header, payloads: list[bytes]) -> list[float]:
    """The values of one frame by itself: NaN where it is flagged non-finite."""
    if h.flags == NON_FINITE:
        return [math.nan] * h.values
    must(h.flags != EMPTY, "an empty frame has no values")
    must(h.codec in READERS, f"codec {h.codec}")
    return combine([READERS[h.codec](p, h.values) for p in payloads], h.values)


# ---- 8. Control ----

CONTROL_TENSOR = 0xFFFFFFFF
CARD_FIELDS = ("number", "world", "run", "seed", "tensors", "values", "layout", "plan", "round", "average")
CODES = ["invalid", "too_small", "unsupported", "corrupt", "mismatch", "peer_lost", "timeout", "io", "cancelled"]


class Fields:
    """Reads one field after the other, and refuses to read past the end."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        must(count <= len(self.data) - self.at, "a field is cut off")
        self.at += count
        return self.data[self.at - count : self.at]

    def numbers(self, form: str) -> tuple:
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))

    def text(self, length: str) -> str:
        (count,) = self.numbers(length)
        must(length != "H" or count <= 400, "a text of more than 400 bytes")
        return self.take(count).decode()

    def floats(self) -> list[float]:
        (count,) = self.numbers("Q")
        return list(struct.unpack(f"<{count}f", self.take(4 * count)))

    def end(self) -> None:
        must(self.at == len(self.data), "bytes behind the last field")


def read_control(frame: bytes) -> dict:
    h, (payload,) = parse_frame(frame)
    must(h.tensor == CONTROL_TENSOR and h.phase in (0, 1), "not a control frame")
    f = Fields(payload)
    if h.phase == 0:
        control = dict(zip(CARD_FIELDS, f.numbers("IIQQQQQQQB"), strict=True))
        control |= {"codec": f.text("H"), "strategy": f.text("H")}
    else:
        code, blamed, round_ = f.numbers("BiI")
        must(1 <= code <= len(CODES), f"code {code}")
        control = {"code": CODES[code - 1], "blamed": blamed, "round": round_, "what": f.text("H")}
    f.end()
    return control


# ---- 9. State ----


def read_state(state: bytes) -> dict:
    must(len(state) >= 8, "shorter than a checksum")
    body = state[:-8]
    must(len(body) >= 40 and struct.unpack("<Q", state[-8:])[0] == xxh3_64(body), "checksum")
    f = Fields(body)
    magic, version, rank, world, rounds = f.numbers("IIIIQ")
    must(magic == 0x53544954, "magic")
    must(version == 1, f"version {version}")
    codec = f.text("Q")
    (count,) = f.numbers("Q")
    keys: dict[str, dict] = {}
    last = b""
    for k in range(count):
        key = f.text("Q")
        must(k == 0 or key.encode() > last, "keys do not increase")
        last = key.encode()
        (n,) = f.numbers("Q")
        residual, velocity = f.floats(), f.floats()
        must(len(residual) in (0, n) and len(velocity) in (0, n), "an array of another length")
        keys[key] = {"n": n, "residual": residual, "velocity": velocity}
    f.end()
    return {"rank": rank, "world": world, "rounds": rounds, "codec": codec, "keys": keys}
