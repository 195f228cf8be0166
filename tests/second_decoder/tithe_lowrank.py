# SPDX-License-Identifier: Apache-2.0
"""Codec powersgd of docs/reference/format.md: two factors. The reader orthonormalises the first one. See
tithe_format.py."""

import math
import struct
from dataclasses import dataclass

from tithe_numbers import f32, f32_array, must


@dataclass
class Basis:
    """The columns of P^, and the number of values in a row of the matrix."""

    columns: list[list[float]]
    cols: int


def dot(a: list[float], b: list[float]) -> float:
    sums = [0.0] * 16
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        sums[i % 16] += x * y
    half = 8
    while half:
        for k in range(half):
            sums[k] += sums[k + half]
        half //= 2
    return sums[0]


def orthogonalise(columns: list[list[float]]) -> list[list[float]]:
    r = len(columns)
    g = [[dot(columns[k], columns[m]) if m >= k else 0.0 for m in range(r)] for k in range(r)]
    for k in range(r):
        square = g[k][k]
        for m in range(k):
            square -= g[m][k] * g[m][k]
        stands = square > 2.0**-40 * g[k][k]
        g[k][k] = math.sqrt(square) if stands else 0.0
        for m in range(k + 1, r):
            v = g[k][m]
            for j in range(k):
                v -= g[j][k] * g[j][m]
            g[k][m] = v / g[k][k] if stands else 0.0
    made: list[list[float]] = []
    for k, column in enumerate(columns):
        p = [0.0] * len(column)
        if g[k][k] != 0:
            p = list(column)
            for m in range(k):
                p = [x - g[m][k] * y for x, y in zip(p, made[m], strict=True)]
            p = [x / g[k][k] for x in p]
        made.append(p)
    return made


def read_powersgd_rows(payload: bytes, n: int) -> Basis | None:
    must(len(payload) >= 16, "powersgd: no head")
    r, cols, used = struct.unpack_from("<IIQ", payload)
    if r == 0:
        must(len(payload) == 16 and cols == 0 and used == 0, "powersgd: head")
        return None
    must(r <= 32 and cols >= 1, "powersgd: head")
    rows = -(-n // cols)
    must(r * (rows + cols) < n and len(payload) == 16 + 4 * rows * r, "powersgd: length")
    p = f32_array(payload, 16, rows * r)
    columns = orthogonalise(orthogonalise([p[k::r] for k in range(r)]))
    return Basis([[f32(x) for x in column] for column in columns], cols)


def read_powersgd(payload: bytes, n: int, basis: Basis | None) -> list[float]:
    if basis is None:
        must(len(payload) == 4 * n, "powersgd: length")
        return f32_array(payload, 0, n)
    cols, r = basis.cols, len(basis.columns)
    must(len(payload) == 4 * cols * r, "powersgd: length")
    q = f32_array(payload, 0, cols * r)
    values = []
    for at in range(n):
        i, j = divmod(at, cols)
        v = f32(basis.columns[0][i] * q[j])
        for k in range(1, r):
            v = f32(v + f32(basis.columns[k][i] * q[k * cols + j]))
        values.append(v)
    return values
