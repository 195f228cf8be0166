# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.State: the settings of a communication hook, and the state of its running session."""

import copy
import functools
import json
import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tithe import _core
from tithe._choices import check_model as check_choices
from tithe._choices import choices_text, clipped, warn_uncompressed
from tithe._exchange import all_gather_bytes, together
from tithe._schedule import Evaluations, agree
from tithe._session import make_options, refuse_unknown, transport_text
from tithe.torch._common.checks import check_callable, check_group, check_pairs, models_of, usable_timeout
from tithe.torch._common.model_copies import NO_HOOK, warn_if_model_copied
from tithe.torch._common.parameter_keys import ParameterKeys, by_name, check_alike, shared_options, two_models
from tithe.torch._common.state_fit import laid_out_like
from tithe.torch._device.device import device_of
from tithe.torch._hook.backward_times import BackwardTimes
from tithe.torch._hook.job import Job
from tithe.torch._hook.round_groups import over_round
from tithe.torch._hook.running_session import RunningSession
from tithe.torch._hook.skipped_step import SkippedSteps
from tithe.torch._hook.state_registry import opened, watch
from tithe.torch._hook.steps import Steps
from tithe.torch._hook.unapplied_rounds import UnappliedRounds
from tithe.torch._hook.weights import WEIGHTS, check_weight, weight_of

_log = logging.getLogger("tithe.torch")

DEFAULT = _core.Options()  # the defaults of include/tithe/options.def


class _Slots(Steps):
    # Not in State.__slots__, which lists only the settings, and compares equal after pickling.
    __slots__ = (
        "__weakref__", "_adapters", "_model", "_model_known", "_names", "_plain", "_plain_now", "_running", "_saved",
        "_skipped", "_unapplied", "_unused",
    )  # fmt: skip


class State(_Slots):
    """The settings of `hook`: the ranks, the codec and the options. It holds this rank's residuals.

    process_group: the ranks to average over. None is the default group at the first use.
    codec, strategy: as `tithe codecs` and `tithe.strategies()` list them. The defaults suit any optimizer
    (docs/start/choosing.md). codec="auto" measures the first steps, chooses a plan, and measures again if the steps
    change (docs/guide/plan.md); rank 0 logs the decisions. "auto:allow=onebit+*.bias: fp32" lists the codecs that auto
    may use beside fp32, bf16 and zip.
    parameters: (name, parameter) pairs, such as model.named_parameters(), by which residuals get their names. Without
    them the State takes the names of the model that registers it.
    loss_scale: a function that returns the factor of the loss (GradScaler.get_scale).
    weight: a function that returns the weight of this rank's gradient in the step whose first bucket is handed over,
    such as the tokens of the batch. The result is then sum(weight x gradient) / sum(weight) over the ranks. 0 skips the
    step. On all ranks or on none (docs/guide/steps.md).
    choices: rules for single parameters (docs/guide/choices.md): a dict such as {"*embedding*": "qtopk:ratio=0.03",
    "*.bias": "fp32"}, JSON text, or the path of a file with either. A rule with the name of a parameter that the model
    does not have raises ValueError. A pattern that matches no parameter gives a RuntimeWarning.
    clip: the largest L2 norm of one parameter's gradient on one rank. A larger gradient is scaled down to this norm
    before encoding (docs/guide/footguns.md, "Clipping"). 0: no limit. The same as clip= in the codec's text.
    schedule: how the codec's ratio changes between steps, e.g. "warmup:400+recover" (include/tithe/schedule.h).
    groups: "round" sends the tensors in groups once per step, with the last bucket, instead of with each bucket
    (docs/guide/choices.md, "Groups"). The same on all ranks.
    options: link, hosts, lanes, average, min_values, part_values, timeout, patience (seconds), seed, run,
    force_reference, authenticate, pacer, device, trace, measure, transport (see tithe.Session).

    The first use connects the ranks, and is collective over the group. A wrong setting raises ValueError. A State that
    is collected before its first use gives a RuntimeWarning.
    A pickle has the settings and this rank's residuals, without the process group.
    """

    __slots__ = ("codec", "loss_scale", "options", "process_group", "strategy", "weight")
    __module__ = "tithe.torch"  # the public module, which a pickle names

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        *,
        codec: str = DEFAULT.codec,
        strategy: str = DEFAULT.strategy,
        parameters: Iterable[tuple[str, torch.nn.Parameter]] = (),
        loss_scale: Callable[[], float] | None = None,
        weight: Callable[[], float] | None = None,
        clip: float = 0.0,
        **options: Any,
    ) -> None:
        refuse_unknown(options, "clip", "groups", "loss_scale", "parameters", "process_group", "weight")
        check_group(process_group)
        check_callable(loss_scale)
        check_weight(weight, codec, options)
        self.process_group = process_group
        self.codec = clipped(codec, clip)
        self.strategy = strategy
        self.loss_scale = loss_scale
        self.weight = weight
        self.options = {**options, "choices": choices_text(options["choices"])} if "choices" in options else options
        self._session_options()
        self._begin(by_name(check_pairs(parameters)), None)

    def _begin(self, names: dict[int, tuple[str, torch.nn.Parameter]], saved: Mapping[str, Any] | None) -> None:
        """Sets the attributes of a State before its first use. saved: the state that it continues."""
        self._names = names
        self._saved = saved
        self._model_known = False
        self._running: RunningSession | None = None
        self._model: weakref.ref[DistributedDataParallel] | None = None
        self._adapters: Any = None  # an OptimizerAdapters of _optimizer/adapters.py
        self._unapplied: UnappliedRounds | None = None
        self._skipped: SkippedSteps | None = None
        self._plain: tuple[RunningSession, str] | None = None
        self._plain_now = False
        self._unused = watch(self)

    def _session_options(self, **other: str) -> tuple[str, _core.Options]:
        over_round(self.options)
        return self._options_of({**self.options, **other})

    def _options_of(self, given: Mapping[str, Any], **other: str) -> tuple[str, _core.Options]:
        rest = {**given, **other}
        rest.pop("groups", None)
        transport = transport_text(rest)
        return transport, make_options({"codec": self.codec, "strategy": self.strategy, **rest})

    # ---- open and close

    def open(self) -> None:
        """Connects to the other ranks, if not yet connected. Collective over the group."""
        if self._running is not None:
            return
        self._unused.detach()
        group = self._group()
        rank, world = dist.get_rank(group), dist.get_world_size(group)

        def prepare() -> tuple[str, _core.Options]:
            if not self._model_known:
                self._find_model()
            if self._saved is not None:
                self._check_saved(self._saved, rank, world)
            settings = self._session_options()
            ruled = self._choices() or "link" in self.options or world >= settings[1].min_values
            if self.weight is not None and ruled and not _core.is_auto(self.codec):
                self.options = {**self.options, "choices": self._with_weights(self._choices())}
                settings = self._session_options()
            if _core.is_auto(self.codec) and not self._names:
                raise ValueError(
                    f"codec={self.codec!r} decides by the names of parameters, and this State knows none: "
                    "tithe.torch.attach(model, ...), or State(parameters=model.named_parameters(), ...)"
                )
            local = self._adapters.local() if self._adapters is not None else set()
            trained = [(name, p) for n, (name, p) in self._names.items() if p.requires_grad and n not in local]
            sides = self._adapters.side_views() if self._adapters is not None else []
            if self.weight is not None:
                sides.append((WEIGHTS, torch.empty(world)))
            check_choices(settings[1], [*trained, *sides])
            if rank == 0:
                warn_uncompressed(settings[1], trained)
            return settings

        patience = usable_timeout(self.options)
        doing = "tithe.torch.State.open()"

        def gather(mine: bytes) -> list[bytes]:
            return self._all_gather(mine, patience, doing)

        transport, options = together(group, patience, doing, prepare)
        check_alike(self._names, gather, {"weight": self.weight is not None, **shared_options(options)})
        session = _core.open(transport, rank, world, gather, options)
        opened_choices = session.choices
        evaluations = Evaluations(options)
        keys = ParameterKeys(self._names, {})
        if self._saved is not None:
            self._restore(session, evaluations, keys, self._saved)
            self._saved = None
        over = over_round(self.options)
        self._running = RunningSession(session, evaluations, keys, opened_choices, options, over, logs=rank == 0)
        if self.weight is not None:
            self._running.weigh = functools.partial(weight_of, self.weight)
        self._watch_reducer(self._running)
        if self._adapters is not None:
            self._running.adapters = self._adapters.all
            for adapter in self._adapters.all:
                adapter.opened(self._running)
        if self._unapplied is not None:
            self._unapplied.opened(self._running)
        opened[id(self)] = self
        self._watch_backward()

    def close(self) -> None:
        """Closes the connections and ends the threads. Ranks that still synchronise detect that this rank has left.

        state_dict() still returns the state of the last step; stats(), tensor_stats() and plan() return the last
        figures.
        """
        self._unused.detach()
        if self._unapplied is not None:
            self._unapplied.remove()
        opened.pop(id(self), None)
        self._close_plain()
        if self._running is not None:
            self._running.close()

    def detach(self) -> None:
        """Restores torch's behaviour of the optimizers of attach(optimizer=...). Call it between steps; collective.

        tithe.torch.optim.AdamW then steps as torch's AdamW. Gradients are still compressed.
        """
        if self._adapters is None or self._running is None:
            return
        with self._running.between_steps():
            self._running.adapters = ()
        for adapter in self._adapters.all:
            adapter.detach(self._running.average)
        self._adapters = None

    def _together(self, doing: str, body: Callable[[], Any]) -> Any:
        return together(self._group(), self._session_options()[1].patience, doing, body)

    def _group(self) -> dist.ProcessGroup:
        group = self.process_group if self.process_group is not None else dist.group.WORLD
        if group is None:
            raise ValueError("call torch.distributed.init_process_group() first")
        return group

    def _find_model(self) -> None:
        """Finds the model that registered this State, and takes its names if the State has none."""
        models = models_of(self)
        if len(models) > 1:
            raise ValueError(two_models(f"{len(models)} models have registered it"))
        if models:
            self._model = weakref.ref(models[0])
            self._names = self._names or by_name(models[0].module.named_parameters())
        self._model_known = bool(models)

    def _all_gather(self, mine: bytes, patience: float, doing: str, *check: Callable[[], None]) -> list[bytes]:
        with self._device():
            return all_gather_bytes(mine, self._group(), patience, doing, *check)

    def _device(self) -> AbstractContextManager[None]:
        return device_of(parameter for _, parameter in self._names.values())

    # ---- one bucket

    def _start(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        self.open()
        running = self._current
        if not self._model_known:  # open() was called before a model registered the State
            self._find_model()
            running.keys.names = self._names
            self._model_known = True
            self._watch_reducer(running)
        return self._future_of(running.start(bucket, self.loss_scale))

    def _future_of(self, job: Job) -> torch.futures.Future[torch.Tensor]:
        """Returns the future for which DDP waits."""
        running = self._current
        future = job.future.then(job.value)
        if job.last:
            # finish() raises the error itself, with its type and `peer`; DDP would raise a text about a future. Ctrl-C
            # also works while finish() waits. It must run after all buckets are handed over: a backward may run inside
            # a backward (reentrant checkpoints), and the engine runs a callback at the end of the pass in which it was
            # queued. DDP waits for all futures at the same point, after it handed over the last bucket.
            finish = functools.partial(running.finish, job)
            if torch._C._current_graph_task_id() != -1 and torch._C._current_autograd_node() is not None:
                torch.autograd.Variable._execution_engine.queue_callback(finish)
            else:
                # DDP would wait next: this rank has no data and follows the steps of the others (Join), or DDP hands
                # over all buckets after backward (the first step of a static graph).
                finish()
        else:
            running.expect_end(job)
        return future

    def _watch_reducer(self, running: RunningSession) -> None:
        model = self._model() if self._model is not None else None
        if model is not None:
            running.reducer.watch(model, self._key_of())

    def _key_of(self) -> Callable[[torch.Tensor], int | None]:
        """Returns a function from a parameter to its key in ParameterKeys. Threads hold it, so it must not refer to the
        State."""
        return id

    # ---- schedules

    def evaluated(
        self, *, loss: float | None = None, accuracy: float | None = None, learning_rate: float | None = None
    ) -> None:
        """Reports an evaluation to the schedule: one call each, between steps, on all ranks. Collective over the group.

        loss or accuracy (0..1): of this rank's part of the evaluation data, or of all data. A rank without evaluation
        data omits both. All ranks use the mean over the ranks that passed one.
        learning_rate: of the next steps, the same on all ranks. A rank may omit it if another rank passes it.
        ValueError on all ranks if one value is wrong, or if the schedule follows a value that no rank passed. The
        schedule ignores values that it does not follow, so the call has no effect without a schedule.
        """
        self.open()
        running = self._running
        with running.between_steps():
            running.check()
        given = {"loss": loss, "accuracy": accuracy, "learning_rate": learning_rate}
        group, doing = self._group(), "tithe.torch.State.evaluated()"
        patience = self._session_options()[1].patience

        def numbers() -> str:
            return json.dumps({name: None if value is None else float(value) for name, value in given.items()})

        mine = together(group, patience, doing, numbers, running.check)
        of_ranks = [json.loads(blob) for blob in self._all_gather(mine.encode(), patience, doing, running.check)]
        running.evaluations.report(running.session, *running.evaluations.read(**agree(of_ranks)))

    @property
    def ratio(self) -> float | None:
        """The fraction of values that the next step sends; None without a schedule."""
        return self._open_session().ratio or None

    # ---- copies

    def __getstate__(self) -> dict[str, Any]:
        _log.warning("Process group is not serializable and excluded from a saved state.")
        self._unused.detach()  # the copy will be used, so the original need not warn
        saved = self._saved if self._running is None else self._whole_state()
        settings = {name: getattr(self, name) for name in State.__slots__ if name != "process_group"}
        return {**settings, "_saved": saved}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        _log.warning(
            "Process group will be set to the default group: if it is another, set `process_group` before a step. "
            "If this State came with a whole model: %s",
            NO_HOOK,
        )
        for name, value in state.items():
            setattr(self, name, value)
        self.process_group = dist.group.WORLD if dist.is_initialized() else None
        self._begin({}, self._saved)

    def __deepcopy__(self, memo: dict[int, Any]) -> "State":
        """Returns a State with the same group, settings and residuals. It opens its own connections at its first
        use."""
        twin = State.__new__(State)
        memo[id(self)] = twin
        for name in State.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.options = copy.deepcopy(self.options, memo)
        twin._begin({}, self._saved if self._running is None else self._whole_state())
        twin._unused.detach()  # most copies are never used, so the copy does not warn
        warn_if_model_copied(memo)
        return twin

    def _watch_backward(self) -> None:
        """Records the times of backward while the session traces, from its beginning or after trace()."""
        running = self._running
        if running.backward is not None or not running.session.tracing:
            return
        running.backward = BackwardTimes()
        model = self._model() if self._model is not None else None
        models = models_of(self) if model is None else [model]
        if len(models) == 1:
            running.backward.watch(models[0])

    def residual(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        """Returns this rank's residual of a parameter, float32, in the parameter's shape: the part of its gradient that
        later steps will send."""
        session = self._open_session()
        self._running.drain()
        out, values = laid_out_like(parameter)
        session.residual(self._running.keys.find(parameter), values.numpy())
        return out
