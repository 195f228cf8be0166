# SPDX-License-Identifier: Apache-2.0
"""A few numbers every N steps for TensorBoard, W&B or Prometheus (docs/guide/diagnose.md explains them).

    import tithe.monitor
    watch = tithe.monitor.Monitor(state, tithe.monitor.tensorboard(SummaryWriter()), every=100)
    for batch in data:
        ...                                  # forward, backward, optimizer.step()
        watch.step()

`state` is the result of tithe.torch.attach(), or a tithe.Session. Any function of (numbers, step) may replace
tensorboard(...): wandb(run), prometheus(), print, or your own. The numbers are this rank's; one rank is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Monitor", "prometheus", "tensorboard", "wandb"]

Write = Callable[[dict[str, float], int], Any]


class Monitor:
    """Calls write(numbers, step) after every `every` calls of step().

    numbers, all per step since the last write:
    bytes_sent, dense_bytes (an all-reduce would have sent these), exchange_ms (from the first gradient to the result),
    hidden_ms (its part before the last gradient), exposed_ms (its part after it), rounds_dropped;
    and of the last measured step: gradient_norm, residual_norm, relative_error (residuals over gradients of the
    compressed tensors, on this rank; absent if no codec keeps residuals), with relative_error/CODEC for each codec with
    residuals.
    """

    def __init__(self, state: Any, write: Write, every: int = 100) -> None:
        if not callable(write):
            raise ValueError(f"write={write!r}: must be a function of (numbers, step)")
        if every < 1:
            raise ValueError(f"every={every}: must be at least 1")
        self._state, self._write, self._every = state, write, every
        self._steps = 0
        self._before: dict[str, Any] | None = None

    def step(self) -> None:
        """Counts a step. Call it after each training step."""
        self._steps += 1
        if self._before is None or self._steps % self._every == 0:
            self._report()

    def _report(self) -> None:
        now, before = self._state.stats(), self._before
        self._before = now
        if before is None and self._every > 1:
            return  # the first step opens connections and is not typical
        numbers = per_step(now, before or dict.fromkeys(now, 0))
        if numbers:
            self._write(numbers, self._steps)


def per_step(now: dict[str, Any], before: dict[str, Any]) -> dict[str, float]:
    """Returns Monitor's numbers from two results of stats(). Empty if there was no step between them."""
    since = {name: now[name] - before[name] for name in now if isinstance(now[name], int)}
    steps = since["rounds"] + since["rounds_dropped"]
    if steps == 0:
        return {}
    numbers = {name: since[name] / steps for name in ("bytes_sent", "dense_bytes", "rounds_dropped")}
    numbers |= {f"{name}_ms": since[f"{name}_ns"] / steps / 1e6 for name in ("exchange", "exposed", "hidden")}
    norms = ("gradient_norm", "residual_norm", "relative_error")
    numbers |= {name: float(now[name]) for name in norms if now[name] is not None}
    for codec, group in now["groups"].items():
        if group["residual_norm"] > 0:
            numbers[f"relative_error/{codec}"] = group["relative_error"]
    return numbers


def tensorboard(writer: Any, prefix: str = "tithe/") -> Write:
    """Returns a write function for TensorBoard. writer: a torch.utils.tensorboard.SummaryWriter, or an object with its
    add_scalar()."""

    def write(numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(prefix + name, value, step)

    return write


def wandb(run: Any, prefix: str = "tithe/") -> Write:
    """Returns a write function for W&B. run: the result of wandb.init(), or wandb itself. The step is logged as a
    number, tithe/step, since the program controls the run's own counter."""

    def write(numbers: dict[str, float], step: int) -> None:
        run.log({prefix + name: value for name, value in {**numbers, "step": step}.items()})

    return write


def prometheus(registry: Any = None, prefix: str = "tithe_") -> Write:
    """Returns a write function that sets gauges of prometheus_client, whose server the program starts. registry: None
    is the default one. relative_error has a label `codec`, which is "all" for all compressed tensors."""
    import prometheus_client

    where = {} if registry is None else {"registry": registry}
    gauges: dict[str, Any] = {}

    def gauge(name: str, labels: tuple[str, ...] = ()) -> Any:
        if name not in gauges:
            gauges[name] = prometheus_client.Gauge(prefix + name, f"tithe: {name}", labels, **where)
        return gauges[name]

    def write(numbers: dict[str, float], step: int) -> None:
        gauge("step").set(step)
        for name, value in numbers.items():
            what, _, codec = name.partition("/")
            if what == "relative_error":
                gauge(what, ("codec",)).labels(codec=codec or "all").set(value)
            else:
                gauge(what).set(value)

    return write
