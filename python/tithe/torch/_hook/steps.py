# SPDX-License-Identifier: Apache-2.0
"""State's methods for single steps: skip(), without_residual(), propose() and undo()."""

import contextlib
import json
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from tithe import _core
from tithe._choices import Choices, add_rules, choices_text, is_lossless
from tithe._exchange import together
from tithe._schedule import Evaluations
from tithe.torch._common.parameter_keys import ParameterKeys
from tithe.torch._hook.reducer import in_backward
from tithe.torch._hook.running_session import RunningSession
from tithe.torch._hook.saved_state import Saved
from tithe.torch._hook.skipped_step import SkippedSteps
from tithe.torch._hook.weights import RULES

_FEEDBACK = ("feedback", "mu", "beta", "mask", "nesterov")  # settings of error feedback in a codec's text
_ALONE = ("trace", "schedule", "undo")  # options that apply to the State's own rounds only


class Steps(Saved):
    """The part of State with methods for a single step."""

    __slots__ = ()
    weight: Callable[[], float] | None
    _model: weakref.ref[Any] | None
    # The session for rounds without residuals, and the choices that it follows
    _plain: tuple[RunningSession, str] | None
    _plain_now: bool
    _skipped: SkippedSteps | None
    _adapters: Any
    _unapplied: Any

    @property
    def _current(self) -> RunningSession:
        """Returns the session that runs the rounds that begin now."""
        return self._plain[0] if self._plain_now and self._plain is not None else self._running

    # ---- skip

    def skip(self) -> None:
        """Leaves this rank's gradient out of the present step, and the other ranks continue: docs/guide/steps.md.

        For attach(weight=...). Call it in place of forward and backward, or after an exception in either: out of
        memory, a bad sample, a loss that is not finite. Returns when the round is over. Then .grad holds the mean over
        the other ranks, as it does on them: call optimizer.step() as they do.
        If backward had handed over a bucket before the exception, all ranks drop the round: gradients are 0 on all
        ranks, and residuals do not change.
        ValueError without weight=, inside a backward, and for a State whose ranks cannot skip.
        """
        if self.weight is None:
            raise ValueError(
                "skip() needs attach(model, weight=...), by which the ranks agree before a round which of them take "
                "part: give all ranks weight=lambda: 1 if their gradients count alike"
            )
        if in_backward():
            raise ValueError("skip() was called inside a backward pass: call it after the pass has raised its error")
        model = self._model() if self._model is not None else None
        if model is None or self._skipped is None:
            raise ValueError("skip() needs the model: attach it by tithe.torch.attach(model, weight=...)")
        if model._join_config.enable:
            raise ValueError("skip() inside Join: leave Join out, and skip() each step for which a rank has no data")
        if model.skip_all_reduce_unused_params:
            raise ValueError("skip() needs all buckets of all ranks: leave skip_all_reduce_unused_params= out")
        self._open_session()
        running = self._current
        if model.static_graph and not running.keys.whole:
            raise ValueError(
                "DistributedDataParallel(static_graph=True) learns its graph in the first step, which cannot be "
                "skipped: leave static_graph= out, or run the first step on every rank"
            )
        running.check()
        self._skipped.skip(model, self, running)

    def _with_weights(self, choices: str) -> str:
        """Returns choices that send the weights of the ranks uncompressed. Without choices every small tensor is
        uncompressed."""
        return choices if self.weight is None or next(iter(RULES)) in choices else add_rules(RULES, choices)

    # ---- without residuals

    @contextlib.contextmanager
    def without_residual(self) -> Iterator[None]:
        """Runs the rounds in the body without residuals: they neither use nor change them. See docs/guide/steps.md.

        For gradients that no step applies: SAM's first backward, probes. On all ranks, around whole backward passes.
        Each gradient is encoded with feedback=none. The first use connects the ranks a second time. These rounds are
        not part of stats(), of schedules, of the trace or of undo(), and attach(optimizer=) does not process them. If
        an exception leaves such a round unfinished, the second connection ends on all ranks.
        """
        if self._adapters is not None and self._adapters.local():
            raise ValueError(
                "without_residual() does not work with tithe.torch.optim.Muon, whose matrices are exchanged in step(): "
                "take torch.optim.Muon"
            )
        running = self._running_between_steps()
        if is_lossless(self.codec, self._choices()):
            yield
        else:
            if _core.is_auto(self.codec):
                raise ValueError(f"without_residual() needs a codec that stays, and codec={self.codec!r} changes it")
            choices = running.session.choices
            if self._plain is None or self._plain[1] != choices:
                self._close_plain()
                self._plain = self._open_plain(choices), choices
            self._plain_now = True
            try:
                yield
            except BaseException:
                if self._plain[0].failed():
                    self._close_plain()
                raise
            finally:
                self._plain_now = False
        if self._unapplied is not None:
            self._unapplied.applied()

    def _running_between_steps(self) -> RunningSession:
        self.open()
        with self._running.between_steps():
            self._running.check()
        return self._running

    def _open_plain(self, choices: str) -> RunningSession:
        doing = "tithe.torch.State.without_residual()"
        rest = {name: value for name, value in self.options.items() if name not in _ALONE}
        options = {**rest, "choices": plain_choices(choices)}
        group = self._group()
        patience = self._session_options()[1].patience
        transport, made = together(
            group, patience, doing, lambda: self._options_of(options, codec=plain_codec(self.codec))
        )
        rank, world = self._running.rank, self._running.world
        session = _core.open(transport, rank, world, lambda mine: self._all_gather(mine, patience, doing), made)
        keys = ParameterKeys(self._names, {})
        running = RunningSession(session, Evaluations(made), keys, session.choices, made, self._running.over_round)
        running.weigh = self._running.weigh
        self._watch_reducer(running)
        return running

    def _close_plain(self) -> None:
        if self._plain is not None:
            self._plain[0].close()
            self._plain = None

    # ---- new choices, undo

    def propose(self, choices: Choices, round: int = 0) -> None:
        """Proposes new choices for all ranks from step `round` on; 0: as soon as all ranks are ready
        (docs/guide/choices.md).

        Call it on rank 0 only, at any time after the first step; the other ranks call nothing. choices: as in State();
        None: no rules. Residuals are kept, and saved states have the choices in force. ValueError for choices that a
        State would refuse, for a step that has begun, on other ranks, and while another proposal is under way.
        """
        text = choices_text(choices)
        if self._adapters is not None:
            text = self._adapters.with_rules(text)
        self._open_session().propose(self._with_weights(text), round)

    def proposal(self) -> dict[str, Any]:
        """Returns the state of the last proposal: see tithe.Session.proposal()."""
        return self._open_session().proposal()

    def undo(self) -> None:
        """Reverts the exchange of the last step, if the step must not count: see tithe.Session.undo().

        Call it on all ranks, between backward() and the next backward(), for a State with undo=True. The gradients do
        not change: do not step with them.
        """
        session = self._open_session()
        with self._running.between_steps():
            session.undo()
            for adapter in self._adapters.all if self._adapters is not None else ():
                adapter.undo()
            if self._unapplied is not None:
                self._unapplied.applied()


def plain_codec(codec: str) -> str:
    """Returns the codec with feedback=none."""
    name, _, settings = _core.check_codec(codec).partition(":")
    kept = [each for each in settings.split(",") if each and each.partition("=")[0] not in _FEEDBACK]
    return f"{name}:{','.join([*kept, 'feedback=none'])}"


def plain_choices(choices: str) -> str:
    """Returns the choices of a session, with feedback=none for each codec."""
    if not choices:
        return ""
    given = json.loads(choices)
    for rule in given["rules"]:
        rule.update({name: plain_codec(rule[name]) for name in ("codec", "inside") if name in rule})
    return json.dumps(given)
