# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.optim.Muon: torch's Muon, with the updates of the matrices divided among the ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from tithe.torch._optimizer.steps import begin_step, without_hooks

if TYPE_CHECKING:
    from tithe.torch._optimizer.matrix_owners import MatrixOwners


class Muon(torch.optim.Muon):
    """torch.optim.Muon whose matrices are divided among the ranks, after tithe.torch.attach(model, optimizer=[muon,
    ...]).

    attach() assigns each matrix to one rank, its owner, by the cost of Newton-Schulz. The gradients of the matrices
    stay this rank's own until step(), which is collective: the owner receives the mean gradient of its matrices (4 bits
    per value), updates their momentum, and orthogonalises it; all ranks receive the update (2 bits per value) and apply
    it. So Newton-Schulz and the momentum's memory are divided among the ranks. With codec="fp32" each step is
    torch.optim.Muon's under DistributedDataParallel.

    Clip only the parameters of the other optimizers: clip_grad_norm_() over the matrices has another norm on each rank,
    and step() raises tithe.Error on all ranks. A scale that is the same on all ranks, such as GradScaler's, is allowed.
    If a gradient is not finite on some rank, all ranks have NaN gradients after backward, and step() changes nothing on
    any rank.

    Arguments are those of torch.optim.Muon. Before attach() and with one rank it is torch.optim.Muon, bit for bit.
    """

    _owners: MatrixOwners | None = None  # while attached, unless there is one rank
    _known = False  # whether attach() has received it, or it has stepped

    @property
    def _attached(self) -> bool:
        return self._owners is not None

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Does torch's step(). When attached, all ranks call it; a rank that does not is named after the timeout."""
        loss = begin_step(self, closure)
        if self._owners is None:
            without_hooks(torch.optim.Muon.step)(self)
        else:
            self._owners.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Returns torch.optim.Muon's state. When attached it is collective: all ranks call it, even if only one of them
        saves.

        The owners send their momentum to all ranks, which takes torch's memory until the state is freed.
        """
        if self._owners is None:
            return super().state_dict()
        with self._owners.whole_momentum():
            return super().state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads a state of this class or of torch.optim.Muon, on all ranks. Not collective."""
        super().load_state_dict(dict(state_dict))
        if self._owners is not None:
            self._owners.keep_own()

    def __getstate__(self) -> dict[str, Any]:
        if self._owners is not None:
            raise ValueError(
                "each rank has the momentum of some matrices, so a copy or a pickle of this optimizer would lack the "
                "others: use state_dict(), or State.detach() first"
            )
        return super().__getstate__()
