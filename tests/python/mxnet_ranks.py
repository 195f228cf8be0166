# SPDX-License-Identifier: Apache-2.0
"""One rank of an MXNet job, for test_mxnet.py. Prints the values that the test compares, as JSON."""

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path

import mxnet as mx
import numpy as np

import tithe

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import train_mxnet  # noqa: E402

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SGD = "sgd", {"learning_rate": 0.1, "momentum": 0.5}
LOSS = mx.gluon.loss.L2Loss()


@mx.kvstore.KVStoreBase.register
class DistTithe(mx.kvstore.KVStoreBase):
    """The other integration: a kvstore, whose name is the only change in a program. docs/guide/python.md shows it."""

    type = "disttithe"

    def broadcast(self, key, value, out, priority=0):
        out[0][:] = value

    def pushpull(self, key, value, out=None, priority=0):
        array = value[0].asnumpy()
        session.wait(session.sync({str(key): array}))
        session.commit()
        (out or value)[0][:] = array

    def is_capable(self, capability):
        return False


def network():
    mx.random.seed(3)
    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(mx.gluon.nn.Dense(32, "tanh", in_units=16), mx.gluon.nn.Dense(1, in_units=32))
    net.initialize(mx.init.Xavier())
    return net


def batch(rank, step):
    draws = np.random.default_rng(1000 * step + rank)
    x = draws.standard_normal((8, 16)).astype(np.float32)
    return mx.nd.array(x), mx.nd.array(np.tanh(x[:, :1] - x[:, 1:2]))


def backward(net, rank, step):
    x, y = batch(rank, step)
    with mx.autograd.record():
        loss = LOSS(net(x), y)
    loss.backward()
    return float(loss.mean().asscalar())


def trained(net, trainer, steps):
    losses = []
    for step in steps:
        losses.append(backward(net, RANK, step))
        trainer.step(8 * WORLD)
    return losses


def alone(steps):
    """Trains one process with the gradients of all ranks."""
    net = network()
    trainer = mx.gluon.Trainer(net.collect_params(), *SGD, kvstore=None)
    grads = [p.list_grad()[0] for p in net.collect_params().values()]
    for step in steps:
        sums = [np.zeros(g.shape, np.float32) for g in grads]
        for rank in range(WORLD):
            backward(net, rank, step)
            for whole, grad in zip(sums, grads, strict=True):
                whole += grad.asnumpy()
        for whole, grad in zip(sums, grads, strict=True):
            grad[:] = whole
        trainer.update(8 * WORLD)
    return bits(net)


def bits(net):
    return hashlib.sha256(b"".join(p.data().asnumpy().tobytes() for p in net.collect_params().values())).hexdigest()


def by_trainer(net):
    return train_mxnet.Trainer(net.collect_params(), *SGD, kvstore=None)


def opened(name, codec):
    """Opens a session, for both integrations."""
    global session
    os.environ["TITHE_FILE"] = f"{FOLDER}/{name}"
    session = train_mxnet.session = tithe.Session.from_environment(
        codec=codec, average=False, min_values=0, timeout=20.0, patience=120.0
    )
    return session


FOLDER = Path(os.environ["TITHE_FILE"]).parent
results = {"alone": alone(range(5))}

with opened("exact", "fp32"):
    net = network()
    trained(net, by_trainer(net), range(5))
    results |= {"trainer": bits(net), "rounds": session.stats()["rounds"], "keys": sorted(session.tensor_stats())}
    begun, net = session.stats()["rounds"], network()
    trained(net, mx.gluon.Trainer(net.collect_params(), *SGD, kvstore="disttithe"), range(5))
    results |= {"store": bits(net), "rounds of the store": session.stats()["rounds"] - begun}

with opened("whole", "topk:ratio=0.1"), tempfile.TemporaryDirectory() as saved:
    net = network()
    trainer = by_trainer(net)
    losses = trained(net, trainer, range(20))
    net.save_parameters(f"{saved}/net")
    trainer.save_states(f"{saved}/trainer")
    state = session.state()
    losses += trained(net, trainer, range(20, 40))
    results |= {"whole": bits(net), "first": np.mean(losses[:5]), "last": np.mean(losses[-5:])}
    with opened("resumed", "topk:ratio=0.1"):
        session.restore(state)
        net = network()
        net.load_parameters(f"{saved}/net")
        trainer = by_trainer(net)
        trainer.load_states(f"{saved}/trainer")
        trained(net, trainer, range(20, 40))
        results["resumed"] = bits(net)
print(json.dumps(results))
