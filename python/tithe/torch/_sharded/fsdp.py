# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.attach() for models that fully_shard() shards over all ranks (ZeRO 2 and 3).

Gradients are sent to their owners by reduce-scatters, compressed once by the sender and added in float32 by the owner.
Weights are sent by their owners in all-gathers, without loss by default. Neither keeps a residual.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from tithe import _core
from tithe._choices import add_rules, check_model, choices_text
from tithe._exchange import all_gather_bytes, together
from tithe._session import make_options, refuse_unknown, transport_text
from tithe.torch._common.checks import usable_timeout
from tithe.torch._common.parameter_keys import by_name, check_alike, shared_options
from tithe.torch._common.rank_states import gather_states, labelled, unlabelled
from tithe.torch._hook.figures import Figures
from tithe.torch._sharded import fsdp_figures
from tithe.torch._sharded.fsdp_comm import Backward, Gather, Scatter
from tithe.torch._sharded.fsdp_groups import ShardedGroup, sharded_groups
from tithe.torch._sharded.fsdp_rounds import Rounds
from tithe.torch._sharded.groups import check_version
from tithe.torch._sharded.settings import GRADIENTS, check_gradients, refuse_unfit, weights_rules

_log = logging.getLogger("tithe.torch")
_DOING = "tithe.torch.attach()"
_SAVING = "tithe.torch.FullyShardedState.gathered_state_dict()"
_FORMAT = "fully sharded 1"


class FullyShardedState(Figures):
    """The State that attach() returns for a model that fully_shard() shards over all ranks.

    stats(), tensor_stats() and plan() report the exchange of gradients and weights. The model uses tithe even if the
    program keeps no reference to this object.
    """

    def __init__(
        self,
        groups: list[ShardedGroup],
        session: _core.Session,
        timeout: float,
        codec: str,
        weights: str,
        choices: str,
    ) -> None:
        self.codec, self.weights = codec, weights
        self._choices, self._groups = choices, groups
        self._running = Rounds(session, timeout)
        self._backward = Backward(self._running)
        self._process_group = groups[0].process_group
        ranks = dist.get_process_group_ranks(self._process_group)
        self._undo: list[Callable[[], None]] = []
        for group in groups:
            group.set_comms(
                Gather(group, self._running, ranks, weights == "delta"), Scatter(group, self._running, self._backward)
            )
            self._undo += [group.reset_comms, group.watch_rows()]

    # ---- life

    def detach(self) -> None:
        """Restores FSDP2's own collectives of the model. Call it on all ranks, between steps."""
        for undo in self._undo:
            undo()
        self._undo = []

    def skip(self) -> None:
        """Raises ValueError: the other ranks need this rank's weights and gradients in every collective."""
        raise ValueError("skip() is for DistributedDataParallel: ranks that share a model's weights take every step")

    def without_residual(self) -> contextlib.AbstractContextManager[None]:
        """Does nothing: no collective of this model keeps a residual."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Closes the connections and ends the thread. stats() and state_dict() still return the last values.

        A later forward or backward raises ValueError, unless detach() was called first.
        """
        self._running.close()

    # ---- checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Returns the counters that determine the rounding of the next rounds, a few hundred bytes. Call it between
        steps.

        Save one per rank, or give the State to torch.distributed.checkpoint, beside model and optimizer. There are no
        residuals, so a job can also continue without this state, with other rounding.
        """
        return labelled(self._own_state())

    def gathered_state_dict(self) -> dict[str, Any]:
        """Returns the states of all ranks on rank 0, for checkpoints that only rank 0 writes. Collective."""
        return gather_states(self._own_state(), self._process_group, self._running.timeout, _SAVING, lambda: None)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues bit-identically from this rank's state_dict(). Call it on all ranks, before the first step.

        The state of another number of ranks is ignored, and one line in the log reports that: there are no residuals to
        keep. ValueError for another rank's state, another codec, other choices, and the state of another kind of State.
        """
        if "ranks" in state and len(state["ranks"]) == self._running.world:
            state = state["ranks"][self._running.rank]
        saved = unlabelled(state)
        if saved.get("format") != _FORMAT:
            raise ValueError(
                "this is no state of a model that is sharded over all ranks: load what state_dict() of such a State "
                "gave, or leave it out, since nothing is unsent"
            )
        if saved["world"] != self._running.world:
            if self._running.rank == 0:
                _log.info(
                    "the state was saved by %d ranks, and this job has %d: the rounding of gradients begins anew",
                    saved["world"],
                    self._running.world,
                )
            return
        for what, mine in (("codec", self.codec), ("choices", self._choices), ("rank", self._running.rank)):
            if saved[what] != mine:
                raise ValueError(
                    f"the state was saved with {what}={saved[what]!r}, and this State has {what}={mine!r}: load the "
                    "rank's own into the same settings, or leave the state out, since nothing is unsent"
                )
        self._running.drain()
        self._running.session.restore(saved["session"].contiguous().numpy().tobytes())

    def _together(self, doing: str, body: Callable[[], Any]) -> Any:
        return together(self._process_group, self._running.timeout, doing, body)

    def _own_state(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "world": self._running.world,
            "rank": self._running.rank,
            "codec": self.codec,
            "choices": self._choices,
            "session": torch.frombuffer(bytearray(self._running.state()), dtype=torch.uint8),
        }

    # ---- figures

    def stats(self) -> dict[str, Any]:
        """Returns this rank's sums since attach(), as tithe.Session.stats() with one round per collective, and in
        addition:

        backward_passes that reduced gradients; for `reduce_scatter` and `all_gather` each: rounds, bytes (handed over,
        in the type of the values), bytes_sent and waited_ns (forward or backward waited this long for results).
        dense_bytes: the bytes of the same collectives without a codec. exposed_ns: all waiting. gradient_norm,
        residual_norm, relative_error and measured_round are None: there are no residuals, and a round has the tensors
        of one module.
        """
        return fsdp_figures.summed(self._running, self._backward.passes)

    def tensor_stats(self) -> dict[str, dict[str, Any]]:
        """Returns figures by a parameter's name for gradients, and by weights.<type>/<module> for all-gathers, which
        have side: true."""
        return fsdp_figures.each(self._running)

    def __str__(self) -> str:
        """Returns the main figures, as a few lines of text."""
        return fsdp_figures.text(self.stats(), self.codec, self.weights)

    def _watch_backward(self) -> None:
        """Does nothing: the trace of this State has no events of backward passes."""


def attach_fully_sharded(
    module: torch.nn.Module, codec: str | None, strategy: str, optimizer: Any, options: dict[str, Any]
) -> FullyShardedState:
    """Returns the State of a model that is sharded over all ranks, attached and open. Collective over them."""
    check_version()
    given = dict(options)
    weights = given.pop("weights", None) or "delta"
    patience = usable_timeout(given)
    process_group = _any_process_group(module)
    chosen = GRADIENTS if codec is None else codec
    user_choices = choices_text(given["choices"]) if "choices" in given else ""

    def prepare() -> tuple[list[ShardedGroup], str, _core.Options]:
        given.pop("loss_scale", None)  # concerns residuals only
        refuse_unknown(given, "clip", "groups", "loss_scale", "parameters", "process_group", "weight", "weights")
        refuse_unfit(given, optimizer)
        check_gradients(chosen, user_choices)
        groups = sharded_groups(module)
        transport = transport_text(given)
        rules = add_rules(weights_rules(weights), user_choices)
        made = {"codec": chosen, "strategy": strategy, **given, "average": False}
        check_model(make_options({**made, "choices": user_choices}), _trained(groups))
        return groups, transport, make_options({**made, "choices": rules})

    groups, transport, final = together(process_group, patience, _DOING, prepare)

    def all_gather(mine: bytes) -> list[bytes]:
        return all_gather_bytes(mine, process_group, patience, _DOING)

    names = by_name((name, group.whole(name)) for group in groups for name, _ in group.named())
    check_alike(names, all_gather, {"weights": weights, **shared_options(final)})
    rank, world = dist.get_rank(process_group), dist.get_world_size(process_group)
    session = _core.open(transport, rank, world, all_gather, final)
    state = FullyShardedState(groups, session, final.timeout, chosen, weights, user_choices)
    if rank == 0:
        _log.info("%s", fsdp_figures.beginning(groups, session, final.codec, weights))
    return state


def _any_process_group(module: torch.nn.Module) -> dist.ProcessGroup:
    for each in module.modules():
        if isinstance(each, dist.fsdp.FSDPModule):
            for inner in each._get_fsdp_state()._fsdp_param_groups:
                return inner.mesh_info.shard_process_group
    raise ValueError("fully_shard() found no parameters in this model: call it on modules that have some")


def _trained(groups: list[ShardedGroup]) -> list[tuple[str, torch.Tensor]]:
    return [(name, group.whole(name)) for group in groups for name, p in group.named() if p.requires_grad]
