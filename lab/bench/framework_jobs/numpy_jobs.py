# SPDX-License-Identifier: Apache-2.0
"""A network written in numpy, whose gradients a Session averages. Numpy has no all-reduce, so codec fp32 is the
reference."""

import common
import numpy as np

import tithe


def train(codec: str):
    """Trains the network with Adam, and averages the gradients through a session of this codec. Returns
    common.timed()."""
    matrices = [w.copy() for w in common.weights()]
    weights = {f"layer{k}": w for k, w in enumerate(matrices)}
    moments = {name: (np.zeros_like(w), np.zeros_like(w)) for name, w in weights.items()}

    def forward(x):
        acts = [x]
        for k, w in enumerate(matrices):
            out = acts[-1] @ w
            acts.append(np.maximum(out, 0) if k < len(matrices) - 1 else out)
        return acts

    def step(number):
        x, y = common.batch(number)
        acts = forward(x)
        odds = np.exp(acts[-1] - acts[-1].max(1, keepdims=True))
        back = odds / odds.sum(1, keepdims=True)
        back[np.arange(len(y)), y] -= 1
        back /= len(y)
        grads = {}
        for k in reversed(range(len(matrices))):
            grads[f"layer{k}"] = np.ascontiguousarray(acts[k].T @ back)
            back = (back @ matrices[k].T) * (acts[k] > 0)
        session.wait(session.sync(grads))
        session.commit()
        for name, w in weights.items():  # Adam
            m, v = moments[name]
            m += 0.1 * (grads[name] - m)
            v += 0.001 * (grads[name] ** 2 - v)
            t = number + 1
            w -= common.RATE * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)

    with tithe.Session.from_environment(codec=codec, patience=600.0) as session:
        return common.timed(step, lambda: forward(common.held_out()[0])[-1])


DEFAULT = tithe._core.Options().codec
common.main({"numpy": {"own": lambda: train("fp32"), "tithe": lambda: train(DEFAULT)}})
