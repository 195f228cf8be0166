# SPDX-License-Identifier: Apache-2.0
"""tithe for Lightning's Trainer.

    import tithe.lightning
    trainer = L.Trainer(strategy="ddp", callbacks=[tithe.lightning.TitheCallback()])
    trainer = L.Trainer(strategy="ddp", callbacks=[tithe.lightning.TitheCallback(codec="qtopk:ratio=0.03")])

Do not use `DDPStrategy(ddp_comm_state=..., ddp_comm_hook=...)`: Lightning 2.6 registers hooks on CUDA only. On other
devices it silently trains without the hook.

Checkpoints contain the residuals of all ranks, gathered on rank 0, which writes them: 4 bytes per parameter and rank.
`Trainer.fit(ckpt_path=...)` loads them and continues bit-identically. With 16-bit mixed precision tithe reads the loss
scale from the Trainer's scaler.

With ModelParallelStrategy, configure_model() may shard a model inside hosts and replicate it between them (fully_shard
over both dimensions of self.device_mesh). The residuals are then in the strategy's distributed checkpoint.
"""

import logging
from collections.abc import Mapping
from typing import Any

try:
    import torch.distributed.checkpoint as dcp
    from torch.nn.parallel import DistributedDataParallel
except ModuleNotFoundError as error:
    from tithe._missing import no_torch

    raise no_torch("tithe.lightning", error) from None

from tithe import _core
from tithe._choices import is_lossless
from tithe._session import refuse_unknown
from tithe.torch import State, attach
from tithe.torch._common.parameter_keys import other_values
from tithe.torch._sharded.groups import is_sharded
from tithe.torch._sharded.part_state import PartState

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ImportError:
        raise ImportError("tithe.lightning needs Lightning: pip install lightning") from None

__all__ = ["TitheCallback"]

_log = logging.getLogger(__name__)

_DEFAULT = _core.Options()
_KEY = "tithe"  # the key in a checkpoint
_SHARDED = "with the weights"  # the value in a checkpoint whose residuals are saved beside the weights


class TitheCallback(Callback):
    """Makes a Trainer with a DDP strategy, or one of sharded models with replicas, synchronise through tithe.

    codec, strategy, options: as tithe.torch.attach() takes them.
    checkpoints: whether checkpoints contain the residuals. Without them residuals are lost on resume.
    With a single process the callback does nothing. ValueError for other strategies when training begins.
    """

    def __init__(
        self,
        codec: str = _DEFAULT.codec,
        strategy: str = _DEFAULT.strategy,
        *,
        checkpoints: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        refuse_unknown(options, "clip", "groups", "loss_scale", "weight", "checkpoints")
        self._settings = {"codec": codec, "strategy": strategy, **options}
        self._checkpoints = checkpoints
        self._loaded: Mapping[str, Any] | None = None
        self._state: State | None = None
        self._runs = False  # whether a fit is running

    @property
    def state(self) -> State:
        """The State of the present or last fit: stats(), plan(), trace(), ratio."""
        if self._state is None:
            raise ValueError("no fit with more than one process has begun yet")
        return self._state

    # ---- called by the Trainer

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        model = trainer.strategy.model
        sharded = is_sharded(model)
        if not isinstance(model, DistributedDataParallel) and not sharded:
            if trainer.world_size == 1:
                _log.info("one process: there is nothing to synchronise, tithe does nothing")
                return
            raise ValueError(
                f"tithe works with DDP, not with {type(trainer.strategy).__name__}: Trainer(strategy='ddp'); or with "
                "ModelParallelStrategy, where configure_model() calls fully_shard(..., mesh=self.device_mesh)"
            )
        settings = dict(self._settings)
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        if scaler is not None:
            settings.setdefault("loss_scale", scaler.get_scale)
        earlier, self._state = self._state, attach(model, **settings)
        self._runs = True
        if self._loaded is not None:
            self._take(trainer)
        elif earlier is not None and not sharded:
            self._continue_from(earlier, model)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if self._state is None or not self._checkpoints:
            return
        try:
            if isinstance(self._state, PartState):
                self._save_parts(trainer, checkpoint)
                return
            checkpoint[_KEY] = self._state.gathered_state_dict()
        except _core.Error as failed:
            # In a job that fails, the checkpoint matters more than the residuals.
            _log.warning("this checkpoint is saved without what tithe has not sent yet: %s", failed)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn != "fit":
            return
        self._loaded = checkpoint.get(_KEY)
        if self._loaded is None and not is_lossless(self._settings["codec"], self._settings.get("choices")):
            _log.warning("the checkpoint was saved without tithe's state: training goes on with nothing unsent")
        if self._loaded is not None and self._runs:  # some strategies load after the setup
            self._take(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._close()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._close()

    # ---- inside

    def _take(self, trainer: Any) -> None:
        loaded, self._loaded = self._loaded, None
        if _SHARDED in loaded:
            saved = {"state_dict": {_KEY: self._state.state_dict()}}
            dcp.load(saved, checkpoint_id=trainer.ckpt_path)
            self._state.load_state_dict(saved["state_dict"][_KEY])
        else:
            self._state.load_state_dict(loaded)

    def _save_parts(self, trainer: Any, checkpoint: dict[str, Any]) -> None:
        """Saves each rank's state beside the weights, which Lightning passes to torch.distributed.checkpoint."""
        if getattr(trainer.strategy, "_save_distributed_checkpoint", False):
            checkpoint["state_dict"][_KEY] = self._state.state_dict()
            checkpoint[_KEY] = {_SHARDED: True}
        else:
            _log.warning(
                "this checkpoint is saved without what tithe has not sent yet: ranks have different parts of it, and "
                "ModelParallelStrategy(save_distributed_checkpoint=True) has room for all of them"
            )

    def _close(self) -> None:
        self._runs = False
        if self._state is not None:
            self._state.close()  # state_dict() and stats() stay available

    def _continue_from(self, earlier: State, model: DistributedDataParallel) -> None:
        """Continues with the residuals of the first fit() in a second fit() of the same model."""
        saved = earlier.state_dict()
        if other_values(saved, model) is None:
            self._state.load_state_dict(saved)
        else:
            _log.info("this fit trains another model, or from other values: it begins with nothing unsent")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_state": None, "_runs": False}
