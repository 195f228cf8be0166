# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in a folder of each host, such as its memory: each file is on two hosts, so one host may be lost."""

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
    """Returns the ranks that share a folder, for each folder, in the order of their first ranks. Collective."""
    there = os.stat(folder)
    mine = (_BOOT.read_text() if _BOOT.exists() else os.uname().nodename, there.st_dev, there.st_ino)
    of_ranks: list[object] = [None] * dist.get_world_size(group)
    dist.all_gather_object(of_ranks, mine, group=group)
    return [[rank for rank, theirs in enumerate(of_ranks) if theirs == each] for each in dict.fromkeys(of_ranks)]


def next_host(hosts: Sequence[Sequence[int]]) -> dict[int, int]:
    """Returns, for each rank, the rank on the next host that stores a copy of its file; {} if there is one host."""
    if len(hosts) < 2:
        return {}
    after = [*hosts[1:], hosts[0]]
    return {
        rank: there[i % len(there)] for here, there in zip(hosts, after, strict=True) for i, rank in enumerate(here)
    }


def send(
    moves: Iterable[Move], give: Mapping[int, Callable[[], bytes]], group: dist.ProcessGroup, seconds: float
) -> dict[int, bytes]:
    """Sends bytes from rank to rank. Collective: all ranks pass all moves, in one order.

    give: returns the bytes to send, by the number of the move. Returns the received bytes by the same number.
    """
    device, me, under_way, received = _device(group), dist.get_rank(group), [], {}
    for number, (source, target, size) in enumerate(moves):
        if me not in (source, target) or size == 0:
            continue
        peer = dist.get_global_rank(group, target if me == source else source)
        if me == source:
            values = torch.frombuffer(bytearray(give[number]()), dtype=torch.uint8).to(device)
            under_way.append((dist.isend(values, peer, group=group, tag=number), values))
        else:
            values = received[number] = torch.empty(size, dtype=torch.uint8, device=device)
            under_way.append((dist.irecv(values, peer, group=group, tag=number), values))
    for work, _ in under_way:
        work.wait(timedelta(seconds=seconds))
    return {number: values.cpu().numpy().tobytes() for number, values in received.items()}
