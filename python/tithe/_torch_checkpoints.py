# SPDX-License-Identifier: Apache-2.0
"""Model, optimizer and every rank's residuals, kept together every so many steps and found again at start."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tithe._torch_state import State

_STEP = re.compile(r"step (\d+)")
_WHOLE = "whole"  # stands in the folder of a step that all ranks have written
_KEPT = 2  # of them: the newest may be on its way while a rank dies


class Checkpoints:
    """Keeps a job in `folder`, which all ranks reach, and goes on from there at start; for launchers that start ranks
    anew, also another number of them (torchrun --max-restarts, --nnodes=2:4; docs/elastic.md).

        kept = tithe.torch.Checkpoints(folder, tithe.torch.attach(model), model, optimizer, every=100)
        for step in kept.steps(10_000):
            ...                                     # a step, as ever

    state: what attach() gave. model: the DistributedDataParallel model. optimizer: one whose state is alike on all
    ranks, as that of any optimizer of torch is. every: steps from one checkpoint to the next.
    Where steps stand in the folder, model and optimizer take what rank 0 saved at the newest, and residuals of ranks go
    by the rule for states of another world. Collective. ValueError where that is refused.
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
    ) -> None:
        if every < 1:
            raise ValueError(f"every={every}: a checkpoint every so many steps, at least 1")
        self.step = 0  # the next one
        self._folder, self._every = Path(folder), every
        self._state = state
        self._parts = {"model": getattr(model, "module", model), **({"optimizer": optimizer} if optimizer else {})}
        self._group = state._group()
        self._rank, self._world = dist.get_rank(self._group), dist.get_world_size(self._group)
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
        place.mkdir(parents=True, exist_ok=True)
        self._write(self._state.state_dict(), place / self._name(self._rank, self._world))
        if self._rank == 0:
            self._write({name: part.state_dict() for name, part in self._parts.items()}, place / "model.pt")
        dist.barrier(self._group)
        if self._rank == 0:
            (place / _WHOLE).write_text(str(self._world))
            for old in self._whole()[:-_KEPT]:
                shutil.rmtree(old)
        dist.barrier(self._group)

    def _load(self) -> None:
        found: list[Any] = [None]
        if self._rank == 0:
            whole = self._whole()
            found = [(whole[-1].name, int((whole[-1] / _WHOLE).read_text())) if whole else None]
        dist.broadcast_object_list(found, src=dist.get_global_rank(self._group, 0), group=self._group)
        if found[0] is None:
            return
        name, world = found[0]
        place = self._folder / name
        saved = torch.load(place / "model.pt", weights_only=True, map_location="cpu")
        for part, of in self._parts.items():
            of.load_state_dict(saved[part])
        ranks = [self._rank] if world == self._world else range(world)
        states = [torch.load(place / self._name(rank, world), weights_only=True) for rank in ranks]
        if world == self._world:
            self._state.load_state_dict(states[0])
        else:
            inside = [next(iter(state.values()))[0] for state in states]
            self._state.load_state_dict({"format": inside[0]["format"], "world": world, "ranks": inside})
        self.step = int(_STEP.fullmatch(name)[1])

    def _whole(self) -> list[Path]:
        """Folders of steps that all ranks have written, the newest last."""
        steps = [p for p in self._folder.glob("step *") if _STEP.fullmatch(p.name) and (p / _WHOLE).exists()]
        return sorted(steps, key=lambda p: int(_STEP.fullmatch(p.name)[1]))

    @staticmethod
    def _name(rank: int, world: int) -> str:
        return f"rank {rank} of {world}.pt"

    @staticmethod
    def _write(what: dict[str, Any], path: Path) -> None:
        """Whole or not at all."""
        fresh = path.with_suffix(".new")
        torch.save(what, fresh)
        fresh.replace(path)
