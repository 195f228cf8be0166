# SPDX-License-Identifier: Apache-2.0
"""One rank's state in a file of its own, beside a trainer's checkpoint."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tithe.torch._checkpoint import files


def write_state(state: Mapping[str, Any], path: Path) -> None:
    """Writes the file. If that fails, OSError names the file, and no part of it remains."""
    stream = io.BytesIO()
    torch.save(state, stream)
    files.replace(path, stream.getbuffer())


def read_state(path: Path) -> dict[str, Any]:
    """Reads the file. ValueError names a damaged file."""
    try:
        return torch.load(path, weights_only=True)
    except Exception as wrong:  # torch raises many types, and none names the file
        raise ValueError(f"'{path}' is damaged ({wrong}): load an earlier checkpoint") from wrong
