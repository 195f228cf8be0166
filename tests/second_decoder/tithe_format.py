# SPDX-License-Identifier: Apache-2.0
"""A second reader of tithe's frames, written from docs/reference/format.md alone and in its order, for readability.

    header, payloads = parse_frame(bytes)      # sections 2 to 5
    values = decode(header, payloads)          # sections 6 and 7

It raises Refused for all bytes that the document requires a reader to refuse. It imports nothing of tithe.
"""

import math
import struct
from dataclasses import dataclass

import tithe_eden
import tithe_fft
from tithe_numbers import f32, must
from tithe_payloads import READERS
from tithe_sparse import Sparse
from xxh3 import xxh3_64

# ---- 2. Header ----

HEADER = struct.Struct("<IBBHQIIHBBHHQQQQ")
HEADER_BYTES = 64
MAGIC = 0x48544954
VERSION = 1
NON_FINITE, CONCAT, EMPTY = 1, 2, 4
HEADER_ALONE = 32
FP32 = 1
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
    if h.flags & HEADER_ALONE:
        must(h.codec == FP32 and h.flags != HEADER_ALONE | CONCAT, "a payload without a checksum")
        h.flags &= ~HEADER_ALONE
    must(h.flags in (0, NON_FINITE, CONCAT, EMPTY), f"flags {h.flags:#x}")
    must(1 <= h.parts <= MOST_PARTS, f"{h.parts} parts")
    if h.flags in (NON_FINITE, EMPTY):
        must(h.payload_bytes == 0, "a payload in a frame that says it has none")
    if h.flags == CONCAT:
        must(h.payload_bytes >= 8 * h.parts, "no room for the table of lengths")
    else:
        must(h.parts == 1, "several parts without the concat flag")


# ---- 3. Checksum ----


def checksum(frame: bytes, header_alone: bool = False) -> int:
    return xxh3_64(frame[: HEADER_BYTES - 8] + (b"" if header_alone else frame[HEADER_BYTES:]))


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


def parse_frame(frame: bytes, header_alone: bool = False) -> tuple[Header, list[bytes]]:
    """Returns the header and the payloads of a frame. header_alone: checksums cover only headers."""
    must(len(frame) >= HEADER_BYTES, "shorter than a header")
    h = Header(*HEADER.unpack_from(frame))
    must(h.magic == MAGIC, "magic")
    must(h.version == VERSION, f"version {h.version}")
    must(h.header_bytes == HEADER_BYTES, f"header of {h.header_bytes} bytes")
    must(h.payload_bytes == len(frame) - HEADER_BYTES, "length")
    is_alone = bool(h.flags & HEADER_ALONE)
    check_flags(h)
    must(h.checksum == checksum(frame, is_alone), "checksum")
    must(is_alone == header_alone, "a checksum that covers something else than all ranks agreed on")
    return h, split(h, frame[HEADER_BYTES:])


# ---- 7. From payloads to values ----


def combine(payloads: list, n: int, base: list[float] | None = None, divide: float = 1.0) -> list[float]:
    out = list(base) if base is not None else None
    for kind, values in ((tithe_fft.Spectrum, tithe_fft.values), (tithe_eden.Rotated, tithe_eden.values)):
        if payloads and isinstance(payloads[0], kind):
            payloads = [values(payloads, n)]
    for p in payloads:
        if isinstance(p, Sparse):
            out = [0.0] * n if out is None else out
            for i, v in zip(p.indices, p.values, strict=True):
                out[i] = f32(out[i] + v)
        else:
            out = list(p) if out is None else [f32(a + b) for a, b in zip(out, p, strict=True)]
    return out if divide == 1.0 else [f32(v / divide) for v in out]


def decode(h: Header, payloads: list[bytes], context: bytes = b"") -> list[float]:
    """Returns the values of one frame by itself: NaN if it is flagged non-finite. context: the combined payload of the
    previous phase, for a codec of two phases."""
    if h.flags == NON_FINITE:
        return [math.nan] * h.values
    must(h.flags != EMPTY, "an empty frame has no values")
    must(h.codec in READERS, f"codec {h.codec}")
    reader = READERS[h.codec]
    if isinstance(reader, tuple):
        must(h.phase + 1 == len(reader) == 2, f"codec {h.codec}: phase {h.phase} has no values")
        agreed = reader[0](context, h.values)
        return combine([reader[1](p, h.values, agreed) for p in payloads], h.values)
    must(h.phase == 0, f"codec {h.codec}: phase {h.phase}")
    return combine([reader(p, h.values) for p in payloads], h.values)


# ---- 8. Control ----

CONTROL_TENSOR = 0xFFFFFFFF
CARD_FIELDS = ("number", "world", "run", "seed", "tensors", "values", "layout", "plan", "round")
CARD_FIELDS += ("ended", "job", "proposed_job", "place", "average")
ANNOUNCEMENT_FIELDS = ("ended", "round", "job", "tensors", "values", "layout", "place", "is_end")
NO_PLACE = 0xFFFFFFFF
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


REPORT_FIELDS = ("number", "round", "state", "waits_for", "received", "sent", "messages_sent")


def read_control(frame: bytes) -> dict:
    """Reads a control frame (section 8). Returns its fields by name."""
    h, (payload,) = parse_frame(frame)
    must(h.tensor == CONTROL_TENSOR and h.phase in (0, 1, 2, 3, 4, 5, 9, 10), "not a control frame")
    f = Fields(payload)
    if h.phase == 0:
        control = dict(zip(CARD_FIELDS, f.numbers("IIQQQQQQQQQQIB"), strict=True))
        control |= {"codec": f.text("H"), "strategy": f.text("H")}
    elif h.phase == 1:
        code, blamed, round_, finite = f.numbers("BiIB")
        must(1 <= code <= 8 and finite <= 1, f"code {code}")
        control = {"code": CODES[code - 1], "blamed": blamed, "round": round_, "finite": finite, "what": f.text("H")}
    elif h.phase == 2:
        finding, witness, silent_peers = f.numbers("BiH")
        must(finding <= 5 and silent_peers <= 256, "evidence")
        control = {"finding": finding, "witness": witness, "silent_peers": list(f.numbers(f"{silent_peers}H"))}
    elif h.phase in (3, 4):
        control = dict(zip(REPORT_FIELDS, f.numbers("IIBiQQI"), strict=True))
        must(control["state"] <= 2, "a state of a rank")
    elif h.phase == 9:
        of, reported, finding, code, witness, blamed, round_, finite, silent_peers = f.numbers("iBBBiiIBH")
        must(finding <= 5 and silent_peers <= 256 and finite <= 1 and reported == (code != 0), "an echo")
        control = {"of": of, "finding": finding, "code": CODES[code - 1] if reported else None, "witness": witness}
        control |= {
            "blamed": blamed,
            "round": round_,
            "finite": finite,
            "silent_peers": list(f.numbers(f"{silent_peers}H")),
            "what": f.text("H"),
        }
    elif h.phase == 10:
        control = dict(zip(ANNOUNCEMENT_FIELDS, f.numbers("QQQQQQIB"), strict=True))
        must(control["place"] != NO_PLACE, "an announcement without a place")
        described = control["tensors"] or control["values"] or control["layout"]
        must(control["is_end"] <= 1 and not (control["is_end"] and described), "an announcement")
    else:
        control = dict(zip(("ended", "begun", "away_ns", "finite"), f.numbers("QQQB"), strict=True))
    f.end()
    return control


# ---- 9. State ----


def read_state(state: bytes) -> dict:
    """Reads a saved state (section 9). Returns its fields by name."""
    must(len(state) >= 8, "shorter than a checksum")
    body = state[:-8]
    must(len(body) >= 48 and struct.unpack("<Q", state[-8:])[0] == xxh3_64(body), "checksum")
    f = Fields(body)
    magic, version, rank, world, rounds, job = f.numbers("IIIIQQ")
    must(magic == 0x53544954, "magic")
    must(version == 8, f"version {version}")
    must(rank < world, "a rank beyond the world")
    texts = {name: f.text("Q") for name in ("codec", "opened", "decided", "link", "schedule")}
    schedule_state = dict(zip(("learning_rate", "min_loss", "steps"), f.numbers("ddI"), strict=True))
    (names,) = f.numbers("Q")
    must(names in (0, world), "names of some ranks")
    members = [f.text("Q") for _ in range(names)]
    must(len(set(members)) == names, "two ranks of one name")
    must(all(1 <= len(name.encode()) <= 200 for name in members), "a name of another length")
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
        must(all(math.isfinite(v) for v in [*residual, *velocity]), "an array that is not finite")
        kind, size = f.numbers("QQ")
        keys[key] = {"n": n, "residual": residual, "velocity": velocity, "kind": kind, "memory": f.take(size)}
    f.end()
    return {
        "rank": rank,
        "world": world,
        "rounds": rounds,
        "job": job,
        **texts,
        "schedule_state": schedule_state,
        "members": members,
        "keys": keys,
    }
