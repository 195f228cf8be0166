# SPDX-License-Identifier: Apache-2.0
"""Shared by tests of LocalSteps: a small model, its data, a training loop, and the method in plain torch."""

import torch

torch.set_num_threads(1)  # ranks share the machine, and the models are small

PLAIN = {"codec": "fp32", "start": 0, "timeout": 20.0}  # lossless, no dense start
FEATURES, CLASSES = 24, 4


def model(seed=3):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 32), torch.nn.Tanh(), torch.nn.Linear(32, 16), torch.nn.Tanh(),
        torch.nn.Linear(16, CLASSES),
    )  # fmt: skip


def batch(rank, step):
    draws = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(8, FEATURES, generator=draws)
    return inputs, inputs[:, :CLASSES].argmax(1)


def loss_of(network, rank, step):
    inputs, targets = batch(rank, step)
    return torch.nn.functional.cross_entropy(network(inputs), targets)


def step(network, optimizer, rank, number):
    """Makes one iteration of a usual loop."""
    optimizer.zero_grad()
    loss = loss_of(network, rank, number)
    loss.backward()
    optimizer.step()
    return loss.item()


def bits(network):
    return [t.detach().numpy().tobytes() for t in [*network.parameters(), *network.buffers()]]


def values(network):
    """Returns all parameters as an array. Tensors would be shared between processes, and end with them."""
    return torch.cat([p.detach().reshape(-1) for p in network.parameters()]).numpy()


def inner(network, kind="adamw"):
    if kind == "adamw":
        return torch.optim.AdamW(network.parameters(), lr=1e-2)
    return torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)


class Truth:
    """Local steps of a whole job in one process, without tithe: the tests' reference.

    A fragment is a list of names. Everything is float64, so the difference from the job is the job's rounding.
    """

    def __init__(self, world, names, every, fragments, delay=0, merge="add", outer="mean", make=model, **more):
        self.networks = [make().double() for _ in range(world)]
        self.optimizers = [inner(n, **more) for n in self.networks]
        self.fragments, self.slot, self.delay, self.merge = names, every // fragments, delay, merge
        self.outer = {n: p.detach().clone().requires_grad_() for n, p in self.networks[0].named_parameters()}
        nesterov = {"lr": 0.7, "momentum": 0.9, "nesterov": True}
        self.outer_optimizers = [
            torch.optim.SGD([self.outer[n] for n in own], **(nesterov if outer == "nesterov" else {"lr": 1.0}))
            for own in names
        ]
        self.pending = None
        self.done = 0

    def run(self, first, end):
        for number in range(first, end):
            for rank, (network, optimizer) in enumerate(zip(self.networks, self.optimizers, strict=True)):
                optimizer.zero_grad()
                inputs, targets = batch(rank, number)
                torch.nn.functional.cross_entropy(network(inputs.double()), targets).backward()
                optimizer.step()
            at = (number + 1) % self.slot
            if self.delay and at == self.delay and self.pending is not None:
                self._merge()
            if at == 0:
                self._send([self.done % len(self.fragments)])
                self.done += 1
                if not self.delay:
                    self._merge()

    def finish(self, iterations):
        if self.pending is not None:
            self._merge()
        if iterations % self.slot or len(self.fragments) > 1:
            self._send(range(len(self.fragments)))
            self.delay = 0
            self.outer_optimizers = [torch.optim.SGD([self.outer[n] for n in own], lr=1.0) for own in self.fragments]
            self._merge()

    def _send(self, which):
        at = [{n: p.detach().clone() for n, p in network.named_parameters()} for network in self.networks]
        self.pending = (list(which), at)

    @torch.no_grad()
    def _merge(self):
        which, sent = self.pending
        self.pending = None
        for f in which:
            for n in self.fragments[f]:
                self.outer[n].grad = torch.stack([self.outer[n] - at[n] for at in sent]).mean(0)
            self.outer_optimizers[f].step()
            for network, at in zip(self.networks, sent, strict=True):
                mine = dict(network.named_parameters())
                for n in self.fragments[f]:
                    since = mine[n] - at[n] if self.delay and self.merge == "add" else 0.0
                    mine[n].copy_(self.outer[n] + since)
