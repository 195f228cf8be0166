# SPDX-License-Identifier: Apache-2.0
"""The library does not change the signals of its process: at import, with a session, and after it."""

import os
import signal
import subprocess
import sys

import pytest

SESSION = """
import numpy as np
session = tithe.Session.open(0, 1, lambda mine: [mine], codec="fp32", transport="{transport}")
session.wait(session.sync({{"w": np.ones(5000, "f4")}}))
session.commit()
"""
IMPORT = "import tithe\n"
USES = {
    "imported": IMPORT,
    "ucx open": IMPORT + SESSION.format(transport="ucx"),
    "ucx closed": IMPORT + SESSION.format(transport="ucx") + "session.close()\n",
    "tcp open": IMPORT + SESSION.format(transport="tcp"),
    "torch": "import tithe.torch\n",
}
SHOW = """
def signals():
    with open("/proc/self/status") as lines:
        return [line.split()[1] for line in lines if line.startswith(("SigCgt", "SigIgn"))]
"""


def run(text):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UCX_")}
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, env=environment)


@pytest.mark.parametrize("use", USES)
def test_no_signal_handler_is_installed(use):
    before = "import numpy\n" + ("import torch\n" if use == "torch" else "") + SHOW + "before = signals()\n"
    done = run(before + USES[use] + "print(before == signals(), before, signals())")
    assert done.stdout.startswith("True"), done.stdout + done.stderr


@pytest.mark.parametrize("use", USES)
def test_closed_terminal_ends_the_process(use):
    done = run(USES[use] + "import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\nimport time\ntime.sleep(20)")
    assert done.returncode == -signal.SIGHUP, (done.returncode, done.stderr)


@pytest.mark.parametrize("use", USES)
def test_faulthandler_shows_the_crash(use):
    crash = "import ctypes\ndef the_crash():\n    ctypes.string_at(0)\nthe_crash()"
    done = run("import faulthandler\nfaulthandler.enable()\n" + USES[use] + crash)
    assert done.returncode == -signal.SIGSEGV, done.returncode
    assert "Fatal Python error: Segmentation fault" in done.stderr and "the_crash" in done.stderr, done.stderr


def test_requested_ucx_handlers_are_kept():
    text = SHOW + "before = signals()\nimport tithe\nprint(before == signals())"
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"UCX_HANDLE_ERRORS": "bt", "UCX_ERROR_SIGNALS": "SIGSEGV"},
    )
    assert done.stdout == "False\n", done.stdout + done.stderr
