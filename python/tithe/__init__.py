# SPDX-License-Identifier: Apache-2.0
"""tithe: data-parallel training over slow networks, with compressed gradients and error feedback.

import tithe            codecs, and sessions between any processes; needs numpy, not torch
import tithe.torch      the integration for PyTorch's DistributedDataParallel: import and attach()
"""

import sys as _sys

if not getattr(_sys, "_is_gil_enabled", lambda: True)():  # the compiled part relies on the GIL
    raise ImportError("tithe needs the GIL, and this free-threaded Python runs without: set PYTHON_GIL=1")

try:
    from tithe import _core as _core
except ImportError as error:
    from tithe._missing import explain

    raise ImportError(explain(error), name="tithe._core") from None

from tithe._codec import check_spec, codecs, decode, encode, strategies
from tithe._core import Error, __version__, check_environment
from tithe._membership import Membership
from tithe._session import Session, transports

__all__ = [
    "Error",
    "Membership",
    "Session",
    "__version__",
    "check_spec",
    "codecs",
    "decode",
    "encode",
    "strategies",
    "transports",
]

check_environment()  # ValueError if TITHE_TARGET names an instruction set that this machine lacks
del check_environment
