# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.LocalSteps: many steps on each rank, then one exchange of the change of the parameters.

windows.py implements the schedule, drift.py the change of the parameters, exchange.py one round.
"""

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from tithe._exchange import all_gather_bytes, together
from tithe._stats import by_tensor, relative_error, summed_up
from tithe.torch._common.checks import check_group, usable_timeout
from tithe.torch._common.parameter_keys import check_alike
from tithe.torch._common.rank_states import labelled, unlabelled
from tithe.torch._device.device import device_of
from tithe.torch._local_steps.checks import (
    Named,
    check_no_other_ddp,
    check_settings_alike,
    ddp_in,
    trained_parameters,
    unwrapped,
)
from tithe.torch._local_steps.dense_start import Averaging, ScalerHooks
from tithe.torch._local_steps.drift import RESERVED_KEYS, Entry, Fragment, cut
from tithe.torch._local_steps.outer_optimizers import Factory, make_outer
from tithe.torch._local_steps.settings import Settings
from tithe.torch._local_steps.windows import Windows

_log = logging.getLogger("tithe.torch")

_FEW_EXCHANGES, _FEW_STEPS = 100, 8  # with fewer, momentum, which multiplies a steady drift by 7, overshoots
_DOING = "tithe.torch.LocalSteps"


class LocalSteps:
    """A context in which each rank trains alone, and the ranks exchange every N steps (docs/guide/local_steps.md).

        with tithe.torch.LocalSteps(model, optimizer, every=30, steps=10_000):
            for batch in data:
                optimizer.zero_grad()
                loss_of(model, batch).backward()
                optimizer.step()

    model: the module, the same on all ranks; entering copies the parameters of rank 0 to all ranks. Or a
    DistributedDataParallel: then DDP averages the dense start, with its own hook, and does not synchronise afterwards
    until the context ends.
    optimizer: the optimizer of the model's parameters, or a list of several in the order in which they step.
    every: iterations between two exchanges of a parameter. An iteration is a step() of the (last) optimizer. With
    scaler=, a GradScaler, it is an update() of the scaler, which may skip a step on one rank only.
    codec: for the change of the parameters. Its error stays as residual.
    outer: the outer optimizer, which receives the ranks' mean: "mean" applies it, "nesterov" is SGD with momentum 0.9
    (DiLoCo). Or a function that makes an optimizer for a list of parameters. outer_rate: by default 1 with mean and 0.7
    with nesterov.
    fragments: parts of the model that are exchanged in turn, each every `every` iterations, so that the link is used
    evenly. Must divide `every`.
    delay: the number of iterations that run during an exchange; less than every / fragments.
    merge: the treatment of these iterations' steps. "add" adds them to the new parameters and sends them with the next
    window, so that every step counts once. "replace", as published for Streaming DiLoCo, drops them.
    start: the number of first iterations in which gradients are averaged in every step (the dense start), or a share of
    steps=, the iterations of the run. start_codec: for these gradients.
    buffers: "mean" exchanges floating-point buffers, such as running statistics, uncompressed with the last fragment.
    "keep" leaves each rank its own.
    weights: the weight of a rank's window in the mean: the number of its "steps", "equal", or a function of the number
    of steps, such as of the tokens in them. A usual window has 1.0.
    deadline: seconds after which a rank ends its window early. late: the treatment of the steps in such a window:
    "send" counts them, "next" keeps them for the next exchange, "drop" drops them. With a deadline, ranks make
    different numbers of iterations: end the loop by .exchanges.
    process_group: the ranks; None is the default group. options: choices, strategy, link, hosts, lanes, min_values,
    part_values, timeout, patience, seed, run, transport and so on (tithe.Session).

    Leaving without an exception averages the rest of the window, so that all ranks have the same parameters. Steps
    outside the context are not exchanged.
    A rank whose drift is not finite sends zeros in that exchange, continues from the outer parameters, and resets the
    optimizer's state of each parameter where it is not finite. ValueError for settings; tithe.Error with `peer` for
    failures of other ranks.
    """

    __module__ = "tithe.torch"

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        *,
        every: int = 30,
        codec: str = "eden",
        outer: str | Factory = "mean",
        outer_rate: float | None = None,
        fragments: int = 1,
        delay: int = 0,
        merge: str = "add",
        start: float | int = 0.1,
        steps: int | None = None,
        start_codec: str = "fp32",
        buffers: str = "mean",
        weights: str | Callable[[int], float] = "steps",
        deadline: float | None = None,
        late: str = "send",
        scaler: Any = None,
        process_group: dist.ProcessGroup | None = None,
        **options: Any,
    ) -> None:
        """Checks the settings. open() compares them between the ranks."""
        self._ddp = ddp_in(model)
        self._model = model if self._ddp is None else self._ddp.module
        self._optimizers = unwrapped(optimizer)
        check_group(process_group)
        self._process_group = process_group
        self._settings = Settings(
            every, codec, outer, outer_rate, fragments, delay, merge, start, steps, start_codec, buffers, weights,
            deadline, late, options,
        )  # fmt: skip
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        if self._ddp is not None and self._settings.start_codec != "fp32":
            raise ValueError(
                "start_codec= beside a DistributedDataParallel: it exchanges the gradients of the dense start, so "
                "give it their codec: tithe.torch.attach(model, codec=...)"
            )
        self._parameters()  # raises the errors of wrong parameters before open()
        self._windows: Windows | None = None
        self._loaded: Mapping[str, Any] | None = None
        self._at_end: dict[str, Any] | None = None
        self._evaluating = False
        self._averaged = False
        self._undo = contextlib.ExitStack()

    def _parameters(self) -> Named:
        return trained_parameters(self._model, self._optimizers)

    # ---- open and close

    def __enter__(self) -> "LocalSteps":
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(exchange=kind is None)

    def open(self) -> None:
        """Does the same as entering, for trainers that cannot use a context. Collective."""
        if self._windows is not None:
            raise ValueError("this LocalSteps has been entered before: make another one")
        try:
            self._open()
        except BaseException:
            self._undo.close()
            raise

    def _open(self) -> None:
        group = self._group()
        rank, world = dist.get_rank(group), dist.get_world_size(group)
        named = together(group, usable_timeout(dict(self._settings.options)), f"{_DOING}()", self._prepare)

        def gather(mine: bytes) -> list[bytes]:
            with device_of(p for _, p in named):
                return all_gather_bytes(mine, group, self._settings.patience, f"{_DOING}()")

        check_alike({id(p): (name, p) for name, p in named}, gather)
        check_settings_alike(self._settings.alike(), gather)
        if self._loaded is None:
            self._make_alike()
        fragments = self._cut(named)
        session = self._settings.session(rank, world, gather)
        self._undo.callback(session.close)
        averaging = None
        if self._settings.start_length > 0 and self._ddp is None:
            of_start = self._settings.start_session(rank, world, gather)
            self._undo.callback(of_start.close)
            averaging = Averaging(of_start, [e for f in fragments for e in f.entries if e.trained])
        windows = Windows(self._settings, fragments, session, averaging, self._parameters, self._optimizers)
        self._windows = windows
        if self._loaded is not None:
            together(group, self._settings.patience, f"{_DOING}()", lambda: windows.load(self._loaded))
            self._loaded = None
        self._register_hooks()

    def _prepare(self) -> Named:
        named = self._parameters()
        check_no_other_ddp([p for _, p in named], self._ddp)
        if self._settings.fragments > len(named):
            raise ValueError(f"fragments={self._settings.fragments}, and the model has {len(named)} parameters")
        if dist.get_rank(self._group()) == 0:
            self._warn_of_settings()
        return named

    def _warn_of_settings(self) -> None:
        settings = self._settings
        if settings.outer != "nesterov" or settings.steps is None:
            return
        exchanges = (settings.steps - settings.start_length) // settings.every
        if exchanges < _FEW_EXCHANGES or settings.every < _FEW_STEPS:
            _log.warning(
                "outer='nesterov' for %d exchanges of %d steps: its momentum wants %d of at least %d; outer='mean' is "
                "safe (docs/guide/local_steps.md)", exchanges, settings.every, _FEW_EXCHANGES, _FEW_STEPS,
            )  # fmt: skip

    def _cut(self, named: Named) -> list[Fragment]:
        runs = cut([Entry(name, p, trained=True) for name, p in named], self._settings.fragments)
        if self._settings.buffers == "mean":
            kept = set(self._model.state_dict())
            runs[-1] += [
                Entry(f"{RESERVED_KEYS}buffer/{name}", buffer, trained=False)
                for name, buffer in self._model.named_buffers()
                if name in kept and buffer.is_floating_point()
            ]
        settings = self._settings
        return [
            Fragment(number, run, make_outer(settings.outer, settings.outer_rate, [e for e in run if e.trained]))
            for number, run in enumerate(runs)
        ]

    def _register_hooks(self) -> None:
        self._undo.callback(self._optimizers[0].register_step_pre_hook(self._before_step).remove)
        self._undo.callback(self._optimizers[-1].register_step_post_hook(self._after_step).remove)
        if self._scaler is not None:
            self._undo.callback(
                ScalerHooks(self._scaler, self._optimizers, self._before_unscale, self._iterated).remove
            )
        if self._ddp is not None and not self._windows.in_start:
            self._silence()

    def close(self, exchange: bool = True) -> None:
        """Does the same as leaving. exchange: averages the rest of the window, which is collective."""
        if self._windows is None or self._at_end is not None:
            return
        try:
            if exchange:
                self._finish()
        finally:
            self._at_end = self._sums()
            self._undo.close()

    def _finish(self) -> None:
        windows = self._windows
        if self._evaluating:
            raise ValueError("leave outer_parameters() before LocalSteps")
        if windows.iterations == 0 and any(entry.has_moved() for entry in windows.entries()):
            raise ValueError(
                "the parameters have moved, and no step() of the optimizer was seen: give LocalSteps the optimizer "
                "that steps"
            )
        if not windows.in_start:
            windows.finish()

    def _group(self) -> dist.ProcessGroup:
        own = dist.group.WORLD if self._ddp is None else self._ddp.process_group
        group = own if self._process_group is None else self._process_group
        if group is None:
            raise ValueError("call torch.distributed.init_process_group() first")
        return group

    def _running(self) -> Windows:
        if self._windows is None or self._at_end is not None:
            raise ValueError("only inside the context: with tithe.torch.LocalSteps(...) as local")
        return self._windows

    def _make_alike(self) -> None:
        """Copies the parameters and buffers of rank 0 to all ranks."""
        group = self._group()
        first = dist.get_global_rank(group, 0)
        with torch.no_grad():
            for tensor in [*self._model.parameters(), *self._model.buffers()]:
                values = tensor.detach().contiguous()
                dist.broadcast(values.reshape(-1).view(torch.uint8), first, group=group)
                tensor.copy_(values)

    def _silence(self) -> None:
        """Stops DDP from synchronising gradients and buffers, until the end."""
        ddp, before = self._ddp, (self._ddp.require_backward_grad_sync, self._ddp.require_forward_param_sync)
        ddp.require_backward_grad_sync = ddp.require_forward_param_sync = False

        def restore() -> None:
            ddp.require_backward_grad_sync, ddp.require_forward_param_sync = before

        self._undo.callback(restore)

    # ---- steps

    def _before_step(self, _: Any, arguments: Any, given: Any) -> Any:
        windows = self._windows
        if self._evaluating:
            raise ValueError("a step inside outer_parameters(): this rank's own parameters are put aside there")
        if windows.in_start:
            by_scaler = windows.averaging is None or self._scaler is not None
            return None if by_scaler else windows.averaging.before_step(arguments, given)
        if self._ddp is not None and self._ddp.require_backward_grad_sync:
            raise ValueError(
                "the DistributedDataParallel has averaged the gradients of this step, which inside LocalSteps it must "
                "not: leave its require_backward_grad_sync alone"
            )
        return None

    def _before_unscale(self) -> None:
        if self._windows.in_start and self._windows.averaging is not None and not self._averaged:
            self._averaged = True
            self._windows.averaging.average()

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        found = getattr(optimizer, "found_inf", None)  # a fused optimizer is called even if it skips the step
        if found is None or float(found) == 0.0:
            self._windows.stepped()
        if self._scaler is None:
            self._iterated()

    def _iterated(self) -> None:
        self._averaged = False
        if self._windows.iterated():  # the dense start is over
            self._make_alike()
            self._windows.start_over()
            if self._ddp is not None:
                self._silence()

    # ---- figures

    @property
    def iterations(self) -> int:
        """The iterations of the loop since the beginning of the run."""
        return 0 if self._windows is None else self._windows.iterations

    @property
    def exchanges(self) -> int:
        """The exchanges that were merged since the beginning of the run. The same on all ranks."""
        return 0 if self._windows is None else self._windows.exchanges

    @contextlib.contextmanager
    def outer_parameters(self) -> Iterator[torch.nn.Module]:
        """Yields the model with the outer parameters and buffers, the same on all ranks: for evaluation, between steps.

        This rank's own parameters are restored at the end. No step may be made inside.
        """
        windows = self._running()
        if self._evaluating:
            raise ValueError("outer_parameters() is open already")
        mine = [] if windows.in_start else [(entry, entry.live.detach().clone()) for entry in windows.entries()]
        self._evaluating = True
        try:
            for entry, _ in mine:
                entry.put(entry.outer)
            yield self._model
        finally:
            for entry, values in mine:
                entry.put(values)
            self._evaluating = False

    def residual(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        """Returns this rank's residual of a parameter's weighted drift, float32, in the parameter's shape."""
        unsent = self._running().residual(parameter)
        if unsent is None:
            raise ValueError("the parameter is not a parameter of this LocalSteps")
        return unsent

    def stats(self) -> dict[str, Any]:
        """Returns tithe.Session.stats() of the exchanges, with norms of the drift; also after the end.

        In addition: iterations, exchanges, steps, start_bytes_sent (of the dense start; 0 if DDP averages it),
        windows_late (ended by the deadline), windows_lost (not finite), steps_dropped (by late="drop", by
        merge="replace", or in a lost window).
        """
        return self._sums() if self._at_end is None else dict(self._at_end)

    def _sums(self) -> dict[str, Any]:
        windows = self._running()
        sums = {**summed_up(windows.session._core), **windows.booked}
        tensors = by_tensor(windows.session._core)
        moved = [stats for key, stats in tensors.items() if not key.startswith(RESERVED_KEYS)]
        for norm in ("gradient_norm", "residual_norm"):
            sums[norm] = math.hypot(*(stats[norm] for stats in moved))
        sums["relative_error"] = relative_error((stats["codec"], stats) for stats in moved)
        if windows.averaging is not None:
            sums["start_bytes_sent"] += windows.averaging.session.stats()["bytes_sent"]
        return {**sums, "iterations": windows.iterations, "exchanges": windows.exchanges}

    def plan(self) -> str:
        """Returns the codec and strategy of each part of the fragments so far, and the reasons, as text."""
        windows = self._running()
        windows.wait()
        return windows.session.plan_text()

    # ---- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's state between two iterations: the outer parameters, the residuals and the exchange under
        way, for which it waits. For torch.save(), under a key of this rank.

        Save it on every rank, with that rank's own model and inner optimizer: within a window the ranks differ.
        """
        return labelled(self._running().state())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues bit-identically from state_dict(). Before entering, with the model and optimizer of the same save.

        Entering raises ValueError for other settings, ranks, worlds or parameters.
        """
        if self._windows is not None:
            raise ValueError("load the state before LocalSteps is entered")
        self._loaded = unlabelled(state)
