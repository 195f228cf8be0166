# SPDX-License-Identifier: Apache-2.0
"""A run of the study of optimizers: one cell (a model with an optimizer as users write it), one codec, one seed. The
ranks are in this process; each has its own part of the batch and its own session, as a rank with its own process would.
"""

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

import tithe
import tithe.torch
from lab.study import variances
from lab.study.models import Task
from tithe.torch._hook.parameter_views import ParameterViews
from tithe.torch._optimizer.squares import Squares

RANKS = int(os.environ.get("RANKS") or 4)
STRATEGY = os.environ.get("STRATEGY") or "server"
TOGETHER = " in a group"
LEAST = 4096  # values: a smaller tensor is sent uncompressed if no rule matches it
MOMENTUM = 0.9
TIED = "tithe's AdamW"
MUON = "Muon with AdamW"


@dataclass(frozen=True)
class Cell:
    model: str
    optimizer: str
    rate: float  # the rate that suits fp32 (RATES in optimizers.py)
    batch: int  # per rank
    steps: int

    @property
    def name(self) -> str:
        return f"{self.model}, {self.optimizer}"

    @property
    def about(self) -> str:
        return f"{self.name}: rate {self.rate:g}, batch {self.batch} per rank, {self.steps} steps"


_SHAPES = {"mlp": (16, 400), "convnet": (8, 250), "transformer": (4, 200)}  # batch per rank, steps
_RATES = {
    ("mlp", "SGD 0.9"): 0.05,
    ("mlp", "AdamW"): 4e-3,
    ("convnet", "SGD 0.9"): 0.05,
    ("convnet", "AdamW"): 8e-3,
    ("transformer", "SGD 0.9"): 0.4,
    ("transformer", "AdamW"): 8e-3,
    ("mlp", MUON): 4e-3,
    ("convnet", MUON): 8e-3,
    ("transformer", MUON): 3.2e-2,
}
_RATES |= {(model, TIED): rate for (model, optimizer), rate in _RATES.items() if optimizer == "AdamW"}
CELLS = {cell.name: cell for cell in (Cell(*key, rate, *_SHAPES[key[0]]) for key, rate in _RATES.items())}


class MuonWithAdamW:
    """torch.optim.Muon for the weights of linear layers but the last, AdamW for the other parameters. match_rms_adamw
    makes one rate suit both."""

    def __init__(self, model: torch.nn.Module, rate: float):
        *matrices, _ = [layer.weight for layer in model.modules() if isinstance(layer, torch.nn.Linear)]
        own = {id(p) for p in matrices}
        others = [p for p in model.parameters() if id(p) not in own]
        muon = torch.optim.Muon(matrices, lr=rate, adjust_lr_fn="match_rms_adamw")
        self.both = muon, torch.optim.AdamW(others, lr=rate)
        self.param_groups = [group for each in self.both for group in each.param_groups]

    def step(self) -> None:
        for each in self.both:
            each.step()


def make_optimizer(cell: Cell, model: torch.nn.Module, codec: str) -> torch.optim.Optimizer | MuonWithAdamW:
    if cell.optimizer == MUON:
        return MuonWithAdamW(model, cell.rate)
    kinds = {"AdamW": torch.optim.AdamW, TIED: tithe.torch.optim.AdamW, **variances.RULES}
    if cell.optimizer in kinds:
        return kinds[cell.optimizer](model.parameters(), lr=cell.rate)
    # feedback=momentum applies momentum before sending, so the optimizer must not apply it again.
    momentum = 0.0 if "feedback=momentum" in codec else MOMENTUM
    nesterov = momentum > 0 and cell.optimizer.startswith("Nesterov")
    return torch.optim.SGD(model.parameters(), lr=cell.rate, momentum=momentum, nesterov=nesterov)


def learning_rate(cell: Cell, step: int) -> float:
    """Returns the rate: linear increase over the first tenth, then linear decrease to zero."""
    rise = max(1, cell.steps // 10)
    return cell.rate * min((step + 1) / rise, (cell.steps - step) / (cell.steps - rise + 1))


def begun(codec: str) -> tuple[str, float, str]:
    """Splits a codec text with "first 0.1: eden", which sends this share of the steps by another codec. Returns the
    text without it, the share, and the other codec."""
    found = re.search(r"; first ([0-9.]+): ([^;]+)", codec)
    return (codec.replace(found[0], ""), float(found[1]), found[2]) if found else (codec, 0.0, "")


def parsed(codec: str) -> tuple[str, dict]:
    """Returns spec and choices of a codec text: rules may follow the spec, each after a semicolon. A codec that ends in
    "in a group" encodes all its tensors together."""
    spec, *rules = (word.strip() for word in codec.split(";"))
    choices = {}
    for match, of in (rule.split(": ") for rule in rules):
        alone = of.removesuffix(TOGETHER)
        choices[match] = of if alone == of else {"codec": alone, "group": "small ones"}
    alone = spec.removesuffix(TOGETHER)
    if alone != spec:
        choices[f">= {LEAST}"] = {"codec": alone, "group": "large ones"}
    return alone, choices


class Ranks:
    """The sessions of all ranks, with one thread each."""

    def __init__(self, codec: str, seed: int, steps: int = 0):
        codec, part, first = begun(codec)
        codec, choices = parsed(codec)
        self.first, self.steps = round(part * steps), 0
        all_others = choices.get(f">= {LEAST}", codec)
        self.final = json.dumps({**choices, f">= {LEAST}": all_others})
        if self.first:
            choices[f">= {LEAST}"] = first if all_others == codec else {**all_others, "codec": first}
        self.sessions = tithe.Session.loop(RANKS, codec=codec, strategy=STRATEGY, seed=seed, lanes=0, choices=choices)
        self.opened = self.sessions[0].choices
        self.threads = ThreadPoolExecutor(RANKS)

    def average(self, buckets: list[dict[str, np.ndarray]]) -> None:
        if self.first and self.steps == self.first:  # as tithe's AdamW does with exact=
            self.sessions[0].propose(self.final)
        self.steps += 1
        list(self.threads.map(self._exchange, self.sessions, buckets))

    def is_exact(self) -> bool:
        """Returns True if tithe's AdamW would be in its exact steps."""
        return self.first > 0 and self.sessions[0].choices == self.opened

    @staticmethod
    def _exchange(session: tithe.Session, bucket: dict[str, np.ndarray]) -> None:
        session.wait(session.sync(bucket))
        session.commit()

    def bytes_sent(self) -> int:
        return self.sessions[0].stats()["bytes_sent"]

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *exc: object) -> None:
        for session in self.sessions:
            session.close()
        self.threads.shutdown()


class Parts:
    """The squares of tithe's AdamW (_optimizer.squares) for ranks in one process: the mean of the ranks' products
    equals the product with their mean gradient."""

    def __init__(self, optimizer: tithe.torch.optim.AdamW, named: list[tuple[str, torch.nn.Parameter]], ranks: Ranks):
        optimizer._exact = ranks
        self.parameters = [p for _, p in named]
        self.squares = Squares(optimizer, ParameterViews({id(p): (name, p) for name, p in named}))
        self.squares.opened(None)
        self.bytes_sent = 0.0

    def before(self, gradients: list[list[torch.Tensor]]) -> None:
        if (side := self.squares.side_tensors()) is not None:
            frame = tithe.encode(self.squares.codec, side[1].numpy())
            side[1].copy_(torch.from_numpy(tithe.decode(frame)))
            self.bytes_sent += len(frame)
        mean = [torch.stack(parts).mean(0).flatten() for parts in zip(*gradients, strict=True)]
        self.squares.before_exchange(self.parameters, torch.cat(mean))

    def after(self, mean: list[torch.Tensor]) -> None:
        self.squares.after_exchange(self.parameters, torch.cat([g.flatten() for g in mean]))


def train(cell: Cell, codec: str, seed: int, task: Task) -> dict:
    """Trains one run. Returns the score on the test data, the bytes that a rank sent per step, and whether all values
    were finite."""
    torch.manual_seed(seed)
    model = task.make()
    names, parameters = zip(*model.named_parameters(), strict=True)
    optimizer = make_optimizer(cell, model, codec)
    rule = optimizer if isinstance(optimizer, variances.Rule) else None
    inputs, targets = task.train
    random = np.random.default_rng([seed, 0])
    with Ranks(codec, seed, cell.steps) as ranks:
        parts = Parts(optimizer, list(model.named_parameters()), ranks) if cell.optimizer == TIED else None
        for step in range(cell.steps):
            chosen = torch.from_numpy(random.integers(len(inputs), size=(RANKS, cell.batch)))
            gradients = []
            for rank in range(RANKS):
                loss = task.loss(model, inputs[chosen[rank]], targets[chosen[rank]])
                gradients.append([g.contiguous() for g in torch.autograd.grad(loss, parameters)])
            if parts is not None:
                parts.before(gradients)
            if rule is not None:
                rule.sees(gradients)
            ranks.average([dict(zip(names, (g.numpy() for g in mine), strict=True)) for mine in gradients])
            if parts is not None:
                parts.after(gradients[0])
            for parameter, gradient in zip(parameters, gradients[0], strict=True):
                parameter.grad = gradient
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(cell, step)
            optimizer.step()
        beside = sum(extra.bytes_sent for extra in (parts, rule) if extra is not None)
        sent = (ranks.bytes_sent() + 2 * (RANKS - 1) / RANKS * beside) / cell.steps
    # Compares bits, so that NaNs are equal too
    bits = [[gradient.view(torch.int32) for gradient in mine] for mine in gradients]
    if not all(torch.equal(a, b) for mine in bits[1:] for a, b in zip(bits[0], mine, strict=True)):
        raise RuntimeError(f"{codec}: ranks ended with different bits")
    finite = all(bool(p.isfinite().all()) for p in parameters)
    return {
        "cell": cell.name,
        "codec": codec,
        "seed": seed,
        "score": task.score(model) if finite else None,
        "bytes_per_step": sent,
        "values": sum(p.numel() for p in parameters),
    }
