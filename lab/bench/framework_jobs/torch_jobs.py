# SPDX-License-Identifier: Apache-2.0
"""PyTorch and its trainers on the CPU: DDP, HSDP, shares inside hosts, any all-reduce, Lightning, Accelerate,
transformers, DeepSpeed."""

import os
import tempfile
import time
import warnings

import common
import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP

PER_HOST = 2  # ranks on a host, if a host has several


def network():
    layers = []
    for w in common.weights():
        layers += [nn.Linear(*w.shape), nn.ReLU()]
        layers[-2].weight.data = torch.from_numpy(w.T.copy())
        nn.init.zeros_(layers[-2].bias)
    return nn.Sequential(*layers[:-1])


def tensors(step):
    x, y = common.batch(step)
    return torch.from_numpy(x), torch.from_numpy(y)


def scores_of(model):
    with torch.no_grad():
        return model(torch.from_numpy(common.held_out()[0])).numpy()


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=common.RATE)


def plain_loop(model, optimizer, scored, after_backward=lambda: None):
    def step(number):
        x, y = tensors(number)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        after_backward()
        optimizer.step()

    return common.timed(step, lambda: scores_of(scored))


def with_ddp(prepare=lambda model: None):
    inner = network()
    model = DDP(inner)
    prepare(model)
    return plain_loop(model, adam(inner), inner)


def bf16(model):
    """Does the same as torch's bf16_compress_hook, which refuses Gloo."""

    def hook(state, bucket):
        half = bucket.buffer().bfloat16().div_(common.WORLD)
        future = dist.all_reduce(half, async_op=True).get_future()
        return future.then(lambda done: bucket.buffer().copy_(done.value()[0]))

    model.register_comm_hook(None, hook)


def attached(model, **more):
    import tithe.torch

    tithe.torch.attach(model, **more)


def sharded(attach):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (common.WORLD // PER_HOST, PER_HOST), mesh_dim_names=("replicate", "shard"))
    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if attach:
        attached(model)
    return plain_loop(model, adam(model), model)


def by_hand(compressed):
    """A loop that all-reduces its own gradients, as one flat tensor per step."""
    import tithe.c10d

    everyone = range(common.WORLD)
    group = dist.new_group(everyone)
    if compressed:
        group = dist.new_group(everyone, backend="tithe", pg_options=tithe.c10d.Options())
    model = network()

    def averaged():
        flat = torch.cat([p.grad.view(-1) for p in model.parameters()])
        dist.all_reduce(flat, dist.ReduceOp.AVG, group=group)
        for p, part in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()]), strict=True):
            p.grad.copy_(part.view_as(p))

    return plain_loop(model, adam(model), model, averaged)


# ---- Trainers


def dataset():
    """Returns this rank's part of the data, in the order of its batches."""
    parts = [common.batch(step) for step in range(common.STEPS)]
    return torch.from_numpy(np.concatenate([x for x, _ in parts])), torch.from_numpy(
        np.concatenate([y for _, y in parts])
    )


def from_ends(ends, model):
    """Returns the result of common.timed(), computed from the times at which steps ended."""
    times = [1e3 * (after - before) for before, after in zip(ends, ends[1:], strict=False)]
    return {"ms": float(np.median(times[common.WARM :])), "accuracy": common.accuracy(scores_of(model))}


def lightning(attach):
    """Trains by Lightning's Trainer with DDP. attach: whether tithe's callback is added."""
    import logging

    os.environ |= {"TORCHELASTIC_RUN_ID": "bench", "GROUP_RANK": str(common.RANK)}  # as under torchrun
    import lightning as L

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.ends = network(), []

        def training_step(self, batch, index):
            return cross_entropy(self.net(batch[0]), batch[1])

        def on_train_batch_end(self, *_):
            self.ends.append(time.perf_counter())

        def configure_optimizers(self):
            return adam(self)

        def train_dataloader(self):
            return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*dataset()), batch_size=common.BATCH)

    callbacks = []
    if attach:
        import tithe.lightning

        callbacks = [tithe.lightning.TitheCallback()]
    module = Module()
    trainer = L.Trainer(
        accelerator="cpu", devices=1, num_nodes=common.WORLD, strategy="ddp", max_epochs=1, callbacks=callbacks,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        use_distributed_sampler=False,
    )  # fmt: skip
    trainer.fit(module)
    return from_ends(module.ends, module.net)


def accelerated(attach):
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    inner = network()
    model, optimizer = accelerator.prepare(inner, adam(inner))
    if attach:
        import tithe.accelerate

        tithe.accelerate.attach(accelerator, model)

    def step(number):
        x, y = tensors(number)
        optimizer.zero_grad()
        accelerator.backward(cross_entropy(model(x), y))
        optimizer.step()

    return common.timed(step, lambda: scores_of(inner))


def transformed(attach):
    """Trains by transformers' Trainer. attach: whether tithe is attached."""
    import transformers

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, inputs, labels):
            logits = self.net(inputs)
            return {"loss": cross_entropy(logits, labels), "logits": logits}

    class Ends(transformers.TrainerCallback):
        ends = []

        def on_step_end(self, *_, **__):
            self.ends.append(time.perf_counter())

    xs, ys = zip(*(examples_of(step) for step in range(common.STEPS)), strict=True)
    data = [{"inputs": x, "labels": y} for x, y in zip(np.concatenate(xs), np.concatenate(ys), strict=True)]
    args = transformers.TrainingArguments(
        output_dir=tempfile.mkdtemp(), max_steps=common.STEPS, per_device_train_batch_size=common.BATCH,
        learning_rate=common.RATE, lr_scheduler_type="constant", optim="adamw_torch", max_grad_norm=0, use_cpu=True,
        ddp_backend="gloo", report_to="none", disable_tqdm=True, logging_strategy="no", save_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(model=Model(), args=args, train_dataset=data, callbacks=[Ends()])
    if attach:
        import tithe.transformers

        tithe.transformers.attach(trainer)
    trainer.train()
    return from_ends(Ends.ends, trainer.model.net)


def examples_of(step):
    """Returns all ranks' parts, which the Trainer of transformers distributes."""
    return common.examples(1 + step * common.WORLD, common.BATCH * common.WORLD)


def deepspeed(compress):
    import deepspeed
    from deepspeed.utils import groups

    import tithe.c10d

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="tithe", verbose=False)
    groups._WORLD_GROUP = None
    inner = network()
    engine, *_ = deepspeed.initialize(
        model=inner,
        optimizer=adam(inner),
        config={
            "train_micro_batch_size_per_gpu": common.BATCH,
            "zero_optimization": {"stage": 2},
            "zero_allow_untested_optimizer": True,
        },
    )
    if compress:
        tithe.c10d.compress(engine.data_parallel_group)

    def step(number):
        x, y = tensors(number)
        engine.backward(cross_entropy(engine(x), y))
        engine.step()

    return common.timed(step, lambda: scores_of(inner))


def joined(job, *args):
    """Returns a job that runs inside the default process group."""

    def run():
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        return job(*args)

    return run


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    common.main(
        {
            "ddp": {"own": joined(with_ddp), "bf16": joined(with_ddp, bf16), "tithe": joined(with_ddp, attached)},
            "hsdp": {"own": joined(sharded, False), "tithe": joined(sharded, True)},
            "inside": {
                "own": joined(with_ddp),
                "tithe": joined(with_ddp, lambda model: attached(model, inside="auto")),
            },
            "c10d": {"own": joined(by_hand, False), "tithe": joined(by_hand, True)},
            "lightning": {"own": lambda: lightning(False), "tithe": lambda: lightning(True)},
            "accelerate": {"own": lambda: accelerated(False), "tithe": lambda: accelerated(True)},
            "transformers": {"own": lambda: transformed(False), "tithe": lambda: transformed(True)},
            "deepspeed": {"own": lambda: deepspeed(False), "tithe": lambda: deepspeed(True)},
        }
    )
