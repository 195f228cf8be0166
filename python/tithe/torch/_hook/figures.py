# SPDX-License-Identifier: Apache-2.0
"""State's methods that report: stats(), plan(), trace()."""

from collections.abc import Callable
from typing import Any

from tithe import _core
from tithe._stats import by_tensor, plan_text, summed_up


class Figures:
    """The part of State that reports. The last figures stay available after close() and after an error."""

    __slots__ = ()
    _running: Any
    codec: str

    def stats(self) -> dict[str, Any]:
        """Returns the sums of this rank since the first use, and the norms of its residuals: see tithe.Session.stats().

        After close() and after an error it returns the last figures. The time of a step's exchange is hidden until
        backward hands over its last bucket, and exposed after that. relative_error, of the compressed gradients only,
        shows whether a codec fits (docs/guide/diagnose.md). print(state) shows the main figures on a few lines.
        """
        return dict(self._figure(summed_up))

    def tensor_stats(self) -> dict[str, dict[str, Any]]:
        """Returns, by parameter name: values, codec, strategy, gradient_norm, residual_norm, relative_error, as in
        stats().

        side: true for a tensor with a key of its own that an optimizer averages beside the gradients.
        """
        return dict(self._figure(by_tensor))

    def plan(self) -> str:
        """Returns the codec and strategy of each part of each bucket and of each parameter, and the reasons, as
        text."""
        return self._figure(plan_text)

    def __str__(self) -> str:
        """Returns the main figures, as a few lines of text."""
        if self._running is None:
            return f"tithe.torch.State, not open yet: codec {self.codec}"
        return self._running.report.describe(self.stats(), self.tensor_stats())

    def trace(self, on: bool = True) -> None:
        """Records the last 65,536 events, with the backward passes, while `on` is true: docs/guide/trace.md."""
        self._open_session().trace(on)
        self._watch_backward()

    def take_trace(self) -> list[dict[str, Any]]:
        """Returns the recorded events, and clears the record."""
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
