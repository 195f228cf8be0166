# SPDX-License-Identifier: Apache-2.0
"""A session that this process ends while something waits: what is said of it, here and to the other ranks."""

import contextlib
import traceback
from collections.abc import Sequence

from tithe import _core
from tithe._exchange import error
from tithe.torch._common.checks import some

_NOW = (
    "The session is over: state_dict() gives the state of the last step that counted. Restart from a checkpoint, in as "
    "many ranks as there are (docs/elastic.md)"
)


def lighten(error: BaseException) -> None:
    """An error holds the frames that it came through, and these hold pinned memory: who keeps it keeps none."""
    traceback.clear_frames(error.__traceback__)


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


def never_came(places: Sequence[int], names: Sequence[str], seconds: float, over: bool, finds: bool) -> Exception:
    """Of a step whose last bucket was not handed over. places: the buckets that were; names: parameters of the others.

    over: this rank's backward has ended. finds: DDP looks for unused parameters already.
    """
    came = f"bucket{'s' if len(places) > 1 else ''} {', '.join(map(str, places))}"
    ending = f"ended {seconds:g} s ago" if over else f"then nothing for {seconds:g} s"
    cures = []
    if not over:
        cures.append("a hook returns its future and does not wait for it")
    if not finds:
        cures.append("parameters without a gradient need DistributedDataParallel(find_unused_parameters=True)")
    if over:
        cures.append("a step of several backward() calls needs them within `timeout` of each other")
    return error(
        "timeout",
        None,
        f"backward handed over {came} and {ending}: the buckets after {places[-1]} were waited for, since the "
        "gradients of a step come back together"
        + (f"; still without a gradient: {some(names)}" if names else "")
        + f". Cure: {'; '.join(cures)}. {_NOW}",
    )


def busy(seconds: float) -> Exception:
    """Of a call that waited in vain for the end of another thread's step. The session goes on."""
    return error(
        "timeout",
        None,
        f"another thread is inside a step, which did not end within timeout={seconds:g} s: state_dict(), undo() and "
        "evaluated() need a moment between two steps. The session goes on: call again after a step, or raise timeout=",
    )
