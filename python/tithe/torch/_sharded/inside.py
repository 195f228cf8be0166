# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.attach(model, inside=...): the process group exchanges inside a host, and tithe between hosts.

    DDP's bucket -- reduce-scatter inside the host --> this rank's share -- tithe, with the ranks that have the same
    share on the other hosts --> the mean of all ranks -- all-gather inside the host --> DDP's bucket

A share consists of some rows of every parameter, so it stays the same if DDP makes new buckets. Residuals are of the
share alone. Each rank sends an equal part of the gradients to other hosts.
"""

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tithe import _core
from tithe._exchange import all_gather_bytes, error
from tithe.torch._common.checks import refuse_outsider
from tithe.torch._common.state_fit import memory_order
from tithe.torch._sharded.part_state import PartState

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NETWORK = Path("/proc/self/ns/net")
# The names changed in torch 2.13.
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class RowSplit:
    """One parameter, split into a run of rows for each rank of a host."""

    def __init__(self, parameter: torch.nn.Parameter, ranks: int) -> None:
        n = parameter.numel()
        rows = memory_order(parameter)
        count = parameter.shape[rows[0]] if len(rows) > 1 else n
        self.rows = [count * j // ranks for j in range(ranks + 1)]
        self.count = count
        self.width = n // count if count else 0
        self.sizes = [(b - a) * self.width for a, b in zip(self.rows, self.rows[1:], strict=False)]

    def share(self, parameter: torch.nn.Parameter, rank: int) -> torch.nn.Parameter:
        """Returns the rows of a rank, in their order in memory; a view if the parameter has no gaps in memory."""
        flat = parameter.detach()
        dense = torch.empty_like(flat).stride() == flat.stride()
        flat = flat.as_strided((flat.numel(),), (1,)) if dense else flat.reshape(-1)
        rows = flat[self.rows[rank] * self.width : self.rows[rank + 1] * self.width]
        if self.width > 1:
            rows = rows.view(-1, self.width)
        return torch.nn.Parameter(rows, parameter.requires_grad)

    def describe(self, rank: int) -> str:
        return f"rows {self.rows[rank]} to {self.rows[rank + 1]} of {self.count}"


class ShareExchange:
    """The HostExchange of one bucket: reduces it to this rank's share, and gathers the shares of all ranks."""

    def __init__(
        self, group: dist.ProcessGroup, splits: Sequence[RowSplit], bucket: torch.Tensor, seconds: float
    ) -> None:
        self.whole = bucket
        self._group, self._seconds = group, seconds
        ranks = group.size()
        self._sizes = [split.sizes for split in splits]
        in_share = [sum(sizes[j] for sizes in self._sizes) for j in range(ranks)]
        self._row = max(in_share, default=0)
        packed = bucket.new_zeros((ranks, self._row))
        runs = bucket.split([size for sizes in self._sizes for size in sizes])
        for j in range(ranks):
            torch.cat(runs[j::ranks], out=packed[j, : in_share[j]])
        if bucket.dtype == torch.float16:  # a float16 sum may overflow
            packed.div_(ranks)
        self._summed = bucket.new_empty(self._row)
        self._work = _reduce_scatter(self._summed, packed.view(-1), group=group, async_op=True)
        self._packed = packed  # the memory is in use until the reduce-scatter is done
        self.share = self._summed[: in_share[group.rank()]]
        if not bucket.is_cpu:
            self.wait()  # on an accelerator only the stream waits, and this call does not block

    def wait(self) -> None:
        """Makes the share the mean of the host's ranks."""
        if self._work is not None:
            _wait(self._work, self._group, self._seconds, self.whole.is_cpu)
            self._work = self._packed = None
            if self.whole.dtype != torch.float16:
                self.share.div_(self._group.size())

    def gather(self) -> None:
        """Copies all shares to every rank of the host."""
        ranks = self._group.size()
        shares = gathered_inside(self._summed, self._group, self._seconds)
        runs: list[Any] = [None] * (ranks * len(self._sizes))
        for j, row in enumerate(shares.view(ranks, self._row)):
            sizes = [each[j] for each in self._sizes]
            runs[j::ranks] = row[: sum(sizes)].split(sizes)
        torch.cat(runs, out=self.whole)


def _wait(work: dist.Work, group: dist.ProcessGroup, seconds: float, on_host: bool) -> None:
    try:
        work.wait(timedelta(seconds=seconds)) if on_host else work.wait()
    except RuntimeError as why:
        text = str(why).partition("\n")[0]
        raise error("timeout", None, f"inside this host, among its {group.size()} ranks: {text}") from None


def gathered_inside(mine: torch.Tensor, group: dist.ProcessGroup, seconds: float) -> torch.Tensor:
    """Returns the values of each rank of the host, back to back. Collective in the host; sizes must be the same."""
    gathered = mine.new_empty(group.size() * mine.numel())
    _wait(_all_gather(gathered, mine, group=group, async_op=True), group, seconds, mine.is_cpu)
    return gathered


class _ShareBucket:
    """A rank's share of a bucket, with the methods of a dist.GradBucket."""

    def __init__(self, bucket: dist.GradBucket, parameters: list[torch.Tensor], share: torch.Tensor) -> None:
        self.index, self.is_last = bucket.index, bucket.is_last
        self._parameters, self._share = parameters, share

    def parameters(self) -> list[torch.Tensor]:
        return self._parameters

    def buffer(self) -> torch.Tensor:
        return self._share


class InsideState(PartState):
    """The State of a DDP model with several ranks per host: residuals are of this rank's share of each parameter."""

    __slots__ = ("_inside", "_shares", "_splits")

    def _take(self, parameters: Sequence[tuple[str, torch.nn.Parameter]], inside: dist.ProcessGroup) -> None:
        """Splits the model's parameters over the ranks of the host. Called before open()."""
        self._model_known = True
        self._inside = inside
        self._splits = {id(p): RowSplit(p, inside.size()) for _, p in parameters}
        self._shares = {id(p): (p, self._splits[id(p)].share(p, inside.rank())) for _, p in parameters}
        names = {id(p): name for name, p in parameters}
        self._names = {
            id(share): (names[number].replace("_orig_mod.", ""), share)
            for number, (_, share) in self._shares.items()
            if share.numel() > 0
        }

    def _start(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        self.open()
        buffer, parameters = bucket.buffer(), bucket.parameters()
        if buffer.layout != torch.strided:
            raise ValueError("sparse gradients are not supported: use nn.Embedding(sparse=False)")
        self._running.workers.check()
        splits = [self._splits[id(p)] for p in parameters]
        exchange = ShareExchange(self._inside, splits, buffer, self._session_options()[1].patience)
        shares = [self._shares[id(p)][1] for p in parameters]
        share = _ShareBucket(bucket, [s for s in shares if s.numel() > 0], exchange.share)
        return self._future_of(self._current.start(share, self.loss_scale, exchange))

    def _key_of(self) -> Callable[[torch.Tensor], int | None]:
        shares = self._shares

        def key_of(parameter: torch.Tensor) -> int | None:
            if id(parameter) not in shares:  # the parameter was added to the model after attach()
                return id(parameter)
            share = shares[id(parameter)][1]
            return id(share) if share.numel() > 0 else None

        return key_of

    def residual(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        """Returns this rank's residual of its rows of a parameter, float32, in their order in memory."""
        if id(parameter) not in self._shares:
            raise ValueError("the parameter is none of the model's")
        return super().residual(self._shares[id(parameter)][1])

    def _parts(self) -> dict[str, str]:
        by_share = {id(share): self._splits[number] for number, (_, share) in self._shares.items()}
        return {name: by_share[number].describe(self._inside.rank()) for number, (name, _) in self._names.items()}


# ---- the ranks of a host


def groups_inside(
    inside: Any, hosts: str, whole: dist.ProcessGroup, patience: float, doing: str
) -> tuple[dist.ProcessGroup, dist.ProcessGroup] | None:
    """Returns the group of this host's ranks, and that of the ranks with the same share; None if no host has two ranks.

    inside: "auto", or the group of this host's ranks. hosts: the option that states which ranks share a host, or "".
    Collective over `whole`. ValueError, the same on all ranks, if the groups do not fit.
    """
    ranks = dist.get_process_group_ranks(whole)
    if isinstance(inside, dist.ProcessGroup):
        mine = repr(dist.get_process_group_ranks(inside))
    elif inside == "auto":
        mine = f"{_BOOT.read_text().strip() if _BOOT.exists() else os.uname().nodename}/{_network()}"
        if hosts:
            mine = str(_core.hosts_of_ranks(hosts, len(ranks))[dist.get_rank(whole)])
    else:
        refuse_outsider(inside)
        raise ValueError(f'inside={inside!r}: "auto", or the process group of the ranks on this host')
    of_ranks = all_gather_bytes(mine.encode(), whole, patience, doing)
    by_host = {text: [r for r, theirs in zip(ranks, of_ranks, strict=True) if theirs == text] for text in of_ranks}
    if isinstance(inside, dist.ProcessGroup):
        for text, members in by_host.items():
            if text.decode() != repr(members):
                raise ValueError(
                    f"inside= is the group of ranks {text.decode()}, and of the model's ranks {members} gave it: each "
                    "rank gives the group of all ranks of the model on its host, and of no others"
                )
    sizes = sorted({len(members) for members in by_host.values()})
    if len(sizes) > 1:
        raise ValueError(
            f"inside= needs as many ranks on each host, and hosts have {' and '.join(map(str, sizes))}: start as many, "
            "or leave it out (strategy 'hosts' takes any number)"
        )
    if sizes == [1]:
        return None
    # New groups, because collectives of the program in its own groups would interleave in another order on each rank.
    of_host = by_host[mine.encode()]
    across = [members[of_host.index(dist.get_rank())] for members in by_host.values()]
    return tuple(dist.new_group(each, use_local_synchronization=True) for each in (of_host, across))


def _network() -> str:
    return str(_NETWORK.stat().st_ino) if _NETWORK.exists() else ""
