# SPDX-License-Identifier: Apache-2.0
"""What a user gives as `choices=` (docs/choices.md), made into the one text that sessions take."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tithe import _core

Choices = Mapping[str, Any] | str | os.PathLike[str] | None


def choices_text(given: Choices) -> str:
    """JSON text of a dict, of JSON text itself, or of a file that holds it; "" for None. ValueError for others."""
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


def is_lossless(codec: str, choices: Choices = None) -> bool:
    """Whether nothing is ever left unsent, whatever the tensor."""
    return _core.is_lossless(codec, choices_text(choices))


def check_model(options: _core.Options, parameters: Iterable[tuple[str, Any]]) -> None:
    """ValueError where choices name a parameter that is not there; a warning for patterns that take none.

    parameters: (name, parameter) pairs, of all that are trained.
    """
    named = list(parameters)
    automatic = _core.is_auto(options.codec)
    if named and (options.choices or automatic):
        unmet = _core.unmet_rules(options, [name for name, _ in named], [p.numel() for _, p in named])
        if unmet:
            of = "codec auto, what is allowed" if automatic else "choices"
            warnings.warn(f"{of}: {'; '.join(unmet)}", RuntimeWarning, stacklevel=2)
