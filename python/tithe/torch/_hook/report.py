# SPDX-License-Identifier: Apache-2.0
"""The report of a State: two lines in the log of rank 0, and the text of print(state)."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import torch

from tithe import _core
from tithe._stats import all_reduce_bytes, by_tensor, is_compressed, summed_up

_log = logging.getLogger("tithe.torch")

_STEPS = 100  # the second line is logged after this step


class Report:
    """Logs a line after the first step, with codec and strategy, and a line after step 100, with bytes and times."""

    def __init__(self, options: _core.Options, session: _core.Session, logs: bool) -> None:
        self._codec = options.codec if _core.is_auto(options.codec) else _core.check_codec(options.codec)
        self._on_gpu = options.device != "off"
        self._world = session.world
        self._over = f"over {session.transport}, {session.world} ranks"
        self._logs = logs
        self._steps = 0
        self._first: dict[str, Any] | None = None
        self._followed = 0  # rounds that followed a dropped one and belong to its step

    def sums(self, session: _core.Session) -> dict[str, Any]:
        """Returns summed_up(session), in which each step is one round."""
        sums = summed_up(session)
        sums["rounds"] -= self._followed
        return sums

    def committed(self, session: _core.Session, device: torch.device, followed: bool) -> None:
        """Called after each step. device: of the step's gradients. followed: the step had a second round, without
        gradients."""
        self._steps += 1
        self._followed += followed
        if not self._logs or self._steps not in (1, _STEPS):
            return
        with contextlib.suppress(ValueError):  # the session was closed meanwhile
            now = self.sums(session)
            if self._steps == 1:
                self._first = now
                _log.info("%s", self._beginning(now, by_tensor(session), device))
            else:
                _log.info("%s", self._cost(now))

    def _beginning(self, now: dict[str, Any], tensors: dict[str, dict[str, Any]], device: torch.device) -> str:
        values = sum(t["values"] for t in tensors.values() if not t["side"])
        place = str(device)
        if device.type != "cpu":
            place += ", exchanged there" if self._on_gpu else ", exchanged by the host"
        bf16, fp32 = (_size(all_reduce_bytes(width * values, self._world)) for width in (2, 4))
        return (
            f"{self._what(tensors)}; gradients on {place}; this rank sent {_size(now['bytes_sent'])} in the first "
            f"step, and an all-reduce sends {bf16} as bf16, {fp32} as fp32"
        )

    def _cost(self, now: dict[str, Any]) -> str:
        """Returns the costs per step without the first step, which opens connections."""
        first = self._first or dict.fromkeys(now, 0)
        since = {name: now[name] - first[name] for name in _SUMS}
        return f"after {now['rounds']} steps: {_per_step(since)}; {_unsent(now)}"

    def describe(self, now: dict[str, Any], tensors: dict[str, dict[str, Any]]) -> str:
        dropped = f", {now['rounds_dropped']} dropped as not finite" if now["rounds_dropped"] else ""
        lines = [f"tithe.torch.State: {self._what(tensors)}", f"{now['rounds']} steps{dropped}"]
        if now["rounds"] > 0:
            lines += [
                _per_step(now),
                f"an all-reduce of the same gradients sends {_size(now['dense_bytes'] / now['rounds'])} per step",
                _unsent(now),
            ]
        return "\n".join(lines)

    def _what(self, tensors: dict[str, dict[str, Any]]) -> str:
        gradients = [t for t in tensors.values() if not t["side"]]
        compressed = sorted((t for t in gradients if is_compressed(t["codec"])), key=lambda t: -t["values"])
        codecs, strategies = (" and ".join(dict.fromkeys(t[of] for t in compressed)) for of in ("codec", "strategy"))
        now = "" if not gradients or self._codec in codecs.split(" and ") else f", now {codecs or 'uncompressed'}"
        by = f" by {strategies}" if strategies else ""
        return f"codec {self._codec}{now}{by} {self._over}; {len(compressed)} of {len(gradients)} tensors compressed"


_TIMES = ("exchange", "hidden", "exposed")
_SUMS = ("rounds", "bytes_sent", *(f"{what}_ns" for what in _TIMES))


def _per_step(sums: dict[str, Any]) -> str:
    steps = max(1, sums["rounds"])
    exchange, hidden, exposed = (f"{sums[f'{what}_ns'] / steps / 1e6:.3g} ms" for what in _TIMES)
    return (
        f"{_size(sums['bytes_sent'] / steps)} sent per step and rank; the exchange takes {exchange} per step, {hidden} "
        f"hidden behind backward and {exposed} exposed after it"
    )


def _unsent(now: dict[str, Any]) -> str:
    if now["relative_error"] is None:
        return "the codec keeps no residual"
    if now["measured_round"] == 0:
        return "relative error not measured"
    return f"relative error {now['relative_error']:.3g} of the compressed gradients in step {now['measured_round']}"


def _size(count: float) -> str:
    if count < 1000:
        return f"{count:.0f} bytes"
    unit, name = (1e3, "kB") if count < 1e6 else (1e6, "MB")
    return f"{count / unit:,.3g} {name}" if count < 1e9 else f"{count / unit:,.0f} {name}"
