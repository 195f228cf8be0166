# SPDX-License-Identifier: Apache-2.0
"""A compiled module that is missing, foreign or without its libraries is described correctly, with a cure."""

import os
import platform
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def package(tmp_path):
    """Returns the package with its Python files only."""
    shutil.copytree(ROOT / "python/tithe", tmp_path / "tithe", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tmp_path / "tithe"


def refused(package):
    """Returns the last line of output of importing it."""
    done = subprocess.run(
        [sys.executable, "-c", "import tithe"],
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=False,
        cwd=package.parent,
    )
    assert done.returncode == 1
    assert "circular" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_missing(package):
    line = refused(package)
    assert line.startswith(f"ImportError: tithe in {package} has no compiled part (tithe._core) for Python 3.")
    assert "pip install ." in line and "make build" in line


def test_foreign(package):
    (package / "_core.cpython-39-aarch64-linux-gnu.so").write_bytes(b"")
    line = refused(package)
    assert f"was built for Python 3.9 on aarch64, this is Python {platform.python_version()}" in line
    assert "pip install ." in line


def test_broken(package):
    (package / f"_core{EXTENSION_SUFFIXES[0]}").write_bytes(b"no library")
    assert "does not load: " in refused(package)


@pytest.mark.parametrize(
    ("library", "line"),
    [
        ("libucp.so.99", "ImportError: tithe needs UCX: apt-get install libucx0"),
        ("libfmt.so.99", "ImportError: tithe needs libfmt.so.99: apt-get install libfmt9"),
        ("libfoo.so.99", "ImportError: tithe needs libfoo.so.99"),
    ],
)
def test_without_a_library(package, tmp_path, library, line):
    compiler = ["cc", "-shared", "-fPIC", "-x", "c", "/dev/null"]
    subprocess.run([*compiler, "-o", tmp_path / library, f"-Wl,-soname,{library}"], check=True)
    core = package / f"_core{EXTENSION_SUFFIXES[0]}"
    linked = ["-Wl,--no-as-needed", f"-L{tmp_path}", f"-l:{library}"]
    subprocess.run([*compiler, "-o", core, "-x", "none", *linked], check=True)
    (tmp_path / library).unlink()
    assert refused(package) == line


@pytest.mark.parametrize("module", ["torch", "accelerate", "lightning", "transformers"])
def test_without_torch(module):
    """Simulates a missing installation: the text names the command that installs it."""
    line = f"import sys; sys.modules['torch'] = None; import tithe, tithe.{module}"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=False)
    error = done.stderr.strip().splitlines()[-1]
    assert error.startswith(f"ImportError: tithe.{module} needs torch, and {sys.executable} has none: ")
    assert error.endswith("pip install 'tithe[torch]'")


def test_free_threaded_python_is_refused():
    code = "import sys; sys._is_gil_enabled = lambda: False; import tithe"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("set PYTHON_GIL=1")
