# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.optim.AdamW: torch's AdamW with the codec's error removed from the divisor."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from tithe import _core
from tithe.torch._hook.adapter import parameters_of
from tithe.torch._hook.parameter_views import local_of
from tithe.torch._optimizer.squares import Squares
from tithe.torch._optimizer.steps import begin_step, without_hooks

PART = "exp_avg_sq_part"  # this class's key in the state of a parameter

_VARIANCES = ("split", "sent")


class AdamW(torch.optim.AdamW):
    """torch.optim.AdamW for compressed gradients, after tithe.torch.attach(model, optimizer=...) has received it.

    Adam divides by the root of the mean squared gradient. The square of a compressed gradient contains the codec's
    error too, so the steps of small gradients beside large ones become too small. variance="split" removes the error:
    each rank can compute the error of its own gradient, and the part of the mean square without the error is exchanged
    as fp8 in steps 8, 16, 32, 64 and every hundredth step, 0.08 bits per value and step. The divisor keeps at least a
    twentieth of the mean square. variance="sent" divides as torch does. The loop may rescale, clip or accumulate
    gradients before step().

    Before attach(), with lossless codecs and in the exact steps, it is torch.optim.AdamW, bit for bit.

    params, lr, betas, eps, weight_decay, amsgrad, more: as torch.optim.AdamW takes them. attach() refuses capturable,
    differentiable and fused.
    exact: the number of first steps whose gradients are sent by warmup_codec; below 1, the part of `steps`. A number
    above the job's steps means all steps.
    steps: the number of steps of the whole job, if exact is a part of it.
    warmup_codec: a spec; the default suits any optimizer.
    max_norm: the largest norm of all gradients of this optimizer, as in torch.nn.utils.clip_grad_norm_; 0: no limit.
    step() clips the gradients, and the residuals by the same factor. clip_grad_norm_() before step() clips only the
    gradients: the residuals then deliver the rest of a spike, in clipped steps.
    The state has torch's keys and exp_avg_sq_part. The class loads a state of torch's AdamW, and works as torch's until
    the first part is exchanged; torch's loads a state of this class. Each rank's own products are in the State's
    state_dict(). They take 8 bytes per value on the host, and the parts 4 bytes beside the parameter.
    ValueError for a wrong number or word.
    """

    # Set while attached; a copy is attached to no model
    _squares: Squares | None = None
    _exact: Any = None
    _clips: Any = None
    _known = False  # whether attach() has received it, or it has stepped

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        exact: float = 0,
        steps: int | None = None,
        warmup_codec: str = _core.Options().codec,
        variance: str = "split",
        max_norm: float = 0,
        **more: Any,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **more)
        if variance not in _VARIANCES:
            raise ValueError(f"variance={variance!r}: {_core.suggest(str(variance), list(_VARIANCES))}")
        self.variance = variance
        self.exact = exact_steps(exact, steps)
        self._exact_part = self.exact / steps if isinstance(steps, int) and steps > 0 else 0.0  # 0: unknown
        self.warmup_codec = _core.check_codec(warmup_codec)
        self.max_norm = usable_norm(max_norm)

    @property
    def _attached(self) -> bool:
        """Returns True if it is attached to a model."""
        return any(adapter is not None for adapter in (self._squares, self._exact, self._clips))

    def _clip(self) -> None:
        """Scales gradients down to max_norm, as torch.nn.utils.clip_grad_norm_ does."""
        if self.max_norm == 0:
            return
        norm = torch.nn.utils.clip_grad_norm_(parameters_of(self), self.max_norm)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        if self._clips is not None:
            self._clips.clipped(min(1.0, self.max_norm / (norm.item() + 1e-6)))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Does torch's step(), after a backward whose gradients are averaged over all ranks."""
        loss = begin_step(self, closure)
        self._clip()
        if self._squares is None:
            without_hooks(torch.optim.AdamW.step)(self)
            return loss
        self._take(self._squares)
        if self._exact is not None and self._exact.is_exact():
            without_hooks(torch.optim.AdamW.step)(self)
        else:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        _step(p, self._state_of(p, group), group)
        self._complete(self._squares)
        return loss

    def _take(self, squares: Squares) -> None:
        """Stores the parts of the last exchange, and adds this step's products."""
        for number, part in squares.arrived().items():
            state = self.state[squares.names[number][1]]
            if "step" in state:
                state[PART] = part
        squares.add()

    def _complete(self, squares: Squares) -> None:
        """Sets each missing part to 1: until a part is exchanged, the whole square counts as the gradient's own. Parts
        exist after the first step, since torch.distributed.checkpoint loads only keys that exist."""
        for _, p in squares.names.values():
            state = self.state.get(p, {})
            if "step" in state and PART not in state:
                state[PART] = torch.ones_like(p)

    def _state_of(self, p: torch.Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """Returns the state of a parameter, made as torch makes it in the parameter's first step."""
        state = self.state[p]
        if "step" not in state:
            state["step"] = torch.tensor(
                0.0, dtype=torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32
            )
            for key in ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ())):
                state[key] = torch.zeros_like(p, memory_format=torch.preserve_format)
        return state

    def __getstate__(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("variance", "exact", "_exact_part", "warmup_codec", "max_norm")}
        return {**super().__getstate__(), **own}


def exact_steps(exact: Any, steps: Any) -> int:
    """Returns the number of exact steps. ValueError for a wrong value."""
    if isinstance(exact, bool) or not isinstance(exact, int | float) or not 0 <= exact < math.inf:
        raise ValueError(f"exact={exact!r}: how many first steps, or which part of steps=, 0 <= exact < 1")
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise ValueError(f"steps={steps!r}: how many steps the job has, 1 or more")
    if 0 < exact < 1:
        if steps is None:
            raise ValueError(
                f"exact={exact:g} is a part of the job's steps: say steps=, or exact= as a number of steps"
            )
        return math.ceil(exact * steps)
    if exact != int(exact):
        raise ValueError(f"exact={exact:g}: a whole number of steps, or a part below 1")
    return int(exact)


def usable_norm(max_norm: Any) -> float:
    """Returns the norm. ValueError if it is not a number of at least 0."""
    if isinstance(max_norm, bool) or not isinstance(max_norm, int | float) or not 0 <= max_norm < math.inf:
        raise ValueError(f"max_norm={max_norm!r}: the largest norm of all gradients, or 0 for no clipping")
    return float(max_norm)


def _step(p: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """Makes torch's step for one parameter or shard, in torch's order of operations. The part is applied to
    `square`."""
    grad = -local_of(p.grad) if group["maximize"] else local_of(p.grad)
    beta1, beta2 = group["betas"]
    state["step"] += 1
    step = state["step"].item()
    lr = float(group["lr"])
    p = local_of(p)
    if group["weight_decay"] != 0:
        p.mul_(1 - lr * group["weight_decay"])
    mean, square = local_of(state["exp_avg"]), local_of(state["exp_avg_sq"])
    mean.lerp_(grad, 1 - beta1)
    square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    if PART in state:
        square = square * local_of(state[PART])
    if group["amsgrad"]:
        most = local_of(state["max_exp_avg_sq"])
        square = torch.maximum(most, square, out=most)
    root = (square.sqrt() / math.sqrt(1 - beta2**step)).add_(group["eps"])
    p.addcdiv_(mean, root, value=-lr / (1 - beta1**step))
