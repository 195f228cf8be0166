# SPDX-License-Identifier: Apache-2.0
"""The rows of gpu_check.py for fully_shard(): two ranks with sharded weights on a GPU.

The reference is FSDP2 on the same device whose collectives block: they copy to the host, exchange by Gloo and copy
back. With codec fp32 the weights must have the reference's bits after all steps. With the default codec the last loss
must be near the reference's.
"""

import os
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

import tithe
import tithe.torch
from tithe.torch._sharded.groups import check_version

STEPS, LAYERS, SIDE, BATCH = 10, 4, 256, 64
NEAR = 0.05  # the largest relative difference of the last losses


class Allocated:
    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class BlockingGather(Allocated):
    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> None:
        whole = torch.empty(output_tensor.shape, dtype=output_tensor.dtype)
        dist.all_gather_single(whole, input_tensor.cpu(), group=group)
        output_tensor.copy_(whole)


class BlockingScatter(Allocated):
    """Averages two ranks' values: the order of the sum does not change its bits."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        values = input_tensor.cpu()
        dist.all_reduce(values, group=group)
        output_tensor.copy_(values.view(group.size(), -1)[group.rank()] / group.size())


def sharded(device: torch.device) -> list[dict[str, Any]]:
    """Returns a row for each type of weights and codec, or one that says why this torch has none."""
    try:
        check_version()
    except ValueError as why:
        return [{"left_out": str(why), "ok": True}]
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    rows = []
    for name, policy in (
        ("fp32", MixedPrecisionPolicy()),
        ("bf16", MixedPrecisionPolicy(torch.bfloat16, torch.float32)),
    ):
        own, own_loss, _ = trained(mesh, device, policy, None)
        for codec in ("fp32", "default"):
            row = {"weights": name, "codec": codec}
            try:
                weights, loss, ms = trained(mesh, device, policy, codec)
            except (RuntimeError, tithe.Error) as why:  # all ranks get one
                rows.append({**row, "error": str(why), "ok": False})
                continue
            wrong = sum(int((a != b).sum()) for a, b in zip(own, weights, strict=True))
            near = abs(loss - own_loss) <= NEAR * own_loss
            row |= {"weights_differ": wrong, "loss": loss, "own_loss": own_loss, "ms": ms}
            rows.append({**row, "ok": wrong == 0 if codec == "fp32" else near})
    return rows


def trained(
    mesh: DeviceMesh, device: torch.device, policy: MixedPrecisionPolicy, codec: str | None
) -> tuple[list[torch.Tensor], float, float]:
    """Trains. Returns this rank's weights, the last loss and the median time of a step. codec None: the reference."""
    torch.manual_seed(0)
    network = nn.Sequential(*(m for _ in range(LAYERS) for m in (nn.Linear(SIDE, SIDE), nn.Tanh()))).to(device)
    for layer in network:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(network, mesh=mesh, mp_policy=policy)
    state = None
    if codec is None:
        for layer in network:
            if isinstance(layer, FSDPModule):
                layer.set_custom_all_gather(BlockingGather())
                layer.set_custom_reduce_scatter(BlockingScatter())
    else:
        state = tithe.torch.attach(network, codec=None if codec == "default" else codec, min_values=64, timeout=60.0)
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())
    given, wanted = (torch.randn(BATCH, SIDE, generator=generator).to(device) for _ in range(2))
    seconds, loss = [], 0.0
    for _ in range(STEPS):
        begin = time.perf_counter()
        error = (network(given).float() - wanted.tanh()).square().mean()
        error.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = error.item()
        seconds.append(time.perf_counter() - begin)
    mean = torch.tensor(loss, dtype=torch.float64)
    dist.all_reduce(mean)
    weights = [p.to_local().detach().cpu() for p in network.parameters()]
    if state is not None:
        state.close()
    return weights, float(mean) / dist.get_world_size(), 1e3 * statistics.median(seconds)


def show(rows: list[dict[str, Any]]) -> None:
    print(f"\n{'fully_shard':<12} {'codec':<10} {'weights differ':>14} {'last loss':>10} {'own loss':>10} {'ms':>8}")
    for r in rows:
        if text := r.get("left_out", r.get("error")):
            print(f"{r.get('weights', 'left out'):<12} {r.get('codec', ''):<10} {text}{'' if r['ok'] else '  WRONG'}")
            continue
        print(
            f"{r['weights']:<12} {r['codec']:<10} {r['weights_differ']:>14} {r['loss']:>10.5f} {r['own_loss']:>10.5f} "
            f"{r['ms']:>8.2f}  {'ok' if r['ok'] else 'WRONG'}"
        )


def prepare() -> None:
    """Makes products of matrices repeatable over streams. Call it before the first use of the GPU."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
