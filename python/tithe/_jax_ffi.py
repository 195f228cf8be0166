# SPDX-License-Identifier: Apache-2.0
"""Rounds as typed XLA calls, which need neither Python, the interpreter lock nor copies of the gradients.

XLA calls _jax_ffi.cc. The system's compiler compiles it at first use, unless the cache has a library for this jaxlib
(TITHE_CXX and TITHE_CACHE: docs/reference/environment.md).
"""

import ctypes
import functools
import hashlib
import os
import stat
import subprocess
import tempfile
from pathlib import Path

import jax
import jaxlib
import numpy as np

from tithe import _core
from tithe._session import Session

_TEXT = Path(__file__).with_suffix(".cc")
_FLAGS = ("-std=c++17", "-O1", "-fPIC", "-shared", "-w")
_TARGET = "tithe_round"


def mean_of(session: Session, names: list[str], given: list[jax.Array]) -> list[jax.Array]:
    """Returns the means over all processes, written into the memory of the gradients."""
    _register()
    shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in given]
    rows = [(name, each.size, str(each.dtype)) for name, each in zip(names, given, strict=True)]
    call = jax.ffi.ffi_call(
        _TARGET, shapes, has_side_effect=True, input_output_aliases={i: i for i in range(len(given))}
    )
    number = session._core.round_of(*(list(column) for column in zip(*rows, strict=True))) if rows else -1
    return list(call(*given, number=np.int64(number))) if rows else []


@functools.cache
def _register() -> None:
    """Registers the call, once per process. ValueError if the library cannot be compiled or loaded."""
    if jax.default_backend() != "cpu" or jax.local_device_count() > 1:
        raise ValueError(
            f"ffi=True needs one device, a CPU; this process has {jax.local_device_count()} of "
            f"{jax.default_backend()}: without it gradients go through a callback, which serves all"
        )
    library = ctypes.CDLL(str(_shared_object()))
    library.tithe_bind.argtypes = [ctypes.c_void_p]
    library.tithe_bind(_core.round_call())
    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(library.tithe_round), platform="cpu")


def _shared_object() -> Path:
    """Returns the path of the shared object for this jaxlib, from the cache or the compiler."""
    compiler, folder = _core.compiler(), Path(_core.cache_folder())
    text = _TEXT.read_bytes()
    key = hashlib.sha256(b"\0".join([text, repr(_FLAGS).encode(), compiler.encode(), jaxlib.__version__.encode()]))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_strangers(folder)
    made = folder / f"jax-{key.hexdigest()[:16]}.so"
    if made.exists():
        _refuse_strangers(made)
        return made
    with tempfile.TemporaryDirectory(prefix="making-", dir=folder) as own:
        fresh = Path(own) / "round.so"
        done = subprocess.run(
            [compiler, *_FLAGS, f"-I{jax.ffi.include_dir()}", str(_TEXT), "-o", str(fresh)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "error" in line] or ["it says nothing"]
            raise ValueError(f"ffi=True: {compiler} refuses {_TEXT}: {errors[0]}")
        fresh.chmod(0o600)
        fresh.rename(made)  # the rename is atomic, so the cache holds complete files only
    return made


def _refuse_strangers(path: Path) -> None:
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise ValueError(f"others can write to {path}: set TITHE_CACHE to a folder of your own")
