# SPDX-License-Identifier: Apache-2.0
"""State's methods for checkpoints: state_dict() and load_state_dict()."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from tithe import _core
from tithe._choices import is_lossless
from tithe._exchange import together
from tithe._schedule import Evaluations
from tithe.torch._common.parameter_keys import ParameterKeys, check_order
from tithe.torch._common.rank_states import gather_states, labelled, own_state, unlabelled
from tithe.torch._common.state_fit import check_parameters, check_rank, log_differences
from tithe.torch._hook.figures import Figures

_STATE_FORMAT = 3
_ENTRIES = {"format", "world", "rank", "codec", "choices", "proposed", "parameters", "evaluates", "session"}


class Saved(Figures):
    """The part of State that saves and loads. `_saved` is a state that was loaded before open()."""

    __slots__ = ()
    codec: str
    options: dict[str, Any]
    _names: dict[int, tuple[str, torch.nn.Parameter]]
    _saved: dict[str, Any] | None
    _model_known: bool
    _adapters: Any

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's residuals and counters, as a uint8 tensor and plain values under a key of this rank. Save
        one per rank, or give the State to torch.distributed.checkpoint, which saves the states of all ranks in one
        checkpoint.

        Call it between steps, on all ranks at the same step. After a failure, an interrupt or close() it returns the
        state of the last committed step.
        """
        return labelled(self._whole_state())

    def _whole_state(self) -> dict[str, Any]:
        if self._running is None:
            if self._saved is not None:
                return dict(self._saved)
            raise ValueError("nothing to save yet: call open(), or run a step, before state_dict()")
        with self._running.between_steps():
            return self._current_state()

    def _current_state(self) -> dict[str, Any]:
        running = self._running
        return {
            "format": _STATE_FORMAT,
            "world": running.world,
            "rank": running.rank,
            "codec": _core.check_codec(self.codec),
            "choices": self._choices(),
            "proposed": running.session.choices != running.opened_choices,
            "parameters": running.keys.table(),
            "evaluates": running.evaluations.kind,
            "session": torch.frombuffer(bytearray(running.session.state()), dtype=torch.uint8),
            **({"optimizer": self._adapters.state_dict()} if self._adapters is not None else {}),
        }

    def gathered_state_dict(self) -> dict[str, Any]:
        """Returns the states of all ranks on rank 0, and an empty collection on the others. Collective over the group.

        For checkpoints that rank 0 writes alone. load_state_dict() on each rank loads the rank's own part. The result
        takes 4 bytes per parameter and rank in rank 0's memory, or 8 with feedback=momentum.
        """
        group, doing = self._group(), "tithe.torch.State.gathered_state_dict()"
        patience = self._session_options()[1].patience
        check = self._running.check_ranks_present if self._running is not None else lambda: None
        with self._device():
            mine = together(group, patience, doing, self._whole_state, check)
            return gather_states(mine, group, patience, doing, check)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues bit-identically from this rank's state_dict(), with the same model and codec.

        It also accepts the result of gathered_state_dict() on rank 0, even that of another number of ranks: the
        residuals of ranks that do not exist here are spread over all ranks (docs/guide/elastic.md). ValueError, before
        anything has changed, for a single rank's state of another world size, rank, codec or choices, and for
        parameters of another shape or memory format, by name. A parameter that the state lacks begins with an empty
        residual; residuals of parameters that do not train are kept. A line in the log names both. Load before the
        first step. A State without names refuses parameters that it cannot distinguish, in load_state_dict() or in the
        first step.
        """
        if "ranks" in state:
            group = self._group()
            state = own_state(state, dist.get_rank(group), dist.get_world_size(group))
        state = unlabelled(state)
        if _ENTRIES - set(state) or state["format"] != _STATE_FORMAT:
            raise ValueError("not a state of this version of tithe.torch.State")
        if not self._no_residuals(state):
            check_order(state["parameters"], self._names, may_be_named=not self._model_known)
            check_parameters(state["parameters"], self._names)
        running = self._running
        if running is None:
            self._saved = dict(state)
            return
        if running.keys.known:
            raise ValueError("load the state before the first step: make a new DDP model and State, then load")
        self._check_saved(state, running.rank, running.world)
        self._restore(running.session, running.evaluations, running.keys, state)

    def _check_saved(self, state: Mapping[str, Any], rank: int, world: int) -> None:
        if "sessions" not in state:
            check_rank(state, rank, world, any_rank=is_lossless(self.codec, self._choices()))
        elif "optimizer" in state:
            raise ValueError(
                f"the state was saved by {len(state['sessions'])} ranks, and this job has {world}: the optimizer's "
                "state of each rank cannot continue with another number of ranks; start as many, or without optimizer="
            )
        if not self._no_residuals(state):
            missing, unused = check_parameters(state["parameters"], self._names)
            if rank == 0:  # all ranks have the same names
                log_differences(missing, unused)

    def _no_residuals(self, state: Mapping[str, Any]) -> bool:
        """Returns True if both codecs are lossless, so that the state of any rank is equivalent."""
        if state["proposed"]:
            return False
        saved = is_lossless(state["codec"], state["choices"])
        return saved and is_lossless(self.codec, self._choices())

    def _choices(self) -> str:
        return self.options.get("choices", "")

    def _restore(
        self, session: _core.Session, evaluations: Evaluations, keys: ParameterKeys, state: Mapping[str, Any]
    ) -> None:
        if self._no_residuals(state):
            return
        check_order(state["parameters"], self._names, may_be_named=not self._model_known)
        if "sessions" in state:
            session.restore_states([s.contiguous().numpy().tobytes() for s in state["sessions"]], False)
        else:
            session.restore(state["session"].contiguous().numpy().tobytes())
        evaluations.kind = state["evaluates"]
        keys.saved = dict(state["parameters"])
        if self._adapters is not None:
            self._adapters.load_state_dict(state.get("optimizer", {}))
