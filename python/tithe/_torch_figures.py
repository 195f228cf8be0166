# SPDX-License-Identifier: Apache-2.0
"""What a tithe.torch.State says of what it did."""

from typing import Any

from tithe import _core
from tithe._stats import by_tensor, summed_up


class Figures:
    """A State's side that only reports. It is open, or was: `_at_close` has what stats() was then."""

    __slots__ = ()
    _live: Any
    _at_close: dict[str, Any] | None

    def stats(self) -> dict[str, Any]:
        """What this rank did since the first use, and how much of it is unsent: see tithe.Session.stats().

        Also after close(). The time of a step's exchange is hidden until backward hands over its last bucket, and
        exposed after that. relative_error is what tells whether a codec fits (docs/diagnose.md).
        """
        if self._at_close is not None:
            return dict(self._at_close)
        return summed_up(self._running())

    def tensor_stats(self) -> dict[str, dict[str, Any]]:
        """By a parameter's name: values, codec, gradient_norm, residual_norm, relative_error, as in stats()."""
        return by_tensor(self._running())

    def plan(self) -> str:
        """What happens to each part of each bucket and to each parameter, and why."""
        return self._running().plan_text()

    def trace(self, on: bool = True) -> None:
        """Keeps the last 65,536 events while on, backward passes among them: docs/trace.md."""
        self._running().trace(on)
        self._watch_backward()

    def take_trace(self) -> list[dict[str, Any]]:
        """The events kept so far, and forgets them."""
        return self._running().take_trace()

    def _watch_backward(self) -> None:
        raise NotImplementedError

    def _running(self) -> _core.Session:
        if self._live is None:
            raise ValueError("not open yet: call open(), or run a step")
        return self._live.session
