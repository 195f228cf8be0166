# SPDX-License-Identifier: Apache-2.0
"""Keras under model.fit with an optimizer that averages gradients over processes, on any of its backends.

torchrun, mpirun or Slurm start it; by hand: RANK=0 WORLD_SIZE=2 TITHE_FILE=/tmp/meet python examples/train_keras.py &
                                             RANK=1 WORLD_SIZE=2 TITHE_FILE=/tmp/meet python examples/train_keras.py
"""

import tithe.keras  # isort: skip (before TensorFlow, which brings an OpenSSL of its own)

import keras
import numpy as np

import tithe

with tithe.Session.from_environment(codec="fp8") as session:
    keras.utils.set_random_seed(0)  # the same weights on all ranks
    model = keras.Sequential(
        [keras.layers.Input((256,)), keras.layers.Dense(512, "relu"), keras.layers.Dense(10, "softmax")]
    )
    truth = np.random.default_rng(0).standard_normal((256, 10))
    x = np.random.default_rng(1 + session.rank).standard_normal((2560, 256)).astype(np.float32)
    y = (x @ truth).argmax(1)

    optimizer = tithe.keras.distributed(keras.optimizers.Adam(1e-3), session)
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=keras.backend.backend() == "jax")
    losses = model.fit(x, y, batch_size=64, epochs=2, verbose=0).history["loss"]
    if session.rank == 0:
        sent = session.stats()
        print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}; {sent['bytes_sent']:,} bytes, not {sent['dense_bytes']:,}")
