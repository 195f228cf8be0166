# SPDX-License-Identifier: Apache-2.0
"""Copies of a DDP model, made by copy.deepcopy() or torch.load(). PyTorch copies the list of hooks, but not the hook.

A copy has the residuals of its State, and trains without tithe until it is attached again.
"""

import logging
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tithe import _core

_log = logging.getLogger("tithe.torch")

NO_HOOK = (
    "PyTorch copies no communication hook: a copied or loaded DistributedDataParallel trains without tithe until "
    "tithe.torch.attach(copy), which goes on from its residuals"
)


def has_hook(model: DistributedDataParallel) -> bool:
    """Returns True if DDP calls a hook. The list of hooks does not show this, since a copy has the list too."""
    return bool(model._get_ddp_logging_data().get("comm_hook"))


def warn_if_model_copied(memo: Mapping[int, Any]) -> None:
    """Logs one line if the State is part of a copied model. Called when a State is copied."""
    if any(issubclass(type(made), DistributedDataParallel) for made in memo.values()):
        _log.warning("%s", NO_HOOK)


def restore_copied_state(model: DistributedDataParallel, state: Any) -> None:
    """Loads the residuals of a copied model into the copy's new State. Called before register_comm_hook()."""
    for _, old in model.__dict__.get("_comm_hooks", ()):
        saved = getattr(old, "_saved", None) if isinstance(old, type(state)) else None
        if saved is None:
            continue
        old._unused.detach()
        why = _misfit(saved, state, dist.get_rank(model.process_group), dist.get_world_size(model.process_group))
        if why is None:
            state.load_state_dict(saved)
        else:
            _log.warning("the residuals that this copied model came with are not taken over: %s", why)
    model._comm_hooks = []


def _misfit(saved: Mapping[str, Any], state: Any, rank: int, world: int) -> str | None:
    """Returns the reason why a State cannot load the residuals; None if it can."""
    if (saved["rank"], saved["world"]) != (rank, world):
        return f"they are of rank {saved['rank']} of {saved['world']}, and this is rank {rank} of {world}"
    codec = _core.check_codec(state.codec)
    if (saved["codec"], saved["choices"]) != (codec, state._choices()):
        return f"they were made with codec {saved['codec']} and its choices, and this State has {codec}"
    return None
