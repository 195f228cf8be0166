# SPDX-License-Identifier: Apache-2.0
"""The codec of HACKING.md's worked example, built from the text of that page, passes the conformance suite."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```cpp (file|append)=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def compile_and_link(tree: Path, sources: list[Path]) -> Path:
    """Compiles only the sources that the suite needs. The list has fp32 and the new codec, so no other codec is
    built."""
    libraries = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "libhwy", "libxxhash", "libcrypto", "fmt", "gtest_main"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    flags = ["-std=c++20", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion"]
    flags += ["-Werror", f"-I{tree}/include", f"-I{tree}/src", f"-I{tree}/tests", f'-DTITHE_SOURCE_DIR="{tree}"']
    compiler = os.environ.get("CXX", "c++").split()
    jobs = []
    for source in sources:
        target = tree / f"{source.stem}.o"
        jobs.append((subprocess.Popen([*compiler, *flags, "-c", str(source), "-o", str(target)]), target))
        if len(jobs) % 2 == 0:
            jobs[-2][0].wait()
    assert all(job.wait() == 0 for job, _ in jobs)
    program = tree / "suite"
    objects = [str(target) for _, target in jobs]
    subprocess.run([*compiler, *objects, *libraries, "-pthread", "-o", str(program)], check=True)
    return program


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    tree = tmp_path_factory.mktemp("tree")
    for folder in ("include", "src/base", "tests/conformance", "tests/support", "tests/golden"):
        shutil.copytree(ROOT / folder, tree / folder)
    for room in ("shared/common", "fp32"):
        shutil.copytree(ROOT / "src/codec" / room, tree / "src/codec" / room)
    for shared in ROOT.glob("src/codec/*.*"):
        if not shared.name.startswith("typical."):  # includes omitted codecs; no codec includes it
            shutil.copy(shared, tree / shared.relative_to(ROOT))

    (tree / "src/catalogue").mkdir()
    for list_of_codecs in ROOT.glob("src/catalogue/codecs.*"):
        shutil.copy(list_of_codecs, tree / "src/catalogue")

    # A short list replaces the tree's own; the page's line is appended to it, as the page states.
    codecs = tree / "include/tithe/codecs.def"
    codecs.write_text("".join(line for line in codecs.open() if not line.startswith("TITHE_") or "(fp32," in line))
    blocks = BLOCK.findall((ROOT / "HACKING.md").read_text())
    assert [kind for kind, _, _ in blocks] == ["file", "append"]
    for kind, name, text in blocks:
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if kind == "append" else "w") as file:
            file.write(text)

    sources = [p for p in (tree / "src").rglob("*.cc") if not p.name.endswith("_test.cc")]
    return compile_and_link(tree, [*sources, *tree.glob("tests/conformance/codec_*.cc")])


def test_page_adds_an_unused_list_entry():
    name, number = re.search(r"TITHE_CODEC\((\w+), (\d+)\)", (ROOT / "HACKING.md").read_text()).groups()
    taken = (ROOT / "include/tithe/codecs.def").read_text()
    assert f"({name}," not in taken
    assert f", {number})" not in taken


def test_the_new_codec_passes_the_suite(suite):
    done = subprocess.run([str(suite), "--gtest_filter=*peak*"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(re.search(r"(\d+) tests? from", done.stdout)[1]) >= 5, done.stdout[-1000:]
