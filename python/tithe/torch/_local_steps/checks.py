# SPDX-License-Identifier: Apache-2.0
"""Checks of LocalSteps: settings, models, optimizers, and whether the ranks are at the same point."""

import gc
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from tithe import _core
from tithe._choices import choices_text, rules_of
from tithe._exchange import error
from tithe._session import Session
from tithe.torch._common.checks import DTYPES, some
from tithe.torch._common.parameter_keys import fingerprint
from tithe.torch._local_steps.drift import RESERVED_KEYS, Entry

Named = list[tuple[str, torch.nn.Parameter]]

_UNSUPPORTED = {
    "average": "the mean is what LocalSteps is made of",
    "clip": "clip the gradients inside each step",
    "parameters": "names are the model's",
    "schedule": "rounds here are exchanges, not steps",
    "servers": "every rank trains",
}


def whole(name: str, value: Any, least: int) -> int:
    """Returns a whole number; ValueError for any other value."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}={value!r}: must be a whole number of at least {least}")
    return value


def one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(map(repr, allowed))}")


def check_windows(every: Any, fragments: Any, delay: Any) -> None:
    """Raises ValueError if the three do not fit together."""
    whole("every", every, 1)
    whole("fragments", fragments, 1)
    whole("delay", delay, 0)
    if every % fragments:
        raise ValueError(
            f"fragments={fragments} does not divide every={every}: fragments travel one after the other, each "
            f"every/fragments iterations; every={every // fragments * fragments or fragments} would do"
        )
    if delay >= every // fragments and delay > 0:
        raise ValueError(
            f"delay={delay}: one exchange is under way at a time, and the next begins after {every // fragments} "
            f"iterations (every={every}, fragments={fragments}): at most {every // fragments - 1}"
        )


def ddp_in(model: Any) -> DistributedDataParallel | None:
    """Returns the DDP model, without a wrapper of torch.compile(); None for any other model. ValueError if it is no
    model."""
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"the first argument of LocalSteps is the model, not {type(model).__name__}")
    inner = model
    while not isinstance(inner, DistributedDataParallel) and hasattr(inner, "_orig_mod"):
        inner = inner._orig_mod
    return inner if isinstance(inner, DistributedDataParallel) else None


def unwrapped(given: Any) -> list[torch.optim.Optimizer]:
    """Returns the optimizers as a list, without Accelerate's wrappers."""
    optimizers = list(given) if isinstance(given, list | tuple) else [given]
    for place, optimizer in enumerate(optimizers):
        if type(optimizer).__name__ == "AcceleratedOptimizer":
            optimizers[place] = optimizer = optimizer.optimizer
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ValueError(f"the second argument of LocalSteps is an optimizer, not {type(optimizer).__name__}")
    if not optimizers:
        raise ValueError("the second argument of LocalSteps has no optimizer in it")
    return optimizers


def check_settings_alike(mine: Mapping[str, Any], all_gather: Callable[[bytes], list[bytes]]) -> None:
    """Raises tithe.Error on all ranks if a setting differs between a rank and rank 0."""
    of_ranks = [json.loads(blob) for blob in all_gather(json.dumps(dict(mine)).encode())]
    first = of_ranks[0]
    for rank, theirs in enumerate(of_ranks):
        for name, value in theirs.items():
            if value != first[name]:
                text = f"LocalSteps has {name}={first[name]!r} on rank 0 and {value!r} on rank {rank}"
                raise error("mismatch", rank, text)


def check_loaded(
    state: Mapping[str, Any], form: int, settings: Mapping[str, Any], session: Session, entries: Sequence[Entry]
) -> None:
    """Raises ValueError if a saved state is of another run, rank or model."""
    if state.get("format") != form or "arrived" not in state:
        raise ValueError("not a state of this version of tithe.torch.LocalSteps")
    if state["world"] != session.world:
        raise ValueError(
            f"the state was saved by {state['world']} ranks and this job has {session.world}: start as many, or begin "
            "anew from its outer parameters, state['outer'], which are the same on all ranks; the residuals are "
            "then lost"
        )
    if state["rank"] != session.rank:
        raise ValueError(
            f"the state was saved by rank {state['rank']} and this is rank {session.rank}: ranks differ in a window, "
            "so each saves and loads its own, with its own model and optimizer"
        )
    for name, value in settings.items():
        if state["settings"][name] != value:
            raise ValueError(f"the state was saved with {name}={state['settings'][name]!r}, and here it is {value!r}")
    shapes = {entry.key: tuple(entry.outer.shape) for entry in entries}
    saved = {key: tuple(outer.shape) for key, outer in state["outer"].items()}
    if shapes != saved:
        differ = sorted(key for key in {*shapes, *saved} if shapes.get(key) != saved.get(key))
        raise ValueError(f"the state was saved with another model: {some(differ)}")
    other = [entry.key for entry in entries if fingerprint(entry.live) != state["live"][entry.key]]
    if other:
        raise ValueError(
            f"the model has other values of {some(other)} than when the state was saved: each rank loads the model "
            "that it saved with the state, before entering"
        )


def check_options(codec: str, options: Mapping[str, Any], fragments: int) -> None:
    """Raises ValueError for options of a Session that LocalSteps does not take."""
    for name, why in _UNSUPPORTED.items():
        if name in options:
            raise ValueError(f"LocalSteps takes no {name}=: {why}")
    if _core.is_auto(codec):
        raise ValueError(f"codec={codec!r} measures and plans for every step: name a codec, such as 'eden'")
    rules = rules_of(choices_text(options.get("choices")))
    for text in [codec, *(str(rule.get("codec", "")) for rule in rules)]:
        if "feedback=momentum" in text:
            raise ValueError(f"codec {text!r} has momentum: here it is the outer optimizer's, outer='nesterov'")
    if "clip=" in codec:
        raise ValueError(f"codec={codec!r}: {_UNSUPPORTED['clip']}, or by a rule of choices")
    exact = [rule["match"] for rule in rules if "match" in rule and not set(rule["match"]) & set("*?")]
    if exact and fragments > 1:
        raise ValueError(
            f"choices name {some(exact)}, and with fragments={fragments} the first exchange has only some of the "
            f"parameters: write a pattern, such as '{exact[0]}*'"
        )


def with_ours(choices: Any) -> str:
    """Returns the choices, preceded by a rule that sends everything except parameters uncompressed."""
    text = choices_text(choices)
    ours = {"match": f"{RESERVED_KEYS}*", "codec": "fp32", "why": "LocalSteps' own"}
    given = json.loads(text) if text else {}
    rest = given if "rules" in given else {"version": 1}
    return json.dumps({**rest, "rules": [ours, *rules_of(text)]})


def trained_parameters(model: torch.nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> Named:
    """Returns the parameters that the optimizers step, by the model's names. ValueError for a parameter that tithe
    refuses."""
    moved = {id(p): p for o in optimizers for group in o.param_groups for p in group["params"]}
    named = [(name.replace("_orig_mod.", ""), p) for name, p in model.named_parameters()]
    strangers = [p for number, p in moved.items() if number not in {id(p) for _, p in named}]
    if strangers:
        raise ValueError(
            f"the optimizer moves {len(strangers)} parameters that the model does not have, the first of shape "
            f"{tuple(strangers[0].shape)}: give the model and the optimizer that train together"
        )
    trained = [(name, p) for name, p in named if p.requires_grad and id(p) in moved]
    if not trained:
        raise ValueError("the optimizer moves no parameter of the model that takes a gradient")
    wrong = [name for name, p in trained if p.dtype not in DTYPES or type(p.data) is not torch.Tensor]
    if wrong:
        raise ValueError(
            f"{some(wrong)}: LocalSteps takes whole parameters of float32, bfloat16 or float16, not sharded ones or "
            "other types"
        )
    return trained


def check_unchanged(known: Mapping[str, int], now: Named) -> None:
    """Raises ValueError if parameters were added or removed. known: ids by name."""
    ids = {name: id(p) for name, p in now}
    if ids == known:
        return
    gone = [name for name in known if name not in ids]
    new = [name for name in ids if name not in known]
    what = f"{some(gone)} no longer there" if gone else f"{some(new)} new" if new else "other tensors under old names"
    raise ValueError(
        f"the parameters that the optimizer moves have changed ({what}): LocalSteps exchanges the parameters that "
        "existed when it was entered. Leave it, and make another after the change, on all ranks"
    )


def check_no_other_ddp(parameters: Iterable[torch.nn.Parameter], own: DistributedDataParallel | None) -> None:
    """Raises ValueError if a DistributedDataParallel other than `own` has the parameters."""
    ids = {id(p) for p in parameters}
    for thing in gc.get_objects():
        if issubclass(type(thing), DistributedDataParallel) and thing is not own:
            held = thing.__dict__.get("_modules", {}).get("module")
            if held is not None and any(id(p) in ids for p in held.parameters()):
                raise ValueError(
                    "a DistributedDataParallel holds these parameters and would average gradients in every step: give "
                    "LocalSteps that one as the model, and it does not synchronise inside; or train without it"
                )


def check_ranks_agree(rows: Sequence[Sequence[float]], rank: int) -> None:
    """Raises tithe.Error if the ranks are not at the same point. rows: kind, round and digest of each rank."""
    kinds = [row[0] for row in rows]
    leaves = next((r for r, kind in enumerate(kinds) if kind != 0.0), None)
    if leaves is not None and 0.0 in kinds:
        stays = kinds.index(0.0)
        raise error(
            "mismatch",
            leaves,
            f"rank {leaves} has left LocalSteps, and rank {stays} goes on to an exchange: all ranks make the same "
            "number of iterations. Where a GradScaler skips steps on one rank give scaler=; where ranks have a "
            "deadline= end their loops by .exchanges",
        )
    for r, row in enumerate(rows):
        if row[1] != rows[0][1]:
            raise error("mismatch", r, f"rank {r} is at another exchange than rank 0: load the same step on all ranks")
        if list(row[2:4]) != list(rows[0][2:4]):
            raise error(
                "mismatch",
                r,
                f"the outer parameters of rank {r} are not those of rank 0, seen by rank {rank}: damaged memory, or an "
                "outer optimizer that computes differently there; go on from the last checkpoint",
            )
