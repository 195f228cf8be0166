# SPDX-License-Identifier: Apache-2.0
"""The route of one bucket in one step: how its values reach the session, and how the result returns to DDP.

    BucketRoute   the bucket is in host memory
    PinnedRoute   the bucket is on an accelerator, and its values are copied through pinned host memory
    DeviceRoute   the bucket stays on a CUDA GPU, where the session reads and writes it

A route may have an exchange inside the host, around the exchange between hosts.
"""

import math
from collections.abc import Callable
from typing import Protocol

import torch

from tithe import _core
from tithe.torch._common.checks import scale_of
from tithe.torch._device.device import PinnedCopy, cuda_stream

_MAX_EXPONENT = 100  # a loss scale up to 2**100 divides and multiplies float32 values exactly

LossScale = Callable[[], float] | None


class HostExchange(Protocol):
    """An exchange among the ranks of a host, before and after the exchange between hosts."""

    whole: torch.Tensor  # the result of both exchanges

    def wait(self) -> None:
        """Returns when this rank's values may be handed to the session."""

    def gather(self) -> None:
        """Fills `whole` with the values of all ranks of the host. Called after the commit."""


class BucketRoute:
    """A bucket in host memory. loss_scale: the function of the State. The session receives values without the scale."""

    def __init__(self, tensor: torch.Tensor, loss_scale: LossScale = None, inside: HostExchange | None = None) -> None:
        self.tensor = tensor
        self.values = tensor  # the values to exchange, in host memory if the route copies them
        self.inside = inside
        self.devices: list[torch.device] = []  # the devices of the future
        self._loss_scale = loss_scale
        self._scale = 1.0

    def load(self) -> torch.Tensor:
        """Waits for the values, divides them by the loss scale, and returns them."""
        self._scale = scale_of(self._loss_scale)
        return self._unscaled()

    def _unscaled(self) -> torch.Tensor:
        if self._scale != 1.0:
            self.values.div_(self._scale)
        return self.values

    def sync(self, session: _core.Session, layout: _core.Layout) -> int:
        return session.sync_at(layout, self.values.detach())

    def return_early(self) -> bool:
        """Starts the copy back before the commit, if the route can. Returns True if the copy was started."""
        return False

    def open_result(self) -> torch.Tensor:
        """Returns the exchanged values. Called after the commit, on the thread that calls store()."""
        return self.values

    def store(self) -> None:
        """Multiplies by the loss scale again, and completes the result."""
        if self._scale != 1.0:
            self.values.mul_(self._scale)
        self._copy_back()
        if self.inside is not None:
            self.inside.gather()

    def _copy_back(self) -> None:
        """Does nothing: the values are in the bucket already."""


class PinnedRoute(BucketRoute):
    """A bucket that is copied through a pinned copy, which has been started."""

    def __init__(
        self, tensor: torch.Tensor, copy: PinnedCopy, loss_scale: LossScale, inside: HostExchange | None
    ) -> None:
        super().__init__(tensor, loss_scale, inside)
        self.values = copy.host
        self.devices = [tensor.device]
        self._copy = copy

    def load(self) -> torch.Tensor:
        self._copy.wait()
        return super().load()

    def return_early(self) -> bool:
        if self.inside is not None:
            return False
        self.store()
        return True

    def _copy_back(self) -> None:
        self._copy.copy_back(self.tensor)


class DeviceRoute(BucketRoute):
    """A bucket that is exchanged without a copy, unless a loss scale needs one.

    stream: the cudaStream_t that fills the bucket. side: a stream for the division by a loss scale.
    """

    def __init__(
        self, tensor: torch.Tensor, stream: int, loss_scale: LossScale = None, side: torch.Stream | None = None
    ) -> None:
        super().__init__(tensor, loss_scale)
        self.devices = [tensor.device]
        self._stream: int | None = stream
        self._side = side
        if side is not None:
            self._filled = torch.Event(tensor.device)
            self._filled.record(torch.accelerator.current_stream(tensor.device))

    def load(self) -> torch.Tensor:
        if self._side is None:
            return self.tensor
        self._filled.synchronize()
        torch.accelerator.set_stream(self._side)
        self._scale = scale_of(self._loss_scale)
        if math.frexp(self._scale)[0] == 0.5 and abs(math.log2(self._scale)) <= _MAX_EXPONENT:
            self._stream = cuda_stream(self.tensor.device)
        else:  # the division rounds, and must round on the host as it does on other ranks
            self._stream, self.values = None, self.tensor.cpu()
        return self._unscaled()

    def sync(self, session: _core.Session, layout: _core.Layout) -> int:
        if self._stream is None:
            return super().sync(session, layout)
        index = self.tensor.device.index
        return session.sync_on(layout, self.tensor.data_ptr(), index, self._stream, self.tensor.detach())

    def open_result(self) -> torch.Tensor:
        if self._side is not None:
            torch.accelerator.set_stream(self._side)
        return self.values

    def _copy_back(self) -> None:
        if self.values is not self.tensor:
            self.tensor.copy_(self.values)
        if self._side is not None:
            self.tensor.record_stream(self._side)
