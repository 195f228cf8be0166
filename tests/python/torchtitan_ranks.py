# SPDX-License-Identifier: Apache-2.0
"""One rank of four of a torchtitan job, for test_torchtitan.py: its own mesh and its own sharding of a decoder.

Its models need Triton, so the decoder is a small one of the same parts. Prints the values that the test compares, as
JSON.
"""

import hashlib
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torchtitan.distributed import parallel_dims
from torchtitan.distributed.fsdp import apply_fsdp_to_decoder, disable_fsdp_gradient_division

import tithe.torch

WORDS, WIDTH, STEPS = 50, 16, 4
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


class Decoder(nn.Module):
    """Has the attributes of a model that apply_fsdp_to_decoder() reads."""

    enable_weight_tying = False

    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleDict({str(i): Block() for i in range(2)})
        self.norm = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        x = self.tok_embeddings(words)
        for block in self.layers.values():
            x = block(x)
        return self.lm_head(self.norm(x))


def sharded(dims):
    torch.manual_seed(3)
    model = Decoder()
    apply_fsdp_to_decoder(
        model, dims.get_mesh(["dp_replicate", "fsdp"]), torch.float32, torch.float32, pp_enabled=False
    )
    disable_fsdp_gradient_division(model)  # as its trainer does: losses are divided by the words of all ranks
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)  # Gloo has no sum of products
    return model


def train(model):
    """Trains with two micro-batches per step, of which the last is averaged, as its trainer does."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        for micro in range(2):
            model.set_requires_all_reduce(micro == 1)
            drawn = torch.Generator().manual_seed(100 * step + 10 * micro + RANK)
            words = torch.randint(WORDS, (8, 12), generator=drawn)
            loss = nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten(), reduction="sum")
            (loss / (2 * WORLD * words.numel())).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item() / words.numel())
    whole = b"".join(p.full_tensor().detach().numpy().tobytes() for p in model.parameters())
    return hashlib.sha256(whole).hexdigest(), losses[0], losses[-1]


dist.init_process_group("gloo")
parallel_dims.device_type = "cpu"  # its guess is a GPU
dims = parallel_dims.ParallelDims(
    dp_replicate=2, dp_shard=2, cp=1, tp=1, pp=1, ep=1, world_size=WORLD, spmd_backend="partial_dtensor"
)
dims.build_mesh()
results = {"own": train(sharded(dims))}
for codec in ("fp32", "fp8"):
    model = sharded(dims)
    state = tithe.torch.attach(model, codec=codec, min_values=0, timeout=30.0)
    results[codec] = train(model)
    results[f"{codec} rounds"] = state.stats()["rounds"]
    results["names"] = sorted(state.tensor_stats())
    state.close()
print(json.dumps(results))
dist.destroy_process_group()
