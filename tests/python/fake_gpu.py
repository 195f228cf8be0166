# SPDX-License-Identifier: Apache-2.0
"""A simulated GPU (tests/support/gpu/fake_gpu.h) for Python: arrays on it that support DLPack.

A process has it from its start: TITHE_CUDA and TITHE_NVRTC are the paths that build() returns.
"""

import ctypes
import hashlib
import os
import subprocess
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "tests/support/gpu"
LIBRARIES = {"cuda": ("fake_driver.cc", "fake_memory.cc", "fake_work.cc"), "nvrtc": ("fake_compiler.cc",)}


def build() -> dict[str, str]:
    """Returns the environment of a process that has the simulated GPU. The library is compiled once per source."""
    sources = b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()))
    name = hashlib.sha256(sources).hexdigest()[:16]
    found = {}
    for library, files in LIBRARIES.items():
        path = ROOT / "build" / "standin" / f"fake_{library}_{name}.so"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_suffix(f".{os.getpid()}")
            subprocess.run(
                [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-w", "-shared", "-fPIC", f"-I{ROOT / 'tests'}",
                 f'-DTITHE_SOURCE_DIR="{ROOT}"', "-o", str(fresh), *(str(SOURCES / file) for file in files)],
                check=True, timeout=600)  # fmt: skip
            fresh.rename(path)
        found[f"TITHE_{library.upper()}"] = str(path)
    return found


class Control(ctypes.Structure):
    """The struct of fake_gpu.h."""

    _fields_ = [
        ("reset", ctypes.CFUNCTYPE(None, ctypes.c_uint64)),
        ("fail", ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_uint, ctypes.c_int, ctypes.c_bool)),
        ("set_version", ctypes.CFUNCTYPE(None, ctypes.c_int)),
        ("set_devices", ctypes.CFUNCTYPE(None, ctypes.c_int)),
        ("set_memory", ctypes.CFUNCTYPE(None, ctypes.c_uint64)),
        ("alive", ctypes.CFUNCTYPE(ctypes.c_uint64)),
        ("calls", ctypes.CFUNCTYPE(ctypes.c_uint64)),
        ("problem", ctypes.CFUNCTYPE(ctypes.c_char_p)),  # and more
    ]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Gpu:
    """The driver's calls that a framework makes."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL(os.environ["TITHE_CUDA"])
        self.driver.fake_gpu.restype = ctypes.POINTER(Control)
        self.control = self.driver.fake_gpu().contents

    def ask(self, call: str, *arguments: object) -> None:
        assert getattr(self.driver, call)(*arguments) == 0, call

    def open(self, ordinal: int) -> None:
        context = ctypes.c_void_p()
        self.ask("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
        self.ask("cuCtxPushCurrent_v2", context)


class Array:
    """float32 values on a GPU. `late`: the default stream has the copy queued, and nothing has waited for it."""

    def __init__(self, gpu: Gpu, values: np.ndarray, ordinal: int = 0) -> None:
        self.gpu, self.ordinal, self.shape = gpu, ordinal, values.shape
        self.bytes = values.nbytes
        gpu.open(ordinal)
        self.at, self.pinned = ctypes.c_uint64(), ctypes.c_void_p()
        gpu.ask("cuMemAlloc_v2", ctypes.byref(self.at), ctypes.c_size_t(self.bytes))
        gpu.ask("cuMemHostAlloc", ctypes.byref(self.pinned), ctypes.c_size_t(self.bytes), 0)
        ctypes.memmove(self.pinned, values.ctypes.data, self.bytes)
        gpu.ask("cuMemcpyHtoDAsync_v2", self.at, self.pinned, ctypes.c_size_t(self.bytes), None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.ordinal)

    def __dlpack__(self, **_: object) -> object:
        self.dims = (ctypes.c_int64 * len(self.shape))(*self.shape)
        tensor = DLTensor(self.at.value, 2, self.ordinal, len(self.shape), 2, 32, 1, self.dims, None, 0)
        self.managed = DLManagedTensor(tensor, None, None)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor", None)

    def read(self) -> np.ndarray:
        self.gpu.ask("cuStreamSynchronize", None)
        self.gpu.ask("cuMemcpyDtoHAsync_v2", self.pinned, self.at, ctypes.c_size_t(self.bytes), None)
        self.gpu.ask("cuStreamSynchronize", None)
        out = np.empty(self.shape, np.float32)
        ctypes.memmove(out.ctypes.data, self.pinned, self.bytes)
        return out
