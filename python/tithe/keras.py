# SPDX-License-Identifier: Apache-2.0
"""tithe for Keras 3, on TensorFlow, JAX and PyTorch: an optimizer that averages gradients over processes.

    session = tithe.Session.from_environment(codec="fp8")
    model.compile(tithe.keras.distributed(keras.optimizers.Adam(1e-3), session), loss)
    model.fit(x, y)                                                           # each process its own part of the data

A loop of your own in TensorFlow calls averaged() between the tape's gradient and the optimizer's apply_gradients.

  names       the names of gradients and residuals are the variables' paths: "sequential/dense/kernel"
  a round     is a call of the optimizer, even without an update (gradient_accumulation_steps)
  types       float32, float16 and bfloat16
  TensorFlow  compile(jit_compile=False): XLA cannot call Python. IndexedSlices are refused by name
  imports     write import tithe.keras above import keras and import tensorflow
  weights     must be equal on all processes at the start: use keras.utils.set_random_seed(), or one file
"""

import sys
from collections.abc import Sequence
from typing import Any

from tithe import _core  # before TensorFlow: see _check_import_order()

try:
    import keras
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("tithe.keras needs Keras 3: pip install keras", name=error.name) from None
import numpy as np

from tithe._session import Session

__all__ = ["averaged", "distributed"]

_TYPES = ("float32", "float16", "bfloat16")


def _check_import_order() -> None:
    """Checks the import order. TensorFlow's library exports BoringSSL functions under OpenSSL's names, and a library
    that is loaded later would use them."""
    loaded = list(sys.modules)
    if "tensorflow" in loaded and loaded.index("tensorflow") < loaded.index(_core.__name__):
        raise ImportError(
            "TensorFlow was imported before tithe, and brings another OpenSSL, with which a session would crash: write "
            "import tithe.keras above import keras and import tensorflow"
        )


_check_import_order()


class _Averaging:
    """The first base class of the optimizer class that distributed() makes; its methods average the gradients."""

    _tithe_session: Session

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        variables = trainable_variables or self._trainable_variables
        means = averaged(self._tithe_session, [variable.path for variable in variables], grads)
        return super().apply(means, trainable_variables)


def distributed(optimizer: "keras.optimizers.Optimizer", session: Session) -> "keras.optimizers.Optimizer":
    """Returns an optimizer of the same class and settings that applies the mean of all processes' gradients.

    optimizer: one without steps so far; ValueError otherwise. The returned optimizer has no state.
    """
    if isinstance(optimizer, _Averaging):
        raise ValueError("this optimizer averages already: call tithe.keras.distributed() once")
    if optimizer.built:
        raise ValueError("this optimizer has been built for a model: call tithe.keras.distributed() before")
    kind = type(optimizer)
    made = type(kind.__name__, (_Averaging, kind), {}).from_config(optimizer.get_config())
    made._tithe_session = session
    return made


def averaged(session: Session, names: Sequence[str], grads: Sequence[Any]) -> list[Any]:
    """Returns the means over all processes of gradients, which are tensors of the backend. One round. None stays
    None."""
    there = [at for at, grad in enumerate(grads) if grad is not None]
    for at in there:
        kind = keras.backend.standardize_dtype(grads[at].dtype)
        if type(grads[at]).__name__ == "IndexedSlices":
            raise ValueError(
                f"the gradient of '{names[at]}' is sparse (IndexedSlices, as of an Embedding): give "
                "tf.convert_to_tensor(gradient)"
            )
        if kind not in _TYPES:
            raise ValueError(f"gradients of type {kind} are not supported: '{names[at]}'; use {', '.join(_TYPES)}")
    means = _BACKENDS[keras.backend.backend()](session, [names[at] for at in there], [grads[at] for at in there])
    out = list(grads)
    for at, mean in zip(there, means, strict=True):
        out[at] = mean
    return out


def _round(session: Session, arrays: dict[str, Any]) -> None:
    session.wait(session.sync(arrays))
    session.commit()


def _tensorflow(session: Session, names: list[str], grads: list[Any]) -> list[Any]:
    import tensorflow as tf

    def run(*values: Any) -> list[np.ndarray]:
        arrays = {name: np.array(value, order="C") for name, value in zip(names, values, strict=True)}
        _round(session, arrays)
        return list(arrays.values())

    wide = [tf.cast(grad, tf.float32) if grad.dtype == tf.bfloat16 else grad for grad in grads]
    # XLA's refusal contains the name of its node, the only part of the text that tithe controls.
    name = "tithe_needs_compile_with_jit_compile_False"
    means = tf.numpy_function(run, wide, [grad.dtype for grad in wide], stateful=True, name=name)
    for mean, grad in zip(means, grads, strict=True):
        mean.set_shape(grad.shape)
    return [tf.cast(mean, grad.dtype) for mean, grad in zip(means, grads, strict=True)]


def _jax(session: Session, names: list[str], grads: list[Any]) -> list[Any]:
    from tithe.jax import mean_of

    return mean_of(session, names, grads)


def _torch(session: Session, names: list[str], grads: list[Any]) -> list[Any]:
    hosted = [grad.detach().cpu().contiguous() for grad in grads]
    _round(session, dict(zip(names, hosted, strict=True)))
    return [mean.to(grad.device) for mean, grad in zip(hosted, grads, strict=True)]


_BACKENDS = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
