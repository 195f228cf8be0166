# SPDX-License-Identifier: Apache-2.0
"""Copies buckets from an accelerator to pinned host memory and back, on streams of their own.

    backward's thread   makes the copy stream wait until the bucket is filled, and queues the copy to the host.
                        Nothing blocks.
    feeder thread       waits for that copy and hands the bucket to the session, in the order of the hook's calls.
    worker thread       queues the copy back on the copy stream as soon as the bucket's own exchange is over. If values
                        change in the commit or arrive with it, the copy follows the commit. Then it completes the
                        future, which has an event of the copy.
    DDP                 waits for the future, so the stream of the optimizer waits for the event.

The module uses torch.accelerator, torch.Stream and torch.Event, and so works for every device that has them.

With device="on" a bucket on a CUDA GPU is not copied: the session receives its address and the stream that fills it
(docs/inside/device.md). A bucket is still copied to the host if this rank reads or changes its values there: for an
optimizer adapter, or for an exchange inside a host. If the loss scale is a power of two, as GradScaler's is, it is
divided out on the device, where the division is exact. Any other loss scale is divided out on the host, since an
accelerator may round differently.
"""

import contextlib
import functools
import threading
from collections.abc import Iterable, Iterator

import torch

_FIRST_TORCH = (2, 6)  # the first version with torch.accelerator
_WHOLE = slice(None)


def check_device(device: torch.device) -> None:
    """Raises ValueError if tithe cannot synchronise gradients on the device."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < _FIRST_TORCH:
        needed = ".".join(map(str, _FIRST_TORCH))
        raise ValueError(
            f"gradients on {device} need torch {needed} or newer, and this is torch {torch.__version__}: upgrade "
            "torch, or train on the CPU"
        )
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type != device.type:
        has = "none" if accelerator is None else f"'{accelerator.type}'"
        raise ValueError(f"gradients on {device} are not supported: this torch's accelerator is {has}")


def cuda_stream(device: torch.device) -> int | None:
    """Returns the cudaStream_t of the calling thread's current stream; None if the device has no CUDA streams."""
    current = getattr(torch.get_device_module(device), "current_stream", None)
    return None if current is None or torch.version.hip else getattr(current(device), "cuda_stream", None)


def _bytes(buffer: torch.Tensor) -> int:
    return buffer.numel() * buffer.element_size()


class PinnedCopy:
    """The copy of a device's tensor in pinned host memory, `host`. Later tensors reuse the memory."""

    def __init__(self, buffer: torch.Tensor, stream: torch.Stream, side: torch.Stream) -> None:
        self.stream = stream  # for the copies
        self._side = side  # for all other device work of tithe's threads
        try:
            self._memory = torch.empty(_bytes(buffer), dtype=torch.uint8, pin_memory=True)
        except RuntimeError as why:
            raise RuntimeError(
                f"no pinned host memory for {_bytes(buffer)} bytes on {buffer.device} ({why}): buckets and modules on "
                "an accelerator need as much pinned host memory as they are large. Let the process lock more memory, "
                "or pin less elsewhere (DataLoader(pin_memory=True))"
            ) from why
        self.take(buffer)
        self._filled = torch.Event(buffer.device)
        self._copied = torch.Event(buffer.device)

    def take(self, buffer: torch.Tensor) -> None:
        """Makes `host` a copy of that size and type, in the same memory."""
        self.host = self._memory[: _bytes(buffer)].view(buffer.dtype)

    def size(self) -> int:
        return self._memory.numel()

    def fits(self, buffer: torch.Tensor, stream: torch.Stream) -> bool:
        return (buffer.numel(), buffer.dtype, stream) == (self.host.numel(), self.host.dtype, self.stream)

    def start(self, buffer: torch.Tensor, part: slice = _WHOLE) -> None:
        """Queues the copy to the host, or that of a part, after the work already queued on the calling thread's
        stream."""
        self._filled.record(torch.accelerator.current_stream(buffer.device))
        self.stream.wait_event(self._filled)
        with _current(self.stream):
            self.host[part].copy_(buffer[part], non_blocking=True)
        self._copied.record(self.stream)

    def wait(self) -> torch.Tensor:
        """Waits for the copy to the host and returns it. Sets the stream of the calling thread, which is tithe's.

        That stream has no other work. If the loss scale is on the device, GradScaler.get_scale() reads it there: on
        backward's stream the read would wait for the rest of backward, on the copy stream for all other buckets. The
        scale itself is complete, since the copied gradients were computed from it.
        """
        self._copied.synchronize()
        torch.accelerator.set_stream(self._side)
        return self.host

    def copy_back(self, buffer: torch.Tensor) -> None:
        """Queues the copy to the device; a user of the buffer must wait for the copy stream.

        Sets the stream of the calling thread, which is tithe's, so that a future completed on that thread records the
        copy's event.
        """
        torch.accelerator.set_stream(self.stream)
        buffer.copy_(self.host, non_blocking=True)
        self._copied.record(self.stream)
        buffer.record_stream(self.stream)  # the allocator keeps the memory even if no code waits for the future

    def synchronize(self) -> None:
        """Waits until no copy uses the pinned memory."""
        self._copied.synchronize()


class PinnedPool:
    """The pinned copies of a State, one per bucket or open collective, and its streams, two per device."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, tuple[torch.Stream, torch.Stream]] = {}
        self._copies: dict[int, PinnedCopy] = {}  # by the bucket's number
        self._idle: list[PinnedCopy] = []  # given back
        self._lock = threading.Lock()  # of _idle

    def start_copy(self, number: int, last: bool, buffer: torch.Tensor) -> PinnedCopy:
        """Queues a bucket's copy to the host. Called in the order of the buckets' numbers."""
        stream, side = self._streams_of(buffer.device)
        if number in self._copies and not self._copies[number].fits(buffer, stream):
            self._free(number)  # before the new copy allocates the same amount again
        if number not in self._copies:
            self._copies[number] = PinnedCopy(buffer, stream, side)
        copy = self._copies[number]
        copy.start(buffer)
        if last:  # DDP may have made fewer buckets than before
            for other in [n for n in self._copies if n > number]:
                self._free(other)
        return copy

    def borrow(self, tensor: torch.Tensor) -> PinnedCopy:
        """Returns a copy for a tensor, until give_back().

        Memory is pinned only if no idle copy is large enough, and then the largest idle copy is freed. So the pool
        never has more copies than were borrowed at one time, none larger than the largest tensor.
        """
        with self._lock, torch.inference_mode(False):  # a copy made for an evaluation also serves training
            self._idle.sort(key=PinnedCopy.size)
            fits = [copy.size() >= _bytes(tensor) for copy in self._idle]
            if True in fits:
                copy = self._idle.pop(fits.index(True))
                copy.take(tensor)
                return copy
            if self._idle:
                self._idle.pop().synchronize()
            return PinnedCopy(tensor, *self._streams_of(tensor.device))

    def give_back(self, copy: PinnedCopy) -> None:
        """Makes a copy idle. Copies that it has queued may be under way: they precede the next ones on its stream."""
        with self._lock:
            self._idle.append(copy)

    def side_stream(self, device: torch.device) -> torch.Stream:
        return self._streams_of(device)[1]

    def _streams_of(self, device: torch.device) -> tuple[torch.Stream, torch.Stream]:
        if device not in self._streams:
            self._streams[device] = (torch.Stream(device), torch.Stream(device))
        return self._streams[device]

    def _free(self, number: int) -> None:
        copy = self._copies.pop(number, None)
        if copy is not None:
            copy.synchronize()

    def close(self) -> None:
        """Frees all pinned memory, once no thread uses it."""
        idle, self._idle = self._idle, []
        for free in [*(functools.partial(self._free, n) for n in self._copies), *(each.synchronize for each in idle)]:
            with contextlib.suppress(RuntimeError):  # the device failed, and the step has already reported that
                free()


@contextlib.contextmanager
def _current(stream: torch.Stream) -> Iterator[None]:
    """Makes a stream and its device current in the calling thread.

    `with stream` is not safe here: torch stores the previous stream in the stream object, and two threads share this
    one. tithe's own threads do not restore the earlier stream, since setting device 0 would initialise device 0 in
    every process.
    """
    own = torch.accelerator.current_stream()
    before = torch.accelerator.current_stream(stream.device)
    torch.accelerator.set_stream(stream)  # sets the device too
    try:
        yield
    finally:
        torch.accelerator.set_stream(before)
        torch.accelerator.set_stream(own)


@contextlib.contextmanager
def device_of(parameters: Iterable[torch.Tensor]) -> Iterator[None]:
    """Makes the accelerator of the first parameter that is on an accelerator the current device.

    A process group without a backend for the CPU exchanges on the current device, which may differ from the model's.
    """
    first = next((p for p in parameters if not p.is_cpu), None)
    if first is None:
        yield
        return
    check_device(first.device)
    with _current(torch.accelerator.current_stream(first.device)):
        yield
