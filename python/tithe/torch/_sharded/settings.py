# SPDX-License-Identifier: Apache-2.0
"""Settings of attach() for models that are sharded over all ranks: defaults, rules, and refused options."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from tithe import _core
from tithe._choices import choices_text, is_lossless, rules_of

LOSSLESS = ("delta", "zip", "uncompressed")  # values of weights= without loss
WEIGHTS = "weights"  # keys of all-gathers: weights.<type>/<module>
GRADIENTS = "eden:bits=4,scale=unbiased"
# By type: the codec that sends the values unchanged
_EXACT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_TAKEN = {
    "authenticate", "choices", "force_reference", "hosts", "lanes", "link", "loss_scale", "measure",
    "min_values", "pacer", "part_values", "patience", "run", "seed", "timeout", "trace", "transport",
}  # fmt: skip
_CURES = {
    "average": "FSDP2 says for each reduce-scatter whether it sums or averages",
    "device": "the collectives run on the CPU",
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
        _core.check_codec(weights)
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
        if keeps_residual(spec):
            plain = f"{spec}{',' if ':' in spec else ':'}feedback=none"
            raise ValueError(
                f"codec {spec!r} works by error feedback, which would keep 8 bytes per parameter of the whole model on "
                f"every rank: leave codec out for {GRADIENTS!r}, which needs none, or accept the codec's error in "
                f"every step by {plain!r}"
            )


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
    name = settings.partition(":")[0]
    unbiased = {each["name"]: each["unbiased"] for each in _core.codecs()}
    if "feedback=" in settings:
        return "feedback=none" not in settings
    return not (is_lossless(settings) or unbiased.get(name, False) or "scale=unbiased" in settings)


def _codecs_of(choices: str) -> list[str]:
    """Returns the codecs of all rules."""
    return [codec for rule in rules_of(choices) if isinstance(codec := rule.get("codec"), str)]
