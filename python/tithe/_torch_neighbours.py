# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in folders of hosts' own, such as their memory: each file stands on two hosts, so one may be lost."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from tithe._exchange import _device

_BOOT = Path("/proc/sys/kernel/random/boot_id")

Move = tuple[int, int, int]  # from a rank, to a rank, bytes


def folders_of(folder: Path, group: dist.ProcessGroup) -> list[list[int]]:
    """The ranks that share a folder, for each folder, in the order of their first ranks. Collective."""
    there = os.stat(folder)
    mine = (_BOOT.read_text() if _BOOT.exists() else os.uname().nodename, there.st_dev, there.st_ino)
    told: list[object] = [None] * dist.get_world_size(group)
    dist.all_gather_object(told, mine, group=group)
    return [[rank for rank, theirs in enumerate(told) if theirs == each] for each in dict.fromkeys(told)]


def next_host(hosts: Sequence[Sequence[int]]) -> dict[int, int]:
    """For each rank the one on the next host that keeps a copy for it; none where there is one host."""
    if len(hosts) < 2:
        return {}
    after = [*hosts[1:], hosts[0]]
    return {
        rank: there[i % len(there)] for here, there in zip(hosts, after, strict=True) for i, rank in enumerate(here)
    }


def carry(
    moves: Iterable[Move], give: Mapping[int, Callable[[], bytes]], group: dist.ProcessGroup, seconds: float
) -> dict[int, bytes]:
    """Bytes from rank to rank. Collective: all ranks name all moves in one order. give, and what comes: by the number
    of the move."""
    device, me, under_way, came = _device(group), dist.get_rank(group), [], {}
    for number, (source, target, size) in enumerate(moves):
        if me not in (source, target) or size == 0:
            continue
        peer = dist.get_global_rank(group, target if me == source else source)
        if me == source:
            values = torch.frombuffer(bytearray(give[number]()), dtype=torch.uint8).to(device)
            under_way.append((dist.isend(values, peer, group=group, tag=number), values))
        else:
            values = came[number] = torch.empty(size, dtype=torch.uint8, device=device)
            under_way.append((dist.irecv(values, peer, group=group, tag=number), values))
    for work, _ in under_way:
        work.wait(timedelta(seconds=seconds))
    return {number: values.cpu().numpy().tobytes() for number, values in came.items()}


class Listing:
    """Which files of which steps stand in which rank's folder."""

    def __init__(self, mine: Mapping[int, tuple[int, Mapping[str, int]]], group: dist.ProcessGroup) -> None:
        """mine: by step, how many ranks saved it, and the sizes of the files that are here. Collective."""
        self.told: list[Mapping[int, tuple[int, Mapping[str, int]]]] = [{}] * dist.get_world_size(group)
        dist.all_gather_object(self.told, mine, group=group)

    def holders(self, saved: tuple[int, int], name: str) -> dict[int, int]:
        """The ranks that have a file of a step, and its size there. saved: the step, and how many ranks saved it."""
        of_step = {rank: steps[saved[0]] for rank, steps in enumerate(self.told) if saved[0] in steps}
        return {rank: files[name] for rank, (world, files) in of_step.items() if world == saved[1] and name in files}

    def newest(self, names: Callable[[int], list[str]]) -> tuple[int, int] | None:
        """The newest step whose files all stand somewhere, and how many ranks saved it; None where there was none.

        names: of all files of so many ranks. ValueError where steps are there and none is whole.
        """
        steps = sorted({(step, said[0]) for each in self.told for step, said in each.items()}, reverse=True)
        for saved in steps:
            if all(self.holders(saved, name) for name in names(saved[1])):
                return saved
        if steps:
            lost = [name for name in names(steps[0][1]) if not self.holders(steps[0], name)]
            raise ValueError(
                f"of the checkpoint of step {steps[0][0]} nobody has {', '.join(map(repr, lost))}: more hosts are gone "
                "than copies were made. Start from another checkpoint, or empty the folder on each host to begin anew"
            )
        return None
