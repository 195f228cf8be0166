# SPDX-License-Identifier: Apache-2.0
"""Replacements of FSDP2's collectives, for set_custom_reduce_scatter() and set_custom_all_gather().

FSDP2 calls both in the thread of forward and backward, on an accelerator with a stream of its own as the current one:

    all-gather      returns a Work. FSDP2 waits for it before it copies the weights out, so a prefetched module is
                    gathered while other modules compute
    reduce-scatter  FSDP2 does not wait, and processes the result: it casts, adds and calls hooks. If it does none of
                    these, the call returns at once, and a callback at the end of backward waits. As in FSDP2 itself,
                    set_reduce_scatter_max_input_buffers() limits the number of open reduce-scatters

Waiting blocks the host until the round is over, and then the current stream until the result is in the device's memory.
In the call the current stream is FSDP2's reduce-scatter stream, on which FSDP2 processes the result. In the callback it
is the stream that called backward().
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from tithe.torch._common.checks import DTYPES
from tithe.torch._common.parameter_keys import NO_WALK
from tithe.torch._sharded.fsdp_delta import MIN_VALUES, DeltaRound, Previous
from tithe.torch._sharded.fsdp_groups import ShardedGroup
from tithe.torch._sharded.fsdp_rounds import AllGatherRound, ReduceScatterRound, Rounds


class Gather(AllGather):
    """The all-gather of one parameter group.

    FSDP2's own implementation gathers values that are neither float32, bfloat16 nor float16, and the copies that
    reshard_after_forward=<int> keeps within fewer ranks.
    """

    def __init__(self, group: ShardedGroup, rounds: Rounds, ranks: Sequence[int], deltas: bool) -> None:
        """deltas: whether 16-bit weights are sent as differences from the previously gathered weights."""
        self._group, self._rounds, self._ranks = group, rounds, list(ranks)
        self._previous: Previous | None = {} if deltas else None

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        if output_tensor.dtype not in DTYPES or dist.get_process_group_ranks(group) != self._ranks:
            return dist.all_gather_single(output_tensor, input_tensor, group=group, async_op=async_op)
        part = output_tensor.narrow(0, group.rank() * input_tensor.numel(), input_tensor.numel())
        if part.data_ptr() != input_tensor.data_ptr():
            part.copy_(input_tensor)
        key = self._group.weights_key(output_tensor.dtype)
        each: AllGatherRound
        if self._previous is None or output_tensor.element_size() != 2 or input_tensor.numel() < MIN_VALUES:
            each = AllGatherRound(self._rounds, key, output_tensor, group.size())
        else:
            delta_key = self._group.delta_key(output_tensor.dtype)
            each = DeltaRound(self._rounds, key, delta_key, output_tensor, group.size(), self._previous)
        self._rounds.issue(each)
        return each


class Backward:
    """The open reduce-scatters of a backward."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._open: list[ReduceScatterRound] = []
        self._walk = NO_WALK  # the backward at whose end finish() runs
        self.passes = 0  # backward passes that had a reduce-scatter

    def make_room(self, most: int) -> None:
        """Waits until fewer than `most` reduce-scatters hold gradients."""
        under_way = [each for each in self._open if not each.is_completed()]
        for each in under_way[: max(0, len(under_way) - most + 1)]:
            each.hold()

    def put(self, each: ReduceScatterRound, at_once: bool) -> None:
        """Issues a reduce-scatter. at_once: the caller uses the result as soon as this function returns."""
        self._rounds.issue(each)
        self._open.append(each)
        walk = torch._C._current_graph_task_id()
        if walk != self._walk:
            self._walk = walk
            self.passes += 1
            if walk != NO_WALK:
                torch.autograd.Variable._execution_engine.queue_callback(self.finish)
        if at_once or walk == NO_WALK:
            self._wait()

    def finish(self) -> None:
        """Returns when all gradients are reduced; raises the first error."""
        self._walk = NO_WALK
        self._wait()

    def _wait(self) -> None:
        waiting, self._open = self._open, []
        for each in waiting:
            each.hold()
        for each in waiting:
            each.wait()


class Scatter(ReduceScatter):
    """The reduce-scatter of one parameter group."""

    def __init__(self, group: ShardedGroup, rounds: Rounds, backward: Backward) -> None:
        self._group, self._rounds, self._backward = group, rounds, backward
        self._input: torch.Tensor | None = None  # the input, between the allocation of the input and that of the output

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Allocates the input in the first call of each reduce-scatter, and the output in the second.

        If FSDP2 would only convert the output to the type of the parameters, the output has this type from the start.
        Then nothing reads the output before the end of backward.
        """
        if self._input is not None:
            return torch.empty(*size, dtype=self._group.output_dtype(dtype), device=device)
        self._input = torch.empty(*size, dtype=dtype, device=device)
        return self._input

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        self._input = None
        before, divisor = _factors(op, group.size())
        self._backward.make_room(self._group.max_open())
        names, pieces = self._group.row(output_tensor.numel())
        make = functools.partial(ReduceScatterRound, self._rounds, names, pieces, input_tensor, output_tensor)
        self._backward.put(make(before, divisor), self._group.used_at_once(output_tensor))


def _factors(op: Any, world: int) -> tuple[float, int]:
    """Returns the factor of the values before the sum, and the divisor after it."""
    if op == dist.ReduceOp.SUM:
        return 1.0, 1
    if op == dist.ReduceOp.AVG:
        return 1.0, world
    if op == dist.ReduceOp.PREMUL_SUM:
        return float(op.factor), 1
    raise ValueError(
        f"FSDP2 asked for a reduce-scatter with {op}, and tithe has SUM, AVG and PREMUL_SUM: detach() the State"
    )
