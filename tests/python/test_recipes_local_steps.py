# SPDX-License-Identifier: Apache-2.0
"""The recipes of docs/guide/local_steps.md, verbatim, with numbers that fit a test."""

import os
import re
import warnings
from pathlib import Path

import torch
from processes import run_ranks

PAGE = Path(__file__).parents[2] / "docs/guide/local_steps.md"


def _recipe(number):
    """Returns the text of a recipe. Twenty-four iterations, of which four are the dense start."""
    texts = re.findall(r"```python recipe\n(.*?)```", PAGE.read_text(), re.S)
    assert len(texts) == 3
    assert texts[number].count("every=30, start=100") == 1
    return texts[number].replace("every=30, start=100", "every=6, start=4")


def _network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
    )


def _data():
    draws = torch.Generator().manual_seed(7)
    inputs = torch.randn(96, 16, generator=draws)
    return torch.utils.data.TensorDataset(inputs, inputs[:, :4].argmax(1))


def _ends(local, network):
    stats = local.stats()
    return [stats["iterations"], stats["exchanges"]], [
        t.detach().numpy().tobytes() for t in network.state_dict().values()
    ]


def _lightning(rank, world, text):
    os.environ.update(LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    warnings.simplefilter("ignore")
    import lightning

    import tithe.torch

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = _network()

        def training_step(self, batch, index):
            return torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

        def train_dataloader(self):
            return torch.utils.data.DataLoader(_data(), batch_size=8, shuffle=True)

    more = {
        "accelerator": "cpu", "devices": 2, "max_epochs": 4, "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False,
    }  # fmt: skip
    names = {"lightning": lightning, "tithe": tithe, "module": Module(), "more": more}
    exec(text, names)
    return _ends(names["trainer"].callbacks[0].local, names["module"].network)


def _accelerate(rank, world, text):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), ACCELERATE_USE_CPU="true")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    import accelerate

    import tithe.torch

    network = _network()
    names = {
        "torch": torch,
        "tithe": tithe,
        "epochs": 8,
        "accelerator": accelerate.Accelerator(gradient_accumulation_steps=2),
        "model": network,
        "optimizer": torch.optim.AdamW(network.parameters(), lr=1e-2),
        "data": torch.utils.data.DataLoader(_data(), batch_size=8, shuffle=True),
    }
    exec(text, names)
    return _ends(names["local"], network)


def _transformers(rank, world, text, folder):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), ACCELERATE_USE_CPU="true")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    warnings.simplefilter("ignore")
    import transformers

    import tithe.torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = _network()

        def forward(self, x, labels):
            return {"loss": torch.nn.functional.cross_entropy(self.network(x), labels)}

    def collate(rows):
        return {"x": torch.stack([row[0] for row in rows]), "labels": torch.stack([row[1] for row in rows])}

    arguments = transformers.TrainingArguments(
        output_dir=folder, use_cpu=True, per_device_train_batch_size=8, num_train_epochs=4, save_strategy="no",
        report_to=[], disable_tqdm=True, remove_unused_columns=False, logging_strategy="no",
    )  # fmt: skip
    model = Model()
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=_data(), data_collator=collate)
    names = {"transformers": transformers, "tithe": tithe, "trainer": trainer}
    exec(text, names)
    callbacks = trainer.callback_handler.callbacks
    return _ends(next(c.local for c in callbacks if type(c).__name__ == "LocalSteps"), model.network)


def _check(ends):
    assert ends[0] == ends[1], "ranks end alike"
    assert ends[0][0] == [24, 4]  # exchanges after 10, 16 and 22 iterations, and at the end


def test_lightning():
    _check(run_ranks(2, _lightning, _recipe(0)))


def test_accelerate():
    _check(run_ranks(2, _accelerate, _recipe(1)))


def test_transformers(tmp_path):
    _check(run_ranks(2, _transformers, _recipe(2), str(tmp_path)))
