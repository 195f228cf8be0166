# SPDX-License-Identifier: Apache-2.0
"""Which optimizer gets which tie, and what is said where a codec does not suit an optimizer."""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tithe import _core
from tithe._choices import is_lossless
from tithe._studied import DEFAULTS, OWN, STUDIED
from tithe.torch._common.checks import some
from tithe.torch._hook.adapter import Tie, parameters_of
from tithe.torch._hook.parameter_views import Names, Pieces
from tithe.torch._optimizer.adamw import AdamW
from tithe.torch._optimizer.clipping import Clips
from tithe.torch._optimizer.exact_steps import Exact
from tithe.torch._optimizer.squares import Squares

_log = logging.getLogger("tithe.torch")

_REFUSED = ("capturable", "differentiable", "fused")  # of AdamW: they step by other code than this class's


def optimizers_of(given: Any, names: Names) -> list[torch.optim.Optimizer]:
    """One, several, or wrapped ones (Accelerate's). ValueError for what is none, and for what cannot be together."""
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
    if sum(isinstance(each, AdamW) for each in out) > 1:
        raise ValueError("two tithe.torch.optim.AdamW: make one of them, with a group for each kind of parameter")
    return out


class Ties:
    """Those of a State: chosen before it opens, since what they send needs choices of its own."""

    def __init__(
        self, optimizers: Sequence[torch.optim.Optimizer], pieces: Pieces, codec: str, choices: str, says: bool
    ) -> None:
        """codec, choices: the State's, as text. says: whether this rank warns."""
        self.all: list[Tie] = []
        self.exact: AdamW | None = None
        for each in optimizers:
            if ("feedback=momentum" in codec or "feedback=momentum" in choices) and _has_momentum(each):
                raise ValueError(
                    f"momentum in both places: feedback=momentum applies it before the exchange, and "
                    f"{type(each).__name__} applies it again. Leave feedback=momentum out of the codec, or give "
                    "attach() an optimizer with momentum=0"
                )
            if says:
                warn(each, codec, choices)
            if _core.is_auto(codec) or is_lossless(codec, choices):
                continue
            if isinstance(each, AdamW):
                self._tie_adamw(each, pieces)

    def _tie_adamw(self, each: AdamW, pieces: Pieces) -> None:
        if each._tied:
            raise ValueError("this optimizer is attached to a model already: State.detach() it there first")
        wrong = [name for name in _REFUSED if any(group.get(name) for group in each.param_groups)]
        if wrong:
            raise ValueError(f"{wrong[0]}=True steps by code that knows nothing of compressed gradients: leave it out")
        if each.variance == "split":
            self.all.append(Squares(each, pieces))
        if each.max_norm > 0:
            self.all.append(Clips(each, pieces))
        if each.exact > 0:
            self.exact = each

    def rules(self) -> dict[str, Any]:
        """In front of the choices, for what ties send."""
        return {match: codec for tie in self.all for match, codec in tie.rules().items()}

    def sends(self) -> list[tuple[str, torch.Tensor]]:
        """What travels beside the gradients, as named parameters are given."""
        return [pair for tie in self.all for pair in tie.sends()]

    def begin_exactly(self, pieces: Pieces, final: str) -> None:
        """final: the choices after the exact steps. Others ask it whether a step is one."""
        self.all.insert(0, Exact(self.exact, pieces, final))

    def state_dict(self) -> dict[str, Any]:
        return {tie.kind: tie.state_dict() for tie in self.all}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        for tie in self.all:
            tie.load_state_dict(saved.get(tie.kind, {}))


def _has_momentum(optimizer: torch.optim.Optimizer) -> bool:
    return any(group.get("momentum", 0) != 0 or "betas" in group for group in optimizer.param_groups)


# ---- What the study of optimizers found (docs/choosing.md)


def studied(codec: str) -> dict[str, str]:
    """By optimizer, of a spec or else of its codec at its defaults."""
    spec = _core.check_codec(codec)
    return STUDIED.get(spec, STUDIED.get(spec.partition(":")[0], {}))


def suitable(codec: str | None, optimizers: Sequence[torch.optim.Optimizer]) -> str:
    """Without a word the codec that DEFAULTS name for all of the optimizers, else that of all sessions; for "auto" what
    the table says yes to under each of them."""
    columns = {_column(each)[0] for each in optimizers}
    if codec is None:
        named = {DEFAULTS.get(column) for column in columns}
        return named.pop() if len(named) == 1 and None not in named else _core.Options().codec
    if codec != "auto" or not columns:
        return codec
    near = [
        spec
        for spec, found in STUDIED.items()
        if all(found.get("AdamW" if column == OWN else column) == "yes" for column in columns)
        and spec != "bf16"
        and "feedback=momentum" not in spec
    ]
    return f"auto:allow={'+'.join(near)}" if near else codec


ENOUGH = 0.4  # of a job's steps by another codec, and then 1 bit does (docs/optimizers.md, "A sixteenth of the bytes")


def warn(optimizer: torch.optim.Optimizer, codec: str, choices: str) -> None:
    """One warning, with the cure, where a codec is known to end behind fp32 under the optimizer."""
    kind, (column, cure) = type(optimizer).__name__, _column(optimizer)
    if column is None:
        _log.info("optimizer %s: its gradients are compressed, and it is left as it is", kind)
    if _core.is_auto(codec):
        return
    for each in dict.fromkeys([codec, *_named_in(choices)]):
        if isinstance(optimizer, AdamW) and optimizer._exact_part >= ENOUGH and each == "eden:bits=1":
            continue
        if said := _refusal(column, each):
            _log.warning("codec %s does not suit optimizer %s (%s): %s (docs/choosing.md)", each, kind, said, cure)
            return


def _refusal(column: str | None, codec: str) -> str:
    """What the table says where it says no; of an optimizer that it does not know, all of that."""
    found = studied(codec)
    if column is None:
        return "; ".join(f"under {name} {said}" for name, said in found.items() if name != OWN and said != "yes")
    said = found.get(column, "yes")
    return "" if said == "yes" else f"under {column} {said}"


def _named_in(choices: str) -> list[str]:
    """Codecs of rules, in either form. Choices that are wrong are refused elsewhere."""
    try:
        given = json.loads(choices) if choices else {}
        rules = given["rules"] if isinstance(given.get("rules"), list) else given.values()
        named = [rule if isinstance(rule, str) else rule.get("codec", "") for rule in rules]
        return [_core.check_codec(codec) for codec in named if codec]
    except (AttributeError, TypeError, ValueError):
        return []


def _column(optimizer: torch.optim.Optimizer) -> tuple[str | None, str]:
    """Of the table, and what to do instead."""
    column, better = None, ""
    if isinstance(optimizer, AdamW):
        column = OWN
    elif isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW):
        column, better = "AdamW", "take tithe.torch.optim.AdamW, or "
    elif isinstance(optimizer, torch.optim.SGD):
        column = "SGD 0.9" if _has_momentum(optimizer) else "SGD 0.5, tuned rate"
    return column, f"{better}leave codec= out for {DEFAULTS.get(column, _core.Options().codec)}"
