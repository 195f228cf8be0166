# SPDX-License-Identifier: Apache-2.0
"""One rank of the demo: reads jobs as JSON lines, answers with JSON lines.

Torch and the data are loaded once; each job runs in a fork of this process, so that rows share nothing else.
    {"job": "link", ...}    sends to the next rank while it receives from its predecessor: the link's real rate
    {"job": "local", ...}   times steps without any communication
    {"job": "train", ...}   trains one row with one seed
"""

import hashlib
import json
import os
import signal
import socket
import statistics
import sys
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import torch
import torch._dynamo  # DDP and optimizers import it at first use: once here, not in the fork of each job
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT), str(ROOT / "lab/hosts")]

import hosts  # noqa: E402
import rows  # noqa: E402
import tasks  # noqa: E402
from lab.study import idx, models  # noqa: E402


def say(event: str, **fields) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def learning_rate(peak: float, step: int, steps: int) -> float:
    """Returns the rate: linear increase over the first tenth, then linear decrease to zero; the same in every row."""
    rise = max(1, steps // 10)
    return peak * min((step + 1) / rise, (steps - step) / (steps - rise + 1))


def evaluation_steps(per_epoch: int, epochs: int) -> set[int]:
    """Returns the steps after which the model is evaluated: nine in the first epoch, then three in each."""
    first = {per_epoch * k // 9 for k in range(1, 10)}
    return first | {per_epoch * k // 3 for k in range(3, 3 * epochs + 1)}


def bf16_on_the_wire(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """PyTorch's bf16_compress_hook. DDP refuses the original, by its name, without CUDA and NCCL."""
    half = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    future = dist.all_reduce(half, async_op=True).get_future()
    return future.then(lambda done: bucket.buffer().copy_(done.value()[0]))


def distributed(row: rows.Row, model: nn.Module) -> nn.Module:
    if row.task == "sharded":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        policy = MixedPrecisionPolicy(torch.bfloat16, cast_forward_inputs=False)
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        return fully_shard(model, mesh=mesh, mp_policy=policy)
    cap = {} if row.bucket_mb is None else {"bucket_cap_mb": row.bucket_mb}
    return DistributedDataParallel(model, **cap)


def whole(parameter: torch.Tensor) -> torch.Tensor:
    """Returns a parameter's values, gathered from all ranks if it is sharded."""
    values = parameter.detach()
    return values.full_tensor() if isinstance(values, DTensor) else values


def attach_hook(row: rows.Row, model: nn.Module, optimizer: torch.optim.Optimizer):
    """Installs the row's exchange in DDP. Returns tithe's handle, or None for a baseline."""
    if row.kind == "tithe":
        import tithe.torch

        given = {"transport": row.transport} if row.transport else {}
        given |= {"strategy": row.strategy} if row.strategy else {}
        given |= {"servers": row.servers} if row.servers else {}
        if row.task == "sharded":
            return tithe.torch.attach(model, **given)
        if not row.codec or row.task == "text":
            given |= {"choices": rows.SMALL} if row.exact else {}
            return tithe.torch.attach(model, row.codec or None, optimizer=optimizer, **given)
        return tithe.torch.attach(model, row.codec, min_values=row.min_values, **given)
    if row.task == "sharded":
        return None
    if row.shown == "bf16":
        model.register_comm_hook(None, bf16_on_the_wire)
    elif row.shown == "powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=10)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return None


def make_optimizer(row: rows.Row, model: nn.Module, rate: float, steps: int) -> torch.optim.Optimizer:
    if row.task != "images":
        if row.kind != "tithe" or row.task == "sharded":
            return torch.optim.AdamW(model.parameters(), lr=rate)
        import tithe.torch.optim

        first = {"exact": row.exact, "steps": steps, "warmup_codec": rows.WARMUP_CODEC} if row.exact else {}
        return tithe.torch.optim.AdamW(model.parameters(), lr=rate, **first)

    def momentum(parameter):
        corrected = row.corrects_momentum and parameter.numel() >= row.min_values
        return 0.0 if corrected else rows.MOMENTUM

    groups = [{"params": [p], "momentum": momentum(p)} for p in model.parameters()]
    return torch.optim.SGD(groups, lr=rate)


class SentBytes:
    """Counts the bytes that this rank's interface has sent; all ranks share the counter on the loopback interface."""

    def __init__(self, interface: str, ranks: int):
        self.file = os.open(f"/sys/class/net/{interface}/statistics/tx_bytes", os.O_RDONLY)
        self.part = ranks if interface == "lo" else 1

    def __call__(self) -> float:
        return int(os.pread(self.file, 32, 0)) / self.part


class Trainer:
    """The training of one rank. A rank that only sums makes the same calls as the others, with the gradient of one
    image: its gradient has no weight, and it takes little processor time from the others."""

    def __init__(self, job: dict, data: dict, servers: int = 0):
        self.rank, self.world, self.seed = job["rank"], job["world"], job["seed"]
        self.workers = self.world - servers
        self.works = self.rank < self.workers
        self.task = tasks.TASKS[job["task"]](data)
        self.test = self.task.tests(slice(self.rank if self.works else self.task.tested, None, self.workers))
        self.per_epoch = self.task.per_epoch(self.workers)
        torch.manual_seed(self.seed)
        self.model = self.task.make()
        self.loss = nn.CrossEntropyLoss()

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.works:
            return self.task.taken(np.array([0]))
        epoch, at = divmod(step, self.per_epoch)
        if at == 0:
            self.order = np.random.default_rng([self.seed, epoch]).permutation(self.task.count)
        first = (at * self.workers + self.rank) * self.task.batch
        return self.task.taken(self.order[first : first + self.task.batch])

    def step(self, step: int, model: nn.Module, optimizer) -> tuple[float, float, float, float]:
        """Makes one step. Returns the loss, then the seconds of data and forward, of backward with exchange, of the
        optimizer."""
        begin = time.perf_counter()
        inputs, labels = self.batch(step)
        optimizer.zero_grad()
        loss = self.loss(model(inputs).float().flatten(0, -2), labels.flatten())
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        optimizer.step()
        return loss.item(), forward - begin, backward - forward, time.perf_counter() - backward

    @torch.no_grad()
    def score(self) -> tuple[float, float]:
        """Returns accuracy and loss of the whole test set; each rank evaluates its share. All ranks return at the same
        time."""
        inputs, labels = self.test
        sums = torch.zeros(3, dtype=torch.float64)
        if len(inputs) > 0:
            out, labels = self.model(inputs).float().flatten(0, -2), labels.flatten()
            right = (out.argmax(1) == labels).sum().item()
            sums += torch.tensor([right, self.loss(out, labels).item() * len(labels), len(labels)])
        dist.all_reduce(sums)
        return sums[0].item() / sums[2].item(), sums[1].item() / sums[2].item()

    def identical(self) -> bool:
        """Returns True if all ranks hold the same parameter bits."""
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                # After an evaluation the module still has the gathered weights in place of the parameters
                module.reshard()
        digest = hashlib.sha256()
        for parameter in self.model.parameters():
            digest.update(whole(parameter).numpy().tobytes())
        mine = torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)
        everyone = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(everyone, mine)
        return all(torch.equal(other, mine) for other in everyone)

    def apart(self) -> float:
        """Returns the largest difference of a parameter between two workers."""
        mine = torch.cat([whole(parameter).flatten() for parameter in self.model.parameters()])
        infinity = torch.full_like(mine, torch.inf)
        most, least = (mine.clone(), mine) if self.works else (-infinity, infinity)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        dist.all_reduce(least, op=dist.ReduceOp.MIN)
        return (most - least).max().item()


def run_local(job: dict, data: dict) -> None:
    trainer = Trainer(job, data)
    optimizer = make_optimizer(rows.by_name(job["row"]), trainer.model, trainer.task.rate, job["steps"])
    seconds = [sum(trainer.step(i, trainer.model, optimizer)[1:]) for i in range(job["steps"])]
    parameters = sum(p.numel() for p in trainer.model.parameters())
    settled = statistics.median(seconds[job["steps"] // 3 :])
    say("result", step_seconds=settled, parameters=parameters, per_epoch=trainer.per_epoch)


def run_train(job: dict, data: dict) -> None:
    """Trains one row with one seed, and sends events: progress, evaluations, and the result with times and bytes."""
    row = rows.by_name(job["row"])
    trainer = Trainer(job, data, row.servers)
    dist.init_process_group("gloo", init_method=f"tcp://{job['master']}", rank=trainer.rank, world_size=trainer.world)
    model = distributed(row, trainer.model)
    optimizer = make_optimizer(row, model, trainer.task.rate, job["steps"])
    handle = attach_hook(row, model, optimizer)
    sent_bytes = SentBytes(job["interface"], trainer.world)
    steps = job["steps"]
    evaluate_at = evaluation_steps(min(steps, trainer.per_epoch), job["epochs"]) | {steps}

    times, sent, curve, losses = [], [], [], []

    def evaluate(step: int) -> None:
        accuracy, loss = trainer.score()
        curve.append((step, trained, accuracy))
        losses.append(loss)

    trained = printed_at = 0.0
    processor = []
    evaluate(0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(trainer.task.rate, step, steps)
        before, begin = sent_bytes(), time.process_time()
        loss, *parts = trainer.step(step, model, optimizer)
        processor.append(time.process_time() - begin)
        sent.append(sent_bytes() - before)
        times.append(parts)
        trained += sum(parts)
        if step + 1 in evaluate_at:
            evaluate(step + 1)
        if trainer.rank == 0 and (time.monotonic() - printed_at > 0.2 or step + 1 == steps):
            printed_at = time.monotonic()
            recent = statistics.median(sum(t) for t in times[-20:])
            say("step", step=step + 1, steps=steps, seconds=recent, loss=loss, accuracy=curve[-1][2])
    first = rows.left_out(steps)
    settled = times[first:]
    identical = trainer.identical()
    say(
        "result",
        step_seconds=statistics.median(sum(t) for t in settled),
        bytes_per_step=statistics.fmean(sent[first:]),
        processor_seconds=statistics.fmean(processor[first:]),
        parts=[statistics.median(column) for column in zip(*settled, strict=True)],
        accuracy=curve[-1][2],
        curve=curve,
        losses=losses,
        codec=handle.codec if handle else row.codec,
        strategy=handle.strategy if handle and row.task != "sharded" else row.strategy,
        per_epoch=trainer.per_epoch,
        identical=identical,
        apart=0.0 if identical else trainer.apart(),
        stats=dict(handle.stats()) if handle else None,
        buckets=row.task != "sharded" and model._get_ddp_logging_data().get("rebuilt_bucket_sizes", ""),
    )
    if handle:
        handle.close()
    dist.barrier()
    dist.destroy_process_group()


def run_link(job: dict) -> None:
    """Measures the links with all ranks at once around a ring, so that both directions of every link are busy."""
    following = job["addresses"][(job["rank"] + 1) % job["world"]]
    with socket.create_server((job["addresses"][job["rank"]], job["port"])) as server:
        say("ready")
        sys.stdin.readline()
        arrived = {}

        def receive():
            connection, _ = server.accept()
            buffer, got, begin = bytearray(1 << 20), 0, None
            while count := connection.recv_into(buffer):
                begin = begin or time.perf_counter()
                got += count
            arrived["mbit"] = got * 8e-6 / (time.perf_counter() - begin)

        receiver = threading.Thread(target=receive)
        receiver.start()
        with socket.create_connection((following, job["port"])) as connection:
            connection.sendall(bytes(job["bytes"]))
        receiver.join()
    say("result", mbit=arrived["mbit"])


def serve(folder: str) -> None:
    data = idx.load(folder)
    data["inputs"] = models.Inputs(data["train"][0])
    torch.set_num_threads(1)
    say("ready")
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            code = 1
            try:
                hosts.die_with_parent()
                job = json.loads(line)
                if job["job"] == "link":
                    run_link(job)
                else:
                    {"local": run_local, "train": run_train}[job["job"]](job, data)
                code = 0
            except BaseException:  # noqa: BLE001 (a fork must never continue as its parent)
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        say("end", code=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the orchestrator decides
    serve(sys.argv[1])
