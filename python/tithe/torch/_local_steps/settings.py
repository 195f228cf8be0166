# SPDX-License-Identifier: Apache-2.0
"""The settings of LocalSteps, and its sessions."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tithe import _core
from tithe._session import Session, make_options, refuse_unknown, transport_text
from tithe.torch._local_steps.checks import check_options, check_windows, one_of, whole, with_ours
from tithe.torch._local_steps.outer_optimizers import Factory, check_outer


@dataclass
class Settings:
    """The arguments of LocalSteps. ValueError names a wrong one."""

    every: int
    codec: str
    outer: str | Factory
    outer_rate: float | None
    fragments: int
    delay: int
    merge: str
    start: float | int
    steps: int | None
    start_codec: str
    buffers: str
    weights: str | Callable[[int], float]
    deadline: float | None
    late: str
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        refuse_unknown(self.options, *(name for name in self.__dataclass_fields__ if name != "options"), "scaler")
        check_windows(self.every, self.fragments, self.delay)
        check_outer(self.outer, self.outer_rate)
        one_of("merge", self.merge, ("add", "replace"))
        one_of("buffers", self.buffers, ("mean", "keep"))
        one_of("late", self.late, ("send", "next", "drop"))
        if not callable(self.weights):
            one_of("weights", self.weights, ("steps", "equal"))
        if self.deadline is not None and not (isinstance(self.deadline, int | float) and self.deadline > 0):
            raise ValueError(f"deadline={self.deadline!r}: must be more than 0 seconds, or None for none")
        check_options(self.codec, self.options, self.fragments)
        self.start_length = start_length(self.start, self.steps)  # in iterations
        self.slot = self.every // self.fragments  # iterations between two exchanges
        transport_text(rest := dict(self.options))
        self.patience = make_options({"codec": self.codec, **rest}).patience
        self.codec, self.start_codec = _core.check_codec(self.codec), _core.check_codec(self.start_codec)

    def alike(self) -> dict[str, Any]:
        """Returns the settings that must be the same on all ranks, and in a run that continues."""
        rate = 0.0 if self.outer_rate is None else float(self.outer_rate)
        return {
            "every": self.every, "codec": self.codec, "outer": self.outer if isinstance(self.outer, str) else "factory",
            "outer_rate": rate, "fragments": self.fragments, "delay": self.delay, "merge": self.merge,
            "start": self.start_length, "start_codec": self.start_codec, "buffers": self.buffers,
        }  # fmt: skip

    def weight(self, steps: int, planned: int) -> float:
        """Returns the weight of a window in the mean."""
        if callable(self.weights):
            weight = float(self.weights(steps))
            if not 0.0 <= weight < math.inf:
                raise ValueError(f"weights({steps}) gave {weight}: must be a finite number of at least 0")
            return weight
        if steps == 0:
            return 0.0
        return 1.0 if self.weights == "equal" or planned == 0 else steps / planned

    def session(self, rank: int, world: int, all_gather: Callable[[bytes], list[bytes]]) -> Session:
        """Opens the session that exchanges the drift. Collective."""
        choices = with_ours(self.options.get("choices"))
        return Session.open(rank, world, all_gather, codec=self.codec, **{**self.options, "choices": choices})

    def start_session(self, rank: int, world: int, all_gather: Callable[[bytes], list[bytes]]) -> Session:
        """Opens the session that averages the gradients of the dense start. Collective."""
        rest = {name: value for name, value in self.options.items() if name not in ("choices", "strategy", "trace")}
        return Session.open(rank, world, all_gather, codec=self.start_codec, choices=with_ours(None), **rest)


def start_length(start: Any, steps: Any) -> int:
    """Returns the number of iterations of the dense start."""
    if steps is not None:
        whole("steps", steps, 1)
    if isinstance(start, bool) or not isinstance(start, int | float) or not 0 <= start < math.inf:
        raise ValueError(f"start={start!r}: a share of the run below 1, or a number of iterations")
    if isinstance(start, float) and start >= 1:
        raise ValueError(f"start={start!r}: a share lies below 1.0; start={int(start)} is a number of iterations")
    if isinstance(start, int) or start == 0:
        return int(start)
    if steps is None:
        raise ValueError(
            f"start={start:g} is a share of the run, and how long that is is not known: give steps=, the iterations of "
            "the run, or start= as a number of iterations, or start=0 for none"
        )
    return math.ceil(start * steps)
