# SPDX-License-Identifier: Apache-2.0
"""The rows of the demo's table: the codec, strategy and task of each."""

import itertools
import os
from dataclasses import dataclass, replace

# An MLP with ReLU each; MODEL names the trained model. `hdc` is INCEPTIONN's: five layers of 500 units. `fsdp` is a
# transformer under fully_shard instead.
MODELS = {"mlp": (784, 1024, 768, 10), "hdc": (784, 500, 500, 500, 500, 10)}
FSDP = "fsdp"
MODEL = os.environ.get("MODEL") or "mlp"
LAYERS = MODELS.get(MODEL, MODELS["mlp"])


def parameters(layers: tuple[int, ...]) -> int:
    return sum(a * b + b for a, b in itertools.pairwise(layers))


PARAMETERS = parameters(LAYERS)
BATCH = 128  # per rank


def left_out(steps: int) -> int:
    """Returns the number of first steps that medians omit: DDP rebuilds its buckets, PowerSGD starts, connections
    open."""
    return min(20, steps // 2)


MOMENTUM = 0.5  # of SGD, in every row

TRANSFORMER = {"width": 128, "heads": 4, "blocks": 6}  # of the rows under AdamW
TEXT_BATCH = 8  # sequences per rank
TEXT_RATE = 3e-3
SHARDED_TRANSFORMER = {"width": 256, "heads": 8, "blocks": 6}  # of the rows under fully_shard, also with AdamW
SHARDED_BATCH = 2  # sequences per rank: few, since a CPU computes bfloat16 slowly
WARMUP_CODEC = "eden"  # of rows with exact steps
SMALL = {"< 4096": {"codec": "fp8", "group": "small ones"}}  # the choices of rows with exact steps


@dataclass(frozen=True)
class Row:
    name: str
    kind: str  # baseline | tithe
    codec: str = ""  # as results.json states it; for tithe rows the spec; empty: the default
    strategy: str = ""  # tithe rows; empty: the default
    task: str = "images"  # of tasks.py: images under SGD, text under AdamW, sharded under fully_shard and AdamW
    exact: float = 0  # the argument exact= of tithe's AdamW
    min_values: int = 4096  # tithe rows: tensors of fewer values are sent uncompressed
    bucket_mb: float | None = None  # DDP's bucket_cap_mb; None: DDP's default
    transport: str = ""  # tithe rows; empty: the default one
    servers: int = 0  # tithe rows: the number of additional ranks, on hosts of their own, that only sum
    # Options of the hosts' cards, with CARD=1; with --lossy the transport has lossy_card=on
    card: str = ""
    # A first guess for the estimate of the total time: bytes per rank and step, as a fraction of fp32's.
    bytes_part: float = 0.05

    @property
    def shown(self) -> str:
        """Its name in the table of its task."""
        return self.name.removeprefix("adamw-").removeprefix("fsdp-")

    @property
    def corrects_momentum(self) -> bool:
        """True for momentum correction (DGC): the codec's residual already contains the momentum of every compressed
        parameter, so the optimizer must not apply momentum to these parameters again."""
        return "feedback=momentum" in self.codec

    @property
    def rounded_on_the_way(self) -> bool:
        return "lossy_card=on" in self.transport


POWERSGD = Row("powersgd", "baseline", "PowerSGD rank 2, start after 10 steps", bucket_mb=1000, bytes_part=0.02)
BF16 = Row("bf16", "baseline", "bfloat16 all-reduce (Gloo)", bytes_part=0.5)
FP32 = Row("fp32", "baseline", "float32 all-reduce (Gloo)", bytes_part=1.0)
ROWS = [
    Row("tithe", "tithe", bytes_part=0.1),  # attach(model, optimizer=optimizer), without other arguments
    Row("tithe-fp8", "tithe", "fp8", bytes_part=0.25),  # the codec of attach(model)
    Row("tithe-qtopk", "tithe", "qtopk:ratio=0.03", "server"),
    Row("tithe-qtopk-g", "tithe", "qtopk:ratio=0.02", "gather"),
    Row("tithe-topk", "tithe", "topk:ratio=0.02,values=bf16,indices=delta", "gather"),
    Row("tithe-dgc", "tithe", f"dgc:ratio=0.015,values=bf16,indices=delta,feedback=momentum,mu={MOMENTUM}", "gather"),
    Row("tithe-dragonn", "tithe", "dragonn:ratio=0.015,values=bf16,indices=delta", "gather"),
    Row("tithe-onebit", "tithe", "onebit", "server"),
    *(POWERSGD, BF16, FP32),
]
# A transformer. With tithe its optimizer is tithe.torch.optim.AdamW.
ADAMW_ROWS = [
    Row("adamw-tithe", "tithe", task="text", bytes_part=0.1),
    Row("adamw-tithe-1.6", "tithe", "eden:bits=1.6", task="text", exact=0.1, bytes_part=0.06),
    *(replace(row, name=f"adamw-{row.name}", task="text") for row in (POWERSGD, BF16, FP32)),
]

# A transformer under fully_shard, with FSDP2's own collectives or with tithe's.
FSDP_ROWS = [
    Row("fsdp-tithe", "tithe", task="sharded", bytes_part=0.2),
    Row("fsdp-fsdp2", "baseline", "bfloat16 reduce-scatter and all-gather (Gloo)", task="sharded", bytes_part=0.75),
]

# With CARD=1, as in INCEPTIONN's figure 12: workers and an aggregator (WA), the ring, and both with network cards,
# which compress packets with the codec's ToS; and the best row without cards. `ring-card-lossy` keeps no residual of
# the rounding of a hop; `ring-card-literal` rounds as the paper prints it. In `ring-lossy` and `wa-lossy` the cards
# themselves round, as in the paper: no codec snaps values, checksums cover only headers, and each hop loses the part
# that its card rounds off.
_TCP = "tcp:trust=10.77.0.0/16"
_PACKED = f"{_TCP},tos=0x28"
_ROUNDED = f"{_PACKED},lossy_card=on"
CARD_ROWS = [
    Row("ring-card", "tithe", "snap", "ring", transport=_PACKED, bytes_part=0.3),
    Row("wa-card", "tithe", "snap", "server", transport=_PACKED, servers=1, bytes_part=0.8),
    Row("ring-card-lossy", "tithe", "snap:feedback=none", "ring", transport=_PACKED, bytes_part=0.3),
    Row("ring-card-literal", "tithe", "snap:mode=literal,feedback=none", "ring", transport=_PACKED, bytes_part=0.3),
    Row("ring-lossy", "tithe", "fp32", "ring", transport=_ROUNDED, card="--lossy", bytes_part=0.3),
    Row("wa-lossy", "tithe", "fp32", "server", transport=_ROUNDED, servers=1, card="--lossy", bytes_part=0.8),
    Row(
        "ring-lossy-literal", "tithe", "fp32", "ring", transport=_ROUNDED, card="--lossy --mode literal", bytes_part=0.3
    ),
    Row("tithe-qtopk", "tithe", "qtopk:ratio=0.03", "server", transport=_TCP),
    Row("ring", "tithe", "fp32", "ring", transport=_TCP, bytes_part=1.0),
    Row("wa", "tithe", "fp32", "server", transport=_TCP, servers=1, bytes_part=2.7),
]


def by_name(name: str) -> Row:
    """Returns a row of the tables, or one made from codec/strategy[/min_values], e.g. topk:ratio=0.002/gather."""
    every = [*ROWS, *ADAMW_ROWS, *FSDP_ROWS, *CARD_ROWS]
    for row in every:
        if row.name == name:
            return row
    codec, *rest = name.split("/")
    if len(rest) in (1, 2):
        return Row(name, "tithe", codec, rest[0], *map(int, rest[1:]))
    known = ", ".join(row.name for row in every)
    raise ValueError(f"no row {name!r}; there are {known}, and any 'codec/strategy'")
