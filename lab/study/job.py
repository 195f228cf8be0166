# SPDX-License-Identifier: Apache-2.0
"""The study's job: an MLP on Fashion-MNIST, 4 ranks in this process. One forward and backward pass serves all ranks.
Each rank's gradient is that of its own part of the batch, as in a separate process."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

import tithe
from lab.study import idx, specs
from lab.study.models import Inputs

RANKS = specs.RANKS
BATCH = 32  # per rank: a global batch of 128
LAYERS = (784, 128, 64, 10)
MOMENTUM, PEAK_RATE = 0.5, 0.2
STRATEGY = "gather"
DESCRIPTION = (
    f"Fashion-MNIST, MLP {'-'.join(map(str, LAYERS))}, {RANKS} ranks, batch {BATCH} per rank, SGD, momentum {MOMENTUM},"
    f" rate {PEAK_RATE} after a rise and before a fall, strategy {STRATEGY}"
)


class Data:
    def __init__(self, folder: str):
        files = idx.load(folder)
        inputs = Inputs(files["train"][0])
        self.images, self.labels = inputs(files["train"][0]), torch.from_numpy(files["train"][1])
        self.test = inputs(files["test"][0]), torch.from_numpy(files["test"][1])


class Model:
    """Weights, and the gradients of all ranks: gradients[name] is [RANKS, *shape]."""

    def __init__(self, seed: int):
        torch.manual_seed(seed)
        layers = [torch.nn.Linear(a, b) for a, b in itertools.pairwise(LAYERS)]
        self.parameters = {f"{i}.{name}": p for i, layer in enumerate(layers) for name, p in layer.named_parameters()}
        self.weights = [layer.weight.detach() for layer in layers]
        self.biases = [layer.bias.detach() for layer in layers]
        self.gradients = {name: torch.empty(RANKS, *p.shape) for name, p in self.parameters.items()}

    def forward(self, inputs: torch.Tensor) -> list[torch.Tensor]:
        """Returns the input of each layer, and the logits."""
        out = [inputs]
        for weight, bias in zip(self.weights, self.biases, strict=True):
            out.append(torch.addmm(bias, out[-1] if len(out) == 1 else out[-1].relu_(), weight.T))
        return out

    def backward(self, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        """Fills `gradients`: rank r's loss is the mean cross-entropy over the r-th part of the batch."""
        activations = self.forward(inputs)
        error = activations.pop().softmax(1)
        error[torch.arange(len(labels)), labels] -= 1
        error /= len(labels) // RANKS
        for at in reversed(range(len(self.weights))):
            parts = error.view(RANKS, -1, error.shape[1])
            seen = activations[at].view(RANKS, -1, activations[at].shape[1])
            torch.bmm(parts.transpose(1, 2), seen, out=self.gradients[f"{at}.weight"])
            torch.sum(parts, 1, out=self.gradients[f"{at}.bias"])
            if at > 0:
                error = torch.mm(error, self.weights[at]).mul_(activations[at] > 0)

    def accuracy(self, data: Data) -> float:
        return (self.forward(data.test[0])[-1].argmax(1) == data.test[1]).float().mean().item()


def learning_rate(step: int, steps: int) -> float:
    rise = max(1, steps // 10)
    return PEAK_RATE * min((step + 1) / rise, (steps - step) / (steps - rise + 1))


def first_gradient(data: Data) -> np.ndarray:
    """Returns rank 0's gradient of the first weights in the first step."""
    model = Model(0)
    model.backward(data.images[: RANKS * BATCH], data.labels[: RANKS * BATCH])
    return model.gradients["0.weight"][0].reshape(-1).numpy()


def train(spec: str, seed: int, epochs: int, data: Data) -> dict:
    """Trains one run. Returns the final accuracy on the test images, the bytes that a rank sent per step, and whether
    all values were finite."""
    model = Model(seed)
    # feedback=momentum applies momentum before sending, so the optimizer must not apply it again.
    momentum = 0.0 if "feedback=momentum" in spec else MOMENTUM
    optimizer = torch.optim.SGD(model.parameters.values(), lr=PEAK_RATE, momentum=momentum)
    for name, parameter in model.parameters.items():
        parameter.grad = model.gradients[name][0]
    buckets = [{name: g[rank].numpy() for name, g in model.gradients.items()} for rank in range(RANKS)]
    sessions = tithe.Session.loop(RANKS, codec=spec, strategy=STRATEGY, seed=seed, lanes=0)

    def exchange(rank: int) -> None:
        session = sessions[rank]
        session.wait(session.sync(buckets[rank]))
        session.commit()

    batch = RANKS * BATCH
    per_epoch = len(data.images) // batch
    steps = per_epoch * epochs
    with ThreadPoolExecutor(RANKS) as threads:
        for step in range(steps):
            epoch, at = divmod(step, per_epoch)
            if at == 0:
                order = torch.from_numpy(np.random.default_rng([seed, epoch]).permutation(len(data.images)))
            chosen = order[at * batch : (at + 1) * batch]
            model.backward(data.images[chosen], data.labels[chosen])
            list(threads.map(exchange, range(RANKS)))
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, steps)
            optimizer.step()
    bits = [g.view(torch.int32) for g in model.gradients.values()]  # compares bits, so that NaNs are equal too
    if not all(torch.equal(g[0], other) for g in bits for other in g):
        raise RuntimeError(f"{spec}: ranks ended with different bits")
    sent = sessions[0].stats()["bytes_sent"] / steps
    for session in sessions:
        session.close()
    finite = all(bool(weight.isfinite().all()) for weight in model.weights)
    return {"codec": spec, "seed": seed, "accuracy": model.accuracy(data), "bytes_per_step": sent, "finite": finite}
