# SPDX-License-Identifier: Apache-2.0
"""tithe for Hugging Face's Accelerate.

    import tithe.accelerate
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    state = tithe.accelerate.attach(accelerator, model)                              # after prepare
    state = tithe.accelerate.attach(accelerator, model, codec="qtopk:ratio=0.03")

`accelerator.save_state(folder)` then writes one file of residuals per rank, beside the files of random numbers, and
`accelerator.load_state(folder)` loads them: call it before the first step. With mixed_precision="fp16" tithe reads the
loss scale from the accelerator's scaler.

attach() also takes a model that FSDP2 shards inside hosts and replicates between them
(ParallelismConfig(dp_replicate_size=..., dp_shard_size=...); docs/guide/python.md, Sharded models).

If only rank 0 may write, use per_rank=False: the states of all ranks are gathered and saved by
`accelerator.register_for_checkpointing`, 4 bytes per parameter and rank. Registering the State itself would save rank
0's state only, from which no other rank can continue.
"""

from pathlib import Path
from typing import Any

try:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
except ModuleNotFoundError as error:
    from tithe._missing import no_torch

    raise no_torch("tithe.accelerate", error) from None

from tithe import _core
from tithe._choices import is_lossless
from tithe.torch import Gathered, State
from tithe.torch import attach as attach_model
from tithe.torch._checkpoint.rank_files import read_state, write_state

__all__ = ["attach"]

_DEFAULT = _core.Options()


def attach(
    accelerator: Any,
    model: torch.nn.Module,
    codec: str | None = None,
    strategy: str = _DEFAULT.strategy,
    *,
    per_rank: bool = True,
    **options: Any,
) -> State | None:
    """Makes a prepared model synchronise its gradients through tithe, and save and load residuals with the accelerator.

    Collective. model: the model that accelerator.prepare() returned.
    codec, strategy, options: as tithe.torch.attach() takes them.
    per_rank: if true, each rank writes a file of its own; else rank 0 writes the states of all ranks.
    Returns the State; None with a single process, which has nothing to synchronise.
    """
    if accelerator.num_processes == 1:
        return None
    if accelerator.scaler is not None:
        options.setdefault("loss_scale", accelerator.scaler.get_scale)
    state = attach_model(model, codec, strategy, **options)
    if not per_rank:
        accelerator.register_for_checkpointing(Gathered(state))
        return state
    mine = _core_of(model)

    def file(models: list[torch.nn.Module], folder: str) -> Path:
        # load_state() passes no sharded models.
        place = next(i for i, other in enumerate(models or accelerator._models) if _core_of(other) is mine)
        return Path(folder) / f"tithe_{place}_rank_{dist.get_rank()}.pt"

    def save(models: list[torch.nn.Module], weights: list[Any], folder: str) -> None:
        write_state(state.state_dict(), file(models, folder))

    def load(models: list[torch.nn.Module], folder: str) -> None:
        state._together("accelerator.load_state()", lambda: take(models, folder))

    def take(models: list[torch.nn.Module], folder: str) -> None:
        path = file(models, folder)
        if not path.exists() and is_lossless(codec, options.get("choices")):
            return  # there are no residuals
        if not path.exists():
            raise ValueError(
                f"{path} is not there: the checkpoint was saved without tithe, with fewer ranks, or this host cannot "
                "see the folder. To continue without the residuals, load before tithe.accelerate.attach()"
            )
        state.load_state_dict(read_state(path))

    accelerator.register_save_state_pre_hook(save)
    accelerator.register_load_state_pre_hook(load)
    return state


def _core_of(model: Any) -> Any:
    """Returns the model without wrappers of DDP and torch.compile(): the accelerator lists models as before
    prepare()."""
    while True:
        inner = getattr(model, "_orig_mod", model)
        if isinstance(inner, DistributedDataParallel):
            inner = inner.module
        if inner is model:
            return model
        model = inner
