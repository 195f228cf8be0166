# SPDX-License-Identifier: Apache-2.0
"""tithe.transformers: a Trainer trains through tithe, and its checkpoints contain the residuals of all ranks."""

import os
import types
import warnings
from pathlib import Path

import pytest
from processes import run_ranks

CODEC = {"codec": "topk:ratio=0.05", "min_values": 0, "timeout": 30.0}


def _trainer(rank, world, folder, steps=8):
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1", MASTER_PORT="1", ACCELERATE_USE_CPU="true", HF_HUB_OFFLINE="1",
    )  # fmt: skip
    warnings.simplefilter("ignore")
    import torch
    import transformers

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))

        def forward(self, inputs, labels):
            logits = self.net(inputs)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    draws = torch.Generator().manual_seed(7)
    data = [
        {"inputs": torch.randn(16, generator=draws), "labels": torch.randint(4, (), generator=draws)} for _ in range(64)
    ]
    args = transformers.TrainingArguments(
        output_dir=folder, max_steps=steps, per_device_train_batch_size=4, learning_rate=0.05, save_steps=4, seed=3,
        use_cpu=True, ddp_backend="gloo", report_to="none", disable_tqdm=True, logging_strategy="no",
        save_strategy="steps" if folder else "no",
    )  # fmt: skip
    return transformers.Trainer(model=Model(), args=args, train_dataset=data)


def _bits(trainer):
    return [p.detach().numpy().tobytes() for p in trainer.model.parameters()]


def _job(rank, world, folder):
    """Trains, saves and resumes with a Trainer. Returns bits, statistics and refusals."""
    import torch

    import tithe
    import tithe.transformers

    results = {}
    trainer = _trainer(rank, world, f"{folder}/a")
    callback = tithe.transformers.attach(trainer, **CODEC)
    trainer.train()
    results["whole"], results["stats"] = _bits(trainer), callback.state.stats()
    callback.state.close()
    torch.distributed.barrier()
    results["files"] = sorted(f.name for f in Path(f"{folder}/a/checkpoint-4").iterdir() if "tithe" in f.name)

    trainer = _trainer(rank, world, f"{folder}/a")
    tithe.transformers.attach(trainer, **CODEC)
    trainer.train(resume_from_checkpoint=f"{folder}/a/checkpoint-4")
    results["resumed"] = _bits(trainer)

    checkpoint = f"{folder}/a/checkpoint-4"
    trainer = _trainer(rank, world, f"{folder}/b")
    tithe.transformers.attach(trainer, resume_from_checkpoint=checkpoint, **CODEC)
    trainer.train(resume_from_checkpoint=checkpoint)
    results["elsewhere"] = _bits(trainer)

    trainer = _trainer(rank, world, f"{folder}/c")
    tithe.transformers.attach(trainer, **CODEC)
    with pytest.raises((ValueError, tithe.Error)) as refused:
        trainer.train(resume_from_checkpoint=checkpoint)
    results["no folder"] = str(refused.value)

    trainer = _trainer(rank, world, f"{folder}/b", 4)
    tithe.transformers.attach(trainer, resume_from_checkpoint=f"{folder}/a/checkpoint-8", **CODEC)
    with pytest.raises((ValueError, tithe.Error)) as refused:
        trainer.train(resume_from_checkpoint=checkpoint)
    results["another"] = str(refused.value)
    with pytest.raises(ValueError, match="unknown codec 'topkk'"):
        tithe.transformers.attach(trainer, codec="topkk")
    callback = tithe.transformers.TitheCallback(trainer, **CODEC)
    callback.on_train_begin(types.SimpleNamespace(world_size=1), None, None)
    with pytest.raises(ValueError) as refused:
        _ = callback.state
    results["alone"] = str(refused.value)
    return results


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_ranks(2, _job, str(tmp_path_factory.mktemp("transformers")))


def test_the_trainer_of_transformers_trains_through_tithe(results):
    for rank in results:
        assert rank["stats"]["rounds"] == 8
        assert 0 < rank["stats"]["bytes_sent"] < 8 * 4 * (16 * 32 + 32 + 32 * 4 + 4) / 2  # less than half of fp32's
        assert rank["whole"] == results[0]["whole"]


def test_the_trainer_of_transformers_resumes_bit_identically(results):
    for rank in results:
        assert rank["files"] == ["tithe_rank_0.pt", "tithe_rank_1.pt"]
        assert rank["resumed"] == rank["whole"]
        assert rank["elsewhere"] == rank["whole"]


def test_missing_checkpoint_is_refused_with_the_cure(results):
    for rank in results:
        assert "is not there" in rank["no folder"] and "resume_from_checkpoint=folder" in rank["no folder"]
        assert "other values of parameter 'net.0.weight'" in rank["another"]


def test_the_trainer_of_transformers_with_one_process_trains_without_tithe(results):
    assert [rank["alone"] for rank in results] == ["no training with more than one process has begun yet"] * 2
