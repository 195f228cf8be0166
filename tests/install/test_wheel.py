# SPDX-License-Identifier: Apache-2.0
"""The wheel, in an environment of its own, far from the tree: what it holds, two ranks, types, an editable install."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT = os.environ.get("TITHE_BIN", ROOT / "build/tithe")
# Nothing of the tree may help, and no launcher's variables either.
CLEAN = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TITHE_", "UCX_"))},
    "GLOO_SOCKET_IFNAME": "lo",
    "UCX_NET_DEVICES": "lo",
    "OMP_NUM_THREADS": "1",
}


def run(*command, cwd, **more):
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=300,
        **{"env": CLEAN, **more},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(folder):
    """A virtual environment that has numpy and torch from this one, but nothing of the tree."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin/python"


def pip(python, *words, **more):
    ask = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "--no-deps"]
    return run(*ask, "--no-index", *words, cwd="/", **more)


@pytest.fixture(scope="module")
def installed(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fresh")
    python = environment(folder / "venv")
    pip(python, made.wheel)
    for example in ROOT.glob("examples/*.py"):
        shutil.copy(example, folder)
    return folder, python


def test_sdist_contains_exactly_the_build_inputs(made):
    with tarfile.open(made.sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    tops = {name.split("/")[0] for name in names}
    assert tops == {
        *("advisor", "apps", "card", "cmake", "examples", "include", "lab", "lang", "python", "src"),
        *("codecs", "data"),  # the command carries them
        *("CMakeLists.txt", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "PKG-INFO"),
    }
    tested = ("src/", "lang/", "advisor/", "card/")  # apps has a verb whose file ends in _test.cc
    assert not [name for name in names if name.startswith(tested) and name.endswith("_test.cc")]
    assert not [name for name in names if name.endswith((".so", ".pyi", ".pyc")) or "results" in name]
    folders = ("include", "src", "lang", "advisor", "card/app", "card/model", "lab/hosts", "apps", "cmake")
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    wanted = set(listed.stdout.split())
    assert {name for name in wanted if not (name.startswith(tested) and name.endswith("_test.cc"))} <= names


def test_import_works_from_any_folder_and_gives_the_version(made, installed):
    folder, python = installed
    ask = "import tithe; print(tithe.__file__, tithe.__version__)"
    file, version = run(python, "-c", ask, cwd=folder).split()
    assert file.startswith(str(folder)) and f"tithe-{version}" in made.sdist.name
    assert run(python.with_name("tithe"), "--version", cwd=folder) == f"tithe {version}\n"


def ucx_transports(tithe, folder):
    """Returns the transports that the UCX of a command finds here."""
    doctor = json.loads(run(tithe, "doctor", "--json", cwd=folder))
    (ucx,) = (finding for finding in doctor["findings"] if finding["name"] == "ucx")
    return {device.split("/")[0] for device in ucx["details"]["devices"]}


def test_wheel_contains_ucx_and_its_modules(installed):
    folder, python = installed
    code = (
        "import tithe, threading\n"
        "ranks = [None, None]\n"
        "lines = {line.split()[-1] for line in open('/proc/self/maps') if '.so' in line}\n"
        "print(*(line for line in lines if 'libucp' in line or 'libfmt' in line or 'libhwy' in line))"
    )
    loaded = run(python, "-c", code, cwd=folder).split()
    assert len(loaded) == 3
    assert all(path.startswith(str(folder)) for path in loaded), "the machine's own libraries are not used"
    wheel, build = (ucx_transports(tithe, folder) for tithe in (python.with_name("tithe"), BUILT))
    assert {"tcp", "posix"} <= wheel == build
    (modules,) = python.parents[1].glob("lib/python*/site-packages/tithe.libs/ucx")
    assert {path.name.split(".")[0] for path in modules.iterdir()} >= {"libuct_cma", "libuct_ib"}
    for module in modules.glob("libuct_cma.*"):
        assert "not found" not in run("ldd", module, cwd=folder)


def test_two_ranks_with_only_numpy(installed):
    folder, python = installed
    ranks = [
        subprocess.Popen(
            [python, folder / "average_numpy.py"],
            env={**CLEAN, "RANK": str(r), "WORLD_SIZE": "2", "TITHE_FILE": str(folder / "meet")},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in range(2)
    ]
    for r, process in enumerate(ranks):
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert out == f"rank {r} of 2: mean 0.5\n"


def test_two_ranks_of_ddp_under_torchrun(installed):
    folder, python = installed
    torchrun = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    assert "bytes per step, an fp32 all-reduce sends" in run(*torchrun, folder / "train_ddp.py", cwd=folder)


def test_help_shows_the_arguments_of_attach(installed):
    folder, python = installed
    text = run(python, "-c", "import tithe.torch; help(tithe.torch.attach)", cwd=folder)
    assert "attach(model:" in text and "codec: str" in text and "Collective" in text


def test_types_are_checked(installed):
    folder, _ = installed
    right = 'import tithe\n\nframe: bytes = tithe.encode("fp32", [1.0])\npeer: int | None = tithe.Error().peer\n'
    for text, code, expected in [
        (right, 0, "Success"),
        (right + "rank: str = tithe.Session.loop(1)[0].rank\n", 1, '"int", variable has type "str"'),
    ]:
        (folder / "typed.py").write_text(text)
        mypy = [sys.executable, "-m", "mypy", "--python-executable", folder / "venv/bin/python"]
        done = subprocess.run(
            [*mypy, "--cache-dir", folder / "mypy", "typed.py"],
            capture_output=True, text=True, check=False, cwd=folder, env=CLEAN,
        )  # fmt: skip
        assert (done.returncode, expected in done.stdout) == (code, True), done.stdout + done.stderr


def test_an_editable_install_follows_the_sources(made, tmp_path):
    python = environment(tmp_path / "venv")
    settings = {"build-dir": made.source / "build", "cmake.define.TITHE_WERROR": "ON"}
    given = [f"--config-settings={key}={value}" for key, value in settings.items()]
    pip(python, "--no-build-isolation", *given, "-e", made.source)
    (made.source / "python/tithe/_later.py").write_text("answer = 42\n")
    code = (
        "import tithe, tithe._later, sys; print(tithe.__file__, tithe.encode('fp32', [1.0])[:4], tithe._later.answer)"
    )
    out = run(python, "-c", code, cwd=tmp_path)
    assert out.startswith(str(made.source / "python")) and out.endswith(" 42\n")
