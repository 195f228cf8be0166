# SPDX-License-Identifier: Apache-2.0
"""Settings of attach() for models that are sharded over all ranks: defaults, rules, and refused options."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tithe import _core
from tithe._choices import choices_text, is_lossless, rules_of
from tithe._codec import decode, encode

LOSSLESS = ("delta", "zip", "uncompressed")  # values of weights= without loss
WEIGHTS = "weights"  # keys of all-gathers: weights.<type>/<module>
GRADIENTS = "eden:bits=4,scale=unbiased"
# By type: the codec that sends the values unchanged
_EXACT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
# The largest relative errors of one encoding. fp8 has 0.03 (e4m3) or 0.05 (e5m2), integers have 0.01 with 8 bits and
# 0.1 to 0.2 with 4 bits, eden has 0.1 with 4 bits and 0.35 with 2 bits, signs have 0.6.
_WEIGHTS_ERROR, _BIASED_ERROR = 1 / 16, 1 / 4
_TAKEN = {
    "authenticate", "choices", "force_reference", "hosts", "lanes", "link", "loss_scale", "measure",
    "min_values", "pacer", "part_values", "patience", "run", "seed", "timeout", "trace", "transport",
}  # fmt: skip
_CURES = {
    "average": "FSDP2 says for each reduce-scatter whether it sums or averages",
    "device": "the codecs of these collectives run on the CPU",
    "process_group": "the model's mesh has it",
    "parameters": "they are the model's",
}


def weights_rules(weights: str) -> dict[str, str]:
    """Returns rules for all-gathers, by the type of the weights."""
    if weights == "uncompressed":
        chosen = dict(_EXACT)
    elif weights in ("delta", "zip"):
        chosen = {**dict.fromkeys(_EXACT, "zip"), "float16": "fp16"}  # zip converts float16 to float32
    else:
        if fault := _fault(_core.check_codec(weights), _WEIGHTS_ERROR):
            raise ValueError(
                f"weights={weights!r}: the codec {fault}, and weights are gathered without error feedback: leave "
                "weights out for 'delta', which has no loss, or use 'fp8' or another codec of about 8 bits"
            )
        chosen = dict.fromkeys(_EXACT, weights)
    rules = {f"{WEIGHTS}.{dtype}/*": codec for dtype, codec in chosen.items()}
    if weights == "delta":
        rules |= {f"{WEIGHTS}.delta.{dtype}/*": "zip" for dtype in ("bfloat16", "float16")}
    return rules


def refuse_unfit(given: Mapping[str, Any], optimizer: Any) -> None:
    """ValueError for options that have no meaning if a model is sharded over all ranks."""
    if optimizer is not None:
        raise ValueError(
            "optimizer= is for codecs with error feedback, and a model that is sharded over all ranks has none: leave "
            "it out, any optimizer serves"
        )
    for name in given:
        if name not in _TAKEN:
            why = f" ({_CURES[name]})" if name in _CURES else ""
            raise ValueError(f"{name}= is not for a model that is sharded over all ranks{why}: leave it out")


def check_gradients(codec: str, choices: str) -> None:
    """ValueError if measurements choose the codec, or if the codec would keep a residual."""
    if _core.is_auto(codec):
        raise ValueError(
            f"codec={codec!r} plans all-reduces, and a model that is sharded over all ranks has none: name a codec, or "
            f"leave codec out for {GRADIENTS}"
        )
    for spec in (codec, *_codecs_of(choices)):
        fault = _fault(_core.check_codec(spec), math.inf if _is_unbiased(spec, unknown=True) else _BIASED_ERROR)
        if keeps_residual(spec):
            plain = f"{spec}{',' if ':' in spec else ':'}feedback=none"
            cure = "" if fault or "feedback=" in spec else f", or accept the codec's error in every step by {plain!r}"
            raise ValueError(
                f"codec {spec!r} works by error feedback, which would keep 8 bytes per parameter of the whole model on "
                f"every rank: leave codec out for {GRADIENTS!r}, which needs none{cure}"
            )
        if fault:
            raise ValueError(
                f"codec {spec!r} {fault}, and a model that is sharded over all ranks has no error feedback: leave "
                f"codec out for {GRADIENTS!r}, or use an unbiased codec, or one of 3 bits or more"
            )


def _fault(spec: str, most: float) -> str:
    """Returns why a codec without error feedback damages the values, or "". most: the largest relative error."""
    traits = _traits(spec)
    if len(traits.get("phases", ())) > 1:
        return "needs several exchanges between ranks"
    if traits.get("selects"):
        return "sends a selection of the values"
    error = _relative_error(spec)
    return f"has a relative error of {error:.0%}" if error > most else ""


@functools.cache
def _relative_error(spec: str) -> float:
    """Returns the error of one encoding of small normally distributed values, in norm."""
    values = np.random.default_rng(0).normal(0, 2**-10, 4096).astype(np.float32)
    return float(np.linalg.norm(decode(encode(spec, values), spec=spec) - values) / np.linalg.norm(values))


def _traits(spec: str) -> dict[str, Any]:
    """Returns the codec's entry in tithe.codecs(), or {} for a codec that is not in this build, such as a user's."""
    name = spec.partition(":")[0]
    return next((each for each in _core.codecs() if each["name"] == name), {})


def _is_unbiased(spec: str, unknown: bool = False) -> bool:
    return "scale=unbiased" in spec or _traits(spec).get("unbiased", unknown)


def any_residual(given: Mapping[str, Any]) -> bool:
    """Returns True if the codec, or one of a rule, would keep a residual in a reduce-scatter."""
    return _any_residual(given["codec"], choices_text(given.get("choices")))


@functools.cache  # a process group calls it for every collective
def _any_residual(codec: str, choices: str) -> bool:
    return any(map(keeps_residual, (codec, *_codecs_of(choices))))


def keeps_residual(spec: str) -> bool:
    """Returns True if a reduce-scatter has error feedback under this codec (docs/reference/sharded_rounds.md,
    Feedback)."""
    settings = _core.check_codec(spec)
    if "feedback=" in settings:
        return "feedback=none" not in settings
    return not (is_lossless(settings) or _is_unbiased(settings))


def _codecs_of(choices: str) -> list[str]:
    """Returns the codecs of all rules."""
    return [codec for rule in rules_of(choices) if isinstance(codec := rule.get("codec"), str)]
