# SPDX-License-Identifier: Apache-2.0
"""Whether a saved state fits the model that takes it, and where in memory a parameter's values stand."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tithe.torch._common.checks import some

_log = logging.getLogger("tithe.torch")

SavedParameter = Mapping[str, Any]  # what a saved state tells of a parameter: shape, dtype, print, order

NAMES_CURE = "make the State with parameters=model.named_parameters(), as attach() does, when saving and when loading"


def memory_order(parameter: torch.Tensor) -> list[int]:
    """Its dimensions, from the one whose steps in memory are longest: [0, 1, 2, 3]; [0, 2, 3, 1] for channels_last.

    DDP lays gradients out in its buckets like this, so that residuals lie in a session like this. Dimensions of one
    place are left out: where they stand changes nothing. What has gaps in memory is laid out row by row.
    """
    rows = [d for d in range(parameter.dim()) if parameter.shape[d] > 1]
    order = sorted(rows, key=lambda d: -parameter.stride(d))
    step = 1
    for d in reversed(order):
        if parameter.stride(d) != step:
            return rows
        step *= parameter.shape[d]
    return order


def laid_out_like(parameter: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A float32 tensor of the parameter's shape on the host, and its values as they lie in the parameter's bucket."""
    order = memory_order(parameter)
    order += [d for d in range(parameter.dim()) if d not in order]
    flat = torch.empty(parameter.numel(), dtype=torch.float32)
    shaped = flat.view([parameter.shape[d] for d in order])
    return shaped.permute([order.index(d) for d in range(parameter.dim())]), flat


def flat_of(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Float32 copies of a parameter-shaped tensor's values, as they lie in the parameter's bucket."""
    shaped, flat = laid_out_like(parameter)
    shaped.copy_(tensor)
    return flat


def check_rank(saved: Mapping[str, Any], rank: int, world: int, any_rank: bool) -> None:
    """ValueError where a state was saved by another number of ranks, or by another rank and that matters."""
    if saved["world"] != world:
        raise ValueError(
            f"the state was saved by {saved['world']} ranks and this job has {world}: "
            f"start {saved['world']} ranks, or start without the state (what was unsent is then lost)"
        )
    if saved["rank"] != rank and not any_rank:
        raise ValueError(
            f"the state was saved by rank {saved['rank']} and this is rank {rank}: residuals differ between ranks, "
            "save and load one state per rank"
        )


def check_parameters(
    saved: Mapping[str, SavedParameter], names: Mapping[int, tuple[str, torch.nn.Parameter]]
) -> tuple[list[str], list[str]]:
    """Names that a saved state lacks, and names that it has and the model does not train.

    saved: what a state tells, by name. names: by id. ValueError names what cannot be: other shapes, another memory
    format, another model.
    """
    if not saved or not names:
        return [], []
    first = next(iter(saved))
    if first.startswith("#"):
        known = next(iter(names.values()))[0]
        raise ValueError(f"the loaded state was saved without names and this State has them ('{known}'): {NAMES_CURE}")
    model = dict(names.values())
    trained = [name for name, p in model.items() if p.requires_grad]
    both = [name for name in saved if name in model]
    if not both:
        raise ValueError(
            f"the loaded state is of another model: it has {some(list(saved))}, this one {some(trained)}; "
            "load the state that was saved with this model"
        )
    shapes = [
        f"'{name}' {tuple(saved[name]['shape'])} in the state and {tuple(model[name].shape)} in the model"
        for name in both
        if list(saved[name]["shape"]) != list(model[name].shape)
    ]
    if shapes:
        raise ValueError(f"shapes differ: {some(shapes, '')}; load the state that was saved with this model")
    formats = [name for name in both if not same_order(saved[name], model[name])]
    if formats:
        raise ValueError(other_format(some(formats)))
    return [name for name in trained if name not in saved], sorted(set(saved) - set(trained))


def log_differences(lacks: Sequence[str], keeps: Sequence[str]) -> None:
    """A line each in the log for what check_parameters() gave."""
    if lacks:
        _log.warning("the loaded state has nothing of %s: nothing of theirs is unsent", some(lacks))
    if keeps:
        _log.warning("what the loaded state has of %s is kept until they train again", some(keeps))


def same_order(entry: SavedParameter, parameter: torch.Tensor) -> bool:
    """States of before do not tell, and count as fitting."""
    now = memory_order(parameter)
    return list(entry.get("order", now)) == now


def other_format(names: str) -> str:
    return (
        f"the loaded state was saved with another memory format of {names}, and residuals lie as the parameters do: "
        "convert the model before DistributedDataParallel as it was when saved, as by "
        "model.to(memory_format=torch.channels_last)"
    )
