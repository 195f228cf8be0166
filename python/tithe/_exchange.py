# SPDX-License-Identifier: Apache-2.0
"""Small exchanges between the ranks of a process group, each with one timeout.

A collective alone waits for the timeout of the process group, half an hour by default, and does not name the missing
rank. So each rank first writes to the group's store that it is present, or why it refuses. Every rank then has the
names of missing ranks and the text of a refusal. The payload is sent by a collective and not through the store, because
any process can read the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

from tithe._error import error

T = TypeVar("T")

_POLL = 1.0  # seconds between two checks of the clock and of signals
_LINGER = 5.0  # seconds that a refusing rank waits for the others to read its reason
_MAX_TEXT = 1000
_PIECE = 1 << 22  # bytes per rank
_CANCELLED = "\n"  # differs from a refusal, which is printable


def _no_check() -> None:
    """The check of a group without a session: does nothing."""


def together(
    group: dist.ProcessGroup,
    timeout: float,
    doing: str,
    body: Callable[[], T],
    check: Callable[[], None] = _no_check,
) -> T:
    """Runs `body` on every rank. If it raises on one rank, that rank raises its exception and all others tithe.Error.

    Collective. The error names the ranks that do not arrive within `timeout` seconds. check: called while this rank
    waits; it raises an error if another rank has failed.
    """
    refusal: Exception | None = None
    value: T | None = None
    try:
        value = body()
    except Exception as wrong:  # raised below, after the other ranks have the reason
        refusal = wrong
    _join(group, timeout, doing, "" if refusal is None else f"{type(refusal).__name__}: {refusal}", check)
    if refusal is not None:
        raise refusal
    return value


def all_gather_bytes(
    mine: bytes, group: dist.ProcessGroup, timeout: float, doing: str, check: Callable[[], None] = _no_check
) -> list[bytes]:
    """Returns the bytes of all ranks, in rank order. Collective. The error names ranks that do not arrive in `timeout`
    seconds."""
    deadline = time.monotonic() + timeout
    _join(group, timeout, doing, "", check)
    device = _device(group)

    def gather(tensor: torch.Tensor) -> list[torch.Tensor]:
        all_ranks = [torch.zeros_like(tensor) for _ in range(dist.get_world_size(group))]
        left = max(deadline - time.monotonic(), 0.1 * timeout)
        try:
            dist.all_gather(all_ranks, tensor, group=group, async_op=True).wait(timedelta(seconds=left))
        except RuntimeError as why:
            raise error(
                "timeout", None, f"{doing}: the process group did not exchange {mine_is}: {_first_line(why)}"
            ) from None
        return all_ranks

    mine_is = f"{len(mine)} bytes within {timeout:g} s"
    sizes = gather(torch.tensor([len(mine)], dtype=torch.int64, device=device))
    padded = torch.zeros(max(int(size) for size in sizes), dtype=torch.uint8, device=device)
    if mine:
        padded[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8).to(device)
    blobs = gather(padded) if len(padded) > 0 else [padded] * len(sizes)
    return [blob[: int(size)].cpu().numpy().tobytes() for blob, size in zip(blobs, sizes, strict=True)]


def gather_bytes(
    mine: bytes, group: dist.ProcessGroup, timeout: float, doing: str, check: Callable[[], None] = _no_check
) -> list[bytes]:
    """Returns the bytes of all ranks on rank 0, in rank order, and an empty list on the other ranks. Collective.

    For large data: each piece of 4 MiB has a timeout of its own. Only rank 0 stores the bytes of other ranks.
    """
    sizes = [int(size) for size in all_gather_bytes(str(len(mine)).encode(), group, timeout, doing, check)]
    device, first = _device(group), dist.get_global_rank(group, 0)
    whole = [bytearray() for _ in sizes] if dist.get_rank(group) == 0 else []
    for at in range(0, max(sizes), _PIECE):
        piece = torch.zeros(min(_PIECE, max(sizes) - at), dtype=torch.uint8, device=device)
        part = mine[at : at + _PIECE]
        if part:
            piece[: len(part)] = torch.frombuffer(bytearray(part), dtype=torch.uint8).to(device)
        pieces = [torch.empty_like(piece) for _ in whole]
        try:
            dist.gather(piece, pieces or None, dst=first, group=group, async_op=True).wait(timedelta(seconds=timeout))
        except RuntimeError as why:
            raise error(
                "timeout", None, f"{doing}: {len(part)} bytes did not get through: {_first_line(why)}"
            ) from None
        for blob, size, received in zip(whole, sizes, pieces, strict=bool(whole)):
            blob += received[: max(0, size - at)].cpu().numpy().tobytes()
    return [bytes(blob) for blob in whole]


def _device(group: dist.ProcessGroup) -> torch.device:
    kinds = [device.type for device in group._device_types]
    if not kinds or "cpu" in kinds:
        return torch.device("cpu")
    return group.bound_device_id or torch.device(kinds[0], torch.accelerator.current_device_index())


def _first_line(why: Exception) -> str:
    """Returns the message without the stack frames that PyTorch's C++ code appends."""
    return str(why).partition("\n")[0]


def _join(group: dist.ProcessGroup, timeout: float, doing: str, refusal: str, check: Callable[[], None]) -> None:
    """Returns when all ranks are present and none refuses. Otherwise raises on all ranks that do not refuse."""
    try:
        _exchange_refusals(group, timeout, doing, refusal, check)
    except dist.DistError as lost:  # the process that serves the store has ended
        if not refusal:
            text = f"{doing}: the process group's store, which rank 0 or torchrun keeps, is gone: {_first_line(lost)}"
            raise error("peer_lost", None, text) from None


def _exchange_refusals(
    group: dist.ProcessGroup, timeout: float, doing: str, refusal: str, check: Callable[[], None]
) -> None:
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    store = dist.distributed_c10d._get_process_group_store(group)
    # Each rank counts its own exchanges in the store, so one store can serve several groups.
    number = store.add(f"tithe/count/{rank}", 1)
    store.set(f"tithe/{number}/{rank}", _printable(refusal[:_MAX_TEXT]))
    try:
        _wait_for_all(store, number, rank, world, timeout, doing, refusal, check)
    except KeyboardInterrupt:  # the other ranks then stop waiting before their timeout
        store.set(f"tithe/{number}/{rank}", refusal or "KeyboardInterrupt: Ctrl-C ended its wait")
        raise
    if number > 2 and not refusal:  # all ranks have begun the next exchange, so no rank reads this key again
        store.delete_key(f"tithe/{number - 2}/{rank}")


def _wait_for_all(
    store: dist.Store,
    number: int,
    rank: int,
    world: int,
    timeout: float,
    doing: str,
    refusal: str,
    check: Callable[[], None],
) -> None:
    """Waits until every rank has written its key of this exchange, or until a rank refuses or `timeout` has passed.

    Each rank writes tithe/<number>/<rank>: "" if it is present, or the text of its refusal. A present rank raises
    tithe.Error for the first refusal, and names the missing ranks after the timeout. A refusing rank waits for at most
    _LINGER seconds, until all other ranks have counted themselves in tithe/<number>/read.
    """
    # A refusing rank ends soon, and the store may end with it, so it waits until the other ranks have read the reason.
    deadline = time.monotonic() + (min(timeout, _LINGER) if refusal else timeout)
    waiting = list(range(world))
    while waiting:
        waiting = [r for r in range(world) if not _has_arrived(store, number, r)]
        left = deadline - time.monotonic()
        for r in range(world) if not refusal else ():
            if r not in waiting and r != rank and (why := _refusal(store, number, r)):
                store.add(f"tithe/{number}/read", 1)
                raise error("invalid", r, f"rank {r} refused {doing}: {why}")
        if not waiting:
            break
        if not refusal:
            check()
        if left <= 0 and not refusal:
            # This rank withdraws its key and its count, so that its next call joins the exchange of the other ranks.
            store.set(f"tithe/{number}/{rank}", _CANCELLED)
            store.add(f"tithe/count/{rank}", -1)
            late = [r for r in waiting if not store.check([f"tithe/{number}/{r}"])] or waiting
            names = ", ".join(map(str, late))
            plural = "s" if len(late) > 1 else ""
            cure = "if it only comes late, raise timeout="
            raise error(
                "timeout", late[0], f"rank{plural} {names} did not come to {doing} within {timeout:g} s; {cure}"
            )
        if left <= 0:
            return
        if store.check([f"tithe/{number}/{waiting[0]}"]):  # the rank withdrew its key, and may write it again
            time.sleep(0.05)
            continue
        try:
            store.wait([f"tithe/{number}/{waiting[0]}"], timedelta(seconds=min(left, _POLL)))
        except dist.DistNetworkError:
            raise
        except RuntimeError:  # the end of a wait has a different text in each kind of store
            continue  # the loop finds the missing ranks
    while refusal and time.monotonic() < deadline:
        refusers = sum(bool(_refusal(store, number, r)) for r in range(world))
        if store.add(f"tithe/{number}/read", 0) >= world - refusers:
            break
        time.sleep(0.01)


def _has_arrived(store: dist.Store, number: int, rank: int) -> bool:
    return store.check([f"tithe/{number}/{rank}"]) and store.get(f"tithe/{number}/{rank}") != _CANCELLED.encode()


def _refusal(store: dist.Store, number: int, rank: int) -> str:
    text = store.get(f"tithe/{number}/{rank}").decode("utf-8", "replace")
    return "" if text == _CANCELLED else _printable(text)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
