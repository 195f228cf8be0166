# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.State: what a hook needs, from the settings to the residuals; its running part is Live."""

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
from tithe._choices import Choices, before, choices_text, clipped, say_what_travels_raw
from tithe._choices import check_model as check_choices
from tithe._exchange import all_gather_bytes, together
from tithe._schedule import Evaluations, agree
from tithe._session import make_options, refuse_unknown, transport_text
from tithe.torch._common.checks import check_callable, check_group, check_pairs, models_of, usable_timeout
from tithe.torch._common.model_copies import NO_HOOK, say_if_in_a_model
from tithe.torch._common.parameter_keys import Keys, by_name, check_alike, shared_options, two_models
from tithe.torch._common.state_fit import laid_out_like
from tithe.torch._device.device import device_of
from tithe.torch._hook.backward_times import Backward
from tithe.torch._hook.job import Job
from tithe.torch._hook.parameter_views import Pieces
from tithe.torch._hook.round_groups import over_round
from tithe.torch._hook.running_session import Live
from tithe.torch._hook.saved_state import Saved
from tithe.torch._hook.state_registry import opened, watch
from tithe.torch._hook.unapplied_rounds import UnappliedRounds
from tithe.torch._optimizer.adapters import Ties

_log = logging.getLogger("tithe.torch")

DEFAULT = _core.Options()  # one default for all: include/tithe/session.h


class _Slots(Saved):
    # Apart from State.__slots__, which are the settings alone and compare equal after pickling.
    __slots__ = ("__weakref__", "_live", "_model", "_names", "_saved", "_settled", "_ties", "_unapplied", "_unused")


class State(_Slots):
    """What `hook` needs: which ranks, which codec, and this rank's residuals.

    process_group: the ranks to average over; None is the default group at the first use.
    codec, strategy: as `tithe codecs` and `tithe.strategies()` list them; the defaults suit any optimizer
    (docs/choosing.md). codec="auto", or "auto:allow=onebit+*.bias: fp32" with what may be used beside fp32, bf16 and
    zip, measures the first steps, plans, and measures again when steps change (docs/plan.md); rank 0 logs what it
    decides.
    parameters: (name, parameter) pairs, e.g. model.named_parameters(), to key residuals by name; without them the model
    that registered the State is asked.
    loss_scale: a function that gives the factor by which the loss is scaled (GradScaler.get_scale).
    choices: what happens to which parameter, where that is not the same for all (docs/choices.md): a dict such as
    {"*embedding*": "qtopk:ratio=0.03", "*.bias": "fp32"}, JSON text, or the path of a file that holds it. A rule that
    names a parameter which the model does not have raises ValueError, a pattern that takes none gives a RuntimeWarning.
    clip: the largest L2 norm of one parameter's gradient on one rank: a larger gradient is scaled down to it before it
    is encoded (docs/footguns.md, "Clipping"). 0: none. As clip= in the codec's own text.
    schedule: how the codec's ratio changes between steps, e.g. "warmup:400+recover" (include/tithe/schedule.h).
    groups: "round": tensors that travel in groups leave once, with the last bucket of a step, and not with each bucket
    (docs/choices.md, "Groups"); the same on all ranks.
    options: link, hosts, lanes, average, min_values, part_values, timeout, patience (seconds), seed, run,
    force_reference, authenticate, checksum, pacer, device, trace, measure, transport (see tithe.Session).

    Nothing is opened before the first use, which is collective over the group. A bad setting raises ValueError. A State
    that goes away without ever having been used gives a RuntimeWarning.
    Pickling keeps settings and residuals of this rank and drops the process group.
    """

    __slots__ = ("codec", "loss_scale", "options", "process_group", "strategy")
    __module__ = "tithe.torch"  # where it is found, and what a pickle names

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        *,
        codec: str = DEFAULT.codec,
        strategy: str = DEFAULT.strategy,
        parameters: Iterable[tuple[str, torch.nn.Parameter]] = (),
        loss_scale: Callable[[], float] | None = None,
        clip: float = 0.0,
        **options: Any,
    ) -> None:
        refuse_unknown(options, "clip", "groups", "loss_scale", "parameters", "process_group")
        check_group(process_group)
        check_callable(loss_scale)
        self.process_group = process_group
        self.codec = clipped(codec, clip)
        self.strategy = strategy
        self.loss_scale = loss_scale
        self.options = {**options, "choices": choices_text(options["choices"])} if "choices" in options else options
        self._session_options()
        self._begin(by_name(check_pairs(parameters)), None)

    def _begin(self, names: dict[int, tuple[str, torch.nn.Parameter]], saved: Mapping[str, Any] | None) -> None:
        """As one that was never used. saved: what it goes on from."""
        self._names = names
        self._saved = saved
        self._settled = False
        self._live: Live | None = None
        self._model: weakref.ref[DistributedDataParallel] | None = None
        self._ties: Ties | None = None
        self._unapplied: UnappliedRounds | None = None
        self._unused = watch(self)

    def _tie(self, optimizers: list[torch.optim.Optimizer], pieces: Pieces, says: bool = True) -> None:
        """Before open(). Choices get what the ties send, and those of the exact steps where there are any.

        says: whether this rank may warn; of its group, rank 0 does.
        """
        says = says and dist.get_rank(self._group()) == 0
        if optimizers:
            self._unapplied = UnappliedRounds(optimizers, [p for _, p in pieces.names.values()])
        ties = Ties(optimizers, pieces, self.codec, self._choices(), says)
        if not ties.all and ties.exact is None:
            return
        final = before(ties.rules(), self._choices())
        first = final
        if ties.exact is not None:
            options = self._session_options()[1]
            self._session_options(choices=final)
            first = before(ties.rules(), json.dumps({f">= {options.min_values}": ties.exact.warmup_codec}))
            ties.begin_exactly(pieces, final)
        self.options = {**self.options, "choices": first}
        self._session_options()
        self._ties = ties

    def _session_options(self, **other: str) -> tuple[str, _core.Options]:
        over_round(self.options)
        rest = {**self.options, **other}
        rest.pop("groups", None)
        transport = transport_text(rest)
        return transport, make_options({"codec": self.codec, "strategy": self.strategy, **rest})

    # ---- life

    def open(self) -> None:
        """Connects to the other ranks; does nothing if that is done. Collective over the group."""
        if self._live is not None:
            return
        self._unused.detach()
        group = self._group()
        rank, world = dist.get_rank(group), dist.get_world_size(group)

        def prepare() -> tuple[str, _core.Options]:
            if not self._settled:
                self._settle()
            if self._saved is not None:
                self._check_saved(self._saved, rank, world)
            settings = self._session_options()
            if _core.is_auto(self.codec) and not self._names:
                raise ValueError(
                    f"codec={self.codec!r} decides by the names of parameters, and this State knows none: "
                    "tithe.torch.attach(model, ...), or State(parameters=model.named_parameters(), ...)"
                )
            trained = [(name, p) for name, p in self._names.values() if p.requires_grad]
            check_choices(settings[1], [*trained, *(self._ties.sends() if self._ties else ())])
            if rank == 0:
                say_what_travels_raw(settings[1], trained)
            return settings

        patience = usable_timeout(self.options)
        doing = "tithe.torch.State.open()"
        transport, options = together(group, patience, doing, prepare)
        check_alike(self._names, lambda mine: self._all_gather(mine, patience, doing), shared_options(options))
        session = _core.open(
            transport,
            rank,
            world,
            lambda mine: self._all_gather(mine, patience, doing),
            options,
        )
        opened_choices = session.choices
        evaluations = Evaluations(options)
        keys = Keys(self._names, {})
        if self._saved is not None:
            self._restore(session, evaluations, keys, self._saved)
            self._saved = None
        over = over_round(self.options)
        self._live = Live(session, evaluations, keys, opened_choices, options, over, logs=rank == 0)
        self._watch_reducer()
        if self._ties is not None:
            self._live.ties = self._ties.all
            for tie in self._ties.all:
                tie.opened(self._live)
        if self._unapplied is not None:
            self._unapplied.opened(session)
        opened[id(self)] = self
        self._watch_backward()

    def close(self) -> None:
        """Lets go of the network and the worker thread. Peers that still synchronise see this rank leave.

        state_dict() still gives the state of the last step, stats() and the like the last figures.
        """
        self._unused.detach()
        if self._unapplied is not None:
            self._unapplied.remove()
        opened.pop(id(self), None)
        if self._live is not None:
            self._live.close()

    def detach(self) -> None:
        """Gives the optimizers that attach(optimizer=...) took back as torch has them. Between steps, collective.

        tithe.torch.optim.AdamW steps as torch's then; gradients go on being compressed.
        """
        if self._ties is None or self._live is None:
            return
        with self._live.between_steps():
            self._live.ties = ()
        for tie in self._ties.all:
            tie.detach(self._live.average)
        self._ties = None

    def _together(self, doing: str, body: Callable[[], Any]) -> Any:
        return together(self._group(), self._session_options()[1].patience, doing, body)

    def _group(self) -> dist.ProcessGroup:
        group = self.process_group if self.process_group is not None else dist.group.WORLD
        if group is None:
            raise ValueError("call torch.distributed.init_process_group() first")
        return group

    def _settle(self) -> None:
        """Whose State this is: names, if none were given, are those of the model that registered it."""
        models = models_of(self)
        if len(models) > 1:
            raise ValueError(two_models(f"{len(models)} models have registered it"))
        if models:
            self._model = weakref.ref(models[0])
            self._names = self._names or by_name(models[0].module.named_parameters())
        self._settled = bool(models)

    def _all_gather(self, mine: bytes, patience: float, doing: str, *check: Callable[[], None]) -> list[bytes]:
        with self._device():
            return all_gather_bytes(mine, self._group(), patience, doing, *check)

    def _device(self) -> AbstractContextManager[None]:
        return device_of(parameter for _, parameter in self._names.values())

    # ---- one bucket

    def _start(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        self.open()
        live = self._live
        if not self._settled:  # opened by hand, before a model registered it
            self._settle()
            live.keys.names = self._names
            self._settled = True
            self._watch_reducer()
        return self._answer(live.start(bucket, self.loss_scale))

    def _answer(self, job: Job) -> torch.futures.Future[torch.Tensor]:
        """What DDP waits for."""
        live = self._live
        future = job.future.then(job.value)
        if job.last:
            # Raises the error itself, with its type and `peer`, where DDP would raise a text about a future; and Ctrl-C
            # works while it waits. Only now that all buckets are on their way: a backward may run inside a backward
            # (reentrant checkpoints), and the engine runs a callback at the end of the one in which it was queued.
            # There DDP waits as well, for all futures, once it has handed over the last bucket.
            finish = functools.partial(live.finish, job)
            if torch._C._current_graph_task_id() != -1 and torch._C._current_autograd_node() is not None:
                torch.autograd.Variable._execution_engine.queue_callback(finish)
            else:
                # DDP would wait next: it shadows a step of the others (Join), or hands over all buckets after backward
                # (the first step of a static graph).
                finish()
        else:
            live.expect_end(job)
        return future

    def _watch_reducer(self) -> None:
        model = self._model() if self._model is not None else None
        if model is not None:
            self._live.reducer.watch(model, self._key_of())

    def _key_of(self) -> Callable[[torch.Tensor], int | None]:
        """By what Keys know a parameter. The function does not hold the State: threads hold the function."""
        return id

    # ---- schedules

    def evaluated(
        self, *, loss: float | None = None, accuracy: float | None = None, learning_rate: float | None = None
    ) -> None:
        """One call per evaluation, between steps, on all ranks: what a schedule follows. Collective over the group.

        loss or accuracy (0..1): of this rank's part of the evaluation data, or of all; ranks that evaluated nothing
        leave both out. The mean over those that did is what counts, on all ranks alike.
        learning_rate: of the steps to come, the same on all ranks; ranks may leave it out where another one gives it.
        ValueError on all ranks where one is wrong, or where the schedule follows something that no rank gave. What the
        schedule does not follow is ignored, so the call may stay where there is no schedule.
        """
        self.open()
        live = self._live
        with live.between_steps():
            live.check()
        given = {"loss": loss, "accuracy": accuracy, "learning_rate": learning_rate}
        group, doing = self._group(), "tithe.torch.State.evaluated()"
        patience = self._session_options()[1].patience

        def numbers() -> str:
            return json.dumps({name: None if value is None else float(value) for name, value in given.items()})

        mine = together(group, patience, doing, numbers, live.check)
        told = [json.loads(blob) for blob in self._all_gather(mine.encode(), patience, doing, live.check)]
        live.evaluations.tell(live.session, *live.evaluations.read(**agree(told)))

    # ---- other choices

    def propose(self, choices: Choices, round: int = 0) -> None:
        """Other choices from step `round` on, on all ranks; 0: as soon as all are ready (docs/choices.md).

        On rank 0 alone, at any time after the first step; the other ranks call nothing. choices as at the beginning;
        None: none. Nothing that is owed is lost, and states hold what was taken. ValueError for choices that a State
        would not take, for a step that has begun, on other ranks, and while a proposal is under way.
        """
        self._running().propose(choices_text(choices), round)

    def proposal(self) -> dict[str, Any]:
        """What became of the last one: see tithe.Session.proposal()."""
        return self._running().proposal()

    def undo(self) -> None:
        """Takes back the exchange of the last step, where it turns out not to count: see tithe.Session.undo().

        On all ranks, between backward() and the next one, of a State with undo=True. Gradients stay what they are: do
        not step.
        """
        session = self._running()
        with self._live.between_steps():
            session.undo()
            for tie in self._ties.all if self._ties is not None else ():
                tie.undo()
            if self._unapplied is not None:
                self._unapplied.applied()

    @property
    def ratio(self) -> float | None:
        """The fraction of values that the next step sends; None without a schedule."""
        return self._running().ratio or None

    # ---- copies

    def __getstate__(self) -> dict[str, Any]:
        _log.warning("Process group is not serializable and excluded from a saved state.")
        self._unused.detach()  # the copy is what will be used
        saved = self._saved if self._live is None else self._whole_state()
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
        """Same group, same settings, same residuals, its own connections (opened at its first use)."""
        twin = State.__new__(State)
        memo[id(self)] = twin
        for name in State.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.options = copy.deepcopy(self.options, memo)
        twin._begin({}, self._saved if self._live is None else self._whole_state())
        twin._unused.detach()  # many copies are only kept
        say_if_in_a_model(memo)
        return twin

    def _watch_backward(self) -> None:
        """Once something is traced, from the beginning or by trace()."""
        live = self._live
        if live.backward is not None or not live.session.tracing:
            return
        live.backward = Backward()
        models = models_of(self)
        if len(models) == 1:
            live.backward.watch(models[0])

    def residual(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        """What this rank has not sent yet of a parameter's gradient, float32, in the parameter's shape."""
        session = self._running()
        self._live.drain()
        out, values = laid_out_like(parameter)
        session.residual(self._live.keys.find(parameter), values.numpy())
        return out
