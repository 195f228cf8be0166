# SPDX-License-Identifier: Apache-2.0
"""A job of Ray Train's elastic workers for test_launch.py, with its failures: ray_ranks.py FOLDER

Ray's nodes are on one machine: a head with room for two workers, later also a guest with room for one. The guest's
worker is killed, and the guest with it. Each worker writes the norm of its residual to FOLDER, at its start and at each
checkpoint.
"""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ray
import ray.train.torch
import torch
from ray.cluster_utils import Cluster
from ray.data._internal.cluster_autoscaler import default_autoscaling_coordinator as coordinator
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

import tithe.torch

STEPS, EVERY = 14, 4


def obey(folder, names):
    """Executes a command file of the folder for one of the names, once: exits, or waits for an event."""
    for name in names:
        order = folder / name
        if order.exists():
            what = order.read_text()
            order.unlink()
            (folder / f"{what} {name.split()[-1]}").touch()
            if what == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600)


def train(config):
    folder = Path(config["folder"])
    here = ray.train.get_context()
    rank, world, node = here.get_world_rank(), here.get_world_size(), ray.get_runtime_context().get_node_id()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = ray.train.torch.prepare_model(torch.nn.Linear(50, 40))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    state = tithe.torch.attach(model, codec="topk:ratio=0.1", min_values=0, timeout=60.0)
    kept = tithe.torch.Checkpoints(str(folder / "kept"), state, model, optimizer, every=EVERY)

    def leave(what, step):
        owed = torch.cat([state.residual(p).reshape(-1) for p in model.parameters()])
        parameters = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        stats = {name: state.stats()[name] for name in ("ranks_lost", "values_lost", "sum_lost")}
        path = folder / f"{what} {step} {rank} of {world}.pt"
        torch.save({"owed": owed, "parameters": parameters, "stats": stats}, path)

    first = kept.step
    for step in kept.steps(STEPS):
        if step % EVERY == 0 and step > 0:
            leave("starts" if step == first else "kept", step)
        obey(folder, (f"{node} at {step}", f"rank {rank} at {step}"))
        data = torch.Generator().manual_seed(100 * rank + step)
        model.zero_grad()
        model(torch.randn(8, 50, generator=data)).pow(2).mean().backward()
        optimizer.step()
    leave("ends", STEPS)
    state.close()


class Quick(coordinator._AutoscalingCoordinatorActor):
    """Checks the nodes each second; Ray's own class does so every 20 s."""

    TICK_INTERVAL_S = 1


def strike(cluster, folder, job):
    """Applies the failures that a worker cannot cause itself."""

    def until(name):
        while not (folder / name).exists():
            assert not job.done(), job.result()
            time.sleep(0.05)

    until("waits 6")
    guest = cluster.add_node(num_cpus=1)
    (folder / f"{guest.node_id} at 10").write_text("dies")
    until("dies 10")
    cluster.remove_node(guest, allow_graceful=False)  # SIGKILL


def main():
    folder = Path(sys.argv[1])
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    ray.init(address=cluster.address)
    coordinator._AutoscalingCoordinatorActor = Quick
    coordinator.get_or_create_autoscaling_coordinator()
    (folder / "rank 0 at 6").write_text("waits")
    trainer = TorchTrainer(
        train,
        train_loop_config={"folder": str(folder)},
        scaling_config=ScalingConfig(num_workers=(2, 3), elastic_resize_monitor_interval_s=1),
        run_config=RunConfig(storage_path=str(folder / "ray"), failure_config=FailureConfig(max_failures=5)),
        torch_config=TorchConfig(backend="gloo"),
    )
    with ThreadPoolExecutor(1) as aside:  # only the main thread starts nodes
        job = aside.submit(trainer.fit)
        strike(cluster, folder, job)
        job.result()
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
