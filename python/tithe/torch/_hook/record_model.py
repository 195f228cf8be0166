# SPDX-License-Identifier: Apache-2.0
"""Records the gradients of a training step and the times when they are ready, as a file in the format of
data/models/."""

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tithe.torch._common.parameter_keys import by_name
from tithe.torch._hook.backward_times import hook_outputs

_DECIMALS = 3  # of milliseconds, as in data/models/


class _Clock:
    """The clock of one device. An accelerator executes work after the program has queued it, so its events give the
    time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def now(self) -> Any:
        if self._device.type == "cpu":
            return time.perf_counter()
        event = torch.Event(device=self._device, enable_timing=True)
        event.record()
        return event

    def synchronize(self) -> None:
        if self._device.type != "cpu":
            torch.accelerator.synchronize(self._device)

    def ms(self, begin: Any, end: Any) -> float:
        return (end - begin) * 1e3 if self._device.type == "cpu" else begin.elapsed_time(end)


class _Step:
    """The times of one step. Of several backward passes the last one counts, since its gradients are sent."""

    def __init__(self, clock: _Clock) -> None:
        self._clock = clock
        self.began: Any = None  # the begin of forward
        self.backward: Any = None
        self.reached = False  # whether a gradient has reached the output
        self.ready: dict[int, Any] = {}  # by id of the parameter

    def forward(self, module: torch.nn.Module, given: Any) -> None:
        if self.began is None and torch.is_grad_enabled():
            self.began = self._clock.now()

    def forward_over(self, module: torch.nn.Module, given: Any, out: Any) -> None:
        if not torch.is_grad_enabled():  # no backward follows an evaluation
            return
        self.backward = self._clock.now()
        self.reached = False
        self.ready = {}
        hook_outputs(out, self._reached)

    def _reached(self, gradient: torch.Tensor) -> None:
        if not self.reached:
            self.reached = True
            self.backward = self._clock.now()

    def gradient(self, parameter: torch.Tensor) -> None:
        self.ready[id(parameter)] = self._clock.now()

    def times(self) -> tuple[float, dict[int, float]]:
        """Returns the milliseconds of forward, and of each gradient since backward began."""
        self._clock.synchronize()
        return self._clock.ms(self.began, self.backward), {
            number: max(0.0, self._clock.ms(self.backward, at)) for number, at in self.ready.items()
        }


def record_model(
    model: torch.nn.Module,
    step: Callable[[], Any],
    path: str | os.PathLike[str],
    *,
    steps: int = 5,
    warmup: int = 2,
    name: str | None = None,
) -> dict[str, Any]:
    """Runs some training steps, and writes a file that `tithe simulate --model` and `tithe replay --model` read: the
    names, sizes and rows of the model's gradients, and the time when each is ready (docs/guide/simulate.md).

    model: any module, with or without DistributedDataParallel and torch.compile(). step: a function that runs one
    training step, forward and backward at least. It is called `warmup` times, then `steps` times, and the file has the
    medians. These steps change the model. path: ends in .json. The file is written as a whole or not at all, in a
    process group by rank 0 only. All hooks are removed from the model.
    forward_ms is the time from the beginning of forward until a gradient reaches the model's output; ready_ms counts
    from then. If forward runs several times (accumulation), the last backward counts, and forward_ms has all the time
    before it. The optimizer's time is not in the file.
    Frozen parameters are not in the file. A parameter without a gradient in any step is in it only under
    DDP(find_unused_parameters=True), which sends it. Tied weights are listed once, with their last use. Returns the
    content of the file.
    ValueError if there are no gradients: no parameter takes one, or step() runs no forward and backward of the model.
    """
    path = Path(path)
    if path.suffix != ".json":
        raise ValueError(f"path '{path}': the name of a model's file ends in .json")
    if steps < 1 or warmup < 0:
        raise ValueError(f"steps={steps}, warmup={warmup}: at least one step is measured")
    inner = getattr(model, "_orig_mod", model)  # torch.compile() wraps the model
    ddp = inner if isinstance(inner, DistributedDataParallel) else None
    inner = inner if ddp is None else ddp.module
    names = by_name(inner.named_parameters())
    parameters = {number: named for number, named in names.items() if named[1].requires_grad and named[1].numel() > 0}
    if not parameters:
        raise ValueError("no parameter of the model takes a gradient: there is nothing to hand over")
    clock = _Clock(next(iter(parameters.values()))[1].device)
    for _ in range(warmup):
        step()
    seen = [_measured(model, [p for _, p in parameters.values()], step, clock) for _ in range(steps)]

    forward = statistics.median(ms for ms, _ in seen)
    ready = {
        number: statistics.median(times[number] for _, times in seen if number in times)
        for number in parameters
        if any(number in times for _, times in seen)
    }
    unused = [key for number, (key, _) in parameters.items() if number not in ready]
    if ddp is not None and ddp.find_unused_parameters:
        ready |= {number: 0.0 for number in parameters if number not in ready}
    written = {
        "model": name or type(getattr(inner, "_orig_mod", inner)).__name__,
        "source": f"tithe.torch.record_model, torch {torch.__version__}",
        "times": _describe_times(next(iter(parameters.values()))[1].device, steps, unused),
        "forward_ms": round(forward, _DECIMALS),
        "tensors": [_tensor(*parameters[number], ready[number]) for number in sorted(ready, key=ready.__getitem__)],
    }
    if not dist.is_initialized() or dist.get_rank() == 0:
        _write(path, written)
    return written


def _measured(
    module: torch.nn.Module, parameters: list[torch.nn.Parameter], step: Callable[[], Any], clock: _Clock
) -> tuple[float, dict[int, float]]:
    found = _Step(clock)
    hooks = [
        module.register_forward_pre_hook(found.forward, prepend=True),
        module.register_forward_hook(found.forward_over),
        *(p.register_post_accumulate_grad_hook(found.gradient) for p in parameters),
    ]
    try:
        step()
    finally:
        for hook in hooks:
            hook.remove()
    if found.began is None:
        raise ValueError("step() did not run the model's forward: give the model that it trains")
    if not found.ready:
        raise ValueError("step() ran no backward that reached a parameter of the model")
    return found.times()


def _describe_times(device: torch.device, steps: int, unused: list[str]) -> str:
    text = f"median of {steps} steps, measured on {device.type}"
    if device.type == "cpu":
        text += f" with {torch.get_num_threads()} threads"
    return f"{text}; without a gradient: {', '.join(unused)}" if unused else text


def _tensor(key: str, parameter: torch.Tensor, ready: float) -> dict[str, Any]:
    n = parameter.numel()
    row = n // parameter.shape[0] if parameter.dim() > 1 else n
    return {"name": key, "values": n, "row": row, "ready_ms": round(ready, _DECIMALS)}


def _write(path: Path, model: Mapping[str, Any]) -> None:
    """Writes one tensor per line, as in data/models/, to a temporary file that is then renamed."""
    head = {key: value for key, value in model.items() if key != "tensors"}
    lines = ",\n".join("  " + json.dumps(tensor) for tensor in model["tensors"])
    text = json.dumps(head, indent=1)[:-2] + f',\n "tensors": [\n{lines}\n ]\n}}\n'
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        beside.write_text(text)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
