# SPDX-License-Identifier: Apache-2.0
"""Checks that a saved state fits the model, and the order of a parameter's values in memory."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tithe.torch._common.checks import some

_log = logging.getLogger("tithe.torch")

SavedParameter = Mapping[str, Any]  # an entry of a saved state: shape, dtype, print (fingerprint), order

NAMES_CURE = "make the State with parameters=model.named_parameters(), as attach() does, when saving and when loading"


def memory_order(parameter: torch.Tensor) -> list[int]:
    """Returns the dimensions by descending stride: [0, 1, 2, 3], or [0, 2, 3, 1] for channels_last.

    DDP lays out gradients in its buckets in this order, and the session its residuals. Dimensions of size 1 are
    omitted, since their position changes nothing. A parameter with gaps in memory is laid out row by row.
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
    """Returns a float32 tensor of the parameter's shape on the host, and the same memory as flat values in bucket
    order."""
    order = memory_order(parameter)
    order += [d for d in range(parameter.dim()) if d not in order]
    flat = torch.empty(parameter.numel(), dtype=torch.float32)
    shaped = flat.view([parameter.shape[d] for d in order])
    return shaped.permute([order.index(d) for d in range(parameter.dim())]), flat


def flat_of(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Returns a float32 copy of a parameter-shaped tensor's values, in bucket order."""
    shaped, flat = laid_out_like(parameter)
    shaped.copy_(tensor)
    return flat


def check_rank(saved: Mapping[str, Any], rank: int, world: int, any_rank: bool) -> None:
    """Raises ValueError for a state of another world size, or of another rank unless any_rank."""
    if saved["world"] != world:
        raise ValueError(
            f"the state was saved by {saved['world']} ranks and this job has {world}: "
            f"start {saved['world']} ranks, or start without the state (the residuals are then lost)"
        )
    if saved["rank"] != rank and not any_rank:
        raise ValueError(
            f"the state was saved by rank {saved['rank']} and this is rank {rank}: residuals differ between ranks, "
            "save and load one state per rank"
        )


def check_parameters(
    saved: Mapping[str, SavedParameter], names: Mapping[int, tuple[str, torch.nn.Parameter]]
) -> tuple[list[str], list[str]]:
    """Returns the names that a saved state lacks, and the names of the state that the model does not train.

    names: by id. ValueError, by name, for other shapes, another memory format or another model.
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
    """Logs a line for each list of check_parameters()."""
    if lacks:
        _log.warning("the loaded state has no residuals of %s: they begin empty", some(lacks))
    if keeps:
        _log.warning("the loaded residuals of %s are kept until they train again", some(keeps))


def same_order(entry: SavedParameter, parameter: torch.Tensor) -> bool:
    """Returns True if the memory format is the saved one. A state without the order fits every format."""
    now = memory_order(parameter)
    return list(entry.get("order", now)) == now


def other_format(names: str) -> str:
    return (
        f"the loaded state was saved with another memory format of {names}, and residuals lie as the parameters do: "
        "convert the model before DistributedDataParallel as it was when saved, as by "
        "model.to(memory_format=torch.channels_last)"
    )
