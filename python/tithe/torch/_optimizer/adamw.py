# SPDX-License-Identifier: Apache-2.0
"""tithe.torch.optim.AdamW: torch's, but for what it divides by while gradients are compressed."""

import logging
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from tithe import _core
from tithe._choices import is_lossless
from tithe.torch._hook.adapter import parameters_of
from tithe.torch._hook.parameter_views import local_of
from tithe.torch._hook.state_registry import opened
from tithe.torch._optimizer.squares import Squares

_log = logging.getLogger("tithe.torch")

PART = "exp_avg_sq_part"  # the state's key beside torch's own

_VARIANCES = ("split", "sent")


class AdamW(torch.optim.AdamW):
    """torch.optim.AdamW for gradients that a codec compressed; tithe.torch.attach(model, optimizer=...) makes it so.

    Adam divides by the root of the mean squared gradient. Of a compressed gradient that holds the codec's error too, so
    that steps come out too small where gradients are small beside their neighbours. variance="split" takes the error
    out: each rank knows the error of its own gradient, and the part of the mean square that is free of it is exchanged
    as fp8 with steps 8, 16, 32, 64 and every hundredth: 0.08 bits per value and step. At least a twentieth stays.
    variance="sent" divides as torch does. Gradients may be rescaled, clipped or accumulated before step().

    Before attach(), with codecs that lose nothing, and in the exact steps it is torch.optim.AdamW, bit for bit.

    params, lr, betas, eps, weight_decay, amsgrad, more: as torch.optim.AdamW takes them. capturable, differentiable and
    fused are refused by attach().
    exact: how many first steps of a job send gradients by warmup_codec, or which part of `steps`, below 1; more than
    the job has: all of them.
    steps: of the whole job, where exact is a part of it.
    warmup_codec: a spec; the default suits any optimizer.
    max_norm: the largest norm of all gradients of this optimizer together, as torch.nn.utils.clip_grad_norm_ has it; 0:
    none. step() clips the gradients, and the residuals by the same factor. clip_grad_norm_() before step() clips the
    gradients alone: the rest of a spike then follows from the residuals, in clipped steps.
    State keys are torch's and one of its own, exp_avg_sq_part. A state of torch's AdamW can be loaded, and goes on as
    torch's until a part has come; torch's loads a state of this class. Products are each rank's own and stand in the
    State's state_dict(). On the host they take 8 bytes per value, the parts 4 beside the parameter.
    ValueError for a number or a word that is none of these.
    """

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
        self._exact_part = self.exact / steps if isinstance(steps, int) and steps > 0 else 0.0  # 0: not known
        self.warmup_codec = _core.check_codec(warmup_codec)
        self.max_norm = usable_norm(max_norm)
        self._squares: Squares | None = None  # while attached, like these
        self._exact: Any = None
        self._clips: Any = None
        self._stepped = False

    @property
    def _tied(self) -> bool:
        """Whether it is attached to a model."""
        return any(tie is not None for tie in (self._squares, self._exact, self._clips))

    def _say_if_forgotten(self) -> None:
        """Warns where a State compresses the gradients of this optimizer and was not given it."""
        mine = {id(p) for p in parameters_of(self)}
        for state in list(opened.values()):
            if not mine.isdisjoint(state._names) and not is_lossless(state.codec, state._choices()):
                if state._live.rank == 0:
                    _log.warning(
                        "tithe.torch.optim.AdamW steps as torch.optim.AdamW, since attach() was not given it: "
                        "tithe.torch.attach(model, optimizer=optimizer)"
                    )
                return

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
        """As torch's. After a backward whose gradients are those of all ranks."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not (self._stepped or self._tied):
            self._say_if_forgotten()
        self._stepped = True
        self._clip()
        if self._squares is None:
            _plain(torch.optim.AdamW.step)(self)
            return loss
        self._take(self._squares)
        if self._exact is not None and self._exact.is_exact():
            _plain(torch.optim.AdamW.step)(self)
        else:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        _step(p, self._state_of(p, group), group)
        self._complete(self._squares)
        return loss

    def _take(self, squares: Squares) -> None:
        """Parts that have come, and this step's products."""
        for number, part in squares.arrived().items():
            state = self.state[squares.names[number][1]]
            if "step" in state:
                state[PART] = part
        squares.add()

    def _complete(self, squares: Squares) -> None:
        """All of a square is the gradient's own until a part has come. torch.distributed.checkpoint loads what is there
        after a first step, and no more."""
        for _, p in squares.names.values():
            state = self.state.get(p, {})
            if "step" in state and PART not in state:
                state[PART] = torch.ones_like(p)

    def _state_of(self, p: torch.Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """As torch makes it at a parameter's first step."""
        state = self.state[p]
        if "step" not in state:
            state["step"] = torch.tensor(
                0.0, dtype=torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32
            )
            for key in ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ())):
                state[key] = torch.zeros_like(p, memory_format=torch.preserve_format)
        return state

    def __getstate__(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("variance", "exact", "warmup_codec", "max_norm")}
        return {**super().__getstate__(), **own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy belongs to no model: attach() it."""
        super().__setstate__(state)
        for name in ("_squares", "_exact", "_clips"):
            self.__dict__.setdefault(name, None)
        self.__dict__.setdefault("_stepped", False)


def exact_steps(exact: Any, steps: Any) -> int:
    """How many they are. ValueError for what is no such number."""
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
    """ValueError for what is no number of at least 0."""
    if isinstance(max_norm, bool) or not isinstance(max_norm, int | float) or not 0 <= max_norm < math.inf:
        raise ValueError(f"max_norm={max_norm!r}: the largest norm of all gradients, or 0 for no clipping")
    return float(max_norm)


def _step(p: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    """torch's step for one parameter, but for `square`, in torch's order of operations. A shard by itself."""
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


def _plain(step: Any) -> Any:
    """Without what torch puts around a class's step: that calls hooks, and stands around this class's own already."""
    return step.__wrapped__ if getattr(step, "hooked", False) else step
