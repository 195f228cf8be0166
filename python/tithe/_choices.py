# SPDX-License-Identifier: Apache-2.0
"""Converts the values of `choices=` (docs/guide/choices.md) to the JSON text that sessions take."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tithe import _core

_GROUP = "small ones"
_FEW_VALUES = 65_536  # 256 KiB of float32; less uncompressed data is not worth a warning

Choices = Mapping[str, Any] | str | os.PathLike[str] | None


def choices_text(given: Choices) -> str:
    """Returns the JSON text of a dict, of JSON text or of a file; "" for None. ValueError for any other value."""
    if given is None or given == "":
        return ""
    if isinstance(given, Mapping):
        try:
            return json.dumps(given)
        except (TypeError, ValueError) as wrong:
            raise ValueError(f"choices: not JSON: {wrong}") from None
    if isinstance(given, str) and given.lstrip().startswith("{"):
        return given
    if not isinstance(given, (str, os.PathLike)):
        raise ValueError(f"choices={given!r}: give a dict, JSON text, or the path of a file that holds it")
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as wrong:
        raise ValueError(f"choices={os.fspath(given)!r}: {wrong}; give a dict, JSON text, or a file's path") from None


def rules_of(text: str) -> list[dict[str, Any]]:
    """Returns the rules of choices, in the long form. Wrong choices have none: the session refuses them later."""
    try:
        given = json.loads(text) if text else {}
    except ValueError:
        return []
    if not isinstance(given, dict):
        return []
    if isinstance(given.get("rules"), list):
        return [dict(rule) for rule in given["rules"] if isinstance(rule, dict)]
    return [
        {("size" if key.lstrip().startswith(("<", ">")) else "match"): key}
        | (dict(rule) if isinstance(rule, dict) else {"codec": rule})
        for key, rule in given.items()
    ]


def add_rules(before: Mapping[str, Any], text: str, after: Mapping[str, Any] | None = None) -> str:
    """Returns the choices with rules, in the short form, added before and after them. ValueError if the text is not
    JSON."""
    after = after or {}
    if not before and not after:
        return text
    try:
        given = json.loads(text) if text else {}
    except ValueError as wrong:
        raise ValueError(f"choices: not JSON: {wrong}") from None
    if not isinstance(given, dict):
        return text
    if isinstance(given.get("rules"), list):
        first, last = ([{"match": match, "codec": codec} for match, codec in r.items()] for r in (before, after))
        return json.dumps({**given, "rules": [*first, *given["rules"], *last]})
    return json.dumps({**before, **given, **{match: rule for match, rule in after.items() if match not in given}})


def is_lossless(codec: str, choices: Choices = None) -> bool:
    """Returns True if no tensor has a residual under this codec and these choices."""
    return _core.is_lossless(codec, choices_text(choices))


def check_model(options: _core.Options, parameters: Iterable[tuple[str, Any]]) -> None:
    """Raises ValueError if choices name a missing parameter. Warns of each pattern that matches no parameter.

    parameters: (name, parameter) pairs of all trained parameters.
    """
    named = list(parameters)
    automatic = _core.is_auto(options.codec)
    if named and (options.choices or automatic):
        unmet = _core.unmet_rules(options, [name for name, _ in named], [p.numel() for _, p in named])
        if unmet:
            of = "codec auto, allowed codecs" if automatic else "choices"
            warnings.warn(f"{of}: {'; '.join(unmet)}", RuntimeWarning, stacklevel=2)


def clipped(codec: str, clip: float) -> str:
    """Returns the codec's spec with clip= appended. ValueError for a wrong number, and for a spec that already has
    clip=."""
    if clip == 0:
        return codec
    if not isinstance(clip, int | float) or not 0 < clip < math.inf:
        raise ValueError(f"clip={clip!r}: must be a finite number above 0, or 0 for none")
    if _core.is_auto(codec):
        raise ValueError(f"clip={clip:g} needs a codec that stays, and codec={codec!r} changes it: name one")
    if "clip=" in codec:
        raise ValueError(f"clip={clip:g}, and codec={codec!r} has a clip as well: leave out one of the two")
    return f"{codec}{',' if ':' in codec else ':'}clip={clip!r}"


def warn_uncompressed(options: _core.Options, parameters: Iterable[tuple[str, Any]]) -> None:
    """Warns, with the cure, if uncompressed small tensors make up most of the bytes of a step."""
    named = list(parameters)
    if _core.is_auto(options.codec) or _core.is_lossless(options.codec, options.choices):
        return
    small = _core.sends_uncompressed(options, [name for name, _ in named], [p.numel() for _, p in named])
    if small["uncompressed_values"] < _FEW_VALUES or 4 * small["uncompressed_values"] < small["other_bytes"]:
        return
    share = 4 * small["uncompressed_values"] / (4 * small["uncompressed_values"] + small["other_bytes"])
    codec = _codec_for_groups(options)
    rule = {f"< {small['min_values']}": {"codec": codec, "group": _GROUP}}
    cure = f"add to choices: {rule}" if options.choices else f"choices={rule}"
    warnings.warn(
        f"{small['uncompressed_tensors']:,} parameters of fewer than {small['min_values']} values are sent "
        f"uncompressed, as fp32, and are {share:.0%} of all bytes sent, so codec {options.codec} can save little. To "
        f"send them by {codec}, those of a bucket together: {cure} (docs/guide/choices.md, Groups)",
        RuntimeWarning,
        stacklevel=2,
    )


def _codec_for_groups(options: _core.Options) -> str:
    """Returns the session's codec if it can encode a group of tensors, else the default codec."""
    grouped = _core.Options()
    default = grouped.codec
    grouped.codec, grouped.strategy = options.codec, options.strategy
    grouped.choices = json.dumps({"< 4096": {"codec": options.codec, "group": _GROUP}})
    try:
        _core.check_choices(grouped)
    except ValueError:
        return default
    return options.codec
