# SPDX-License-Identifier: Apache-2.0
"""tithe.Error, made in Python."""

from tithe import _core


def error(code: str, peer: int | None, text: str) -> Exception:
    """A tithe.Error as the engine makes them."""
    made = _core.Error(text)
    made.code = code
    made.peer = peer
    return made
