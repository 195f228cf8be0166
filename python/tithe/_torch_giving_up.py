# SPDX-License-Identifier: Apache-2.0
"""A session that this process ends while something waits: what is said of it, here and to the other ranks."""

import contextlib
from collections.abc import Sequence

from tithe import _core
from tithe._exchange import error
from tithe._torch_checks import some

_NOW = (
    "The session is over: state_dict() gives the state of the last step that counted. Restart from a checkpoint, in as "
    "many ranks as there are (docs/elastic.md)"
)


def give_up(session: _core.Session, causes: list[BaseException], cause: BaseException) -> None:
    """Ends what the session does, for a cause that later calls raise again. The other ranks hear of it now."""
    causes.append(cause)
    with contextlib.suppress(ValueError):  # closed already
        session.cancel()


def interrupted(by: BaseException) -> Exception:
    """For those who come after a wait was left by Ctrl-C, or by what the handler of another signal raised."""
    what = "Ctrl-C" if isinstance(by, KeyboardInterrupt) else type(by).__name__
    return error("cancelled", None, f"{what} ended this rank's wait for the other ranks. {_NOW}")


def left() -> Exception:
    """Of a step whose backward raised something, or was interrupted, after its first bucket was handed over."""
    return error(
        "cancelled",
        None,
        "a backward was left before its end, by an error or by Ctrl-C, so that this rank has no gradients of a step "
        f"that the other ranks wait for. {_NOW}, or load that state into a new State",
    )


def never_came(places: Sequence[int], names: Sequence[str], patience: float) -> Exception:
    """Of a step whose last bucket was not handed over. places: the buckets that were; names: what they lack."""
    came = ", ".join(map(str, places))
    return error(
        "timeout",
        None,
        f"backward handed over bucket{'s' if len(places) > 1 else ''} {came} and then nothing for {patience:g} s: the "
        f"buckets after {places[-1]} were waited for, since the gradients of a step come back together"
        + (f"; still without a gradient: {some(names)}" if names else "")
        + ". A hook returns its future and does not wait for it; parameters without a gradient need "
        f"find_unused_parameters=True. {_NOW}",
    )
