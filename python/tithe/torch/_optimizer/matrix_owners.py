# SPDX-License-Identifier: Apache-2.0
"""The step of an attached tithe.torch.optim.Muon: each matrix has an owner, which computes its update.

In backward the matrices are left out of the exchange, so each rank keeps its own gradients of them. A step is one round
of the State's session:

    reduce-scatter  the owner receives the mean gradient of whole matrices
    compute         the owner updates its momentum and orthogonalises the result (Newton-Schulz)
    all-gather      all ranks, the owner among them, receive the decoded update
    commit          the round counts on all ranks or on none; then all ranks apply the updates

The matrices are exchanged in a few parts, so that a rank computes one part while others are on the network. The session
drops a round that holds a NaN on some rank: then neither weights nor momentum change.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.optim._muon import _adjust_lr, _zeropower_via_newtonschulz, muon
from torch.optim.optimizer import _to_scalar

from tithe import _core
from tithe._exchange import all_gather_bytes
from tithe.torch._hook.adapter import OptimizerAdapter
from tithe.torch._hook.parameter_views import ParameterViews
from tithe.torch._hook.running_session import RunningSession
from tithe.torch._hook.session_end import clear_frames, end_session, interrupted
from tithe.torch._optimizer.muon_rules import GRADIENT, UPDATE
from tithe.torch._optimizer.rank_scales import FIRST, check_rows, factor_of, norm_of, sampled

if TYPE_CHECKING:
    from tithe.torch._optimizer.muon import Muon

_log = logging.getLogger("tithe.torch")

_FINITE, _SCALES = "Muon (finite)", "Muon (scales)"  # the keys of two small tensors
_PARTS = 4  # the number of parts of a step's matrices
_MOMENTUM = "momentum_buffer"  # torch's key in the optimizer's state


class Matrix:
    """One matrix in one step."""

    def __init__(self, name: str, p: torch.nn.Parameter, group: dict[str, Any], owner: int, mine: bool) -> None:
        self.name, self.p, self.group, self.owner = name, p, group, owner
        gradient = p.grad.detach().reshape(-1)
        # The session writes into the owner's tensor, and p.grad stays this rank's own gradient.
        self.gradient = gradient.clone() if mine and gradient.is_cpu else gradient.cpu()
        # Newton-Schulz returns bfloat16.
        self.update = torch.empty(0 if mine else p.numel(), dtype=torch.bfloat16)
        self.momentum: torch.Tensor | None = None  # on the owner, after the step

    def compute(self, state: dict[str, Any]) -> None:
        """Computes the update from the mean gradient on the owner, as torch computes it. The momentum is stored after
        the commit."""
        group, p = self.group, self.p
        gradient = self.gradient.view(p.shape).to(p.device)
        before = state.get(_MOMENTUM)
        if before is None:
            before = torch.zeros_like(p.grad, memory_format=torch.preserve_format)
        self.momentum = before.lerp(gradient, 1 - group["momentum"])
        update = gradient.lerp(self.momentum, group["momentum"]) if group["nesterov"] else self.momentum
        update = _zeropower_via_newtonschulz(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        self.update = update.reshape(-1).cpu()

    def apply(self) -> None:
        lr = _to_scalar(self.group["lr"])
        self.p.mul_(1 - lr * self.group["weight_decay"])
        adjusted = _adjust_lr(lr, self.group["adjust_lr_fn"], self.p.shape)
        self.p.add_(self.update.view(self.p.shape).to(self.p.device), alpha=-adjusted)


class MatrixOwners(OptimizerAdapter):
    """Steps the optimizer's matrices that the model trains. torch's step() handles all other parameters."""

    kind = "owners"
    optimizer: Muon

    @property
    def local(self) -> Collection[int]:
        return self.names

    def __init__(self, optimizer: Muon, views: ParameterViews, group: dist.ProcessGroup, patience: float) -> None:
        super().__init__(optimizer, views)
        self._group, self._patience = group, patience
        self._rank, self._world = dist.get_rank(group), dist.get_world_size(group)
        self.owners = assign(self._costs(), self._world)
        self._running: RunningSession | None = None
        self._samples: dict[int, torch.Tensor] = {}  # samples of the gradients after the last backward, by id
        self._finite = True  # whether this rank's gradients of the open round are finite, so far
        self._flag = torch.zeros(1)
        self._flag_layout = _core.Layout([_FINITE], [1], "float32", [1])
        self._flag_layout.side = True
        self._warned = False

    def _costs(self) -> dict[int, float]:
        """Returns the multiplications of Newton-Schulz, by id."""
        steps = {id(p): group["ns_steps"] for group in self.optimizer.param_groups for p in group["params"]}
        costs = {}
        for number, (_, p) in self.names.items():
            short, long = sorted(p.shape)
            costs[number] = steps[number] * short * short * (2.0 * long + short)
        return costs

    def refresh_parameters(self) -> None:
        """Keeps the matrices of attach(): the gradients of a later parameter group are exchanged in backward."""
        if not self.names:
            super().refresh_parameters()

    def side_views(self) -> list[tuple[str, torch.Tensor]]:
        keys = [(name + suffix, p) for name, p in self.names.values() for suffix in (GRADIENT, UPDATE)]
        return [*keys, (_FINITE, self._flag), (_SCALES, torch.empty(self._world * (FIRST + len(self.names))))]

    def opened(self, running: RunningSession) -> None:
        self._running = running
        running.keep_local(self.local)
        self.optimizer._owners = self
        self.keep_own()

    def detach(self, average: Any) -> None:
        with self._running.between_steps():
            self._running.keep_local(())
        for p, momentum in self._gather_momentum().items():
            self.optimizer.state[p][_MOMENTUM] = momentum
        self.optimizer._owners = None

    # ---- backward

    def before_exchange(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        for _, part in self.own(parameters, values):
            if part.numel() > 0:
                self._finite = self._finite and all(bool(most.isfinite()) for most in part.aminmax())

    def end_hand_over(self, session: _core.Session) -> None:
        """Hands over a flag tensor that is NaN if a matrix gradient is not finite. A NaN in a round drops it on all
        ranks."""
        self._flag.fill_(0.0 if self._finite else torch.nan)
        self._finite = True
        session.sync_at(self._flag_layout, self._flag)

    def after_exchange(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        dropped = self._running.session.last_round_dropped
        for number, part in self.own(parameters, values):
            if dropped:
                part.fill_(torch.nan)
            self._samples[number] = sampled(part).clone()

    # ---- step

    def step(self) -> None:
        """Makes the step. Collective. An error of this rank only ends the session, so that the other ranks get an error
        at once."""
        self._step_others()
        running = self._running
        with running.between_steps(), running.device():
            running.check()
            try:
                self._round(running.session)
            except BaseException as failed:
                if not isinstance(failed, _core.Error):
                    own = failed if isinstance(failed, Exception) else interrupted(failed)
                    end_session(running.session, running.workers.causes, own)
                clear_frames(failed)
                raise
            self._samples.clear()

    def _round(self, session: _core.Session) -> None:
        """Exchanges the gradients of all matrices, computes the updates of this rank's matrices, and exchanges the
        updates.

        The parts are pipelined in one round: all gradients are started first, then for each part the owner computes and
        starts the all-gather. Parameters and momentum change only after the commit, if the round was not dropped.
        """
        matrices = [
            Matrix(self.names[id(p)][0], p, group, self.owners[id(p)], self.owners[id(p)] == self._rank)
            for group in self.optimizer.param_groups
            for p in group["params"]
            if id(p) in self.names and p.grad is not None
        ]
        # All ranks have a state of all matrices, in torch's order: torch.distributed.checkpoint reads its keys.
        states = [self.optimizer.state[m.p] for m in matrices]
        rows = self._scales()
        parts = self._parts(matrices)
        tickets = [self._scatter(session, part) for part in parts]
        width = rows.shape[1]
        session.all_gather([(_SCALES, rows.view(-1))], {_SCALES: [rank * width for rank in range(self._world + 1)]})
        for part, ticket in zip(parts, tickets, strict=True):
            session.wait(ticket)
            for m in part:
                if m.owner == self._rank:
                    m.compute(self.optimizer.state[m.p])
            session.all_gather([(m.name + UPDATE, m.update) for m in part], self._bounds(part, UPDATE))
        session.commit()
        for line in session.messages():
            _log.warning("%s", line)
        if session.last_round_dropped:
            self._warn_dropped()
            return
        check_rows(rows, [name for name, _ in self.names.values()])
        for m, state in zip(matrices, states, strict=True):
            m.apply()
            if m.momentum is not None:
                state[_MOMENTUM] = m.momentum

    def _scales(self) -> torch.Tensor:
        """Returns one row per rank, of which only this rank's row is filled (rank_scales.py)."""
        known = self._running.keys.known
        others = [p.grad for n, (_, p) in known.items() if n not in self.names and p.grad is not None]
        row = [norm_of(others), norm_of(p for _, p in known.values())]
        for number, (_, p) in self.names.items():
            now = None if p.grad is None else sampled(p.grad).cpu()
            row.append(factor_of(self._samples.get(number), now))
        rows = torch.zeros(self._world, len(row))
        rows[self._rank] = torch.tensor(row)
        return rows

    def _parts(self, matrices: Sequence[Matrix]) -> list[list[Matrix]]:
        """Splits matrices into parts with about the same number per owner. The same on all ranks."""
        counts = [sum(m.owner == owner for m in matrices) for owner in range(self._world)]
        seen = [0] * self._world
        parts: list[list[Matrix]] = [[] for _ in range(min(_PARTS, max(counts, default=0)))]
        for m in matrices:
            parts[seen[m.owner] * len(parts) // counts[m.owner]].append(m)
            seen[m.owner] += 1
        return parts

    def _scatter(self, session: _core.Session, part: Sequence[Matrix]) -> int:
        tensors = [(m.name + GRADIENT, m.gradient) for m in part]
        return session.reduce_scatter(tensors, self._bounds(part, GRADIENT))

    def _bounds(self, part: Sequence[Matrix], suffix: str) -> dict[str, list[int]]:
        return {m.name + suffix: [0] * (m.owner + 1) + [m.p.numel()] * (self._world - m.owner) for m in part}

    def _step_others(self) -> None:
        """Makes torch's step for parameters that the model did not train when it was attached."""
        for group in self.optimizer.param_groups:
            rest: tuple[list[Any], ...] = ([], [], [])
            others = {**group, "params": [p for p in group["params"] if id(p) not in self.names]}
            self.optimizer._init_group(others, *rest)
            settings = {name: value for name, value in group.items() if name in _SETTINGS}
            if rest[0]:
                muon(*rest, **settings, has_complex=False)

    def _warn_dropped(self) -> None:
        if self._rank == 0 and not self._warned:
            self._warned = True
            _log.warning(
                "Muon made no step on any rank, since a gradient was not finite on some rank; its momentum is as before"
            )

    # ---- momentum

    def keep_own(self) -> None:
        """Deletes the momentum of the other ranks' matrices."""
        for number, (_, p) in self.names.items():
            if self.owners[number] != self._rank and p in self.optimizer.state:
                self.optimizer.state[p].pop(_MOMENTUM, None)

    @contextlib.contextmanager
    def whole_momentum(self) -> Iterator[None]:
        """Adds the momentum of all matrices to the optimizer's state in the body. Collective."""
        state = self.optimizer.state
        gathered = self._gather_momentum()
        before = {p: state.get(p) for p in gathered}
        try:
            for p, momentum in gathered.items():
                state[p] = {**state[p], _MOMENTUM: momentum}
            yield
        finally:
            for p, entry in before.items():
                if entry is None:
                    del state[p]
                else:
                    state[p] = entry

    def _gather_momentum(self) -> dict[torch.nn.Parameter, torch.Tensor]:
        """Returns the owner's momentum of each matrix, by matrix."""
        state = self.optimizer.state
        doing = "tithe.torch.optim.Muon.state_dict(), which all ranks call"
        mine = {
            name: str(state[p][_MOMENTUM].dtype).removeprefix("torch.")
            for name, p in self.names.values()
            if p in state and _MOMENTUM in state[p]
        }
        out = {}
        with self._running.device():
            check = self._running.check_ranks_present
            blobs = all_gather_bytes(json.dumps(mine).encode(), self._group, self._patience, doing, check)
            of_ranks = [json.loads(blob) for blob in blobs]
            for number, (name, p) in self.names.items():
                owner = self.owners[number]
                if name not in of_ranks[owner]:
                    continue
                if owner == self._rank:
                    momentum = state[p][_MOMENTUM].contiguous()
                else:
                    momentum = torch.empty(p.shape, dtype=getattr(torch, of_ranks[owner][name]), device=p.device)
                dist.broadcast(momentum, dist.get_global_rank(self._group, owner), group=self._group)
                out[p] = momentum
        return out


_SETTINGS = ("lr", "weight_decay", "momentum", "nesterov", "ns_coefficients", "eps", "ns_steps", "adjust_lr_fn")


def assign(costs: dict[int, float], world: int) -> dict[int, int]:
    """Returns owners by id: the costliest matrix first, each to the rank with the least cost so far. The same on all
    ranks."""
    loads = [0.0] * world
    owners = {}
    for number in sorted(costs, key=lambda number: -costs[number]):  # stable: equal costs in the model's order
        owners[number] = min(range(world), key=loads.__getitem__)
        loads[owners[number]] += costs[number]
    return owners
