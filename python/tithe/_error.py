# SPDX-License-Identifier: Apache-2.0
"""Constructs tithe.Error from Python."""

from tithe import _core


def error(code: str, peer: int | None, text: str) -> Exception:
    """Returns a tithe.Error with the same attributes as an error of the engine. peer: the rank that failed, or None."""
    made = _core.Error(text)
    made.code = code
    made.peer = peer
    return made
