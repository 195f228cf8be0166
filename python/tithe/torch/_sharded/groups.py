# SPDX-License-Identifier: Apache-2.0
"""The private parts of PyTorch's FSDP2 that tithe uses: parameter groups, their meshes and their all-reduce.

tithe relies on them as they are in torch 2.13. Any other version is refused before anything is changed, since the same
names may have another meaning there.
"""

import copy
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from tithe.torch._common.checks import DTYPES, some

_READ_IN = "2.13"
_PARAMETER = ("sharded_param", "padded_sharded_param_size", "_sharded_param_data", "offload_to_cpu")
_GROUP = ("fsdp_params", "mesh_info", "gradient_divide_factor", "force_sum_reduction_for_comms", "_all_reduce_hook")
_SHARD = (("size", 1), ("rank", 0))  # attributes of a mesh, and their values without a shard dimension

Reduce = Callable[[torch.Tensor, bool], None]


def is_sharded(model: Any) -> bool:
    """Returns True if fully_shard() or replicate() made the model or a part of it."""
    kind = getattr(getattr(dist, "fsdp", None), "FSDPModule", None)
    return kind is not None and isinstance(model, torch.nn.Module) and any(isinstance(m, kind) for m in model.modules())


def check_version() -> None:
    """Raises ValueError unless this is the supported version of torch."""
    if not torch.__version__.startswith(f"{_READ_IN}."):
        raise ValueError(
            f"torch {torch.__version__}: attach() finds gradients of fully_shard() where torch {_READ_IN} keeps them. "
            f"That place is private and changes: use torch {_READ_IN}, or DistributedDataParallel"
        )


def _private(thing: Any, names: Sequence[str]) -> Any:
    missing = [name for name in names if not hasattr(thing, name)]
    if missing:
        raise ValueError(
            f"torch {torch.__version__} has no {type(thing).__name__}.{missing[0]}, by which tithe knows the gradients "
            f"of fully_shard() (read in torch {_READ_IN}): use that version, or DistributedDataParallel"
        )
    return thing


class _Replicas(dist.ProcessGroup):
    """Replaces FSDP2's process group of the ranks with the same shard. It implements the all-reduce only."""

    def __init__(self, native: dist.ProcessGroup, reduce: Reduce) -> None:
        super().__init__(native.rank(), native.size())
        self.native = native
        self._reduce = reduce

    def allreduce(self, tensors: list[torch.Tensor], options: Any = None) -> None:
        (flat,) = tensors
        sums = options is not None and options.reduceOp != dist.ReduceOp.AVG
        self._reduce(flat, sums)

    def getBackendName(self) -> str:
        return "tithe"


class Group:
    """One parameter group of FSDP2. place: its number in the model, the same on all ranks."""

    def __init__(self, place: int, inner: Any, module: torch.nn.Module, names: dict[int, str]) -> None:
        self.place = place
        self._inner = _private(inner, _GROUP)
        self._module = module  # the module with FSDP2's methods for the group
        self._shards = [_private(p, _PARAMETER) for p in inner.fsdp_params]
        size, shard = (getattr(inner.mesh_info, f"shard_mesh_{what}", default) for what, default in _SHARD)
        self.shard = f"shard {shard} of {size}" if size > 1 else "all"
        self.first = shard == 0
        # The parameters of the State: this rank's shards with padding, as in the group's gradients.
        self._seen = [
            (names[id(p.sharded_param)], torch.nn.Parameter(self._values(p), p.sharded_param.requires_grad))
            for p in self._shards
        ]

    @staticmethod
    def _values(shard: Any) -> torch.Tensor:
        data = shard._sharded_param_data
        if data.is_meta:
            raise ValueError(
                "the model is on the meta device: give it memory and values (model.to_empty(...), then its weights) "
                "before tithe.torch.attach()"
            )
        return data.detach().view(shard.padded_sharded_param_size)

    def named(self) -> list[tuple[str, torch.nn.Parameter]]:
        """Returns (name, shard) of each parameter."""
        return self._seen

    def stepped(self) -> list[tuple[str, torch.nn.Parameter, torch.nn.Parameter]]:
        """Returns (name, the optimizer's parameter, the shard with padding as in the group's gradients) of each
        parameter."""
        pairs = zip(self._shards, self._seen, strict=True)
        return [(name, shard.sharded_param, seen) for shard, (name, seen) in pairs]

    def refresh(self) -> None:
        """Updates the shards: FSDP2 may have moved the values to other memory, for example in its first forward."""
        for shard, (_, seen) in zip(self._shards, self._seen, strict=True):
            seen.data = self._values(shard)
            seen.requires_grad_(shard.sharded_param.requires_grad)

    def find(self, parameter: torch.nn.Parameter) -> torch.nn.Parameter | None:
        """Returns the shard of one of the model's parameters."""
        for shard, (_, seen) in zip(self._shards, self._seen, strict=True):
            if shard.sharded_param is parameter:
                return seen
        return None

    def parameters(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Returns the shards in the order of their gradients. ValueError if a parameter has no gradient."""
        pairs = zip(self._shards, self._seen, strict=True)
        trained = [(name, seen) for shard, (name, seen) in pairs if shard.sharded_param.requires_grad]
        values = sum(seen.numel() for _, seen in trained)
        if values != flat.numel():
            raise ValueError(
                f"some of {some([name for name, _ in trained])} took no part in this step ({flat.numel()} of {values} "
                "values came), and FSDP2 does not tell which: model.set_reduce_scatter_unused_params(True), or "
                "requires_grad_(False) for what never trains"
            )
        return [seen for _, seen in trained]

    def used_at_once(self, flat: torch.Tensor, sums: bool) -> bool:
        """Returns True if FSDP2 reads, copies or changes the values before the end of backward."""
        inner = self._inner
        return (
            self.divided(flat, sums)
            or (self.native() is not None and inner._all_reduce_hook is not None)  # a hook of the user, after tithe's
            or any(
                p.offload_to_cpu
                or p.sharded_param.dtype != flat.dtype
                or p.sharded_param.grad is not None
                or getattr(p.sharded_param, "_post_accumulate_grad_hooks", None)
                for p in self._shards
            )
        )

    def divided(self, flat: torch.Tensor, sums: bool) -> bool:
        """Returns True if FSDP2 divides the values again after the exchange."""
        forced = self._inner.force_sum_reduction_for_comms
        return (sums or self.native() is None) and (forced or flat.dtype == torch.float16)

    def native(self) -> dist.ProcessGroup | None:
        """Returns the process group of the ranks with the same shard; None in a mesh without replicas."""
        group = getattr(self._inner.mesh_info, "replicate_process_group", None)
        return group.native if isinstance(group, _Replicas) else group

    def check(self, replicas: dist.ProcessGroup | None) -> None:
        """Raises ValueError if the group cannot be averaged."""
        if isinstance(getattr(self._inner.mesh_info, "replicate_process_group", None), _Replicas):
            raise ValueError("this model is attached already: its State is the one that attach() gave")
        if self.native() is not None and replicas is not None:
            raise ValueError(
                "replicas= is for a mesh without a replicate dimension, and this one has one: leave it out"
            )
        if replicas is not None and self._inner._all_reduce_hook is not None:
            raise ValueError(
                "this model has an all-reduce hook already (set_all_reduce_hook): leave it out, or attach()"
            )
        for name, seen in self._seen:
            if seen.requires_grad and seen.dtype not in DTYPES:
                raise ValueError(
                    f"gradients of type {str(seen.dtype).removeprefix('torch.')} are not supported: '{name}'; use "
                    "float32, bfloat16 or float16 parameters, or requires_grad_(False)"
                )

    def hand_over(self, reduce: Reduce, replicas: dist.ProcessGroup | None) -> None:
        """Passes gradients to `reduce` from now on, with a flag that requests sums instead of means."""
        if replicas is not None:
            self._module.set_all_reduce_hook(lambda flat: reduce(flat, False))
            return
        # Several groups may share one mesh, and each needs its own process group.
        info = copy.copy(self._inner.mesh_info)
        info.replicate_process_group = _Replicas(info.replicate_process_group, reduce)
        self._inner.mesh_info = info


def groups_of(model: torch.nn.Module, replicas: dist.ProcessGroup | None) -> list[Group]:
    """Returns the groups whose gradients are averaged between replicas. ValueError for a model that tithe refuses."""
    names = {id(p): name.replace("_orig_mod.", "") for name, p in model.named_parameters()}
    groups = [Group(at, inner, module, names) for at, (inner, module) in enumerate(_inner_groups(model))]
    if replicas is None:
        groups = [group for group in groups if group.native() is not None]
    for group in groups:
        group.check(replicas)
    apart = {tuple(dist.get_process_group_ranks(group.native())) for group in groups if group.native() is not None}
    if len(apart) > 1:
        raise ValueError(
            f"the model's parameter groups are replicated over different ranks, {sorted(apart)}: attach() takes one "
            "set of replicas; attach to the modules one by one"
        )
    return groups


def shards_over_all_ranks(model: torch.nn.Module) -> bool:
    """Returns True if no two ranks hold the same shard: a mesh of one dimension, and no replicate()."""
    return all(_replicas_of(inner) is None for inner, _ in _inner_groups(model))


def over_replicas(model: torch.nn.Module, replicas: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """Returns the group of the ranks with the same shards as this one. ValueError, with the cure, for a model without
    replicas."""
    if replicas is not None:
        return replicas
    group = next(group for inner, _ in _inner_groups(model) if (group := _replicas_of(inner)) is not None)
    return group.native if isinstance(group, _Replicas) else group


def _replicas_of(inner: Any) -> dist.ProcessGroup | None:
    return getattr(_private(inner, _GROUP).mesh_info, "replicate_process_group", None)


def _inner_groups(model: torch.nn.Module) -> list[tuple[Any, torch.nn.Module]]:
    found: dict[int, tuple[Any, torch.nn.Module]] = {}
    for module in model.modules():
        if isinstance(module, dist.fsdp.FSDPModule):
            state = _private(module, ["_get_fsdp_state"])._get_fsdp_state()
            for inner in _private(state, ["_fsdp_param_groups"])._fsdp_param_groups:
                found.setdefault(id(inner), (inner, module))
    return list(found.values())


def shard_text(shards: dict[str, str]) -> str:
    """Returns a short text that is equal on two ranks if and only if all their shards are equal (up to a 32-bit
    hash)."""
    kinds = ", ".join(sorted(set(shards.values())))
    return f"{kinds} ({hashlib.blake2b(repr(sorted(shards.items())).encode(), digest_size=4).hexdigest()})"
