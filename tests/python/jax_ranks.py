# SPDX-License-Identifier: Apache-2.0
"""One rank of a JAX job, for test_jax.py: python jax_ranks.py JOB. Prints the values that the test compares, as
JSON."""

import hashlib
import json
import os
import sys
import tempfile
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import io_callback

import tithe
import tithe.jax

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def parameters(dtype=jnp.float32, layers=4):
    keys = jax.random.split(jax.random.key(3), layers)
    return [{"kernel": 0.3 * jax.random.normal(k, (32, 32), dtype), "bias": jnp.zeros(32, dtype)} for k in keys]


def batch(rank, step):
    draws = np.random.default_rng(1000 * step + rank)
    x = draws.standard_normal((16, 32)).astype(np.float32)
    return x, np.tanh(x[:, ::-1])


def loss_of(params, data):
    x, y = data
    for layer in params:
        x = jnp.tanh(x.astype(layer["kernel"].dtype) @ layer["kernel"] + layer["bias"])
    return jnp.mean((x.astype(jnp.float32) - y) ** 2)


def digest(tree):
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))).hexdigest()


def plain_step(optimizer):
    """Returns a step of one process with the gradients of all: the reference of the job."""

    @jax.jit
    def gradients(params, data):
        return jax.grad(loss_of)(params, data)

    @jax.jit
    def apply(params, state, *grads):
        mean = jax.tree.map(lambda *g: (sum(x.astype(jnp.float32) for x in g) / WORLD).astype(g[0].dtype), *grads)
        updates, state = optimizer.update(mean, state, params)
        return optax.apply_updates(params, updates), state

    return lambda params, state, step: apply(params, state, *(gradients(params, batch(r, step)) for r in range(WORLD)))


def averaging(session, dtype=jnp.float32, steps=5, **how):
    optimizer = optax.chain(tithe.jax.average(session, **how), optax.sgd(0.5))

    @jax.jit
    def step(params, state, data):
        loss, grads = jax.value_and_grad(loss_of)(params, data)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    params = parameters(dtype)
    state, losses = optimizer.init(params), []
    for number in range(steps):
        params, state, loss = step(params, state, batch(RANK, number))
        losses.append(float(loss))
    return params, losses


def exact(session):
    results = {}
    for dtype in (jnp.float32, jnp.bfloat16, jnp.float16):
        params, _ = averaging(session, dtype)
        optimizer = optax.sgd(0.5)
        step, alone = plain_step(optimizer), parameters(dtype)
        state = optimizer.init(alone)
        for number in range(5):
            alone, state = step(alone, state, number)
        results[dtype.__name__] = [digest(params), digest(alone)]
        session.restore(opened)  # sizes are equal and types change, as in a new session
    return results


def lossy(session):
    params, losses = averaging(session, steps=40)
    return [digest(params), losses[0], losses[-1], sorted(session.tensor_stats()), session.stats()["bytes_sent"]]


def typed(session):
    """Compares the typed XLA call with the callback: equal bits in both types, a large residual; its errors."""
    results = {}
    for dtype in (jnp.bfloat16, jnp.float16):  # bfloat16 is sent as float32
        ends = []
        for how in ({}, {"ffi": True}):
            params, losses = averaging(session, dtype, steps=3, **how)
            ends.append([digest(params), losses, hashlib.sha256(session.state()).hexdigest()])
            session.restore(opened)
        results[dtype.__name__] = ends
    grads = [jnp.ones((4, 1000)), jnp.zeros(0)]
    outside = tithe.jax.averaged(session, grads, ffi=True)
    again = tithe.jax.averaged(session, grads, ffi=True)
    results["outside"] = [float(outside[0].sum() + again[0].sum()), float(grads[0].sum()), outside[1].shape]
    step = jax.jit(lambda g: tithe.jax.averaged(session, g, ffi=True))
    step({"a": jnp.ones(5000)})
    if RANK == 1:
        jax.block_until_ready(step({"a": jnp.ones(5000)}))
        os._exit(7)
    jax.block_until_ready(step({"a": jnp.ones(5000)}))
    for _ in range(2):
        try:
            jax.block_until_ready(step({"a": jnp.ones(5000)}))
        except Exception as wrong:
            results.setdefault("lost", []).append(str(wrong))
    session.close()
    try:
        jax.block_until_ready(step({"a": jnp.ones(5000)}))
    except Exception as wrong:
        results["closed"] = str(wrong)
    return results


def overlapped(session):
    """Checks watch() and finish(): the result equals average(), and the last layer's gradients are sent while backward
    runs."""

    @jax.jit
    def step(params, data):
        loss, grads = jax.value_and_grad(lambda p: loss_of(tithe.jax.watch(session, p), data))(params)
        grads = tithe.jax.finish(session, grads)
        return jax.tree.map(lambda p, g: p - 0.5 * g, params, grads), loss

    params = parameters()
    for number in range(5):
        params, _ = step(params, batch(RANK, number))
    jax.block_until_ready(params)
    rounds = session.stats()["rounds"]
    optimizer = optax.sgd(0.5)
    plain, alone = plain_step(optimizer), parameters()
    state = optimizer.init(alone)
    for number in range(5):
        alone, state = plain(alone, state, number)
    return [digest(params), digest(alone), rounds]


def early(session):
    """Checks that the last layer's gradients are handed over before backward reaches the first layer."""
    handed, seen = threading.Event(), []

    class Recorder:
        """A session that signals when an array is handed over."""

        def __getattr__(self, name):
            return getattr(session, name)

        def sync(self, arrays):
            handed.set()
            return session.sync(arrays)

    recorder = Recorder()

    @jax.custom_vjp
    def gate(x):
        return x

    def stop(_, gradient):
        def wait(_):
            seen.append(handed.wait(60))
            return np.zeros((), np.float32)

        came = io_callback(wait, jax.ShapeDtypeStruct((), jnp.float32), gradient)
        return (jax.lax.optimization_barrier((gradient, came))[0],)

    gate.defvjp(lambda x: (x, None), stop)

    def loss(params, x):
        params = tithe.jax.watch(recorder, params)
        x = gate(jnp.tanh(x @ params[0]["kernel"]))
        for layer in params[1:]:
            x = jnp.tanh(x @ layer["kernel"])
        return jnp.mean(x**2)

    @jax.jit
    def step(params, x):
        return tithe.jax.finish(recorder, jax.grad(loss)(params, x))

    jax.block_until_ready(step([{"kernel": layer["kernel"]} for layer in parameters()], batch(RANK, 0)[0]))
    return seen == [True]


def devices(session):
    """Averages gradients on both devices of a process."""
    from jax.sharding import NamedSharding, PartitionSpec

    try:
        tithe.jax.averaged(session, [jnp.ones(3)], ffi=True)
    except ValueError as wrong:
        refused = str(wrong)
    mesh = jax.make_mesh((2,), ("d",))
    split, whole = NamedSharding(mesh, PartitionSpec("d")), NamedSharding(mesh, PartitionSpec())
    optimizer = optax.chain(tithe.jax.average(session), optax.sgd(0.5))
    params = jax.device_put(parameters(), whole)

    @jax.jit
    def step(params, state, data):
        updates, state = optimizer.update(jax.grad(loss_of)(params, data), state, params)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for number in range(3):
        params, state = step(params, state, jax.device_put(batch(RANK, number), split))
    return [len(jax.devices()), digest(params), session.stats()["rounds"], refused]


def local_steps(session):
    """Makes four steps on each rank alone, then all ranks continue from the mean of their changes."""
    inner = optax.sgd(0.1, momentum=0.5)

    @jax.jit
    def step(params, state, data):
        updates, state = inner.update(jax.grad(loss_of)(params, data), state, params)
        return optax.apply_updates(params, updates), state

    def drift(outer, rank, first):
        params, state = outer, inner.init(outer)
        for number in range(first, first + 4):
            params, state = step(params, state, batch(rank, number))
        return jax.tree.map(jnp.subtract, outer, params)

    outer = alone = parameters()
    for first in (0, 4, 8):
        mean = tithe.jax.averaged(session, drift(outer, RANK, first))
        outer = jax.tree.map(jnp.subtract, outer, mean)
        drifts = [drift(alone, rank, first) for rank in range(WORLD)]
        alone = jax.tree.map(lambda p, *d: p - sum(d) / WORLD, alone, *drifts)
    return [digest(outer), digest(alone), session.stats()["rounds"]]


def resumes(session):
    """Makes three steps, then three more: in the same session, and in another one that continues from the saved
    state."""

    def trained(session, params, state, steps):
        optimizer = optax.chain(tithe.jax.average(session), optax.adam(0.01))
        state = optimizer.init(params) if state is None else state

        @jax.jit
        def step(params, state, data):
            updates, state = optimizer.update(jax.grad(loss_of)(params, data), state, params)
            return optax.apply_updates(params, updates), state

        for number in steps:
            params, state = step(params, state, batch(RANK, number))
        return jax.block_until_ready((params, state))

    half = trained(session, parameters(), None, range(3))
    saved = session.state()
    whole, _ = trained(session, *half, range(3, 6))
    os.environ["TITHE_FILE"] += "-again"
    with tithe.Session.from_environment(**OPTIONS) as again:
        again.restore(saved)
        resumed, _ = trained(again, *half, range(3, 6))
    left = sum(float(np.abs(session.residual(name, t["values"])).sum()) for name, t in session.tensor_stats().items())
    return [digest(whole), digest(resumed), left]


def refusals(session):
    texts = []
    for tree in ({"a": jnp.zeros(3, jnp.int32)}, {"b": {"c": jnp.zeros(3, jnp.complex64)}}):
        try:
            jax.jit(lambda g: tithe.jax.averaged(session, g))(tree)
        except ValueError as wrong:
            texts.append(str(wrong))
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        for name, value in (("TITHE_CXX", "none"), ("TITHE_CACHE", folder)):
            os.environ[name] = value
            try:
                tithe.jax.averaged(session, {"a": jnp.zeros(3)}, ffi=True)
            except ValueError as wrong:
                texts.append(str(wrong))
            del os.environ[name]
    unfinished = jax.jit(jax.grad(lambda params: jnp.sum(tithe.jax.watch(session, params)["w"] ** 2)))
    try:
        for _ in range(2):
            jax.block_until_ready(unfinished({"w": jnp.ones(3)}))
    except Exception as wrong:
        texts.append(str(wrong))
    if RANK == 1:
        time.sleep(0.5)
        os._exit(7)
    try:
        jax.block_until_ready(jax.jit(lambda g: tithe.jax.averaged(session, g))({"a": jnp.zeros(5000)}))
    except Exception as wrong:
        texts.append(str(wrong))
    return texts


job = sys.argv[1]
exact_jobs, sparse_jobs = ("exact", "overlapped", "local_steps"), ("resumes", "typed")
codec = {**dict.fromkeys(exact_jobs, "fp32"), **dict.fromkeys(sparse_jobs, "topk:ratio=0.1")}.get(job, "fp8")
OPTIONS = {"codec": codec, "min_values": 0, "timeout": 20.0, "patience": 120.0}
with tithe.Session.from_environment(**OPTIONS) as session:
    opened = session.state()
    print(json.dumps(globals()[job](session)))
