# SPDX-License-Identifier: Apache-2.0
"""Functions for reported figures: a description of the machine, means, sizes."""

import os
import platform
from importlib.metadata import version
from pathlib import Path


def machine() -> str:
    info = Path("/proc/cpuinfo").read_text()
    models = {line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{', '.join(sorted(models)) or platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB,"
        f" Linux {platform.release()}, Python {platform.python_version()}, torch {version('torch')}"
    )


def mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)


def size(count: float) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
