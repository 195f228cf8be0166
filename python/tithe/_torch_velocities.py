# SPDX-License-Identifier: Apache-2.0
"""SGD's momentum before the exchange: each rank gathers its own velocity, and velocities are what is sent.

A value that waits in the residual would else be multiplied by the optimizer's momentum once more when it comes. The
mean of the ranks' velocities is the velocity of the mean gradient, so with a codec that loses nothing this is torch's
SGD but for the order of additions. Weight decay and what momentum makes of it are the same on all ranks and stay with
the optimizer: it steps by its own code, with zeros for gradients, and what came is applied beside it. So its groups say
what they said, and a scheduler of learning rate or momentum works as ever.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tithe._torch_live import Live
from tithe._torch_pieces import Pieces, local_of
from tithe._torch_tie import Average, Tie, groups_of

_MARK = "tithe_carries_momentum"  # in a group, and so in a saved state: torch's buffers hold weight decay alone


class Velocities(Tie):
    """Float32, on the host, flat as in buckets, by id. None are there before a parameter's first step."""

    kind, suffix, codec = "velocities", " (momentum)", "fp32"

    def __init__(self, optimizer: torch.optim.Optimizer, pieces: Pieces) -> None:
        super().__init__(optimizer, pieces)
        if any(group.get("fused") for group in optimizer.param_groups):
            raise ValueError(
                "fused=True steps by one kernel, beside which momentum cannot be kept: leave it out of SGD"
            )
        self.kept: dict[int, torch.Tensor] = {}
        self._next: dict[int, torch.Tensor] = {}  # of the open step: what is kept once the optimizer takes it
        self._spare: dict[int, torch.Tensor] = {}  # memory for them
        self._came: dict[int, torch.Tensor] = {}  # gradients, while the optimizer steps
        self._groups: dict[int, dict[str, Any]] = {}
        self._hooks: list[Any] = []

    def opened(self, live: Live) -> None:
        self._hooks = [
            self.optimizer.register_step_pre_hook(self._before),
            self.optimizer.register_step_post_hook(self._after),
            self.optimizer.register_load_state_dict_post_hook(self._take_buffers),
        ]
        self._take_buffers(self.optimizer)

    def _take_buffers(self, optimizer: torch.optim.Optimizer) -> None:
        """Those of a state of torch's, which are alike on all ranks. What came from here holds no velocity."""
        for group in optimizer.param_groups:
            if not group.get(_MARK):
                for p in group["params"]:
                    # Not by [], which would make a state: torch.distributed.checkpoint fills optimizers without one.
                    if id(p) in self.names and optimizer.state.get(p, {}).get("momentum_buffer") is not None:
                        self.kept[id(p)] = self.pieces.flat(id(p), optimizer.state[p].pop("momentum_buffer"))
            group[_MARK] = True

    # ---- A step

    def leaves(self) -> None:
        self._groups = groups_of(self.optimizer)

    def gives(self, parameters: Sequence[torch.Tensor], values: torch.Tensor) -> None:
        for number, part in self.own(parameters, values):
            group, unit = self._groups[number], self.pieces.unit(number)
            momentum = group["momentum"]
            if momentum == 0:
                continue
            gradient = part.float() if unit == 1 else part.float() * unit
            before = self.kept.get(number)
            # A step that was never taken left one behind: that is memory.
            memory = self._next.pop(number, None)
            memory = self._spare.pop(number, None) if memory is None else memory
            if before is None:
                velocity = gradient.clone()
            else:
                velocity = torch.mul(before, momentum, out=memory)
                velocity.add_(gradient, alpha=1 - group["dampening"])
            self._next[number] = velocity
            sent = torch.add(gradient, velocity, alpha=momentum) if group["nesterov"] else velocity
            part.copy_(sent if unit == 1 else sent / unit)

    # ---- The optimizer's step

    def _before(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if any(callable(given) for given in (*args[1:], *kwargs.values())):
            raise ValueError("with attach(optimizer=) step() takes no closure: run backward before it")
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None and id(p) in self.names:
                    self._came[id(p)] = p.grad
                    p.grad = _zeros_like(p) if group["weight_decay"] != 0 else None

    def _after(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with torch.no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if (came := self._came.pop(id(p), None)) is None:
                        continue
                    p.grad = came
                    rate = float(group["lr"]) if group["maximize"] else -float(group["lr"])
                    local_of(p).add_(local_of(came), alpha=rate)
                    if group["momentum"] != 0 and self.pieces.count(id(p)) == 0:
                        self.kept[id(p)] = torch.empty(0)
                    if id(p) in self._next:
                        if id(p) in self.kept:
                            self._spare[id(p)] = self.kept[id(p)]
                        self.kept[id(p)] = self._next.pop(id(p))

    # ---- Checkpoints

    def state_dict(self) -> dict[str, Any]:
        """By name."""
        return {self.names[number][0]: velocity.clone() for number, velocity in self.kept.items()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self.kept = {number: saved[name].clone() for number, (name, _) in self.names.items() if name in saved}

    def detach(self, average: Average) -> None:
        for hook in self._hooks:
            hook.remove()
        numbers = list(self.names)
        leaves = self.leaving([self.kept.get(n, torch.zeros(self.pieces.count(n))) for n in numbers])
        average(*leaves)
        for number, whole in self.pieces.shaped(numbers, *leaves[1:]).items():
            if number in self.kept:
                state = self.optimizer.state[self.names[number][1]]
                decay = state.get("momentum_buffer")
                state["momentum_buffer"] = whole if decay is None else decay + whole
        for group in self.optimizer.param_groups:
            group.pop(_MARK, None)


def _zeros_like(p: torch.Tensor) -> torch.Tensor:
    """Without memory of their own; those of a DTensor need it."""
    if local_of(p) is not p:
        return torch.zeros_like(p, requires_grad=False)
    return torch.zeros((), dtype=p.dtype, device=p.device).expand_as(p)
