# SPDX-License-Identifier: Apache-2.0
"""Ethernet frames, captures of them, and a network card's result for floats. Written from docs/reference/format.md
alone, as a check on `tithe card` that shares no code with it."""

import struct


def checksum(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(payload: bytes, tos: int = 0x28, udp: bool = False, options: int = 0, flags: int = 0x10) -> bytes:
    """Makes an IPv4 frame with TCP or UDP, from 10.0.0.1 to 10.0.0.2."""
    protocol, addresses = (17 if udp else 6), bytes([10, 0, 0, 1, 10, 0, 0, 2])
    if udp:
        head = struct.pack(">HHHH", 5001, 5002, 8 + len(payload), 0)
    else:
        head = struct.pack(">HHIIHHHH", 5001, 5002, 7, 8, (5 + options) << 12 | flags, 512, 0, 0) + b"\1" * (
            4 * options
        )
    segment = head + payload
    value = checksum(addresses + struct.pack(">HH", protocol, len(segment)) + segment)
    at = 6 if udp else 16
    segment = segment[:at] + struct.pack(">H", value or 0xFFFF) + segment[at + 2 :]
    ip = struct.pack(">BBHHHBBH", 0x45, tos, 20 + len(segment), 1, 0x4000, 64, protocol, 0) + addresses
    ip = ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:]
    return bytes(12) + b"\x08\x00" + ip + segment


def transport_holds(packet: bytes) -> bool:
    """Returns True if the checksums of an IPv4 frame without options are correct."""
    ip, segment = packet[14:34], packet[34 : 14 + struct.unpack(">H", packet[16:18])[0]]
    return checksum(ip) == 0 and checksum(ip[12:20] + struct.pack(">HH", ip[9], len(segment)) + segment) == 0


def write_capture(path, frames) -> None:
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for i, one in enumerate(frames):
            out.write(struct.pack("<IIII", 1000 + i, i, len(one), len(one)) + one)


def read_capture(path) -> list[bytes]:
    data, frames, at = path.read_bytes(), [], 24
    assert struct.unpack("<I", data[:4]) == (0xA1B23C4D,)
    while at < len(data):
        size = struct.unpack("<I", data[at + 8 : at + 12])[0]
        frames.append(data[at + 16 : at + 16 + size])
        at += 16 + size
    return frames


def kept(value: float, b: int = 10) -> float:
    """Returns the decoded value of the codec of a card in strict mode."""
    size, sign = abs(value), -1.0 if value < 0 else 1.0
    middle, top = min(-(b // 2), 7 - b), min(0, 15 - b)
    if size < 2.0**-b:
        return 0.0
    if size >= 2.0**top:
        return value
    unit = 2.0 ** (middle - 7) if size < 2.0**middle else 2.0 ** (top - 15)
    return sign * int(size / unit) * unit


def floats(values) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)
