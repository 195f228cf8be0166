# SPDX-License-Identifier: Apache-2.0
"""The cure for each wrapper of multi-device training that attach() and the hook do not take."""

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
    """Returns the cure for a model that is not a DDP model, as the end of an error text; "" for an unknown type."""
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
    """Raises ValueError if FSDP calls the hook. FSDP passes a tensor instead of a bucket."""
    if isinstance(bucket, torch.Tensor):
        raise ValueError(
            "tithe.torch.hook was called with a tensor, as FullyShardedDataParallel calls its communication hooks, "
            f"and takes DDP's buckets: {_SHARDED}"
        )
