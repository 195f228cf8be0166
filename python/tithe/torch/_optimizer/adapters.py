# SPDX-License-Identifier: Apache-2.0
"""Chooses the adapters of a State's optimizers, and warns if a codec does not suit an optimizer."""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from tithe import _core
from tithe._choices import add_rules, is_lossless, rules_of
from tithe._studied import DEFAULTS, OWN, STUDIED
from tithe.torch._common.checks import some
from tithe.torch._hook.adapter import OptimizerAdapter, parameters_of
from tithe.torch._hook.parameter_views import Names, ParameterViews
from tithe.torch._hook.state import State
from tithe.torch._hook.unapplied_rounds import UnappliedRounds
from tithe.torch._optimizer.adamw import AdamW
from tithe.torch._optimizer.clipping import Clipping
from tithe.torch._optimizer.exact_steps import ExactSteps
from tithe.torch._optimizer.muon_rules import (
    GRADIENTS,
    MUON,
    UPDATE,
    OwnMuon,
    check_settings,
    is_muon,
    muon_objection,
    muon_rules,
)
from tithe.torch._optimizer.squares import Squares

_log = logging.getLogger("tithe.torch")

_REFUSED = ("capturable", "differentiable", "fused")  # options of AdamW that step by other code than this class's
# If this share of a job's steps is exact, 1 bit suits AdamW (docs/guide/optimizers.md, "A sixteenth of the bytes").
_ENOUGH = 0.4


def optimizers_of(given: Any, names: Names) -> list[torch.optim.Optimizer]:
    """Returns the optimizers of optimizer=: one or several, also wrapped ones (Accelerate's).

    ValueError for other objects, and for optimizers that cannot be used together.
    """
    if given is None:
        return []
    out = []
    for each in given if isinstance(given, list | tuple) else [given]:
        while isinstance(inner := getattr(each, "optimizer", None), torch.optim.Optimizer):
            each = inner
        if not isinstance(each, torch.optim.Optimizer):
            raise ValueError(f"optimizer= takes a torch.optim.Optimizer or a list of them, not {type(each).__name__}")
        out.append(each)
    times = Counter(id(p) for each in out for p in parameters_of(each))
    twice = [name for number, (name, _) in names.items() if times[number] > 1]
    if twice:
        raise ValueError(f"two of the optimizers have {some(twice)}: a parameter is stepped by one")
    for each in out:
        if not any(id(p) in names for p in parameters_of(each)):
            raise ValueError(f"{type(each).__name__} has none of this model's parameters: give each model its own")
    for kind in (AdamW, OwnMuon):
        if sum(isinstance(each, kind) for each in out) > 1:
            name = kind.__name__
            raise ValueError(f"two tithe.torch.optim.{name}: make one of them, with a group for each kind of parameter")
    return out


def adapt(
    state: State,
    optimizers: Sequence[torch.optim.Optimizer],
    views: ParameterViews,
    warns: bool = True,
    codec_given: bool = True,
) -> None:
    """Connects a State with its optimizers, before it opens, and adds rules for side tensors and for matrices to its
    choices.

    warns: whether this rank may warn; of its group, rank 0 does. codec_given: whether the user named the codec.
    """
    warns = warns and dist.get_rank(state._group()) == 0
    if optimizers:
        state._unapplied = UnappliedRounds(optimizers, [p for _, p in views.names.values()])
    adapters = OptimizerAdapters(optimizers, views, state, warns)
    owned = dist.get_world_size(state._group()) > 1
    before, after = muon_rules(optimizers, views, state.codec, state._choices(), codec_given, owned)
    if not (adapters.all or adapters.exact or before or after):
        return
    before = {**adapters.rules(), **before}
    adapters.before, adapters.after = before, after
    final = state._with_weights(adapters.with_rules(state._choices()))
    first = final
    if adapters.exact is not None:
        options = state._session_options()[1]
        state._session_options(choices=final)
        exact = {f">= {options.min_values}": adapters.exact.warmup_codec}
        first = state._with_weights(add_rules({**before, **after}, json.dumps(exact)))
        adapters.all.insert(0, ExactSteps(adapters.exact, views, final))  # the other adapters call its is_exact()
    state.options = {**state.options, "choices": first}
    state._session_options()
    if adapters.all:
        state._adapters = adapters


class OptimizerAdapters:
    """The adapters of a State. exact: the optimizer that has exact steps, or None.

    before, after: rules before and after those of the user.
    """

    def __init__(
        self, optimizers: Sequence[torch.optim.Optimizer], views: ParameterViews, state: State, warns: bool
    ) -> None:
        """state: a State before open(). warns: whether this rank warns."""
        codec, choices = state.codec, state._choices()
        self.all: list[OptimizerAdapter] = []
        self.exact: AdamW | None = None
        self.before: dict[str, str] = {}
        self.after: dict[str, str] = {}
        for each in optimizers:
            if ("feedback=momentum" in codec or "feedback=momentum" in choices) and _has_momentum(each):
                raise ValueError(
                    f"momentum in both places: feedback=momentum applies it before the exchange, and "
                    f"{type(each).__name__} applies it again. Leave feedback=momentum out of the codec, or give "
                    "attach() an optimizer with momentum=0"
                )
            if warns:
                warn(each, codec, choices)
            if isinstance(each, AdamW | OwnMuon):
                each._known = True
            if isinstance(each, AdamW) and not _core.is_auto(codec) and not is_lossless(codec, choices):
                self._adapt_adamw(each, views)
            if isinstance(each, OwnMuon):
                self._adapt_muon(each, views, state)

    def _adapt_muon(self, each: Any, views: ParameterViews, state: State) -> None:
        _refuse_attached(each)
        group = state._group()
        if dist.get_world_size(group) > 1:
            from tithe.torch._optimizer.matrix_owners import MatrixOwners  # needs torch's Muon

            if state.weight is not None:
                raise ValueError(
                    "weight= does not work with tithe.torch.optim.Muon, whose step() takes the plain mean of the "
                    "matrices' gradients: take torch.optim.Muon, or leave weight= out"
                )
            options = state._session_options()[1]
            check_settings(options, views)
            self.all.append(MatrixOwners(each, views, group, options.patience))

    def _adapt_adamw(self, each: AdamW, views: ParameterViews) -> None:
        _refuse_attached(each)
        wrong = [name for name in _REFUSED if any(group.get(name) for group in each.param_groups)]
        if wrong:
            raise ValueError(f"{wrong[0]}=True steps by code that knows nothing of compressed gradients: leave it out")
        if each.variance == "split":
            self.all.append(Squares(each, views))
        if each.max_norm > 0:
            self.all.append(Clipping(each, views))
        if each.exact > 0:
            self.exact = each

    def rules(self) -> dict[str, Any]:
        """Returns the rules for side tensors, which precede the State's choices."""
        return {match: codec for adapter in self.all for match, codec in adapter.rules().items()}

    def with_rules(self, choices: str) -> str:
        """Returns the choices of the user with the rules for side tensors and matrices."""
        return add_rules(self.before, choices, self.after)

    def local(self) -> set[int]:
        """Returns the ids of parameters whose gradients are not exchanged in backward."""
        return {number for adapter in self.all for number in adapter.local}

    def side_views(self) -> list[tuple[str, torch.Tensor]]:
        """Returns the side tensors, as (key, tensor) pairs."""
        return [pair for adapter in self.all for pair in adapter.side_views()]

    def state_dict(self) -> dict[str, Any]:
        """Returns the states of all adapters. Empty if no adapter has a state."""
        states = {adapter.kind: adapter.state_dict() for adapter in self.all}
        return states if any(states.values()) else {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        for adapter in self.all:
            adapter.load_state_dict(saved.get(adapter.kind, {}))


def _refuse_attached(optimizer: Any) -> None:
    if optimizer._attached:
        raise ValueError("this optimizer is attached to a model already: State.detach() it there first")


def _has_momentum(optimizer: torch.optim.Optimizer) -> bool:
    return any(group.get("momentum", 0) != 0 or "betas" in group for group in optimizer.param_groups)


# ---- suitable codecs of an optimizer


def studied(codec: str) -> dict[str, str]:
    """Returns the results of a codec by optimizer: those of the spec, or those of its codec at the defaults."""
    spec = _core.check_codec(codec)
    return STUDIED.get(spec, STUDIED.get(spec.partition(":")[0], {}))


def suitable(codec: str | None, optimizers: Sequence[torch.optim.Optimizer]) -> str:
    """Returns the codec to use. None: the common default of the optimizers, else the default of all sessions.

    "auto" may use every codec that the table of docs/start/choosing.md allows under each of the optimizers.
    """
    columns = {_column(each)[0] for each in optimizers if not is_muon(each)}  # muon_rules() covers matrices
    if codec is None:
        named = {DEFAULTS.get(column) for column in columns}
        return named.pop() if len(named) == 1 and None not in named else _core.Options().codec
    if codec != "auto" or not columns:
        return codec
    allowed = [
        spec
        for spec, found in STUDIED.items()
        if all(found.get("AdamW" if column == OWN else column) == "yes" for column in columns)
        and spec != "bf16"
        and "feedback=momentum" not in spec
    ]
    return f"auto:allow={'+'.join(allowed)}" if allowed else codec


def warn(optimizer: torch.optim.Optimizer, codec: str, choices: str) -> None:
    """Warns once, with the cure, if training with a codec is known to be worse than fp32 under the optimizer."""
    kind, (column, cure) = type(optimizer).__name__, _column(optimizer)
    if column is None:
        _log.info("optimizer %s: its gradients are compressed; the optimizer is unchanged", kind)
    if _core.is_auto(codec):
        return
    for each in dict.fromkeys([codec, *_codecs_in(choices)]):
        if isinstance(optimizer, AdamW) and optimizer._exact_part >= _ENOUGH and each == "eden:bits=1":
            continue
        if verdict := _refusal(column, each):
            _log.warning(
                "codec %s does not suit optimizer %s (%s): %s (docs/start/choosing.md)", each, kind, verdict, cure
            )
            return


def _refusal(column: str | None, codec: str) -> str:
    """Returns the table's objection; for an optimizer that the table does not have, all objections."""
    if column == MUON:
        return muon_objection(codec)
    found = studied(codec)
    if column is None:
        return "; ".join(
            f"under {name} {verdict}" for name, verdict in found.items() if name != OWN and verdict != "yes"
        )
    verdict = found.get(column, "yes")
    return "" if verdict == "yes" else f"under {column} {verdict}"


def _codecs_in(choices: str) -> list[str]:
    """Returns the codecs of rules for gradients. Wrong choices are refused elsewhere."""
    try:
        rules = [rule for rule in rules_of(choices) if UPDATE.strip() not in rule.get("match", "")]
        return [_core.check_codec(rule["codec"]) for rule in rules if rule.get("codec")]
    except (TypeError, ValueError):
        return []


def _column(optimizer: torch.optim.Optimizer) -> tuple[str | None, str]:
    """Returns the optimizer's column in the table, and the cure for an unsuitable codec."""
    column, better = None, ""
    if isinstance(optimizer, AdamW):
        column = OWN
    elif isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW):
        column, better = "AdamW", "take tithe.torch.optim.AdamW, or "
    elif isinstance(optimizer, torch.optim.SGD):
        column = "SGD 0.9" if _has_momentum(optimizer) else "SGD 0.5, tuned rate"
    elif is_muon(optimizer):
        codec = GRADIENTS if isinstance(optimizer, OwnMuon) else _core.Options().codec
        return MUON, f"leave codec= out for {codec} in Muon's matrices"
    return column, f"{better}leave codec= out for {DEFAULTS.get(column, _core.Options().codec)}"
