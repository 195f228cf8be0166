# SPDX-License-Identifier: Apache-2.0
"""Model, optimizer and every rank's residuals, kept together every so many steps and found again at start."""

import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tithe._torch_neighbours import Listing, carry, folders_of, next_host
from tithe._torch_state import State

_STEP = re.compile(r"step (\d+)")
_WHOLE = "whole"  # stands in the folder of a step that all ranks have written
_KEPT = 2  # of them: the newest may be on its way while a rank dies
_MODEL = "model.pt"


class Checkpoints:
    """Keeps a job in `folder`, which all ranks reach, and goes on from there at start; for launchers that start ranks
    anew, also another number of them (torchrun --max-restarts, --nnodes=2:4; docs/elastic.md).

        kept = tithe.torch.Checkpoints(folder, tithe.torch.attach(model), model, optimizer, every=100)
        for step in kept.steps(10_000):
            ...                                     # a step, as ever

    neighbours: the folder is each host's own, such as one in /dev/shm, its memory, and what a rank keeps is sent to the
    next host as well: a host may be lost with what it had, and no disk is needed. Found again wherever it is.
    state: what attach() gave. model: the DistributedDataParallel model. optimizer: one whose state is alike on all
    ranks, as that of any optimizer of torch is. every: steps from one checkpoint to the next.
    Where steps stand in the folder, model and optimizer take what rank 0 saved at the newest, and residuals of ranks go
    by the rule for states of another world. Collective. ValueError where that is refused, and where neighbours have
    lost too much.
    """

    __module__ = "tithe.torch"

    def __init__(
        self,
        folder: str,
        state: State,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        every: int = 100,
        neighbours: bool = False,
    ) -> None:
        if every < 1:
            raise ValueError(f"every={every}: a checkpoint every so many steps, at least 1")
        self.step = 0  # the next one
        self._folder, self._every = Path(folder), every
        self._state = state
        self._parts = {"model": getattr(model, "module", model), **({"optimizer": optimizer} if optimizer else {})}
        self._group = state._group()
        self._rank, self._world = dist.get_rank(self._group), dist.get_world_size(self._group)
        self._patience = state._session_options()[1].patience
        self._folder.mkdir(parents=True, exist_ok=True)
        hosts = folders_of(self._folder, self._group) if neighbours else [list(range(self._world))]
        self._writes = any(self._rank == ranks[0] for ranks in hosts)  # for its folder
        self._copies = next_host(hosts)
        self._load()

    def steps(self, total: int) -> Iterator[int]:
        """The numbers of the steps that are still to be done, of `total`; saves behind every `every`th."""
        while self.step < total:
            yield self.step
            self.step += 1
            if self.step % self._every == 0:
                self.save()

    def save(self) -> None:
        """Keeps what there is now, between two steps. Collective."""
        place = self._folder / f"step {self.step}"
        place.mkdir(exist_ok=True)
        mine = _bytes_of(self._state.state_dict())
        _write(mine, place / _of_rank(self._rank, self._world))
        if self._writes:
            _write(_bytes_of({name: part.state_dict() for name, part in self._parts.items()}), place / _MODEL)
        sizes: list[Any] = [None] * self._world
        dist.all_gather_object(sizes, len(mine), group=self._group)
        moves = [(rank, target, sizes[rank]) for rank, target in self._copies.items()]
        give = {number: lambda: mine for number, move in enumerate(moves) if move[0] == self._rank}
        for number, copy in carry(moves, give, self._group, self._patience).items():
            _write(copy, place / _of_rank(moves[number][0], self._world))
        dist.barrier(self._group)
        if self._writes:
            (place / _WHOLE).write_text(str(self._world))
            for old in self._whole()[:-_KEPT]:
                shutil.rmtree(old)
        dist.barrier(self._group)

    def _load(self) -> None:
        listing = Listing({_step(p): _files(p) for p in self._whole()}, self._group)
        saved = listing.newest(lambda world: [_MODEL, *(_of_rank(rank, world) for rank in range(world))])
        if self._writes:  # of a time that did not go on
            for place in self._folder.glob("step *"):
                if saved is None or _step(place) > saved[0]:
                    shutil.rmtree(place)
        if saved is None:
            dist.barrier(self._group)
            return
        step, world = saved
        place = self._folder / f"step {step}"
        same = world == self._world
        needs = [(rank, _MODEL) for rank in range(self._world)]
        for rank in range(self._world):
            needs += [(rank, _of_rank(of, world)) for of in ([rank] if same else range(world))]
        found, moves = {}, []
        for rank, name in needs:
            holders = listing.holders(saved, name)
            if rank not in holders:
                source = min(holders)
                moves.append((source, rank, holders[source], name))
            elif rank == self._rank:
                found[name] = (place / name).read_bytes
        give = {number: (place / move[3]).read_bytes for number, move in enumerate(moves)}
        came = carry([move[:3] for move in moves], give, self._group, self._patience)
        load = {name: read() for name, read in found.items()} | {moves[n][3]: blob for n, blob in came.items()}
        parts = torch.load(io.BytesIO(load[_MODEL]), weights_only=True, map_location="cpu")
        for part, of in self._parts.items():
            of.load_state_dict(parts[part])
        ranks = [self._rank] if same else range(world)
        states = [torch.load(io.BytesIO(load[_of_rank(rank, world)]), weights_only=True) for rank in ranks]
        if same:
            self._state.load_state_dict(states[0])
        else:
            inside = [next(iter(state.values()))[0] for state in states]
            self._state.load_state_dict({"format": inside[0]["format"], "world": world, "ranks": inside})
        self.step = step
        dist.barrier(self._group)

    def _whole(self) -> list[Path]:
        """Folders of steps that all ranks have written, the newest last."""
        steps = [p for p in self._folder.glob("step *") if _STEP.fullmatch(p.name) and (p / _WHOLE).exists()]
        return sorted(steps, key=_step)


def _step(place: Path) -> int:
    return int(_STEP.fullmatch(place.name)[1])


def _files(place: Path) -> tuple[int, dict[str, int]]:
    return int((place / _WHOLE).read_text()), {p.name: p.stat().st_size for p in place.glob("*.pt")}


def _of_rank(rank: int, world: int) -> str:
    return f"rank {rank} of {world}.pt"


def _bytes_of(what: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    torch.save(what, stream)
    return stream.getvalue()


def _write(what: bytes, path: Path) -> None:
    """Whole or not at all."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(what)
    fresh.replace(path)
