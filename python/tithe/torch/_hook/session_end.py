# SPDX-License-Identifier: Apache-2.0
"""Errors for which this process ends its session, and the function that ends it."""

import contextlib
import traceback
from collections.abc import Sequence

from tithe import _core
from tithe._error import error
from tithe.torch._common.checks import some

_NOW = (
    "The session is over: state_dict() gives the state of the last step that counted. Restart from a checkpoint, in as "
    "many ranks as there are (docs/guide/elastic.md)"
)


def clear_frames(error: BaseException) -> None:
    """Clears the frames of a traceback. An error refers to the frames that raised it, and these to pinned memory, so a
    stored error would keep the memory allocated."""
    traceback.clear_frames(error.__traceback__)


def end_session(session: _core.Session, causes: list[BaseException], cause: BaseException) -> None:
    """Cancels the session, so that the other ranks get an error at once. Later calls raise the first of `causes`."""
    causes.append(cause)
    with contextlib.suppress(ValueError):  # closed already
        session.cancel()


def interrupted(by: BaseException) -> Exception:
    """Returns the error of calls after a wait that Ctrl-C, or an exception of another signal's handler, has ended."""
    what = "Ctrl-C" if isinstance(by, KeyboardInterrupt) else type(by).__name__
    return error("cancelled", None, f"{what} ended this rank's wait for the other ranks. {_NOW}")


def left() -> Exception:
    """Returns the error of a step whose backward raised, or was interrupted, after its first bucket was handed over."""
    return error(
        "cancelled",
        None,
        "a backward was left before its end, by an error or by Ctrl-C, so that this rank has no gradients of a step "
        f"that the other ranks wait for. {_NOW}, or load that state into a new State",
    )


def missing_bucket(numbers: Sequence[int], names: Sequence[str], seconds: float, over: bool, finds: bool) -> Exception:
    """Returns the error of a step whose last bucket is missing.

    numbers: of the buckets so far. names: the parameters of the other buckets. over: whether this rank's backward has
    ended. finds: whether DDP already searches for unused parameters.
    """
    came = f"bucket{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
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
        f"backward handed over {came} and {ending}: the buckets after {numbers[-1]} were waited for, since the "
        "gradients of a step come back together"
        + (f"; still without a gradient: {some(names)}" if names else "")
        + f". Cure: {'; '.join(cures)}. {_NOW}",
    )


def step_timeout(seconds: float) -> Exception:
    """Returns the error of a call between steps that timed out while another thread's step was open. The session
    continues."""
    return error(
        "timeout",
        None,
        f"another thread is inside a step, which did not end within timeout={seconds:g} s: state_dict(), undo() and "
        "evaluated() need a moment between two steps. The session goes on: call again after a step, or raise timeout=",
    )
