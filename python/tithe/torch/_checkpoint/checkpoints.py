# SPDX-License-Identifier: Apache-2.0
"""Saves the model, the optimizer and the residuals of all ranks every N steps, and loads them at start."""

import hashlib
import io
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

from tithe._error import error
from tithe._exchange import all_gather_bytes
from tithe.torch._checkpoint import files
from tithe.torch._checkpoint.neighbours import folders_of, next_host, send
from tithe.torch._hook.state import State
from tithe.torch._sharded.groups import is_sharded

_log = logging.getLogger(__name__)

_DOING = "tithe.torch.Checkpoints"
_MODEL = "model.pt"


class Checkpoints:
    """Saves a job in `folder`, which all ranks can reach, and continues the job from there at start.

    For launchers that start all ranks again, or another number of ranks (torchrun --max-restarts, --nnodes=2:4;
    docs/guide/elastic.md).

        kept = tithe.torch.Checkpoints(folder, tithe.torch.attach(model), model, optimizer, every=100)
        for step in kept.steps(10_000):
            ...                                     # a training step

    neighbours: if true, each host has a folder of its own, such as one in /dev/shm, its memory. Each rank's file is
    then also sent to the next host, so no disk is needed, and one host may be lost with its memory.
    state: from attach(). model: the DistributedDataParallel model. optimizer: one with the same state on all ranks,
    which holds for all optimizers of torch. every: steps between two checkpoints.
    Every file has a checksum. The job continues from the newest checkpoint that is complete on all ranks, with the
    model and the optimizer of rank 0. Residuals of another number of ranks are spread over all ranks. Rank 0 warns of a
    damaged file by name. With an empty folder the job starts at step 0. Collective. ValueError if the folder has
    checkpoints and none is complete, or if the newest complete one is not of this model, optimizer and codec.
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
        """Checks the arguments, finds the ranks that share the folder, and loads the newest complete checkpoint.
        Collective."""
        if every < 1:
            raise ValueError(f"every={every}: the number of steps between two checkpoints, at least 1")
        if is_sharded(model):
            raise ValueError(
                "Checkpoints saves the model of rank 0, and this model is sharded: save it with "
                "torch.distributed.checkpoint (docs/guide/python.md, Checkpoints)"
            )
        self.step = 0  # the next step
        self._folder, self._every = Path(folder), every
        self._state = state
        self._parts = {"model": getattr(model, "module", model)}
        if optimizer is not None:
            self._parts["optimizer"] = optimizer
        self._group = state._group()
        self._rank, self._world = dist.get_rank(self._group), dist.get_world_size(self._group)
        self._patience = state._session_options()[1].patience
        self._on_all_ranks(f"{_DOING}()", lambda: files.make(self._folder))
        hosts = folders_of(self._folder, self._group) if neighbours else [list(range(self._world))]
        # The ranks that share this rank's folder
        self._folder_ranks = next(ranks for ranks in hosts if self._rank in ranks)
        self._writes = self._rank == self._folder_ranks[0]  # whether this rank writes the manifest and the model
        self._copies = next_host(hosts)
        self._load()

    def steps(self, total: int) -> Iterator[int]:
        """Yields the numbers of the remaining steps of `total`. Saves after every `every`th step."""
        while self.step < total:
            yield self.step
            self.step += 1
            if self.step % self._every == 0:
                self.save()

    def save(self) -> None:
        """Saves the job, between two steps. Collective.

        If a rank cannot write a file, that rank raises OSError with the file's name, and the others tithe.Error with
        `peer`. The earlier checkpoints stay, and the files of this one are removed.
        """
        doing = f"{_DOING}.save() of step {self.step}"
        mine: dict[str, memoryview] = {}

        def prepare() -> dict[str, files.Sum]:
            mine[_of_rank(self._rank, self._world)] = _bytes_of(self._state.state_dict())
            if self._writes:
                parts = {name: part.state_dict() for name, part in self._parts.items()}
                _check_loadable(parts)
                mine[_MODEL] = _bytes_of(parts)
            return {name: files.sum_of(data) for name, data in mine.items()}

        sums = self._on_all_ranks(doing, prepare)
        own = [sums[rank][_of_rank(rank, self._world)] for rank in range(self._world)]
        moves = [(rank, target, own[rank][0]) for rank, target in self._copies.items()]
        give = {number: lambda: mine[_of_rank(self._rank, self._world)] for number in range(len(moves))}
        for number, copy in send(moves, give, self._group, self._patience).items():
            mine[_of_rank(moves[number][0], self._world)] = memoryview(copy)
        self._on_all_ranks(doing, lambda: files.write(self._folder, self.step, mine))
        stay = {*self._folder_ranks, *(rank for rank, target in self._copies.items() if target in self._folder_ranks)}
        manifest = {
            "save": hashlib.blake2b(json.dumps(sums).encode(), digest_size=16).hexdigest(),  # the same on all hosts
            "world": self._world,
            "files": {
                _MODEL: sums[self._folder_ranks[0]][_MODEL],
                **{_of_rank(rank, self._world): own[rank] for rank in sorted(stay)},
            },
        }
        self._on_all_ranks(doing, lambda: files.commit(self._folder, self.step, manifest) if self._writes else None)

    # ---- at start

    def _load(self) -> None:
        doing = f"{_DOING}()"
        listings = self._on_all_ranks(doing, self._listed)
        writers = self._on_all_ranks(doing, lambda: self._folder_ranks[0])
        numbers = sorted({int(number) for listed in listings for number in listed}, reverse=True)
        damaged = []
        for number in numbers:
            of_ranks = [listings[writer].get(str(number), {}) for writer in writers]
            wrong = [manifest["wrong"] for manifest in of_ranks if "wrong" in manifest]
            for save, world in sorted({(m["save"], m["world"]) for m in of_ranks if "save" in m}):
                sums = [m["files"] if m.get("save") == save else {} for m in of_ranks]
                load = self._fetch(doing, number, world, sums, wrong)
                if load is not None:
                    self._warn(number, wrong, "copies of other hosts are used")
                    self._on_all_ranks(doing, partial(self._take, number, load, world))
                    self.step = number
                    if self._rank == 0:
                        _log.info("the job continues from %s", self._place(number))
                    return
            self._warn(number, wrong, "it is left out")
            damaged.append(f"step {number}: {'; '.join(dict.fromkeys(wrong))}")
        if damaged:
            raise ValueError(
                f"no checkpoint in '{self._folder}' is whole ({', '.join(damaged)}): start from another folder's, or "
                "empty the folder on each host to begin from step 0"
            )

    def _listed(self) -> dict[int, dict[str, Any]]:
        """Returns the manifests in this rank's folder by step, on one of the ranks that share the folder; {} on the
        others."""
        if not self._writes:
            return {}
        files.clean(self._folder)
        listed: dict[int, dict[str, Any]] = {}
        for number, place in files.steps(self._folder).items():
            try:
                listed[number] = files.manifest(place)
            except (OSError, ValueError) as wrong:
                listed[number] = {"wrong": str(wrong)}
        return listed

    def _fetch(
        self, doing: str, number: int, world: int, sums: list[dict[str, files.Sum]], wrong: list[str]
    ) -> dict[str, bytes] | None:
        """Returns the files of a checkpoint that this rank needs, from its folder or another rank's; None if some are
        lost.

        sums: the files in each rank's folder. wrong: a list to which the defects of files are appended. Collective.
        """
        same = world == self._world
        needs = [
            [_MODEL, *(_of_rank(of, world) for of in ([rank] if same else range(world)))] for rank in range(self._world)
        ]
        found: dict[str, bytes] = {}

        def look(names: Iterable[str]) -> dict[str, str]:
            """Reads files of this rank's folder. Returns their defects by name, "" for a file without one."""
            defects = {}
            for name in names:
                if name in found or name not in sums[self._rank]:
                    continue
                try:
                    found[name] = files.read(self._folder / f"step {number}", name, sums[self._rank][name])
                    defects[name] = ""
                except (OSError, ValueError) as damage:
                    defects[name] = str(damage)
            return defects

        whole = self._on_all_ranks(doing, lambda: look(needs[self._rank]))
        lacks = [
            (rank, name) for rank, names in enumerate(needs) for name in names if whole[rank].get(name, "lost") != ""
        ]
        lost = sorted({name for _, name in lacks})
        second = self._on_all_ranks(doing, lambda: look(lost)) if lost else []
        for defects in (*whole, *second):
            wrong += [text for text in defects.values() if text and text not in wrong]
        moves, names = [], []
        for rank, name in lacks:
            holders = [of for of in range(self._world) if "" in (whole[of].get(name), second[of].get(name))]
            if not holders:
                wrong += [] if any(name in text for text in wrong) else [f"nobody has '{name}'"]
                return None
            moves.append((holders[0], rank, sums[holders[0]][name][0]))
            names.append(name)
        give = {n: partial(found.get, name) for n, name in enumerate(names)}
        received = send(moves, give, self._group, self._patience)
        return {**found, **{names[n]: data for n, data in received.items()}}

    def _take(self, number: int, load: dict[str, bytes], world: int) -> None:
        try:
            self._load_parts(load, world)
        except Exception as wrong:  # torch and optimizers raise any type, since they do not check their arguments
            raise ValueError(
                f"{self._place(number)} is not a checkpoint of this job: {type(wrong).__name__}: {wrong}"
            ) from wrong

    def _load_parts(self, load: dict[str, bytes], world: int) -> None:
        parts = torch.load(io.BytesIO(load[_MODEL]), weights_only=True, map_location="cpu")
        if parts.keys() != self._parts.keys():
            raise ValueError(
                f"it has {' and '.join(parts)}, and Checkpoints() was given {' and '.join(self._parts)}: give it both"
            )
        for name, part in self._parts.items():
            part.load_state_dict(parts[name])
        if world == self._world:
            self._state.load_state_dict(_state_in(load[_of_rank(self._rank, world)]))
        else:
            inside = [next(iter(_state_in(load[_of_rank(rank, world)]).values()))[0] for rank in range(world)]
            self._state.load_state_dict({"format": inside[0]["format"], "world": world, "ranks": inside})

    # ---- inside

    def _place(self, number: int) -> str:
        return f"'{self._folder / f'step {number}'}'"

    def _warn(self, number: int, wrong: list[str], therefore: str) -> None:
        if wrong and self._rank == 0:
            _log.warning("%s is damaged, and %s: %s", self._place(number), therefore, "; ".join(dict.fromkeys(wrong)))

    def _on_all_ranks(self, doing: str, body: Callable[[], Any]) -> list[Any]:
        """Runs body() on all ranks, and returns all results, exchanged as JSON. If one rank raises, all ranks raise."""
        failed, value = None, None
        try:
            value = body()
        except Exception as wrong:  # raised below, after the other ranks have the reason
            failed = wrong
        code = getattr(failed, "code", "io" if isinstance(failed, OSError) else "invalid")
        mine = json.dumps([value, code, "" if failed is None else f"{type(failed).__name__}: {failed}"])
        running = self._state._running
        check = [] if running is None else [running.check_ranks_present]
        of_ranks = [
            json.loads(theirs) for theirs in all_gather_bytes(mine.encode(), self._group, self._patience, doing, *check)
        ]
        texts = {rank: (code, text) for rank, (_, code, text) in enumerate(of_ranks) if text}
        if texts and self._writes and self._folder.is_dir():
            files.clean(self._folder)
        if failed is not None:
            raise failed
        for rank, (code, text) in texts.items():
            raise error(code, rank, f"rank {rank} failed in {doing}: {text}")
        return [value for value, _, _ in of_ranks]


def _of_rank(rank: int, world: int) -> str:
    return f"rank {rank} of {world}.pt"


def _bytes_of(what: dict[str, Any]) -> memoryview:
    stream = io.BytesIO()
    torch.save(what, stream)
    return stream.getbuffer()


def _state_in(data: bytes) -> dict[str, Any]:
    return torch.load(io.BytesIO(data), weights_only=True)


def _check_loadable(parts: dict[str, Any]) -> None:
    """Raises ValueError when the checkpoint is saved, and not at the next start, if torch.load() would refuse a
    value."""
    bare = tree_map_only(torch.Tensor, lambda _: None, parts)
    try:
        torch.load(io.BytesIO(_bytes_of(bare)), weights_only=True)
    except Exception as wrong:
        raise ValueError(f"a state_dict() has a value that torch.load(weights_only=True) refuses: {wrong}") from None
