# SPDX-License-Identifier: Apache-2.0
"""Explains why the compiled module tithe._core did not load, and gives the cure."""

from __future__ import annotations

import platform
import re
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

# Debian and Ubuntu package names of shared libraries.
_UCX = ("libucp", "libucs", "libuct", "libucm")
_PACKAGES = {"libfmt": "libfmt9", "libhwy": "libhwy1", "libxxhash": "libxxhash0", "libcrypto": "libssl3"}


def no_torch(module: str, error: ModuleNotFoundError) -> ImportError:
    """Returns the exception to raise if torch is missing; `error` itself if another module is missing."""
    if (error.name or "").split(".")[0] != "torch":
        return error
    return ImportError(
        f"{module} needs torch, and {sys.executable} has none: pip install torch, or pip install 'tithe[torch]'",
        name="torch",
    )


def explain(error: ImportError, folder: Path = Path(__file__).parent) -> str:
    """Returns the explanation on one line. folder: the folder that should contain the compiled module."""
    this = f"{platform.python_version()} on {platform.machine()}"
    there = sorted(path.name for path in folder.glob("_core.*.so"))
    library = re.match(r"(lib[\w+-]+)\.so\S*: cannot open shared object file", str(error))
    if library and library[1] in _UCX:
        return "tithe needs UCX: apt-get install libucx0"
    if library:
        package = _PACKAGES.get(library[1])
        return f"tithe needs {library[0].split(':')[0]}" + (f": apt-get install {package}" if package else "")
    if any(name == f"_core{suffix}" for name in there for suffix in EXTENSION_SUFFIXES):
        return f"tithe's compiled part, {folder / there[0]}, does not load: {error}"
    for name in there:
        if built := re.match(r"_core\.cpython-(\d)(\d+)-(\w+?)-", name):
            return (
                f"tithe in {folder} was built for Python {built[1]}.{built[2]} on {built[3]}, this is Python {this}: "
                f"build it for this one ({sys.executable} -m pip install . in its sources), or run python{built[1]}."
                f"{built[2]}"
            )
    return (
        f"tithe in {folder} has no compiled part (tithe._core) for Python {this}: `pip install .` in its sources, or "
        "`make build` to use it from the tree"
    )
