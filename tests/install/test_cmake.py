# SPDX-License-Identifier: Apache-2.0
"""The files that `cmake --install build` installs, and programs outside the tree that use them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ.get("TITHE_BUILD", ROOT / "build"))
VERSION = re.search(r"project\(tithe VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
EXAMPLES = {"c_average": "rank 1 of 2: 20 rounds, 232500 received", "cpp_average": "rank 1 of 2: 20 rounds, mean 1.5"}


def output(*command, env=None):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """An installed tree that was moved afterwards: nothing in it may know where it was."""
    folder = tmp_path_factory.mktemp("install")
    output("cmake", "--install", BUILD, "--prefix", folder / "before")
    return (folder / "before").rename(folder / "after")


def consumer(prefix, build, kind=""):
    source = Path(__file__).with_name("found")
    given = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DEXAMPLES={ROOT}/examples", f"-DKIND={kind}"]
    return subprocess.run(
        ["cmake", "-S", source, "-B", build, "-G", "Ninja", *given], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("kind", ["shared", "static"])
def test_find_package_works_for_c_and_cpp(prefix, tmp_path, kind):
    made = consumer(prefix, tmp_path, kind)
    assert made.returncode == 0, made.stderr
    output("cmake", "--build", tmp_path)
    for program, line in EXAMPLES.items():
        assert line in output(tmp_path / program)
        assert ("libtithe.so" in output("ldd", tmp_path / program)) == (kind == "shared")


def test_find_package_refuses_missing_components(prefix, tmp_path):
    made = consumer(prefix, tmp_path, "fast")
    assert made.returncode != 0
    assert "one component at a time, static or shared; asked for: fast" in " ".join(made.stderr.split())


@pytest.mark.parametrize("kind", ["shared", "static"])
def test_pkg_config_works_for_c_and_cpp(prefix, tmp_path, kind):
    ask = ["pkg-config", "--cflags", "--libs", *(["--static"] if kind == "static" else []), "tithe"]
    flags = output(*ask, env={**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}).split()
    if kind == "static":
        flags = [str(prefix / "lib/libtithe.a") if flag == "-ltithe" else flag for flag in flags]
    sources = {"c_average": ["cc", "-D_POSIX_C_SOURCE=200809L"], "cpp_average": ["c++", "-std=c++20"]}
    for program, compiler in sources.items():
        source = next((ROOT / "examples" / program.split("_")[0]).glob("average.*"))
        output(*compiler, source, "-o", tmp_path / program, *flags, f"-Wl,-rpath,{prefix}/lib")
        assert EXAMPLES[program] in output(tmp_path / program)


def test_shared_library_exports_only_tithe_names(prefix):
    library = prefix / "lib/libtithe.so"
    ours = [line.split(" ", 2)[2] for line in output("nm", "-DC", "--defined-only", library).splitlines()]
    assert "tithe_session_open" in ours
    assert not [name for name in ours if name.startswith("tithe_program")]  # what was compiled of codecs/
    assert any(name.startswith("tithe::Session::sync(") for name in ours)
    for name in ours:
        assert re.match(r"(vtable for |typeinfo (name )?for |VTT for )?tithe(::|_)", name), name
    minor = VERSION.rsplit(".", 1)[0]
    assert f"[libtithe.so.{minor}]" in output("readelf", "-d", library)
    assert (prefix / f"lib/libtithe.so.{VERSION}").is_file()


def test_version_is_defined_once(prefix):
    environment = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    assert output("pkg-config", "--modversion", "tithe", env=environment) == f"{VERSION}\n"
    assert output(prefix / "bin/tithe", "--version") == f"tithe {VERSION}\n"
    assert f"## {VERSION}" in (prefix / "share/doc/tithe/CHANGELOG.md").read_text()


def test_every_public_header_is_installed_and_no_path_of_the_tree(prefix):
    here = {path.relative_to(ROOT / "include") for path in (ROOT / "include").rglob("*.*")}
    there = {path.relative_to(prefix / "include") for path in (prefix / "include").rglob("*.*")}
    assert here == there
    for path in [*prefix.rglob("*.cmake"), *prefix.rglob("*.pc")]:
        assert str(ROOT) not in path.read_text(), path


def test_manual_page_and_completions_are_installed_in_standard_folders(prefix):
    for file, words in {
        "man/man1/tithe.1": ["man"],
        "bash-completion/completions/tithe": ["completion", "bash"],
        "zsh/site-functions/_tithe": ["completion", "zsh"],
        "fish/vendor_completions.d/tithe.fish": ["completion", "fish"],
    }.items():
        assert (prefix / "share" / file).read_text() == output(prefix / "bin/tithe", *words)


@pytest.mark.parametrize("shared", ["OFF", "ON"])
def test_project_can_add_it_as_a_subdirectory(made, tmp_path, shared):
    # The folder beside the sources, the flags and the base make this the compilations that ccache has from the wheel.
    build = made.source / "part"
    given = [
        f"-DTITHE={made.source}",
        f"-DBUILD_SHARED_LIBS={shared}",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DTITHE_WERROR=ON",
    ]
    if shutil.which("ccache"):
        given.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    environment = {**os.environ, "CCACHE_BASEDIR": str(made.source)}
    output("cmake", "-S", Path(__file__).with_name("inside"), "-B", build, "-G", "Ninja", *given, env=environment)
    output("cmake", "--build", build, env=environment)
    assert EXAMPLES["cpp_average"] in output(build / "cpp_average")
    assert ("libtithe.so" in output("ldd", build / "cpp_average")) == (shared == "ON")
    targets = output("cmake", "--build", build, "--target", "help")
    assert "tithe_shared" in targets
    for foreign in ("unit_tests", "bench_codecs", "tithe_cli", "tithe_core"):
        assert foreign not in targets, "a part of another project builds the library alone"
    assert not (build / "tithe/cmake_install.cmake").read_text().count("libtithe"), "nor does it install itself"
