# SPDX-License-Identifier: Apache-2.0
"""MNIST-format files: u16 zero, u8 type (8: bytes), u8 dimensions, big-endian u32 sizes, then the values."""

import gzip
import math
import struct
from pathlib import Path

import numpy as np

DEBIAN = "/usr/share/datasets/fashion-mnist"


def read(path: Path) -> np.ndarray:
    """Returns the bytes of one file, plain or gzipped, in its shape. ValueError for another format."""
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    if len(raw) < 4 or raw[:3] != b"\0\0\x08":
        raise ValueError(f"{path}: not an MNIST-format file of bytes")
    head = 4 + 4 * raw[3]
    if len(raw) < head:
        raise ValueError(f"{path}: ends within its header")
    shape = struct.unpack(f">{raw[3]}I", raw[4:head])
    if len(raw) - head != math.prod(shape):
        raise ValueError(f"{path}: {len(raw) - head} values, its header says {shape}")
    return np.frombuffer(raw, np.uint8, offset=head).reshape(shape)


def load(folder: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns {'train': (images [n, pixels] u8, labels [n] i64), 'test': ...} of a folder of MNIST-format files."""
    out = {}
    for part, stem in (("train", "train"), ("test", "t10k")):
        images, labels = (_find(folder, f"{stem}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
        if len(images) != len(labels):
            raise ValueError(f"{folder}: {len(images)} {part} images, {len(labels)} labels")
        out[part] = (images.reshape(len(images), -1), labels.astype(np.int64))
    return out


def _find(folder: str, name: str) -> np.ndarray:
    for path in (Path(folder, name), Path(folder, f"{name}.gz")):
        if path.is_file():
            return read(path)
    raise FileNotFoundError(
        f"{folder}/{name}[.gz] is missing. Fashion-MNIST: apt-get install dataset-fashion-mnist; or set DATA="
        " to a folder with train- and t10k- images-idx3-ubyte and labels-idx1-ubyte, gzipped or not"
    )
