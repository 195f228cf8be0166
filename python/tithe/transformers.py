# SPDX-License-Identifier: Apache-2.0
"""tithe for the Trainer of Hugging Face's transformers.

    import tithe.transformers
    trainer = Trainer(model=model, args=args, train_dataset=data)
    tithe.transformers.attach(trainer)                               # before trainer.train()
    tithe.transformers.attach(trainer, codec="qtopk:ratio=0.03")     # or the codec that suits: docs/start/choosing.md

The Trainer's checkpoints get one file of residuals per rank, `tithe_rank_0.pt` and so on, beside its files of random
numbers, and `trainer.train(resume_from_checkpoint=...)` loads them from `args.output_dir`. For a checkpoint in another
folder, use attach(trainer, resume_from_checkpoint=folder). With fp16 tithe reads the loss scale from the Trainer's
scaler.
"""

import weakref
from pathlib import Path
from typing import Any

try:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
except ModuleNotFoundError as error:
    from tithe._missing import no_torch

    raise no_torch("tithe.transformers", error) from None

from tithe import _core
from tithe._choices import is_lossless
from tithe._session import refuse_unknown
from tithe.torch import State
from tithe.torch import attach as attach_model
from tithe.torch._checkpoint.rank_files import read_state, write_state
from tithe.torch._common.checks import ddp_of
from tithe.torch._common.parameter_keys import other_values

try:
    from transformers import TrainerCallback
except ImportError:
    raise ImportError("tithe.transformers needs transformers: pip install transformers accelerate") from None

__all__ = ["TitheCallback", "attach"]

_DEFAULT = _core.Options()


class TitheCallback(TrainerCallback):
    """The callback that attach() adds to a Trainer and returns."""

    def __init__(self, trainer: Any, resume_from_checkpoint: str | None = None, **settings: Any) -> None:
        self._trainer = weakref.ref(trainer)  # the trainer refers to this callback
        self._folder = resume_from_checkpoint
        self._settings = settings
        self._model: DistributedDataParallel | None = None
        self._state: State | None = None

    @property
    def state(self) -> State:
        """The State: stats(), plan(), trace(), residual(). ValueError before training has begun."""
        if self._state is None:
            raise ValueError("no training with more than one process has begun yet")
        return self._state

    # ---- called by the Trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        trainer = self._trainer()
        if args.world_size == 1:
            return  # nothing to synchronise
        model = ddp_of(trainer.model_wrapped)
        if model is self._model:
            return  # a second train() of the same DDP model
        if self._state is not None:
            self._state.close()
        settings = dict(self._settings)
        scaler = getattr(trainer.accelerator, "scaler", None)
        if scaler is not None:
            settings.setdefault("loss_scale", "weight", scaler.get_scale)
        self._state, self._model = attach_model(model, **settings), model
        if state.global_step > 0 and not is_lossless(self._settings["codec"], self._settings.get("choices")):
            loading = "tithe.transformers: loading the residuals"
            self._state._together(loading, lambda: self._load(args, state.global_step))

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._state is None or args.save_only_model or state.is_hyper_param_search:
            return
        folder = _checkpoint(args, state.global_step)
        folder.mkdir(parents=True, exist_ok=True)
        write_state(self._state.state_dict(), folder / _name())

    # ---- inside

    def _load(self, args: Any, step: int) -> None:
        """Loads the state. The Trainer passes its callbacks the step, but not the folder from which it resumes."""
        folder = _checkpoint(args, step) if self._folder is None else Path(self._folder)
        path = folder / _name()
        cure = (
            "attach(trainer, resume_from_checkpoint=folder) says where the checkpoint lies that training resumes from"
        )
        if not path.exists():
            raise ValueError(
                f"training resumes at step {step}, and {path} is not there: if the job was killed while it saved, "
                f"resume from an earlier checkpoint; else {cure}"
            )
        saved = read_state(path)
        other = other_values(saved, self._model)
        if other is not None:
            raise ValueError(f"{path} was saved with other values of parameter '{other}': {cure}")
        self._state.load_state_dict(saved)


def _checkpoint(args: Any, step: int) -> Path:
    return Path(args.output_dir) / f"checkpoint-{step}"


def _name() -> str:
    return f"tithe_rank_{dist.get_rank()}.pt"


def attach(
    trainer: Any,
    codec: str = _DEFAULT.codec,
    strategy: str = _DEFAULT.strategy,
    *,
    resume_from_checkpoint: str | None = None,
    **options: Any,
) -> TitheCallback:
    """Makes a Trainer synchronise its gradients through tithe. Call it before trainer.train(), on all ranks.

    codec, strategy, options: as tithe.torch.attach() takes them. Returns the callback, which has a `state` after
    training has begun. With a single process the callback does nothing.
    """
    refuse_unknown(options, "clip", "groups", "loss_scale", "resume_from_checkpoint")
    State(codec=codec, strategy=strategy, **options).close()  # raises ValueError for a wrong setting
    callback = TitheCallback(trainer, resume_from_checkpoint, codec=codec, strategy=strategy, **options)
    trainer.add_callback(callback)
    return callback
