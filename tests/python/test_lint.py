# SPDX-License-Identifier: Apache-2.0
"""Each checker of tools/lint finds the defect that it checks for, and accepts a tree without it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPDX_CC = "// SPDX-License-Identifier: Apache-2.0\n"
SPDX_PY = "# SPDX-License-Identifier: Apache-2.0\n"
WORDS = "# Glossary\n\n| word | means |\n|---|---|\n| **index** | the number of a value |\n| **rank** | a worker |\n"
UNUSED = """
## Words that are not used

| word | where | write |
|---|---|---|
| place | `src/codec` `docs/guide.md` | **index** |
| `left` | `src/codec` not `*_test.cc` | residual_out |
"""
GOOD_HEADER = SPDX_CC + "#pragma once\n#include <cstdint>\nnamespace tithe {\nusing Rank = int;\n}\n"


def lint(checker: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / f"tools/lint/{checker}.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path):
    """Makes a small tree without a defect; `put` adds a file to it."""

    class Tree:
        root = tmp_path

        def put(self, name: str, text: str) -> None:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    t = Tree()
    t.put("include/tithe/status.h", GOOD_HEADER)
    t.put("include/tithe/seam/codec.h", SPDX_CC + '#pragma once\n#include "tithe/status.h"\n')
    t.put("include/tithe/seam/transport.h", SPDX_CC + '#pragma once\n#include "tithe/status.h"\n')
    t.put("src/base/fold.h", SPDX_CC + "#pragma once\n")
    t.put("src/codec/shared/sparse/sparse.h", SPDX_CC + '#pragma once\n#include "tithe/seam/codec.h"\n')
    for room in ("floats", "levels"):
        t.put(f"src/codec/shared/{room}/{room}_code.h", SPDX_CC + "#pragma once\n")
    t.put("tests/support/draws.h", SPDX_CC + "#pragma once\n")
    t.put(
        "src/codec/topk/topk.h",
        SPDX_CC + '#pragma once\n#include "codec/shared/sparse/sparse.h"\n#include "base/fold.h"\n',
    )
    t.put("src/engine/engine.cc", SPDX_CC + '#include "codec/topk/topk.h"\n#include "fmt/format.h"\n')
    t.put("lang/loader.h", SPDX_CC + '#pragma once\n#include "lang/run/walk.h"\n')
    t.put("lang/run/walk.h", SPDX_CC + '#pragma once\n#include "lang/front/ast.h"\n')
    t.put("lang/front/ast.h", SPDX_CC + "#pragma once\n")
    t.put("lang/front/ast_test.cc", SPDX_CC + '#include "lang/loader.h"\n')
    t.put("python/tithe/torch/_hook/job.py", SPDX_PY + "from tithe.torch._device.route import BucketRoute\n")
    t.put("README.md", "# A title\n\nSee [the guide](docs/guide.md#the-second-part) and `src/base/fold.h`.\n")
    t.put("docs/guide.md", "# Guide\n\n## The second part\n\n[back](../README.md)\n")
    t.put("docs/reference/glossary.md", WORDS + UNUSED)
    return t


@pytest.mark.parametrize(
    "checker", ["check_floors", "check_glossary", "check_links", "check_rooms", "check_style", "run_doc_examples"]
)
def test_good_tree_passes(tree, checker):
    done = lint(checker, tree.root) if checker != "run_doc_examples" else lint(checker, tree.root / "README.md")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok" in done.stdout


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("src/base/fold.h", '#include "codec/shared/sparse/sparse.h"\n', "base (floor 0) includes"),
        ("src/codec/dgc/dgc.cc", '#include "tithe/seam/transport.h"\n', "codec and transport never see each other"),
        ("src/transport/loop/loop.cc", '#include "tithe/seam/codec.h"\n', "transport and codec never see each other"),
        ("src/codec/dgc/dgc.cc", '#include "codec/topk/topk.h"\n', "share it in src/codec/"),
        ("src/codec/dgc/dgc.cc", '#include "base/none.h"\n', "is not there"),
        ("src/codec/shared/levels/a.cc", '#include "codec/shared/sparse/sparse.h"\n', "the room levels includes"),
        ("src/codec/shared/levels/a.cc", '#include "codec/topk/topk.h"\n', "the room levels includes"),
        ("lang/front/a.h", '#include "lang/run/walk.h"\n', "the room front includes"),
        ("lang/run/walk.h", '#include "lang/loader.h"\n', "lang is not below it"),
        ("lang/hall/a.cc", "int a;\n", "'hall' is no room of lang"),
        ("src/engine/hall/a.cc", "int a;\n", "'hall' is no room of src/engine"),
        ("advisor/hall/a.cc", "int a;\n", "'advisor/hall' has no floor"),
        ("src/engine/a.cc", '#include "lang/loader.h"\n', "lang/ is beside src/"),
        (
            "src/codec/dgc/dgc.cc",
            '#include "codec/shared/floats/floats_code.h"\n#include "codec/shared/levels/levels_code.h"\n'
            '#include "codec/shared/sparse/sparse.h"\n',
            "dgc names 3 rooms (at most 2)",
        ),
        ("src/codec/dgc/dgc.cc", '#include "support/draws.h"\n', "is for tests"),
        ("src/mystery/a.cc", "int a;\n", "has no floor"),
        ("include/tithe/mystery.h", "#pragma once\n", "has no floor"),
        ("include/tithe/seam/codec.h", '#pragma once\n#include "base/fold.h"\n', "which users do not have"),
        ("include/tithe/seam/codec.h", "#pragma once\nstd::size_t f();\n", "does not compile alone"),
    ],
)
def test_floors_catches(tree, name, text, says):
    tree.put(name, SPDX_CC + text)
    done = lint("check_floors", tree.root)
    assert done.returncode == 1
    assert says in done.stdout


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("_device/route.py", "from tithe.torch._hook.job import Job\n", "the room _device imports"),
        ("_hook/job.py", "def f():\n    import tithe.torch._optimizer.adamw\n", "_optimizer is not below it"),
        ("_common/keys.py", "from tithe.torch import State\n", "itself is not below it"),
        ("_hook/job.py", "from .state import State\n", "a relative import"),
        ("_hall/job.py", "", "'_hall' is no room"),
    ],
)
def test_rooms_catches(tree, name, text, says):
    tree.put(f"python/tithe/torch/{name}", text)
    done = lint("check_rooms", tree.root)
    assert done.returncode == 1 and says in done.stdout


def test_floors_catches_a_circle(tree):
    tree.put("src/feedback/residual_store.h", SPDX_CC + '#include "strategy/ring.h"\n')
    tree.put("src/strategy/ring.h", SPDX_CC + '#include "feedback/residual_store.h"\n')
    assert "include each other" in lint("check_floors", tree.root).stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[gone](docs/gone.md)\n", "no such file"),
        ("[gone](docs/guide.md#third-part)\n", "no such heading"),
        ("![gone](gone.png)\n", "no such file"),
        ("[out](../../etc/passwd)\n", "no such file"),
        ("see `src/base/gone.h`\n", "is not there"),
        ("| word | means |\n| one | two |\n", "a table needs a line of dashes"),
        ("| word | means |\n|---|---|\n| one | two | three |\n", "a row of 3 cells in a table of 2"),
        ("| word | means |\n|---|---|\n| one | " + "two " * 16 + "|\n", "a cell of 16 words (at most 15)"),
    ],
)
def test_links_catches(tree, text, says):
    tree.put("README.md", text)
    done = lint("check_links", tree.root)
    assert done.returncode == 1
    assert says in done.stdout


def test_links_catches_a_stale_path_in_a_comment(tree):
    tree.put("src/base/fold.h", SPDX_CC + "#pragma once\n// Sums (base/fold.h) are those of " + "advice/sim/world.h.\n")
    done = lint("check_links", tree.root)
    assert done.returncode == 1
    assert "a comment names advice/sim/world.h" in done.stdout and "base/fold.h, " not in done.stdout


def test_links_ignores_code_and_the_web(tree):
    tree.put("README.md", "```\n[x](gone.md)\n```\n`[y](gone.md)` [z](https://example.org/gone) `src/<name>.cc`\n")
    tree.put("docs/table.md", "| a | b |\n|---|--:|\n| `x|y` | \\| |\n| " + "a + " * 15 + "| [a](table.md) |\n")
    tree.put("lab/results/table.md", "| a |\n|---|\n| " + "a " * 16 + "|\n")
    assert lint("check_links", tree.root).returncode == 0


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("src/base/a.cc", "int a;\n", "first line must hold"),
        ("src/base/a.cc", SPDX_CC + "int a;\n" * 500, "501 lines"),
        ("src/base/a.cc", SPDX_CC + "// " + "x" * 120 + "\n", "123 characters"),
        ("src/base/a.cc", SPDX_CC + "int a; \n", "blanks"),
        ("src/base/a.cc", SPDX_CC + "\tint a;\n", "tab"),
        ("src/base/a.cc", SPDX_CC + "// TO" + "DO: later\n", "leftover"),
        ("src/base/a.cc", SPDX_CC + "int fd = socket(AF_INET, SOCK_STREAM, 0);\n", "in UniqueFd::from()"),
        ("src/base/BadName.cc", SPDX_CC, "snake_case"),
        ("src/frame/fold.h", SPDX_CC, "second file of this name"),
        ("src/CMakeLists.txt", SPDX_PY + "# A library. What is built follows.\n", "begins with a relative clause"),
        ("docs/long.md", "word " * 1501, "1,501 words (at most 1,500)"),
        ("tools/a.sh", "#!/bin/bash\n# SPDX-License-Identifier: Apache-2.0\nif true\n", "syntax error"),
    ],
)
def test_style_catches(tree, name, text, says):
    tree.put(name, text)
    done = lint("check_style", tree.root)
    assert done.returncode == 1
    assert says in done.stdout


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("src/codec/topk/topk.cc", "// Sorts the places.\n", "topk.cc:2: place: write index"),
        ("src/codec/topk/topk.cc", "int list_places();\n", "topk.cc:2: place: write index"),
        ("src/codec/topk/topk.cc", 'const char* kWhy = "a Place";\n', "topk.cc:2: place: write index"),
        ("src/codec/topk/topk.cc", "float left = 0;  // in place\n", "topk.cc:2: `left`: write residual_out"),
        ("docs/guide.md", "the place of a value\n", "guide.md:1: place: write index"),
        ("docs/reference/glossary.md", WORDS + "| **index** | again |\n" + UNUSED, "glossary.md:7: index after rank"),
        ("docs/reference/glossary.md", WORDS, "needs two tables"),
        (
            "docs/reference/glossary.md",
            WORDS + UNUSED + "| seat | `src/gone` | **rank** |\n",
            "`src/gone`: no such files",
        ),
        (
            "docs/reference/glossary.md",
            WORDS + UNUSED + "| seat | `src` | **chair** |\n",
            "chair is not in the glossary",
        ),
    ],
)
def test_glossary_catches(tree, name, text, says):
    tree.put(name, text if name.endswith(".md") else SPDX_CC + text)
    done = lint("check_glossary", tree.root)
    assert done.returncode == 1
    assert says in done.stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/codec/topk/topk.cc", "// What is left goes out in place; it replaces the residual.\nbool in_place;\n"),
        ("src/codec/topk/topk.cc", "int left_over, emplace;\n"),
        ("src/codec/topk/topk_test.cc", "float left;\n"),
        ("src/engine/engine.cc", "// Every frame has its place.\nfloat left;\n"),
    ],
)
def test_glossary_ignores_other_words_and_folders(tree, name, text):
    tree.put(name, SPDX_CC + text)
    assert lint("check_glossary", tree.root).returncode == 0


def fenced(kind: str, text: str) -> str:
    return f"```{kind}\n{text}\n```\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (fenced("sh run", "false"), "exit status 1"),
        (fenced("sh run", "echo one") + fenced("text expect", "two"), "prints otherwise"),
        (fenced("python run", "print(1 +)"), "SyntaxError"),
        (fenced("text expect", "nothing ran"), "cannot be run"),
        (fenced("cobol run", "STOP RUN."), "cannot be run"),
    ],
)
def test_doc_examples_catches(tree, text, says):
    tree.put("README.md", text)
    done = lint("run_doc_examples", tree.root / "README.md")
    assert done.returncode == 1
    assert says in done.stdout


def test_doc_examples_run_in_order_in_one_folder_and_dots_match(tree):
    text = fenced("sh run", "echo 1 apple > a; echo 2 > b")
    text += fenced("python run", "print(open('a').read() + open('b').read())") + "\nwhich prints\n\n"
    text += fenced("sh run", "cat a b; seq 5") + fenced("text expect", "1 ...le\n2\n...\n5")
    tree.put("README.md", text)
    done = lint("run_doc_examples", tree.root / "README.md")
    assert done.returncode == 0, done.stdout
    assert not (tree.root / "a").exists()
