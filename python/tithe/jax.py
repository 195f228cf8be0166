# SPDX-License-Identifier: Apache-2.0
"""tithe for JAX: averages gradients over processes from inside a jitted step.

    session = tithe.Session.from_environment(codec="fp8")                    # each process its own JAX
    optimizer = optax.chain(tithe.jax.average(session), optax.adam(1e-3))

or, to begin the exchange while backward runs:

    loss, grads = jax.value_and_grad(lambda params: loss_of(tithe.jax.watch(session, params), batch))(params)
    grads = tithe.jax.finish(session, grads)

  names       the names of gradients and residuals are paths in the tree: "['dense']['kernel']" (jax.tree_util.keystr)
  types       float32, float16 and bfloat16, which is sent as float32. Tracing refuses others, by name
  a round     is a step: one average(), or one finish(). All processes make the same rounds
  devices     of one process: gradients on several devices are gathered for the callback, which is called once
  copies      values are copied to the host and back. The callback does not call JAX
  ffi         average(session, ffi=True): a typed XLA call, without copies, Python and its lock. It needs one device,
              a CPU, and the system's compiler at first use. XLA runs two such rounds of a step in any order: make one
  parameters  must be equal on all processes at the start: use the same seed, or one checkpoint
  errors      JAX raises its own types, with tithe's text in theirs; session.state() is of the last step that counted
"""

import threading
import weakref
from functools import partial
from typing import Any

try:
    import jax
    import jax.numpy as jnp
    from jax.experimental import io_callback
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("tithe.jax needs jax: pip install jax optax", name=error.name) from None
import numpy as np

from tithe._session import Session

__all__ = ["average", "averaged", "finish", "watch"]


def average(session: Session, *, ffi: bool = False) -> Any:
    """Returns an optax transformation that replaces this process's gradients by the mean over all processes.

    ffi: whether to use a typed XLA call instead of a callback; ValueError if that is impossible.
    """
    import optax

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return averaged(session, grads, ffi=ffi), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def averaged(session: Session, grads: Any, *, ffi: bool = False) -> Any:
    """Returns the mean over all processes of a tree of gradients, or of changes of parameters after many local steps
    (docs/guide/local_steps.md), inside or outside a jitted function. One round. ffi: as in average()."""
    return _tree_like(grads, mean_of(session, *_named(grads), ffi=ffi))


def mean_of(session: Session, names: list[str], grads: list[Any], *, ffi: bool = False) -> list[Any]:
    """Returns the means of a list of gradients, with the caller's names."""
    given = [jnp.asarray(grad, _host_type(grad)) for grad in grads]
    if ffi:
        from tithe import _jax_ffi

        means = _jax_ffi.mean_of(session, names, given)
    else:
        shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in given]
        means = io_callback(partial(_round, session, names), shapes, given, ordered=True)
    return [mean.astype(jnp.result_type(grad)) for mean, grad in zip(means, grads, strict=True)]


def watch(session: Session, params: Any) -> Any:
    """Returns the parameters; backward then hands over each gradient as soon as it is ready. Pair it with finish()."""
    named, leaves = _named(params)
    step = _step_of(session, named)
    return _tree_like(params, [_watched(leaf, step, at) for at, leaf in enumerate(leaves)])


def finish(session: Session, grads: Any) -> Any:
    """Returns the mean over all processes of the gradients that watch() handed over. grads: only their shapes are
    used."""
    named, leaves = _named(grads)
    step = _step_of(session, named)
    shapes = [jax.ShapeDtypeStruct(leaf.shape, _host_type(leaf)) for leaf in leaves]
    # The callback depends on one value of each gradient, so it runs after all of them.
    ends = [jnp.ravel(leaf)[:1] for leaf in leaves]
    return _tree_like(grads, io_callback(step.finish, shapes, ends, ordered=True))


def _named(tree: Any) -> tuple[list[str], list[Any]]:
    """Returns paths and leaves. ValueError names a leaf that cannot be averaged."""
    pairs, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = [jax.tree_util.keystr(path) or "value" for path, _ in pairs]
    for name, (_, leaf) in zip(named, pairs, strict=True):
        kind = jnp.result_type(leaf)
        if kind not in (jnp.float32, jnp.float16, jnp.bfloat16):
            raise ValueError(
                f"gradients of type {kind} are not supported: {name}; use float32, float16 or bfloat16 parameters, or "
                "optax.masked() around tithe.jax.average() for leaves that are not trained"
            )
    return named, [leaf for _, leaf in pairs]


def _host_type(leaf: Any) -> Any:
    """Returns the type of the copy on the host. Numpy has no bfloat16."""
    return jnp.float16 if jnp.result_type(leaf) == jnp.float16 else jnp.float32


def _tree_like(tree: Any, means: list[Any]) -> Any:
    leaves, shape = jax.tree_util.tree_flatten(tree)
    return shape.unflatten([mean.astype(jnp.result_type(leaf)) for mean, leaf in zip(means, leaves, strict=True)])


def _round(session: Session, named: list[str], values: list[Any]) -> list[np.ndarray]:
    arrays = {name: _own(value) for name, value in zip(named, values, strict=True)}
    session.wait(session.sync(arrays))
    session.commit()
    return list(arrays.values())


def _own(value: Any) -> np.ndarray:
    """Returns a writable copy of a callback's argument, which is read-only."""
    return np.array(value, order="C")


# ---- exchange during backward


class _Step:
    """The gradients of one step that were handed over.

    Backward may hand them over in any order, and all ranks need the same order. The session receives them in the
    reverse order of the tree, which is backward's order in most networks; a gradient that is ready early waits.
    """

    def __init__(self, session: Session, named: list[str]) -> None:
        self._session = weakref.ref(session)
        self._named = named
        self._lock = threading.Lock()
        self._early: dict[int, np.ndarray] = {}
        self._begun: dict[int, tuple[int, np.ndarray]] = {}  # ticket and values, by the leaf's number

    def begin(self, at: int, value: Any) -> np.ndarray:
        with self._lock:
            if at in self._early or at in self._begun:
                raise ValueError(
                    f"the gradient of {self._named[at]} came twice before finish(): one finish() to each backward"
                )
            self._early[at] = _own(value)
            following = len(self._named) - 1 - len(self._begun)
            while following in self._early:
                values = self._early.pop(following)
                self._begun[following] = (self._session().sync({self._named[following]: values}), values)
                following -= 1
        return np.zeros((), np.float32)

    def finish(self, ends: Any) -> list[np.ndarray]:
        session = self._session()
        with self._lock:
            begun, self._begun = self._begun, {}
            early, self._early = self._early, {}
        missing = [self._named[at] for at in range(len(self._named)) if at not in begun]
        if missing:
            raise ValueError(
                f"backward handed over nothing of {missing[0]} (and {len(missing) - 1 + len(early)} others): give "
                "tithe.jax.watch() the parameters that finish() has the gradients of"
            )
        for at in sorted(begun, reverse=True):
            session.wait(begun[at][0])
        session.commit()
        return [begun[at][1] for at in range(len(self._named))]


_steps: "weakref.WeakKeyDictionary[Session, dict[tuple[str, ...], _Step]]" = weakref.WeakKeyDictionary()


def _step_of(session: Session, named: list[str]) -> _Step:
    of_session = _steps.setdefault(session, {})
    return of_session.setdefault(tuple(named), _Step(session, named))


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _watched(leaf: Any, step: _Step, at: int) -> Any:
    return leaf


def _watched_forward(leaf: Any, step: _Step, at: int) -> tuple[Any, None]:
    return leaf, None


def _watched_backward(step: _Step, at: int, _: None, gradient: Any) -> tuple[Any]:
    token = io_callback(
        partial(step.begin, at), jax.ShapeDtypeStruct((), jnp.float32), gradient.astype(_host_type(gradient))
    )
    gradient, _ = jax.lax.optimization_barrier((gradient, token))
    return (gradient,)


_watched.defvjp(_watched_forward, _watched_backward)
