# SPDX-License-Identifier: Apache-2.0
"""The files of tithe.torch.Checkpoints: a crash at any moment leaves the earlier checkpoints complete.

A checkpoint is the folder `step N`. Its files are written to `step N.new` and synced to the disk. The manifest, with
the size and the CRC-32 of each file, is written last. One rename of the folder commits the checkpoint. While a
checkpoint of the same step is replaced, the old one is called `step N.old`.
"""

import errno
import json
import logging
import os
import re
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)

_STEP = re.compile(r"step (0|[1-9]\d*)(\.new|\.old)?")
_MANIFEST = "manifest"
_KEPT = 2  # committed checkpoints that are not removed

Sum = list[int]  # a file's size and its CRC-32


def sum_of(data: bytes | memoryview) -> Sum:
    return [len(data), zlib.crc32(data)]


def make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _sync(folder.parent)


def new_folder(folder: Path, step: int) -> Path:
    """Returns the folder of a checkpoint that is not committed yet."""
    return folder / f"step {step}.new"


def write(folder: Path, step: int, files: Mapping[str, bytes | memoryview]) -> None:
    """Writes files of a checkpoint and syncs them to the disk. Several ranks may do so at once."""
    fresh = new_folder(folder, step)
    fresh.mkdir(exist_ok=True)
    for name, data in files.items():
        _write(fresh / name, data)
    _sync(fresh)


def commit(folder: Path, step: int, manifest: Mapping[str, Any]) -> None:
    """Commits the written files as the checkpoint of `step`, and removes all but the newest two up to that step.

    manifest: "files" has the Sum of each file by name. ValueError if a file is missing.
    """
    fresh, place, old = new_folder(folder, step), folder / f"step {step}", folder / f"step {step}.old"
    for name, (size, _) in manifest["files"].items():
        path = fresh / name
        if not path.is_file() or path.stat().st_size != size:
            raise ValueError(
                f"'{path}', which another rank has written, is not there on this rank: the folder must be one that "
                "all ranks reach; neighbours=True is for a folder on each host"
            )
    text = json.dumps(manifest, sort_keys=True)
    _write(fresh / _MANIFEST, f"{zlib.crc32(text.encode()):08x} {text}".encode())
    _sync(fresh)
    if os.path.lexists(place):
        place.rename(old)
    fresh.rename(place)
    _sync(folder)
    _remove(old)
    kept = [number for number in steps(folder) if number <= step][-_KEPT:]
    for number, path in steps(folder).items():
        if number not in kept:
            _remove(path, new_folder(folder, number))


def replace(path: Path, data: bytes | memoryview) -> None:
    """Replaces one file: afterwards it is complete and on the disk, or unchanged. OSError names the file."""
    fresh = path.with_name(path.name + ".new")
    try:
        _write(fresh, data)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def clean(folder: Path) -> None:
    """Removes the checkpoints that were not committed, and restores a checkpoint whose replacement was not finished."""
    for path in list(folder.iterdir()):
        match = _STEP.fullmatch(path.name)
        if match and match[2] == ".old" and not os.path.lexists(place := folder / f"step {match[1]}"):
            path.rename(place)
        elif match and match[2]:
            _remove(path)


def steps(folder: Path) -> dict[int, Path]:
    """Returns the folders of the committed checkpoints, the newest last."""
    found = [(match, path) for path in folder.iterdir() if (match := _STEP.fullmatch(path.name))]
    return dict(sorted((int(match[1]), path) for match, path in found if not match[2]))


def manifest(place: Path) -> dict[str, Any]:
    """Returns the manifest of a checkpoint. ValueError and OSError have its path."""
    path = place / _MANIFEST
    text = _read(path).decode("utf-8", "replace")
    checksum, _, rest = text.partition(" ")
    if checksum != f"{zlib.crc32(rest.encode()):08x}":
        raise ValueError(f"'{path}' is damaged: its checksum is wrong")
    return json.loads(rest)


def read(place: Path, name: str, expected: Sum) -> bytes:
    """Returns the content of a file of a checkpoint. ValueError and OSError have its path."""
    path = place / name
    data = _read(path, expected[0])
    if zlib.crc32(data) != expected[1]:
        raise ValueError(
            f"'{path}' is damaged: its checksum is {zlib.crc32(data):08x}, and {expected[1]:08x} was written"
        )
    return data


def _read(path: Path, size: int | None = None) -> bytes:
    there = path.stat()
    if not path.is_file():  # open() would wait for a pipe
        raise ValueError(f"'{path}' is not a file")
    if size not in (None, there.st_size):
        raise ValueError(f"'{path}' has {there.st_size} bytes, and {size} were written")
    return path.read_bytes()


def _write(path: Path, data: bytes | memoryview) -> None:
    try:
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as wrong:  # write() and fsync() do not name the file
        raise OSError(wrong.errno, wrong.strerror, str(path)) from None


def _sync(folder: Path) -> None:
    """Syncs the directory entries of a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as wrong:
        if wrong.errno not in (errno.EINVAL, errno.ENOTSUP):  # the file system cannot sync a directory
            raise OSError(wrong.errno, wrong.strerror, str(folder)) from None
    finally:
        os.close(descriptor)


def _remove(path: Path, by_way_of: Path | None = None) -> None:
    """Removes a folder. by_way_of: the name to use meanwhile, so that a partly removed checkpoint does not look
    complete."""
    try:
        if by_way_of is not None:
            path = path.rename(by_way_of)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as wrong:  # not an error: the newer checkpoints are complete
        _log.warning("an old checkpoint cannot be removed: %s", wrong)
