# SPDX-License-Identifier: Apache-2.0
"""Reduce-scatters and all-gathers of a process group of backend "tithe"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from tithe import _core
from tithe.torch._common.checks import DTYPES
from tithe.torch._device.route import BucketRoute
from tithe.torch._hook.job import Job
from tithe.torch._sharded.settings import any_residual

_GATHERED = "all_gather"


def gather_rules() -> dict[str, str]:
    """Returns rules that send all-gathers without loss. float16 has a codec of its own, because zip converts it to
    float32."""
    codecs = {"float32": "zip", "bfloat16": "zip", "float16": "fp16"}
    return {f"{_GATHERED} {dtype} *": codec for dtype, codec in codecs.items()}


class ShardJob(Job):
    """One collective. start: hands its tensor to a session. finish: copies the result to the output tensor."""

    __slots__ = ("_finish", "_hand_over")

    def __init__(
        self, tensor: torch.Tensor, hand_over: Callable[[_core.Session], int], finish: Callable[[], None]
    ) -> None:
        super().__init__(0, None, BucketRoute(tensor), last=True)
        self._hand_over, self._finish = hand_over, finish

    def sync(self, session: _core.Session) -> None:
        self.ticket = self._hand_over(session)

    def finish_round(self, dropped: bool, skipped: bool = False) -> None:
        self._finish()


def reduce_scatter(output: torch.Tensor, given: torch.Tensor, rank: int, world: int) -> ShardJob:
    """Makes a job that writes the sum of all ranks' row `rank` of `given` to `output`. `given` does not change."""
    flat, place = given.detach().clone().view(-1), output.detach().view(-1)
    key, bounds = _key("reduce_scatter", flat), _bounds(flat, world)

    def hand_over(session: _core.Session) -> int:
        return session.reduce_scatter([(key, flat)], {key: bounds})

    return ShardJob(output, hand_over, lambda: place.copy_(flat[bounds[rank] : bounds[rank + 1]]))


def all_gather(output: torch.Tensor, given: torch.Tensor, rank: int, world: int) -> ShardJob:
    """Makes a job that writes all ranks' `given`, in the order of ranks, to `output`."""
    flat, mine = output.detach().view(-1), given.detach().view(-1)
    key, bounds = _key(_GATHERED, flat), _bounds(flat, world)
    part = flat[bounds[rank] : bounds[rank + 1]]
    if part.data_ptr() != mine.data_ptr():
        part.copy_(mine)
    return ShardJob(output, lambda session: session.all_gather([(key, flat)], {key: bounds}), lambda: None)


class ShardCollectives:
    """The reduce-scatters and all-gathers of a process group, as a base class of the group."""

    _gloo: Any  # Gloo's group, which does all other collectives
    _options_given: dict[str, Any] | None
    _is_compressed: Callable[[torch.Tensor, Any], bool]
    _put: Callable[[Job, torch.Tensor, bool], dist.Work]  # the flag: whether the sum is divided by world

    def _reduce_scatter_base(self, output: torch.Tensor, given: torch.Tensor, options: Any = None) -> Any:
        if not self._shards(given, output, options):
            return self._gloo._reduce_scatter_base(output, given, *([] if options is None else [options]))
        average = options is not None and options.reduceOp == dist.ReduceOp.AVG
        return self._put(reduce_scatter(output, given, self.rank(), self.size()), output, average)

    def _allgather_base(self, output: torch.Tensor, given: torch.Tensor, options: Any = None) -> Any:
        if not self._shards(output, given, None):
            return self._gloo._allgather_base(output, given, *([] if options is None else [options]))
        return self._put(all_gather(output, given, self.rank(), self.size()), output, False)

    # torch 2.13 calls these names; its functional collectives call the earlier ones.
    reduce_scatter_single, all_gather_single = _reduce_scatter_base, _allgather_base

    def reduce_scatter_single_coalesced(self, outputs: list[Any], inputs: list[Any], options: Any = None) -> Any:
        return self._last([self._reduce_scatter_base(*pair, options) for pair in zip(outputs, inputs, strict=True)])

    def all_gather_single_coalesced(self, outputs: list[Any], inputs: list[Any], options: Any = None) -> Any:
        return self._last([self._allgather_base(*pair, options) for pair in zip(outputs, inputs, strict=True)])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _shards(self, whole: torch.Tensor, part: torch.Tensor, options: Any) -> bool:
        """Returns True if tithe does this reduce-scatter or all-gather: the types and sizes fit, and the codec keeps no
        residual."""
        return (
            self._is_compressed(whole, options)
            and part.dtype == whole.dtype
            and part.is_contiguous()
            and part.numel() * self.size() == whole.numel()
            and not any_residual(self._options_given)
        )

    @staticmethod
    def _last(works: list[dist.Work]) -> dist.Work:
        """Returns the work that ends last: works of tithe end in their order; if one is Gloo's, all but the last are
        awaited."""
        if not all(type(work).__module__.startswith("tithe.") for work in works):
            for work in works[:-1]:
                work.wait()
        return works[-1]


def _key(kind: str, flat: torch.Tensor) -> str:
    return f"{kind} {DTYPES[flat.dtype]} {flat.numel()}"


def _bounds(flat: torch.Tensor, world: int) -> list[int]:
    return [flat.numel() // world * rank for rank in range(world + 1)]
