# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments and models before the first step, and the search for the model of a State."""

import gc
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tithe import _core
from tithe.torch._common.model_copies import has_hook
from tithe.torch._common.wrappers import instead_of

DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
_MAX_NAMES = 4

Pairs = list[tuple[str, torch.nn.Parameter]]


def refuse_outsider(group: Any) -> None:
    """Raises ValueError if this rank is not in the group: dist.new_group() returned no group on this rank."""
    if isinstance(group, int) and group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(
            "this rank is none of that group's: give each rank a group that it is in, and leave the call out where it "
            "is in none"
        )


def check_group(group: Any) -> None:
    """Raises ValueError if the first argument of State is not a process group."""
    if group is None or isinstance(group, dist.ProcessGroup):
        return
    refuse_outsider(group)
    if isinstance(group, str):
        cure = f"for a codec write State(codec={group!r})"
    elif isinstance(group, torch.nn.Module):
        cure = "for a model call tithe.torch.attach(model)"
    else:
        cure = "leave it out for the default group"
    raise ValueError(f"the first argument of State is a process group, not {_short(group)}: {cure}")


def check_pairs(parameters: Any) -> Pairs:
    """Returns the (name, parameter) pairs as a list. ValueError with the cure for other values."""
    cure = "give (name, parameter) pairs: parameters=model.named_parameters()"
    if isinstance(parameters, torch.nn.Module):
        raise ValueError(f"parameters= is a model: {cure}")
    if isinstance(parameters, dict):
        parameters = parameters.items()
    if not isinstance(parameters, Iterable):
        raise ValueError(f"parameters={_short(parameters)}: {cure}")
    pairs = list(parameters)
    for pair in pairs:
        if isinstance(pair, torch.Tensor):
            raise ValueError(f"parameters= holds tensors without names: {cure}")
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)) or not isinstance(
            pair[1], torch.Tensor
        ):
            raise ValueError(f"parameters= holds {_short(pair)}: {cure}")
    return pairs


def check_callable(loss_scale: Any) -> None:
    if loss_scale is not None and not callable(loss_scale):
        raise ValueError(
            f"loss_scale={_short(loss_scale)}: must be a function, since the scale changes: loss_scale=scaler.get_scale"
        )


def scale_of(loss_scale: Any) -> float:
    """Returns the present loss scale, 1.0 without a function. ValueError if gradients cannot be divided by it."""
    if loss_scale is None:
        return 1.0
    returned = loss_scale()
    try:
        scale = float(returned)
    except (TypeError, ValueError):
        scale = math.nan
    if not 0.0 < scale < math.inf:
        raise ValueError(f"loss_scale() gave {_short(returned)}: must be a finite number above 0")
    return scale


def ddp_of(model: Any) -> DistributedDataParallel:
    """Returns the DDP model itself, without a wrapper of torch.compile(). ValueError names the type of any other
    model."""
    inner = model
    while not isinstance(inner, DistributedDataParallel) and hasattr(inner, "_orig_mod"):
        inner = inner._orig_mod
    if isinstance(inner, DistributedDataParallel):
        return inner
    raise ValueError(f"attach() takes a DistributedDataParallel model, not {type(inner).__name__}{instead_of(inner)}")


def model_group(model: Any) -> dist.ProcessGroup | None:
    """Returns the group through which the other ranks receive a refusal: the model's, or the default group, or None."""
    try:
        return ddp_of(model).process_group
    except ValueError:
        return dist.group.WORLD if dist.is_initialized() else None


def usable_timeout(options: dict[str, Any]) -> float:
    """Returns the timeout for exchanges before the options are checked: the default if timeout= itself is wrong."""
    given = options.get("timeout")
    return float(given) if isinstance(given, int | float) and 0 < given <= 1e9 else _core.Options().timeout


def check_model(model: DistributedDataParallel) -> None:
    """Raises ValueError if the model cannot have tithe's hook, or has parameters whose gradients tithe refuses."""
    if model.mixed_precision is not None:
        raise ValueError(
            "DistributedDataParallel(mixed_precision=...) has a communication hook of its own, and DDP accepts one: "
            "leave mixed_precision= out, and use torch.autocast or parameters of the type that you want"
        )
    if getattr(model, "_delay_all_reduce_params", ()):
        raise ValueError(
            "DistributedDataParallel(delay_all_reduce_named_params=...) averages gradients outside the communication "
            "hook, uncompressed: leave delay_all_reduce_named_params= out"
        )
    if has_hook(model):
        raise ValueError("this model has a communication hook already, and DDP accepts one, once: attach to a new DDP")
    if getattr(model, "_use_python_reducer", False):
        raise ValueError(
            "DDP's python_reducer runs no communication hook: leave torch._dynamo.config.optimize_ddp at its default"
        )
    if model.static_graph:
        types = {str(p.dtype).removeprefix("torch.") for p in model._module_parameters if p.requires_grad}
        if len(types) > 1:
            raise ValueError(
                "DistributedDataParallel(static_graph=True) hands a communication hook the wrong parameters in the "
                f"first step if gradients are of several types ({', '.join(sorted(types))}): leave static_graph= out, "
                "or train parameters of one type"
            )
    check_trained(model.module)


def check_trained(of: torch.nn.Module) -> None:
    """Raises ValueError for parameters whose gradients tithe refuses, by name."""
    ignored = set(getattr(of, "_ddp_params_and_buffers_to_ignore", ()))
    trained = [(n, p) for n, p in of.named_parameters() if p.requires_grad and n not in ignored]
    wrong: dict[str, list[str]] = {}
    for name, parameter in trained:
        if parameter.dtype not in DTYPES:
            wrong.setdefault(str(parameter.dtype).removeprefix("torch."), []).append(name)
    for dtype, names in wrong.items():
        raise ValueError(
            f"gradients of type {dtype} are not supported: {some(names)}; "
            "use float32, bfloat16 or float16 parameters, or requires_grad_(False)"
        )
    sparse = [
        f"{path}.weight" if path else "weight"
        for path, module in of.named_modules()
        if isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag) and module.sparse
    ]
    if sparse:
        raise ValueError(f"sparse gradients are not supported: {some(sparse)}; use nn.Embedding(sparse=False)")


def models_of(state: Any) -> list[DistributedDataParallel]:
    """Returns the DDP models that registered a State, each module once.

    DDP passes a hook neither its model nor the names, but stores hook and state in `_comm_hooks`. So this function asks
    the garbage collector for all DDP models, once per State, at the State's first use.
    """

    kinds = _with_subclasses(DistributedDataParallel)  # isinstance() is slow here and may run code of the object

    def look() -> list[DistributedDataParallel]:
        found = {}
        for thing in gc.get_objects():
            if type(thing) in kinds and any(known is state for _, known in getattr(thing, "_comm_hooks", ())):
                found[id(thing.module)] = thing
        return list(found.values())

    models = look()
    if len(models) > 1:
        del models
        gc.collect()  # collects models without references, which do not count
        models = look()
    return models


def _with_subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(_with_subclasses, kind.__subclasses__()))


def some(names: Sequence[str], mark: str = "'") -> str:
    """Returns the first names of a list, and the number of the others."""
    rest = len(names) - _MAX_NAMES
    return ", ".join(f"{mark}{name}{mark}" for name in names[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _short(value: Any) -> str:
    """Returns a value or its type, on one line."""
    if value is None or isinstance(value, str | int | float | bool):
        return repr(value)
    return f"an object of type {type(value).__name__}"
