# SPDX-License-Identifier: Apache-2.0
"""Other ways to train on several devices that people give to attach() or register our hook with, and what to do."""

from typing import Any

import torch

_WRAP = "wrap it first, model = DistributedDataParallel(model)"
_SHARDED = (
    "tithe has no place in its collectives. Use FSDP2, fully_shard(), which attach() takes; or where the model and its "
    "optimizer fit on each device, use DistributedDataParallel(model) instead"
)
_BY_HAND = (
    "state = tithe.torch.State(parameters=model.named_parameters(), codec=...); "
    "model.register_comm_hook(state, tithe.torch.hook), before the first forward"
)


def instead_of(model: Any) -> str:
    """What to do with something that is no DDP model, to stand behind its type's name; "" where nobody knows."""
    names = {kind.__name__ for kind in type(model).__mro__}
    modules = {kind.__module__ for kind in type(model).__mro__}
    if "torch.distributed._composable.replicate" in modules:
        return f", which replicate() made. Register the hook by hand: {_BY_HAND}; or {_WRAP} in place of replicate()"
    if isinstance(model, torch.nn.Module) and any(hasattr(p, "device_mesh") for p in model.parameters()):
        return (
            " whose parameters are DTensors that no fully_shard() made (SimpleFSDP, tensor parallelism): tithe takes "
            "the place of FSDP2's collectives, so use fully_shard() in place of SimpleFSDP"
        )
    if "FullyShardedDataParallel" in names:
        return f": {_SHARDED}"
    if isinstance(model, torch.nn.DataParallel):
        return (
            ", which is one process with a thread per device, so that no gradient travels between processes: start a "
            f"process per device with torchrun, and {_WRAP.replace('model)', 'model.module)')}"
        )
    if isinstance(model, torch.nn.Module):
        return f": {_WRAP} (Accelerate: call attach after prepare)"
    return ""


def check_bucket(bucket: Any) -> None:
    """ValueError where somebody else than DDP calls the hook: FSDP calls its own with tensors."""
    if isinstance(bucket, torch.Tensor):
        raise ValueError(
            "tithe.torch.hook was called with a tensor, as FullyShardedDataParallel calls its communication hooks, "
            f"and takes DDP's buckets: {_SHARDED}"
        )
