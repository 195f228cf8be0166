# SPDX-License-Identifier: Apache-2.0
"""tithe for Lightning's Trainer.

    import tithe.lightning
    trainer = L.Trainer(strategy="ddp", callbacks=[tithe.lightning.TitheCallback()])
    trainer = L.Trainer(strategy="ddp", callbacks=[tithe.lightning.TitheCallback(codec="qtopk:ratio=0.03")])

Why not `DDPStrategy(ddp_comm_state=..., ddp_comm_hook=...)`: Lightning 2.6 registers hooks on CUDA alone. On other
devices it trains as if there were none, in silence.

Checkpoints carry the residuals of all ranks, gathered on rank 0, which writes them: 4 bytes per parameter and rank.
`Trainer.fit(ckpt_path=...)` takes them back and continues bit-identically. With 16-bit mixed precision the loss scale
is taken from the Trainer's scaler.
"""

import logging
from collections.abc import Mapping
from typing import Any

try:
    from torch.nn.parallel import DistributedDataParallel
except ModuleNotFoundError as error:
    from tithe._missing import no_torch

    raise no_torch("tithe.lightning", error) from None

from tithe import _core
from tithe._choices import is_lossless
from tithe._session import refuse_unknown
from tithe._torch_keys import other_values
from tithe.torch import State, attach

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
_KEY = "tithe"  # in a checkpoint


class TitheCallback(Callback):
    """Makes a Trainer with a DDP strategy synchronise its gradients through tithe.

    codec, strategy, options: as tithe.torch.attach() takes them.
    checkpoints: whether checkpoints carry what was not sent yet. Without it that is lost on resume.
    With a single process there is nothing to synchronise, and nothing is done. ValueError for strategies that are not
    DDP, when training begins.
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
        refuse_unknown(options, "clip", "loss_scale", "checkpoints")
        self._settings = {"codec": codec, "strategy": strategy, **options}
        self._checkpoints = checkpoints
        self._loaded: Mapping[str, Any] | None = None
        self._state: State | None = None

    @property
    def state(self) -> State:
        """The State of the fit that runs, or of the last one: stats(), plan(), trace(), ratio."""
        if self._state is None:
            raise ValueError("no fit with more than one process has begun yet")
        return self._state

    # ---- what the Trainer calls

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        model = trainer.strategy.model
        if not isinstance(model, DistributedDataParallel):
            if trainer.world_size == 1:
                _log.info("one process: there is nothing to synchronise, tithe does nothing")
                return
            raise ValueError(
                f"tithe works with DDP, not with {type(trainer.strategy).__name__}: Trainer(strategy='ddp')"
            )
        settings = dict(self._settings)
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        if scaler is not None:
            settings.setdefault("loss_scale", scaler.get_scale)
        earlier, self._state = self._state, attach(model, **settings)
        if self._loaded is not None:
            self._state.load_state_dict(self._loaded)
            self._loaded = None
        elif earlier is not None:
            self._go_on(earlier, model)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if self._state is None or not self._checkpoints:
            return
        try:
            checkpoint[_KEY] = self._state.gathered_state_dict()
        except _core.Error as failed:
            # The checkpoint of a job that fails is worth more than what was not sent yet.
            _log.warning("this checkpoint is saved without what tithe has not sent yet: %s", failed)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn != "fit":
            return
        self._loaded = checkpoint.get(_KEY)
        if self._loaded is None and not is_lossless(self._settings["codec"], self._settings.get("choices")):
            _log.warning("the checkpoint was saved without tithe's state: training goes on with nothing unsent")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._close()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._close()

    # ---- inside

    def _close(self) -> None:
        if self._state is not None:
            self._state.close()  # its state_dict() and stats() can still be had

    def _go_on(self, earlier: State, model: DistributedDataParallel) -> None:
        """A second fit() of the same model goes on with what the first one has not sent."""
        saved = earlier.state_dict()
        if other_values(saved, model) is None:
            self._state.load_state_dict(saved)
        else:
            _log.info("this fit trains another model, or from other values: it begins with nothing unsent")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_state": None}
