# SPDX-License-Identifier: Apache-2.0
"""What a tithe.torch.State says of what it did."""

from collections.abc import Callable
from typing import Any

from tithe import _core
from tithe._stats import by_tensor, plan_text, summed_up


class Figures:
    """A State's side that only reports. Its figures stay after close(), and after an error has closed the session."""

    __slots__ = ()
    _running: Any
    codec: str

    def stats(self) -> dict[str, Any]:
        """What this rank did since the first use, and how much of it is unsent: see tithe.Session.stats().

        Also after close() and after an error: the last figures. The time of a step's exchange is hidden until backward
        hands over its last bucket, and exposed after that. relative_error, of the compressed gradients alone, tells
        whether a codec fits (docs/diagnose.md). print(state) gives the main figures on a few lines.
        """
        return dict(self._figure(summed_up))

    def tensor_stats(self) -> dict[str, dict[str, Any]]:
        """By a parameter's name: values, codec, strategy, gradient_norm, residual_norm, relative_error, as in stats().

        side: true for a tensor that an optimizer averages beside the gradients, under a key of its own.
        """
        return dict(self._figure(by_tensor))

    def plan(self) -> str:
        """What happens to each part of each bucket and to each parameter, and why."""
        return self._figure(plan_text)

    def __str__(self) -> str:
        """The main figures, for people."""
        if self._running is None:
            return f"tithe.torch.State, not open yet: codec {self.codec}"
        return self._running.report.text(self.stats(), self.tensor_stats())

    def trace(self, on: bool = True) -> None:
        """Keeps the last 65,536 events while on, backward passes among them: docs/trace.md."""
        self._open_session().trace(on)
        self._watch_backward()

    def take_trace(self) -> list[dict[str, Any]]:
        """The events kept so far, and forgets them."""
        return self._open_session().take_trace()

    def _watch_backward(self) -> None:
        raise NotImplementedError

    def _figure(self, of: Callable[[_core.Session], Any]) -> Any:
        self._open_session()
        return self._running.figure(of)

    def _open_session(self) -> _core.Session:
        if self._running is None:
            raise ValueError("not open yet: call open(), or run a step")
        return self._running.session
