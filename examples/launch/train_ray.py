# SPDX-License-Identifier: Apache-2.0
"""A training job of Ray Train with tithe's two lines: python examples/launch/train_ray.py

Each worker reports a file of its own: residuals belong to ranks.
"""

import tempfile

import ray
import ray.train.torch
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

import tithe.torch


def train(config):
    rank = ray.train.get_context().get_world_rank()
    torch.manual_seed(0)
    model = ray.train.torch.prepare_model(torch.nn.Linear(256, 64))  # a DistributedDataParallel
    state = tithe.torch.attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(1 + rank)
    for step in range(config["steps"]):
        loss = model(torch.randn(32, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == config["steps"] - 1:
            with tempfile.TemporaryDirectory() as folder:
                torch.save(state.state_dict(), f"{folder}/tithe_{rank}.pt")
                if rank == 0:
                    torch.save(model.module.state_dict(), f"{folder}/model.pt")
                ray.train.report({"loss": loss.item()}, checkpoint=Checkpoint.from_directory(folder))
    state.close()


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    result = TorchTrainer(
        train,
        train_loop_config={"steps": 20},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=tempfile.mkdtemp()),
        torch_config=TorchConfig(backend="gloo"),
    ).fit()
    print(f"loss {result.metrics['loss']:.4f}; kept: {result.checkpoint.path}")
