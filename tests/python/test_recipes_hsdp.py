# SPDX-License-Identifier: Apache-2.0
"""HSDP by the settings of Accelerate and Lightning: sharded in pairs, replicated twice, on four ranks."""

import importlib
import os
import warnings

import pytest
from processes import run_ranks
from test_recipes_accelerate import take_steps

CODEC = {"codec": "topk:ratio=0.05", "min_values": 0, "timeout": 30.0}


def _net():
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))


def _bits(model):
    return [p.to_local().detach().numpy().tobytes() for p in model.parameters()]


# ---- Accelerate


def _prepared(rank, world):
    """Accelerate shards models only on accelerators, so this patch makes it treat the CPU as one."""
    import torch
    from accelerate import Accelerator
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.state import AcceleratorState, DistributedType, PartialState
    from accelerate.utils import FullyShardedDataParallelPlugin

    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1", MASTER_PORT="1", ACCELERATE_USE_CPU="true",
    )  # fmt: skip
    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState(cpu=True)
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    accelerator = Accelerator(
        fsdp_plugin=FullyShardedDataParallelPlugin(
            fsdp_version=2,
            auto_wrap_policy="size_based_wrap",
            min_num_params=100,
            cpu_ram_efficient_loading=False,
            state_dict_type="SHARDED_STATE_DICT",
        ),
        parallelism_config=ParallelismConfig(dp_replicate_size=2, dp_shard_size=2),
    )
    model = _net()
    return accelerator, *accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5))


def _accelerate_steps(accelerator, model, optimizer, steps):
    take_steps(accelerator, model, optimizer, steps)
    return _bits(model)


def _accelerate(rank, world, folder):
    import tithe.accelerate

    result = {}
    for part in ("whole", "resumed"):
        accelerator, model, optimizer = _prepared(rank, world)
        state = tithe.accelerate.attach(accelerator, model, optimizer=optimizer, **CODEC)
        assert state._unapplied is not None  # the optimizer inside Accelerate's wrapper
        if part == "whole":
            _accelerate_steps(accelerator, model, optimizer, range(4))
            accelerator.save_state(folder)
        else:
            accelerator.load_state(folder)
        result[part] = _accelerate_steps(accelerator, model, optimizer, range(4, 8))
        result[part, "rounds"] = state.stats()["rounds"]
        state.close()
        accelerator.free_memory()
    result["files"] = sorted(name for name in os.listdir(folder) if "tithe" in name)
    return result


def test_accelerate_shards_inside_hosts_and_resumes_bit_for_bit(tmp_path):
    ends = run_ranks(4, _accelerate, str(tmp_path), timeout=400)
    for rank, result in enumerate(ends):
        assert result["resumed"] == result["whole"] == ends[rank ^ 2]["whole"]
        assert result["whole", "rounds"] == 8
        assert result["files"] == [f"tithe_0_rank_{r}.pt" for r in range(4)]


# ---- Lightning


def _module(L):
    import torch
    from torch.distributed.fsdp import fully_shard

    class Module(L.LightningModule):
        def configure_model(self):
            if hasattr(self, "net"):
                return
            self.net = _net()
            for layer in (self.net[0], self.net[2], self.net):
                fully_shard(layer, mesh=self.device_mesh)

        def training_step(self, batch, index):
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def train_dataloader(self):
            draws = torch.Generator().manual_seed(self.global_rank)  # draws of each rank, also inside a host
            inputs, targets = torch.randn(32, 16, generator=draws), torch.randint(4, (32,), generator=draws)
            return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=8)

    return Module()


def _fit(L, module, epochs, folder, callback, ckpt_path=None):
    from lightning.pytorch.strategies import ModelParallelStrategy

    trainer = L.Trainer(
        accelerator="cpu", devices=4, strategy=ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=2),
        use_distributed_sampler=False, max_epochs=epochs, callbacks=callback, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(module, ckpt_path=ckpt_path)
    return trainer


def _lightning(rank, world, folder):
    os.environ.update(LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    warnings.simplefilter("ignore")
    import lightning as L

    tithe_lightning = importlib.import_module("tithe.lightning")
    result = {}
    for part, epochs in (("whole", 2), ("half", 1), ("resumed", 2)):
        module, callback = _module(L), tithe_lightning.TitheCallback(**CODEC)
        path = f"{folder}/half.ckpt" if part == "resumed" else None
        trainer = _fit(L, module, epochs, folder, callback, path)
        result[part] = _bits(module)
        result[part, "rounds"] = callback.state.stats()["rounds"]
        if part == "half":
            trainer.save_checkpoint(f"{folder}/half.ckpt")
    return result


def test_lightning_shards_inside_hosts_and_resumes_bit_for_bit(tmp_path):
    pytest.importorskip("lightning")
    ends = run_ranks(4, _lightning, str(tmp_path), timeout=400)
    for rank, result in enumerate(ends):
        assert result["resumed"] == result["whole"] == ends[rank ^ 2]["whole"] != result["half"]
        assert result["whole", "rounds"] == 8
