# SPDX-License-Identifier: Apache-2.0
"""tithe.lightning: a Trainer trains through tithe, and its checkpoints contain the residuals of all ranks."""

import gc
import importlib
import os
import warnings

import pytest
from processes import run_ranks

import tithe.torch

CODEC = {"codec": "topk:ratio=0.05", "min_values": 0, "timeout": 30.0}


def _lightning(rank):
    """Simulates a launcher that has set the ranks up: Lightning itself starts no process."""
    os.environ.update(LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    warnings.simplefilter("ignore")
    import lightning

    importlib.import_module("tithe.lightning")
    return lightning


def _module(L):
    import torch

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))

        def training_step(self, batch, index):
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def train_dataloader(self):
            draws = torch.Generator().manual_seed(7)
            inputs, targets = torch.randn(64, 16, generator=draws), torch.randint(4, (64,), generator=draws)
            return torch.utils.data.DataLoader(
                torch.utils.data.TensorDataset(inputs, targets), batch_size=8, shuffle=True
            )

    return Module()


def _fit(L, module, epochs, folder, callback=None, ckpt_path=None, strategy="ddp", devices=2):
    trainer = L.Trainer(
        accelerator="cpu", devices=devices, strategy=strategy, max_epochs=epochs, callbacks=callback, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(module, ckpt_path=ckpt_path)
    return trainer


def _bits(module):
    return [p.detach().numpy().tobytes() for p in module.parameters()]


def _pair(L, folder):
    """Returns the warnings under the pair that Lightning accepts, and ignores on the CPU."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state = tithe.torch.State(**CODEC)
        strategy = L.pytorch.strategies.DDPStrategy(ddp_comm_state=state, ddp_comm_hook=tithe.torch.hook)
        _fit(L, _module(L), 1, folder, strategy=strategy)
        del state, strategy
        gc.collect()
    return [str(w.message) for w in caught if w.category is RuntimeWarning]


def _alone(L, folder):
    module, callback = _module(L), tithe.lightning.TitheCallback(**CODEC)
    before = _bits(module)
    _fit(L, module, 1, folder, callback, strategy="auto", devices=1)
    with pytest.raises(ValueError, match="no fit with more than one process"):
        _ = callback.state
    return _bits(module) != before


def _job(rank, world, folder):
    L = _lightning(rank)
    results = {}
    module, callback = _module(L), tithe.lightning.TitheCallback(**CODEC)
    _fit(L, module, 4, folder, callback)
    results["whole"] = _bits(module)
    results["rounds"], results["bytes"] = (callback.state.stats()[name] for name in ("rounds", "bytes_sent"))

    module, callback = _module(L), tithe.lightning.TitheCallback(**CODEC)
    trainer = _fit(L, module, 2, folder, callback)
    trainer.save_checkpoint(f"{folder}/half.ckpt")
    trainer.fit_loop.max_epochs = 4
    trainer.fit(module)  # the same Trainer continues
    results["went on"] = _bits(module)

    module, callback = _module(L), tithe.lightning.TitheCallback(**CODEC)
    _fit(L, module, 4, folder, callback, f"{folder}/half.ckpt")
    results["resumed"] = _bits(module)

    lossless = _module(L)
    _fit(L, lossless, 4, folder, tithe.lightning.TitheCallback(codec="fp32", timeout=30.0))
    results["fp32"] = _bits(lossless)
    with pytest.raises(ValueError, match="unknown codec 'topkk'"):
        _fit(L, _module(L), 1, folder, tithe.lightning.TitheCallback(codec="topkk"))
    results["alone"] = _alone(L, folder)
    results["pair"] = _pair(L, folder)
    return results


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_ranks(2, _job, str(tmp_path_factory.mktemp("lightning")))


def test_lightning_trains_through_tithe(results):
    for rank in results:
        assert rank["rounds"] == 16  # 4 epochs of 4 steps
        assert 0 < rank["bytes"] < 16 * 4 * (16 * 32 + 32 + 32 * 4 + 4) / 2  # less than half of fp32's
        assert rank["whole"] == results[0]["whole"]
        assert rank["whole"] != rank["fp32"]


def test_lightning_resumes_bit_identically_from_the_checkpoint_that_rank_0_wrote(results):
    for rank in results:
        assert rank["resumed"] == rank["whole"]


def test_second_fit_continues_with_the_residuals_of_the_first(results):
    for rank in results:
        assert rank["went on"] == rank["whole"]


def test_state_on_the_cpu_is_not_dropped_silently(results):
    """Lightning 2.6 registers hooks on CUDA only. A job that would train uncompressed must warn."""
    for rank in results:
        assert any("was never used" in text and "tithe.lightning" in text for text in rank["pair"]), rank["pair"]


def test_lightning_with_one_process_trains_without_tithe(results):
    assert [rank["alone"] for rank in results] == [True, True]
