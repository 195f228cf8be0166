# SPDX-License-Identifier: Apache-2.0
"""A jitted JAX step whose gradients are averaged over processes by tithe, as an optax transformation.

torchrun, mpirun or Slurm start it; by hand: RANK=0 WORLD_SIZE=2 TITHE_FILE=/tmp/meet python examples/average_jax.py &
                                             RANK=1 WORLD_SIZE=2 TITHE_FILE=/tmp/meet python examples/average_jax.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import tithe
import tithe.jax

with tithe.Session.from_environment(codec="fp8") as session:
    optimizer = optax.chain(tithe.jax.average(session), optax.adam(3e-3))
    first, second, truth = (0.05 * jax.random.normal(k, s) for k, s in zip(
        jax.random.split(jax.random.key(0), 3), ((256, 512), (512, 10), (256, 10)), strict=True
    ))  # fmt: skip
    params = {"first": first, "second": second}  # the same on all ranks, because of the same seed

    def loss_of(params, data):
        out = jax.nn.relu(data @ params["first"]) @ params["second"]
        return optax.softmax_cross_entropy_with_integer_labels(out, (data @ truth).argmax(1)).mean()

    @jax.jit
    def step(params, state, data):
        loss, grads = jax.value_and_grad(loss_of)(params, data)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    state, draws, losses = optimizer.init(params), np.random.default_rng(1 + session.rank), []
    for _ in range(40):
        params, state, loss = step(params, state, jnp.asarray(draws.standard_normal((64, 256)), jnp.float32))
        losses.append(float(loss))
    if session.rank == 0:
        sent = session.stats()
        print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}; {sent['bytes_sent']:,} bytes, not {sent['dense_bytes']:,}")
