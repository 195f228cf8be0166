# SPDX-License-Identifier: Apache-2.0
"""One rank of a Keras job, for test_keras.py: KERAS_BACKEND=jax python keras_ranks.py. Prints JSON."""

import hashlib
import json
import os
import pickle
import time
from pathlib import Path

import tithe.keras  # isort: skip (before TensorFlow, which brings an OpenSSL of its own)

import keras
import numpy as np

import tithe

RANK = int(os.environ["RANK"])


def network(width=16):
    keras.utils.clear_session()  # resets variable names, as in a new process
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [keras.layers.Input((width,)), keras.layers.Dense(32, activation="tanh"), keras.layers.Dense(1)]
    )


def part(rank, steps=12):
    draws = np.random.default_rng(rank)
    x = draws.standard_normal((8 * steps, 16)).astype(np.float32)
    return x, np.tanh(x[:, :1] - x[:, 1:2])


def compiled(session, momentum=0.0):
    model = network()
    given = {"jit_compile": False} if keras.backend.backend() == "tensorflow" else {}
    optimizer = tithe.keras.distributed(keras.optimizers.SGD(0.2, momentum), session)
    model.compile(optimizer, "mse", **given)
    return model


def fitted(session, epochs=1):
    model = compiled(session)
    return model, fit(model, epochs)


def fit(model, epochs=1):
    return model.fit(*part(RANK), batch_size=8, epochs=epochs, shuffle=False, verbose=0).history["loss"]


class Plain:
    """Replaces a session: means by numpy over files. The sum of two ranks has one order."""

    rounds = 0

    def sync(self, arrays):
        self.rounds += 1
        mine, theirs = (Path(f"{MEET}-{self.rounds}-{rank}") for rank in (RANK, 1 - RANK))
        values = {name: np.asarray(array) for name, array in arrays.items()}
        part = mine.with_name(mine.name + ".part")
        part.write_bytes(pickle.dumps(values))
        part.rename(mine)
        while not theirs.exists():
            time.sleep(0.005)
        for name, other in pickle.loads(theirs.read_bytes()).items():
            values[name][...] = (values[name] + other) / 2

    def wait(self, ticket):
        pass

    def commit(self):
        pass


def resumed():
    """Trains two epochs in one session, and the second one again in another session and model."""
    os.environ["TITHE_FILE"] = f"{MEET}-whole"
    with tithe.Session.from_environment(codec="topk:ratio=0.1", **options) as session:
        model = compiled(session, 0.5)
        fit(model)
        saved, weights = session.state(), model.get_weights()
        optimizer = [keras.ops.convert_to_numpy(v) for v in model.optimizer.variables]
        fit(model)
    os.environ["TITHE_FILE"] = f"{MEET}-resumed"
    with tithe.Session.from_environment(codec="topk:ratio=0.1", **options) as session:
        session.restore(saved)
        again = compiled(session, 0.5)
        again.set_weights(weights)
        again.optimizer.build(again.trainable_variables)
        for variable, value in zip(again.optimizer.variables, optimizer, strict=True):
            variable.assign(value)
        fit(again)
    return bits(model), bits(again)


def bits(model):
    return hashlib.sha256(b"".join(np.ascontiguousarray(w).tobytes() for w in model.get_weights())).hexdigest()


def alone():
    """Trains one process on the data of both: batches of 16 are the two ranks' batches of 8 together."""
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
        model = compiled(session)
        model.compile(model.optimizer, "mse", jit_compile=True)
        try:
            fit(model)
        except tf.errors.InvalidArgumentError as wrong:
            texts.append(str(wrong))
    return texts


MEET = os.environ["TITHE_FILE"]
results = {"backend": keras.backend.backend()}
options = {"timeout": 20.0, "patience": 120.0, "min_values": 0}
with tithe.Session.from_environment(codec="fp32", **options) as session:
    model, losses = fitted(session)
    results |= {"exact": bits(model), "rounds": session.stats()["rounds"], "keys": sorted(session.tensor_stats())}
    results["paths"] = sorted(v.path.split("/", 1)[1] for v in model.trainable_variables)
    results["off"] = max(
        float(np.abs(a - b).max()) for a, b in zip(model.get_weights(), alone().get_weights(), strict=True)
    )
    results["refusals"] = refusals(session)
results["plain"] = bits(fitted(Plain())[0])
results["whole"], results["resumed"] = resumed()
os.environ["TITHE_FILE"] = f"{MEET}-lossy"
with tithe.Session.from_environment(codec="fp8", **options) as session:
    model, losses = fitted(session, epochs=5)
    results |= {"lossy": bits(model), "first": losses[0], "last": losses[-1]}
print(json.dumps(results))
