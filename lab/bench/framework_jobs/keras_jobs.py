# SPDX-License-Identifier: Apache-2.0
"""Keras 3 on the backend of KERAS_BACKEND: the backend's own data parallelism, beside tithe.keras.distributed() under
fit.

torch       DistributedDataParallel around the Keras model, as in Keras' own guide
jax         keras.distribution.DataParallel over jax.distributed's processes, with gloo
tensorflow  tf.distribute.MultiWorkerMirroredStrategy
"""

import json
import os
import sys
import time

import tithe.keras  # isort: skip (before TensorFlow, which brings an OpenSSL of its own)

import common
import numpy as np

BACKEND = os.environ["KERAS_BACKEND"]
MASTER = os.environ["MASTER_ADDR"]
if BACKEND == "jax" and "own" in sys.argv:
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"{MASTER}:29700", common.WORLD, common.RANK)
if BACKEND == "tensorflow" and "own" in sys.argv:
    network = MASTER.rsplit(".", 1)[0]
    workers = [f"{network}.{rank + 1}:29700" for rank in range(common.WORLD)]
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": common.RANK}}
    )

import keras  # noqa: E402

import tithe  # noqa: E402


class Ends(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.ends = []

    def on_train_batch_end(self, batch, logs=None):
        self.ends.append(time.perf_counter())


def network():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Input((common.SIZES[0],))]
    for o, kind in zip(common.SIZES[1:], ("relu", "relu", None), strict=True):
        layers.append(keras.layers.Dense(o, kind))
    model = keras.Sequential(layers)
    model.set_weights([x for w in common.weights() for x in (w, np.zeros(w.shape[1], np.float32))])
    return model


LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def mine():
    parts = [common.batch(step) for step in range(common.STEPS)]
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def fitted(model, optimizer, data, size=common.BATCH):
    ends = Ends()
    model.compile(optimizer, LOSS, jit_compile=BACKEND == "jax")
    model.fit(*data, batch_size=size, shuffle=False, verbose=0, callbacks=[ends])
    times = [1e3 * (after - before) for before, after in zip(ends.ends, ends.ends[1:], strict=False)]
    found = network()
    found.set_weights([np.asarray(w) for w in model.get_weights()])
    scores = keras.ops.convert_to_numpy(found(common.held_out()[0]))
    return {"ms": float(np.median(times[common.WARM :])), "accuracy": common.accuracy(scores)}


def ours():
    with tithe.Session.from_environment(patience=600.0) as session:
        return fitted(network(), tithe.keras.distributed(keras.optimizers.Adam(common.RATE), session), mine())


def own_torch():
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = network()
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=common.RATE)

    def step(number):
        x, y = map(torch.from_numpy, common.batch(number))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(wrapped(x), y).backward()
        optimizer.step()

    return common.timed(step, lambda: keras.ops.convert_to_numpy(model(common.held_out()[0])))


def own_jax():
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    return fitted(network(), keras.optimizers.Adam(common.RATE), mine())


def own_tensorflow():
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model, optimizer = network(), keras.optimizers.Adam(common.RATE)
    return fitted(model, optimizer, mine(), common.BATCH * common.WORLD)


OWN = {"torch": own_torch, "jax": own_jax, "tensorflow": own_tensorflow}[BACKEND]
common.main({f"keras_{BACKEND}": {"own": OWN, "tithe": ours}})
