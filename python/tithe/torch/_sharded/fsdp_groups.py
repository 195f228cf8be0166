# SPDX-License-Identifier: Apache-2.0
"""Parameter groups that are sharded over all ranks: names, sizes, and the models that attach() refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter

from tithe.torch._common.checks import DTYPES, some
from tithe.torch._device.device import check_device
from tithe.torch._sharded.groups import Group, _inner_groups, _private
from tithe.torch._sharded.settings import WEIGHTS

_OWN = ("mesh_info", "post_forward_mesh_info", "_all_gather_comm", "_reduce_scatter_comm", "post_backward", "comm_ctx",
        "mp_policy", "device")  # fmt: skip


class ShardedGroup(Group):
    """One parameter group of a module that fully_shard() shards over all ranks."""

    def __init__(self, place: int, inner: Any, module: torch.nn.Module, names: dict[int, str], path: str) -> None:
        super().__init__(place, _private(inner, _OWN), module, names)
        self.path = path or "the whole model"
        self._row: list[tuple[str, int]] = []  # the row of the running post_backward

    @property
    def process_group(self) -> dist.ProcessGroup:
        return self._inner.mesh_info.shard_process_group

    @property
    def device(self) -> torch.device:
        return self._inner.device

    def check_alone(self) -> None:
        """ValueError, by name, for a group that tithe cannot synchronise."""
        own = "this model is attached already: its State is the one that attach() gave"
        for comm, default, what in (
            (self._inner._all_gather_comm, DefaultAllGather, "all_gather"),
            (self._inner._reduce_scatter_comm, DefaultReduceScatter, "reduce_scatter"),
        ):
            kind = type(comm)
            if kind is default:
                continue
            if kind.__module__.startswith("tithe."):
                raise ValueError(own)
            if kind.__name__.startswith("SymmMem"):
                raise ValueError(
                    f"'{self.path}' has symmetric memory for its collectives, and tithe's use memory of the host: "
                    "leave set_symm_mem_for_comm() out"
                )
            if kind.__name__.startswith("ProcessGroupAlloc"):
                raise ValueError(
                    f"'{self.path}' takes memory for its collectives from the process group, which tithe's do not "
                    "use: leave set_allocate_memory_from_process_group_for_comm() out"
                )
            raise ValueError(
                f"'{self.path}' has a custom {what} already ({kind.__name__}): leave set_custom_{what}() out, or "
                "attach()"
            )
        names = [name for name, _ in self._seen]
        if any(shard.offload_to_cpu for shard in self._shards):
            raise ValueError(
                f"CPU offload is not supported where the model is sharded over all ranks: {some(names)}; leave "
                "CPUOffloadPolicy() out of fully_shard(), or use a mesh with a replicate dimension "
                "(docs/guide/python.md)"
            )
        if self.device.type != "cpu":
            check_device(self.device)
            try:
                torch.empty(1, pin_memory=True)
            except RuntimeError as why:
                raise ValueError(
                    f"'{self.path}' is on {self.device}, without pinned host memory ({why}), through which tithe "
                    "copies weights and gradients: let the process lock more memory, or train on the CPU"
                ) from why
        reduced = self._inner.mp_policy.reduce_dtype
        if reduced is not None and reduced not in DTYPES:
            raise ValueError(
                f"'{self.path}' reduces gradients as {reduced}: use torch.float32, or leave reduce_dtype out"
            )

    def whole(self, name: str) -> torch.Tensor:
        """Returns a parameter by its name: a DTensor, whose shape is that of all ranks' shards together."""
        return next(s.sharded_param for s, (each, _) in zip(self._shards, self._seen, strict=True) if each == name)

    def keeps_copies_within_fewer_ranks(self) -> bool:
        """Returns True if backward gathers weights from fewer ranks than forward (reshard_after_forward=<int>)."""
        after = self._inner.post_forward_mesh_info
        return after is not None and after.shard_mesh_size != self._inner.mesh_info.shard_mesh_size

    def gathered_bytes(self) -> int:
        """Returns the size of a weight in all-gathers."""
        return (self._inner.mp_policy.param_dtype or self._shards[0].sharded_param.dtype).itemsize

    def pinned_bytes(self, world: int) -> tuple[int, int]:
        """Returns the pinned host memory that an all-gather and a reduce-scatter of a group on an accelerator need."""
        policy, own = self._inner.mp_policy, self._shards[0].sharded_param.dtype
        reduced = policy.reduce_dtype or policy.param_dtype or own
        values = sum(shard.padded_sharded_param_size.numel() for shard in self._shards)
        return world * values * self.gathered_bytes(), values * (world * reduced.itemsize + own.itemsize)

    def weights_key(self, dtype: torch.dtype) -> str:
        return f"{WEIGHTS}.{DTYPES[dtype]}/{self.path}"

    def delta_key(self, dtype: torch.dtype) -> str:
        return f"{WEIGHTS}.delta.{DTYPES[dtype]}/{self.path}"

    # ---- the reduce-scatter of a backward

    def watch_rows(self) -> Callable[[], None]:
        """Wraps post_backward(), so that row() has the parameters with a gradient. Returns a function that removes the
        wrapper.

        FSDP2 omits parameters without a gradient from the row, and does not list them. They can only be read at the
        start of post_backward(), which then removes the gradients.
        """
        original = self._inner.post_backward

        def post_backward(*unused: Any) -> None:
            self._row = [
                (name, shard.padded_sharded_param_size.numel())
                for shard, (name, _) in zip(self._shards, self._seen, strict=True)
                if self._has_gradient(shard)
            ]
            original(*unused)

        self._inner.post_backward = post_backward
        return lambda: delattr(self._inner, "post_backward")

    def _has_gradient(self, shard: Any) -> bool:
        whole = getattr(shard, "_unsharded_param", None)
        if whole is None:
            return False
        return (
            shard.unsharded_accumulated_grad is not None
            or whole.grad is not None
            or (self._inner.reduce_scatter_unused_params and whole.requires_grad)
        )

    def row(self, values: int) -> tuple[list[str], list[int]]:
        """Returns names and sizes of the pieces in a row of the running reduce-scatter, in order."""
        row = [(name, piece) for name, piece in self._row if piece > 0]
        if sum(piece for _, piece in row) != values:
            raise ValueError(
                f"FSDP2 reduces {values} values per rank of '{self.path}', and tithe counts "
                f"{sum(piece for _, piece in row)}: detach() the State, and report this model"
            )
        return [name for name, _ in row], [piece for _, piece in row]

    def max_open(self) -> int:
        return self._inner.comm_ctx.reduce_scatter_max_input_buffers

    def _read_by_others(self) -> bool:
        return self._inner._all_reduce_hook is not None

    def output_dtype(self, reduced: torch.dtype) -> torch.dtype:
        """Returns the type of the memory for the result, if gradients are reduced as `reduced`."""
        inner = self._inner
        if self._read_by_others() or inner.force_sum_reduction_for_comms or reduced == torch.float16:
            return reduced
        return inner._orig_dtype or reduced

    def used_at_once(self, flat: torch.Tensor, sums: bool = False) -> bool:
        return self._read_by_others() or super().used_at_once(flat, sums)

    def set_comms(self, gather: Any, scatter: Any) -> None:
        self._module.set_custom_all_gather(gather)
        self._module.set_custom_reduce_scatter(scatter)

    def reset_comms(self) -> None:
        self.set_comms(DefaultAllGather(), DefaultReduceScatter())


def sharded_groups(model: torch.nn.Module) -> list[ShardedGroup]:
    """Returns the parameter groups of a model that is sharded over all ranks. ValueError describes the defect of the
    model."""
    names = {id(p): name.replace("_orig_mod.", "") for name, p in model.named_parameters()}
    paths = {id(module): name.replace("_orig_mod.", "") for name, module in model.named_modules()}
    found = _inner_groups(model)
    groups = []
    for at, (inner, module) in enumerate(found):
        path = paths[id(module)]
        count = len(module._get_fsdp_state()._fsdp_param_groups)
        if count > 1:
            raise ValueError(
                f"'{path or 'the whole model'}' has {count} parameter groups, from a shard_placement_fn that gives "
                "parameters meshes of their own, and tithe takes one per module: put these parameters into a module "
                "of their own, and call fully_shard(that module, mesh=...)"
            )
        group = ShardedGroup(at, inner, module, names, path)
        group.check(None)
        group.check_alone()
        groups.append(group)
    kinds = sorted({group.device.type for group in groups})
    if len(kinds) > 1:
        raise ValueError(
            f"the model's modules are sharded on devices of {len(kinds)} types, {' and '.join(kinds)}: use one mesh "
            "for all modules, or attach() to those of one mesh and leave the others to FSDP2"
        )
    apart = {tuple(dist.get_process_group_ranks(group.process_group)) for group in groups}
    if len(apart) > 1:
        raise ValueError(
            f"the model's modules are sharded over different ranks, {sorted(apart)}: attach() takes one mesh; give all "
            "modules the same mesh, or attach() to those of one mesh and leave the others to FSDP2"
        )
    return groups
