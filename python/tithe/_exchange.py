# SPDX-License-Identifier: Apache-2.0
"""Small exchanges between the ranks of a process group, each with one timeout.

A collective waits as long as the process group says, half an hour unless told otherwise, and names nobody. So ranks
first meet at the group's store, where each says that it has come, or why it will not: who is missing is named, and a
refusal reaches all. The bytes themselves travel by a collective, since a store answers whoever asks it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

from tithe import _core

T = TypeVar("T")

_LOOK = 1.0  # seconds between looks at the clock while waiting, and for signals
_MOST_TEXT = 1000


def error(code: str, peer: int | None, text: str) -> Exception:
    """A tithe.Error as the engine makes them."""
    made = _core.Error(text)
    made.code = code
    made.peer = peer
    return made


def together(group: dist.ProcessGroup, timeout: float, doing: str, body: Callable[[], T]) -> T:
    """Runs `body` on every rank. Where it raises on one rank, that rank raises it and all others tithe.Error.

    Collective. Ranks that do not come within `timeout` seconds are named.
    """
    refusal: Exception | None = None
    value: T | None = None
    try:
        value = body()
    except Exception as wrong:  # reaches the caller below, once the others know
        refusal = wrong
    _come(group, timeout, doing, "" if refusal is None else f"{type(refusal).__name__}: {refusal}")
    if refusal is not None:
        raise refusal
    return value


def all_gather_bytes(mine: bytes, group: dist.ProcessGroup, timeout: float, doing: str) -> list[bytes]:
    """The bytes of all ranks, in rank order. Collective. Ranks that do not come within `timeout` seconds are named."""
    deadline = time.monotonic() + timeout
    _come(group, timeout, doing, "")
    kinds = {device.type for device in group._device_types}
    device = torch.device("cpu") if "cpu" in kinds else torch.device("cuda", torch.cuda.current_device())

    def gather(tensor: torch.Tensor) -> list[torch.Tensor]:
        all_ranks = [torch.zeros_like(tensor) for _ in range(dist.get_world_size(group))]
        left = max(deadline - time.monotonic(), 0.1 * timeout)
        try:
            dist.all_gather(all_ranks, tensor, group=group, async_op=True).wait(timedelta(seconds=left))
        except RuntimeError as why:
            raise error("timeout", None, f"{doing}: the process group did not exchange {mine_is}: {why}") from None
        return all_ranks

    mine_is = f"{len(mine)} bytes within {timeout:g} s"
    sizes = gather(torch.tensor([len(mine)], dtype=torch.int64, device=device))
    padded = torch.zeros(max(int(size) for size in sizes), dtype=torch.uint8, device=device)
    if mine:
        padded[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8).to(device)
    blobs = gather(padded) if len(padded) > 0 else [padded] * len(sizes)
    return [blob[: int(size)].cpu().numpy().tobytes() for blob, size in zip(blobs, sizes, strict=True)]


def _come(group: dist.ProcessGroup, timeout: float, doing: str, refusal: str) -> None:
    """Returns when all ranks have come and none refuses; else raises on all of them, but for those that refuse."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    store = dist.distributed_c10d._get_process_group_store(group)
    # Each rank counts its own exchanges where the others look, so that a store outlives any number of groups.
    number = store.add(f"tithe/count/{rank}", 1)
    store.set(f"tithe/{number}/{rank}", _shown(refusal[:_MOST_TEXT]))
    if refusal:
        return
    deadline = time.monotonic() + timeout
    waiting = list(range(world))
    while waiting:
        waiting = [r for r in waiting if not store.check([f"tithe/{number}/{r}"])]
        left = deadline - time.monotonic()
        for r in range(world):
            if r not in waiting and r != rank and (why := _said(store, number, r)):
                raise error("invalid", r, f"rank {r} refused {doing}: {why}")
        if not waiting:
            break
        if left <= 0:
            names = ", ".join(map(str, waiting))
            plural = "s" if len(waiting) > 1 else ""
            raise error("timeout", waiting[0], f"rank{plural} {names} did not come to {doing} within {timeout:g} s")
        try:
            store.wait([f"tithe/{number}/{waiting[0]}"], timedelta(seconds=min(left, _LOOK)))
        except (dist.DistStoreError, RuntimeError):
            continue  # who is missing is looked up above
    if number > 2:  # all have come to the one after it, so nobody reads it any more
        store.delete_key(f"tithe/{number - 2}/{rank}")


def _said(store: dist.Store, number: int, rank: int) -> str:
    return _shown(store.get(f"tithe/{number}/{rank}").decode("utf-8", "replace"))


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
