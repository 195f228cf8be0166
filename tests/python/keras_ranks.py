# SPDX-License-Identifier: Apache-2.0
"""One rank of a Keras job, for test_keras.py: KERAS_BACKEND=jax python keras_ranks.py. Prints JSON."""

import hashlib
import json
import os

import tithe.keras  # isort: skip (before TensorFlow, which brings an OpenSSL of its own)

import keras
import numpy as np

import tithe

RANK = int(os.environ["RANK"])


def network(width=16):
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [keras.layers.Input((width,)), keras.layers.Dense(32, activation="tanh"), keras.layers.Dense(1)]
    )


def part(rank, steps=12):
    draws = np.random.default_rng(rank)
    x = draws.standard_normal((8 * steps, 16)).astype(np.float32)
    return x, np.tanh(x[:, :1] - x[:, 1:2])


def fitted(session, epochs=1):
    model = network()
    given = {"jit_compile": False} if keras.backend.backend() == "tensorflow" else {}
    optimizer = tithe.keras.distributed(keras.optimizers.SGD(0.2), session)
    model.compile(optimizer, "mse", **given)
    told = model.fit(*part(RANK), batch_size=8, epochs=epochs, shuffle=False, verbose=0)
    return model, told.history["loss"]


def bits(model):
    return hashlib.sha256(b"".join(np.ascontiguousarray(w).tobytes() for w in model.get_weights())).hexdigest()


def alone():
    """One process on the data of both: batches of 16 are the two ranks' batches of 8 together."""
    model = network()
    model.compile(keras.optimizers.SGD(0.2), "mse")
    (x0, y0), (x1, y1) = part(0), part(1)
    x = np.concatenate([x0.reshape(-1, 8, 16), x1.reshape(-1, 8, 16)], 1).reshape(-1, 16)
    y = np.concatenate([y0.reshape(-1, 8, 1), y1.reshape(-1, 8, 1)], 1).reshape(-1, 1)
    model.fit(x, y, batch_size=16, shuffle=False, verbose=0)
    return model


def refusals(session):
    texts = []
    optimizer = keras.optimizers.SGD(0.2)
    used = keras.optimizers.SGD(0.2)
    used.build(network().trainable_variables)
    for make in (
        lambda: tithe.keras.distributed(tithe.keras.distributed(optimizer, session), session),
        lambda: tithe.keras.distributed(used, session),
        lambda: tithe.keras.averaged(session, ["w"], [keras.ops.cast(np.zeros(3), "int32")]),
    ):
        try:
            make()
        except ValueError as wrong:
            texts.append(str(wrong))
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        try:
            tithe.keras.averaged(session, ["rows"], [tf.IndexedSlices(tf.zeros((1, 2)), tf.constant([0]), (4, 2))])
        except ValueError as wrong:
            texts.append(str(wrong))
    return texts


told = {"backend": keras.backend.backend()}
options = {"timeout": 20.0, "patience": 120.0, "min_values": 0}
with tithe.Session.from_environment(codec="fp32", **options) as session:
    model, losses = fitted(session)
    told |= {"exact": bits(model), "rounds": session.stats()["rounds"], "keys": sorted(session.tensor_stats())}
    told["paths"] = sorted(v.path.split("/", 1)[1] for v in model.trainable_variables)
    told["off"] = max(
        float(np.abs(a - b).max()) for a, b in zip(model.get_weights(), alone().get_weights(), strict=True)
    )
    told["refusals"] = refusals(session)
os.environ["TITHE_FILE"] += "-lossy"
with tithe.Session.from_environment(codec="fp8", **options) as session:
    model, losses = fitted(session, epochs=5)
    told |= {"lossy": bits(model), "first": losses[0], "last": losses[-1]}
print(json.dumps(told))
