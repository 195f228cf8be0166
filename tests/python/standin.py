# SPDX-License-Identifier: Apache-2.0
"""Builds and loads standin.cc: a simulated accelerator in host memory, with streams, events and pinned memory of its
own.

load() registers the device `standin` with torch, which a process cannot revert. standin.cc lists the simulated parts.
"""

import contextlib
import ctypes
import hashlib
import os
import subprocess
import types
from pathlib import Path

import torch
import torch.distributed as dist

SOURCE = Path(__file__).with_name("standin.cc")
_loaded: ctypes.CDLL | None = None


def build() -> Path:
    """Returns the path of the library. It is compiled once per source and version of torch."""
    torch_home = Path(torch.__file__).parent
    own = [SOURCE.with_name(f"standin_{part}.h") for part in ("driver", "streams")]
    sources = b"".join(path.read_bytes() for path in (SOURCE, *own, SOURCE.parents[1] / "support/gpu/fake_gpu.h"))
    name = hashlib.sha256(sources + torch.__version__.encode()).hexdigest()[:16]
    library = SOURCE.parents[2] / "build" / "standin" / f"{name}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        fresh = library.with_suffix(f".{os.getpid()}")
        includes = [f"-I{torch_home / 'include' / place}" for place in ("", "torch/csrc/api/include")]
        subprocess.run(
            [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-g0", "-w", "-shared", "-fPIC", *includes,
             f"-I{SOURCE.parents[1]}", str(SOURCE),
             "-o", str(fresh), f"-L{torch_home / 'lib'}", "-lc10", "-ltorch_cpu"],
            check=True, timeout=600)  # fmt: skip
        fresh.rename(library)
    return library


def load() -> None:
    global _loaded
    if _loaded is not None:
        return
    library = str(build())
    torch.ops.load_library(library)
    _loaded = ctypes.CDLL(library)
    _loaded.standin_log.restype = ctypes.c_char_p
    _loaded.standin_pinned_limit.argtypes = [ctypes.c_long]
    _loaded.standin_fail_now.argtypes = _loaded.standin_fail_later.argtypes = [ctypes.c_int, ctypes.c_bool]
    _loaded.standin_pinned_bytes.restype = ctypes.c_long
    _loaded.standin_late.restype = ctypes.c_long
    _loaded.standin_stream.restype = ctypes.c_ulonglong
    torch.utils.rename_privateuse1_backend("standin")
    module = types.ModuleType("torch.standin")
    module.is_available = module.is_initialized = lambda: True
    module.device_count = lambda: 2
    module.current_device = lambda: torch.accelerator.current_device_index()
    module._is_in_bad_fork = lambda: False
    module._lazy_init = lambda: None
    module.manual_seed_all = lambda seed: None
    module.get_amp_supported_dtype = lambda: []  # checkpoints read it
    module.Stream = lambda priority=0: torch.Stream("standin", priority=priority)  # FSDP2 uses these four
    module.Event = lambda: torch.Event("standin")
    module.stream = _in_stream
    module.current_stream = torch.accelerator.current_stream
    if "TITHE_CUDA" in os.environ:  # simulates CUDA streams too
        module.current_stream = lambda device: types.SimpleNamespace(cuda_stream=_loaded.standin_stream(device.index))
    torch._register_device_module("standin", module)
    dist.Backend.register_backend("standin", Staged.make, devices=["standin"])


@contextlib.contextmanager
def _in_stream(stream: torch.Stream):
    before = torch.accelerator.current_stream(stream.device)
    torch.accelerator.set_stream(stream)
    try:
        yield
    finally:
        torch.accelerator.set_stream(before)


def delay(seconds: float, inner: float = 0.0) -> None:
    """Sets the delay of copies without a waiter: those between pinned memory and a device (seconds), those inside a
    device (inner)."""
    _loaded.standin_delay(round(1e6 * seconds), round(1e6 * inner))


def refuse_copy(after: int, *, back: bool = False) -> None:
    """Makes the call of a copy to pinned memory (back: from it) fail, after `after` other copies."""
    _loaded.standin_fail_now(after, back)


def break_copy(after: int, *, back: bool = False) -> None:
    """Makes a copy fail while it runs: waiting for its stream or its event raises."""
    _loaded.standin_fail_later(after, back)


def limit_pinned(size: int) -> None:
    """Sets the bytes of pinned memory; -1 for no limit."""
    _loaded.standin_pinned_limit(size)


def pinned() -> int:
    return _loaded.standin_pinned_bytes()


def late() -> int:
    """Returns the number of copies so far that accessed device memory after it was free for other use."""
    return _loaded.standin_late()


def log() -> list[dict[str, str]]:
    """Returns the events since the last call, in order: `op`, `flags` and names."""
    lines = []
    for line in _loaded.standin_log().decode().splitlines():
        first, *rest = line.split()
        words = {"op": first, "flags": " ".join(word for word in rest if "=" not in word)}
        lines.append(words | dict(word.split("=", 1) for word in rest if "=" in word))
    return lines


class Staged(dist.ProcessGroup):
    """Collectives over tensors of the stand-in, by Gloo over copies in host memory; waits for each."""

    @staticmethod
    def make(store: dist.Store, rank: int, size: int, timeout: object) -> "Staged":
        return Staged(rank, size, dist.ProcessGroupGloo(store, rank, size, timeout))

    def __init__(self, rank: int, size: int, gloo: dist.ProcessGroupGloo) -> None:
        super().__init__(rank, size)
        self._gloo = gloo
        self.devices: list[torch.device] = []  # the devices of the tensors so far
        self._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self._register_backend(torch.device("standin"), dist.ProcessGroup.BackendType.GLOO, gloo)

    @contextlib.contextmanager
    def _host(self, *lists):
        self.devices += [t.device for tensors in lists for t in _flat(tensors)]
        copies = [_mapped(tensors, lambda t: t.cpu()) for tensors in lists]
        yield copies
        for tensors, done in zip(lists, copies, strict=True):
            for t, c in zip(_flat(tensors), _flat(done), strict=True):
                t.copy_(c)

    def broadcast(self, tensors, opts):
        with self._host(tensors) as (mine,):
            work = self._gloo.broadcast(mine, opts)
            work.wait()
        return work

    def allreduce(self, tensors, opts=None):
        with self._host(tensors) as (mine,):
            work = self._gloo.allreduce(mine, opts or dist.AllreduceOptions())
            work.wait()
        return work

    def allgather(self, outputs, inputs, opts=None):
        with self._host(outputs, inputs) as (all_ranks, mine):
            work = self._gloo.allgather(all_ranks, mine, opts or dist.AllgatherOptions())
            work.wait()
        return work

    def getBackendName(self):
        return "standin"


def _flat(tensors):
    return [x for t in tensors for x in (t if isinstance(t, list) else [t])]


def _mapped(tensors, f):
    return [[f(x) for x in t] if isinstance(t, list) else f(t) for t in tensors]
