# SPDX-License-Identifier: Apache-2.0
"""What a tithe.torch.State gives to a checkpoint, and takes from one."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tithe import _core
from tithe._choices import is_lossless
from tithe._exchange import together
from tithe._schedule import Evaluations
from tithe.torch._checkpoint import files
from tithe.torch._common.parameter_keys import Keys, check_order
from tithe.torch._common.rank_states import gather_states, labelled, own_state, unlabelled
from tithe.torch._common.state_fit import check_fit, check_place, say_what_differs
from tithe.torch._hook.figures import Figures

_STATE_FORMAT = 3


def write_state(state: Mapping[str, Any], path: Path) -> None:
    """A rank's file beside a trainer's checkpoint. OSError names it, and leaves no part of it."""
    stream = io.BytesIO()
    torch.save(state, stream)
    files.replace(path, stream.getbuffer())


def read_state(path: Path) -> dict[str, Any]:
    """The same file. ValueError names it where it is damaged."""
    try:
        return torch.load(path, weights_only=True)
    except Exception as wrong:  # torch has many, and none names the file
        raise ValueError(f"'{path}' is damaged ({wrong}): load an earlier checkpoint") from wrong


class Saved(Figures):
    """A State's side that is saved. `_saved` waits for open(), where a state was loaded before."""

    __slots__ = ()
    codec: str
    options: dict[str, Any]
    _names: dict[int, tuple[str, torch.nn.Parameter]]
    _saved: dict[str, Any] | None
    _settled: bool
    _ties: Any

    def state_dict(self) -> dict[str, Any]:
        """This rank's residuals and counters, as a uint8 tensor and plain values under a key of this rank: save one per
        rank, or give the State to torch.distributed.checkpoint, which puts all ranks' into one checkpoint.

        Call it between steps, on all ranks at the same step. After a failure, an interrupt and close() it is the state
        of the last step that was committed.
        """
        return labelled(self._whole_state())

    def _whole_state(self) -> dict[str, Any]:
        if self._live is None:
            if self._saved is not None:
                return dict(self._saved)
            raise ValueError("nothing to save yet: call open(), or run a step, before state_dict()")
        with self._live.between_steps():
            return self._current_state()

    def _current_state(self) -> dict[str, Any]:
        return {
            "format": _STATE_FORMAT,
            "world": self._live.world,
            "rank": self._live.rank,
            "codec": _core.check_codec(self.codec),
            "choices": self._choices(),
            "proposed": self._live.session.choices != self._live.opened_choices,
            "parameters": self._live.keys.table(),
            "evaluates": self._live.evaluations.kind,
            "session": torch.frombuffer(bytearray(self._live.session.state()), dtype=torch.uint8),
            **({"optimizer": self._ties.state_dict()} if self._ties is not None else {}),
        }

    def gathered_state_dict(self) -> dict[str, Any]:
        """The states of all ranks, on rank 0; on the others, one that holds none. Collective over the group.

        For checkpoints that rank 0 writes alone. load_state_dict() takes it on all ranks, each its own part. It is as
        large as all residuals: 4 bytes per parameter and rank (8 with feedback=momentum), in rank 0's memory as well.
        """
        group, doing = self._group(), "tithe.torch.State.gathered_state_dict()"
        patience = self._session_options()[1].patience
        check = self._live.check_all_are_there if self._live is not None else lambda: None
        with self._device():
            mine = together(group, patience, doing, self._whole_state, check)
            return gather_states(mine, group, patience, doing, check)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues bit-identically from what state_dict() gave on this rank, with the same model and codec.

        Takes what gathered_state_dict() gave on rank 0 as well, also that of another number of ranks: what those owe
        that are not here is spread over all (docs/elastic.md). ValueError for one rank's state in another world, of
        another rank, codec or choices, and for parameters of another shape or memory format, by name; nothing changes
        then. What the state lacks of the model begins with nothing unsent, what it has of parameters that do not train
        is kept for them; a line in the log names both. Load before the first step. A State without names refuses what
        it could not tell apart, here or in the first step.
        """
        if "ranks" in state:
            group = self._group()
            state = own_state(state, dist.get_rank(group), dist.get_world_size(group))
        state = unlabelled(state)
        needed = ("format", "world", "rank", "codec", "choices", "proposed", "parameters", "evaluates", "session")
        missing = set(needed) - set(state)
        if missing or state["format"] != _STATE_FORMAT:
            raise ValueError("not a state of this version of tithe.torch.State")
        if not self._nothing_unsent(state):
            check_order(state["parameters"], self._names, may_be_named=not self._settled)
            check_fit(state["parameters"], self._names)
        if self._live is None:
            self._saved = dict(state)
            return
        if self._live.keys.known:
            raise ValueError("load the state before the first step: make a new DDP model and State, then load")
        self._check_saved(state, self._live.rank, self._live.world)
        self._restore(self._live.session, self._live.evaluations, self._live.keys, state)

    def _check_saved(self, state: Mapping[str, Any], rank: int, world: int) -> None:
        if "sessions" not in state:
            check_place(state, rank, world, any_rank=is_lossless(self.codec, self._choices()))
        elif "optimizer" in state:
            raise ValueError(
                f"the state was saved by {len(state['sessions'])} ranks, and this job has {world}: what an optimizer "
                "keeps on each rank does not go on in another number of ranks; start as many, or without optimizer="
            )
        if not self._nothing_unsent(state):
            lacks, keeps = check_fit(state["parameters"], self._names)
            if rank == 0:  # names are alike on all ranks
                say_what_differs(lacks, keeps)

    def _nothing_unsent(self, state: Mapping[str, Any]) -> bool:
        """So that any rank's state will do."""
        if state["proposed"]:
            return False
        saved = is_lossless(state["codec"], state["choices"])
        return saved and is_lossless(self.codec, self._choices())

    def _choices(self) -> str:
        return self.options.get("choices", "")

    def _restore(self, session: _core.Session, evaluations: Evaluations, keys: Keys, state: Mapping[str, Any]) -> None:
        if self._nothing_unsent(state):
            return
        check_order(state["parameters"], self._names, may_be_named=not self._settled)
        if "sessions" in state:
            session.restore_states([s.contiguous().numpy().tobytes() for s in state["sessions"]], False)
        else:
            session.restore(state["session"].contiguous().numpy().tobytes())
        evaluations.kind = state["evaluates"]
        keys.saved = dict(state["parameters"])
        if self._ties is not None:
            self._ties.load_state_dict(state.get("optimizer", {}))
