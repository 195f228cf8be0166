# SPDX-License-Identifier: Apache-2.0
"""The source distribution and the wheel made from it, once for all tests of this folder."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """sdist and wheel: the files; source: the unpacked sdist with its build folder."""
    out, work = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("work")
    before = sorted((ROOT / "python").rglob("*"))
    done = subprocess.run(
        [sys.executable, ROOT / "tools/wheel.py", out, work], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted((ROOT / "python").rglob("*")) == before, "a wheel leaves the tree as it was"
    (sdist,), (wheel,), (source,) = out.glob("*.tar.gz"), out.glob("*.whl"), work.glob("tithe-*")
    return SimpleNamespace(sdist=sdist, wheel=wheel, source=source)
