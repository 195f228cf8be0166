# SPDX-License-Identifier: Apache-2.0
"""JAX: one program over all processes, averaged by gloo (jax.distributed), beside tithe.jax."""

import os

import common
import jax
import jax.numpy as jnp
import numpy as np
import optax

import tithe
import tithe.jax


def scores(params, x):
    for k, (w, b) in enumerate(params):
        x = x @ w + b
        x = jax.nn.relu(x) if k < len(params) - 1 else x
    return x


def loss_of(params, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(scores(params, x), y).mean()


def begin():
    return [(jnp.asarray(w), jnp.zeros(w.shape[1])) for w in common.weights()]


def held_out(params):
    return np.asarray(scores([tuple(map(np.asarray, layer)) for layer in params], common.held_out()[0]))


def loop(step, params, state, put=lambda x: x):
    def one(number):
        nonlocal params, state
        params, state = jax.block_until_ready(step(params, state, *map(put, common.batch(number))))

    return common.timed(one, lambda: held_out(jax.device_get(params)))


def own():
    from jax.sharding import NamedSharding, PartitionSpec

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:29700", common.WORLD, common.RANK)
    mesh = jax.make_mesh((common.WORLD,), ("hosts",), axis_types=(jax.sharding.AxisType.Auto,))
    jax.set_mesh(mesh)
    split, whole = NamedSharding(mesh, PartitionSpec("hosts")), NamedSharding(mesh, PartitionSpec())
    optimizer = optax.adam(common.RATE)

    @jax.jit
    def step(params, state, x, y):
        updates, state = optimizer.update(jax.grad(loss_of)(params, x, y), state, params)
        return optax.apply_updates(params, updates), state

    params = jax.tree.map(lambda w: jax.make_array_from_process_local_data(whole, np.asarray(w)), begin())
    return loop(
        step, params, jax.jit(optimizer.init)(params), lambda x: jax.make_array_from_process_local_data(split, x)
    )


def average():
    with tithe.Session.from_environment(patience=600.0) as session:
        optimizer = optax.chain(tithe.jax.average(session), optax.adam(common.RATE))

        @jax.jit
        def step(params, state, x, y):
            updates, state = optimizer.update(jax.grad(loss_of)(params, x, y), state, params)
            return optax.apply_updates(params, updates), state

        return loop(step, begin(), optimizer.init(begin()))


def watch():
    with tithe.Session.from_environment(patience=600.0) as session:
        optimizer = optax.adam(common.RATE)

        @jax.jit
        def step(params, state, x, y):
            grads = jax.grad(lambda p: loss_of(tithe.jax.watch(session, p), x, y))(params)
            updates, state = optimizer.update(tithe.jax.finish(session, grads), state, params)
            return optax.apply_updates(params, updates), state

        return loop(step, begin(), optimizer.init(begin()))


common.main({"jax_average": {"own": own, "tithe": average}, "jax_watch": {"own": own, "tithe": watch}})
