# SPDX-License-Identifier: Apache-2.0
"""XXH3-64 with seed 0, for inputs of 17 bytes and more (a frame's checksum covers at least 56).

For readability rather than speed, from the algorithm's description at https://github.com/Cyan4973/xxHash
(doc/xxhash_spec.md).
"""

import struct

MASK = (1 << 64) - 1
PRIME32_1, PRIME32_2, PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
PRIME64_1 = 0x9E3779B185EBCA87
PRIME64_2 = 0xC2B2AE3D27D4EB4F
PRIME64_3 = 0x165667B19E3779F9
PRIME64_4 = 0x85EBCA77C2B2AE63
PRIME64_5 = 0x27D4EB2F165667C5
PRIME_MX1 = 0x165667919E3779F9

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)

STRIPE = 64  # bytes per iteration
STRIPES_PER_BLOCK = (len(SECRET) - STRIPE) // 8
BLOCK = STRIPE * STRIPES_PER_BLOCK


def u64(data: bytes, at: int) -> int:
    return struct.unpack_from("<Q", data, at)[0]


def fold(a: int, b: int) -> int:
    """Returns the exclusive or of the two halves of the 128-bit product."""
    product = a * b
    return (product & MASK) ^ (product >> 64)


def avalanche(h: int) -> int:
    h ^= h >> 37
    h = h * PRIME_MX1 & MASK
    return h ^ (h >> 32)


def mix16(data: bytes, at: int, secret_at: int) -> int:
    return fold(u64(data, at) ^ u64(SECRET, secret_at), u64(data, at + 8) ^ u64(SECRET, secret_at + 8))


def medium(data: bytes) -> int:
    """17 to 240 bytes: 16 bytes at a time, from both ends up to 128, then straight through."""
    size = len(data)
    acc = size * PRIME64_1
    if size <= 128:
        for k in range((size - 1) // 32, -1, -1):
            acc += mix16(data, 16 * k, 32 * k) + mix16(data, size - 16 * (k + 1), 32 * k + 16)
        return avalanche(acc & MASK)
    for k in range(8):
        acc += mix16(data, 16 * k, 16 * k)
    acc = avalanche(acc & MASK)
    for k in range(8, size // 16):
        acc += mix16(data, 16 * k, 16 * (k - 8) + 3)
    acc += mix16(data, size - 16, 136 - 17)
    return avalanche(acc & MASK)


def accumulate(acc: list[int], data: bytes, at: int, secret_at: int) -> None:
    for i in range(8):
        value = u64(data, at + 8 * i)
        key = value ^ u64(SECRET, secret_at + 8 * i)
        acc[i ^ 1] = (acc[i ^ 1] + value) & MASK
        acc[i] = (acc[i] + (key & 0xFFFFFFFF) * (key >> 32)) & MASK


def scramble(acc: list[int]) -> None:
    for i in range(8):
        a = acc[i]
        a ^= a >> 47
        a ^= u64(SECRET, len(SECRET) - STRIPE + 8 * i)
        acc[i] = a * PRIME32_1 & MASK


def long(data: bytes) -> int:
    """More than 240 bytes: eight accumulators over stripes, scrambled after each block."""
    size = len(data)
    acc = [PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1]
    whole_stripes = (size - 1) // STRIPE
    for stripe in range(whole_stripes):
        k = stripe % STRIPES_PER_BLOCK
        accumulate(acc, data, STRIPE * stripe, 8 * k)
        if k == STRIPES_PER_BLOCK - 1:
            scramble(acc)
    accumulate(acc, data, size - STRIPE, len(SECRET) - STRIPE - 7)
    result = size * PRIME64_1
    for i in range(4):
        result += fold(acc[2 * i] ^ u64(SECRET, 11 + 16 * i), acc[2 * i + 1] ^ u64(SECRET, 19 + 16 * i))
    return avalanche(result & MASK)


def xxh3_64(data: bytes) -> int:
    if len(data) < 17:
        raise ValueError("a frame's checksum never covers fewer than 56 bytes")
    return medium(data) if len(data) <= 240 else long(data)
