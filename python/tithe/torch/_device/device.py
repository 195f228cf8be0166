# SPDX-License-Identifier: Apache-2.0
"""Buckets on an accelerator: to pinned host memory and back, on a stream of their own.

    backward's thread   the copy stream waits until the bucket is filled, then copies it to the host. Nothing blocks
    feeder thread       waits for that copy, and hands the bucket to the session, in the order of the hook's calls
    worker thread       as for buckets on the CPU; the copy back goes to the copy stream when the bucket's own exchange
                        is over (after the commit where values change in it, or are not all there before), and the
                        future is completed there after the commit: it carries an event
    DDP                 waits for the future, by which the stream that it works on waits for the event

Written against torch.accelerator, torch.Stream and torch.Event, for any device that has them.

With device="on" a bucket on a CUDA GPU takes no detour: the session gets its address and the stream that fills it
(docs/device.md). It does where something of this rank's has to see or change its values on the host: an optimizer that
is tied to the State, an exchange inside a host. A loss scale that is a power of two, as GradScaler's are, is divided
out where the bucket lies, which rounds nowhere; any other on the host, since an accelerator may round otherwise.
"""

import contextlib
from collections.abc import Iterable, Iterator

import torch

_NEEDS = (2, 6)  # the first torch that has torch.accelerator


def check_device(device: torch.device) -> None:
    """ValueError where gradients on the device cannot be synchronised."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < _NEEDS:
        needs = ".".join(map(str, _NEEDS))
        raise ValueError(
            f"gradients on {device} need torch {needs} or newer, and this is torch {torch.__version__}: upgrade torch, "
            "or train on the CPU"
        )
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type != device.type:
        has = "none" if accelerator is None else f"'{accelerator.type}'"
        raise ValueError(f"gradients on {device} are not supported: this torch's accelerator is {has}")


def cuda_stream(device: torch.device) -> int | None:
    """The cudaStream_t that the calling thread works on; None where a device has no such thing."""
    current = getattr(torch.get_device_module(device), "current_stream", None)
    return None if current is None or torch.version.hip else getattr(current(device), "cuda_stream", None)


class Passage:
    """A bucket's place in pinned memory, and its way there and back. One for all steps, as long as its layout stays."""

    def __init__(self, buffer: torch.Tensor, stream: torch.Stream, side: torch.Stream) -> None:
        self.stream = stream  # for the copies
        self._side = side  # for what the feeder asks of the device
        try:
            self.host = torch.empty(buffer.numel(), dtype=buffer.dtype, pin_memory=True)
        except RuntimeError as why:
            raise RuntimeError(
                f"no pinned host memory for a bucket of {buffer.numel() * buffer.element_size()} bytes on "
                f"{buffer.device} ({why}): gradients on an accelerator need as much pinned host memory as they are "
                "large. Let the process lock more memory, or pin less elsewhere (DataLoader(pin_memory=True))"
            ) from why
        self._filled = torch.Event(buffer.device)
        self._copied = torch.Event(buffer.device)

    def fits(self, buffer: torch.Tensor, stream: torch.Stream) -> bool:
        return (buffer.numel(), buffer.dtype, stream) == (self.host.numel(), self.host.dtype, self.stream)

    def leave(self, buffer: torch.Tensor) -> None:
        """To the host, once all is done that the calling thread's stream has been told so far."""
        self._filled.record(torch.accelerator.current_stream(buffer.device))
        self.stream.wait_event(self._filled)
        with _current(self.stream):
            self.host.copy_(buffer, non_blocking=True)
        self._copied.record(self.stream)

    def come(self) -> torch.Tensor:
        """Waits until the host has the values, and returns them. On a thread of tithe's, whose stream it sets.

        That is one that nothing waits in: the loss scale may lie on the device (GradScaler.get_scale reads it), and
        would come after all of backward on the stream that backward uses, after all other buckets on the copies'.
        It is there: the values that have arrived were made from it.
        """
        self._copied.synchronize()
        torch.accelerator.set_stream(self._side)
        return self.host

    def back(self, buffer: torch.Tensor) -> None:
        """To the device, in time: what uses the buffer must wait for the stream.

        On a thread of tithe's, whose stream it sets, so that a future completed there takes the event of the copy.
        """
        torch.accelerator.set_stream(self.stream)
        buffer.copy_(self.host, non_blocking=True)
        self._copied.record(self.stream)
        buffer.record_stream(self.stream)  # where nobody waits for the future, nobody else gets the memory too early

    def end(self) -> None:
        """Waits until no copy uses the memory: it may go then."""
        self._copied.synchronize()


class Stay:
    """A bucket that stays on its accelerator, once it is known that its loss scale lets it. For one step."""

    def __init__(self, buffer: torch.Tensor, side: torch.Stream) -> None:
        self.host = buffer  # or a copy, where it has to go after all
        self._buffer = buffer
        self._side = side
        self._filled = torch.Event(buffer.device)
        self._filled.record(torch.accelerator.current_stream(buffer.device))

    def come(self) -> torch.Tensor:
        """Waits until the values are there. On a thread of tithe's, whose stream it sets, as Passage.come()."""
        self._filled.synchronize()
        torch.accelerator.set_stream(self._side)
        return self._buffer

    def go(self) -> torch.Tensor:
        """To the host, now."""
        self.host = self._buffer.cpu()
        return self.host

    def open(self) -> None:
        """Before what is done to the result: on a thread of tithe's, whose stream it sets."""
        torch.accelerator.set_stream(self._side)

    def back(self, buffer: torch.Tensor) -> None:
        """After it, as Passage.back()."""
        if self.host is not buffer:
            buffer.copy_(self.host)
        buffer.record_stream(self._side)


class Passages:
    """Those of a State: streams per device, pinned memory per bucket."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, tuple[torch.Stream, torch.Stream]] = {}
        self._open: dict[int, Passage] = {}  # by the bucket's place

    def leave(self, place: int, last: bool, buffer: torch.Tensor) -> Passage:
        """Sends the bucket in a place on its way to the host. Called in the order of places."""
        copies, side = self._streams_of(buffer.device)
        if place in self._open and not self._open[place].fits(buffer, copies):
            self._end(place)  # before the new one takes as much again
        if place not in self._open:
            self._open[place] = Passage(buffer, copies, side)
        passage = self._open[place]
        passage.leave(buffer)
        if last:  # DDP may have made fewer buckets than before
            for other in [p for p in self._open if p > place]:
                self._end(other)
        return passage

    def stay(self, buffer: torch.Tensor) -> Stay:
        return Stay(buffer, self._streams_of(buffer.device)[1])

    def _streams_of(self, device: torch.device) -> tuple[torch.Stream, torch.Stream]:
        if device not in self._streams:
            self._streams[device] = (torch.Stream(device), torch.Stream(device))
        return self._streams[device]

    def _end(self, place: int) -> None:
        passage = self._open.pop(place, None)
        if passage is not None:
            passage.end()

    def close(self) -> None:
        """When nobody uses them any more."""
        for place in list(self._open):
            with contextlib.suppress(RuntimeError):  # a device that failed: the step has said so
                self._end(place)


@contextlib.contextmanager
def _current(stream: torch.Stream) -> Iterator[None]:
    """Makes a stream and its device the calling thread's own for a while.

    `with stream` would do, were it not that torch keeps the way back in the stream, of which there is one for two
    threads. A thread of tithe's has no way back: to return to device 0 would open that device in every process.
    """
    own = torch.accelerator.current_stream()
    before = torch.accelerator.current_stream(stream.device)
    torch.accelerator.set_stream(stream)  # and its device
    try:
        yield
    finally:
        torch.accelerator.set_stream(before)
        torch.accelerator.set_stream(own)


@contextlib.contextmanager
def device_of(parameters: Iterable[torch.Tensor]) -> Iterator[None]:
    """Makes the accelerator that the first of the parameters is on the current one for a while.

    A process group without a backend for the CPU exchanges on the current device, which need not be the model's.
    """
    first = next((p for p in parameters if not p.is_cpu), None)
    if first is None:
        yield
        return
    check_device(first.device)
    with _current(torch.accelerator.current_stream(first.device)):
        yield
