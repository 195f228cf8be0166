# SPDX-License-Identifier: Apache-2.0
"""The lists of the documents are complete, and contain no item that does not exist."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def read(name):
    return (ROOT / name).read_text()


def listed(name):
    """Returns the names of a .def list."""
    return re.findall(r"^TITHE_\w+\((\w+)", read(f"include/tithe/{name}.def"), re.MULTILINE)


def first_cells(text):
    """Returns the texts in back quotes in the first column of tables."""
    return re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)


def test_errors_has_a_row_for_every_code():
    codes = re.findall(
        r"^  (k[A-Z]\w+),", re.search(r"enum class Code.*?};", read("include/tithe/status.h"), re.S)[0], re.M
    )
    assert len(codes) >= 10
    assert [c for c in first_cells(read("docs/reference/errors.md")) if c.startswith("k")] == codes


def test_errors_page_uses_the_programs_names():
    names = re.findall(r'"(\w+)"', re.search(r"kNames = \{(.*?)\};", read("src/base/status.cc"), re.S)[1])
    assert re.findall(r"^\| `k\w+` \| `(\w+)`", read("docs/reference/errors.md"), re.MULTILINE) == names


def test_strategies_has_every_strategy():
    assert first_cells(read("docs/reference/strategies.md")) == listed("strategies")


@pytest.mark.parametrize("codec", listed("codecs"))
def test_codecs_page_describes_every_codec(codec):
    page = read("docs/reference/codecs_each.md")
    assert f"**`{codec}`**" in page


def test_flow_has_every_law():
    laws = re.search(r"enum class Law[^{]*\{([^}]*)\}", read("include/tithe/seam/codec.h"))[1]
    names = [law.strip().removeprefix("k").lower() for law in laws.split(",")]
    table = read("docs/inside/flow.md").split("| law |")[1].split("\n\n")[0]
    assert sorted(re.findall(r"^\| (\w+) \|", table, re.MULTILINE)) == sorted(names)


def test_hacking_page_lists_every_folder_on_its_floor():
    floors = re.search(r"FLOORS = \{(.*?)\}", read("tools/lint/check_floors.py"), re.S)[1]
    table = read("HACKING.md").split("## The floors")[1].split("Above them")[0]
    for folder, floor in re.findall(r'"([\w/]+)": (\d)', floors):
        if (ROOT / "src" / folder).is_dir() or (ROOT / folder).is_dir():
            row = re.search(rf"^\| {floor} \|.*$", table, re.MULTILINE)[0]
            assert f"`{folder}`" in row


def test_environment_variables_are_in_one_table():
    """Every TITHE_ variable that a source names as text has a row in docs/reference/environment.md, and vice versa."""
    folders = ("src", "lang", "advisor", "card", "apps", "python", "demo", "lab/hosts", "tests")
    sources = [p for folder in folders for p in (ROOT / folder).rglob("*")]
    text = "".join(p.read_text() for p in sources if p.suffix in (".cc", ".h", ".py") and p != Path(__file__))
    # TITHE_AS_RANK is internal, between processes of tithe.
    named = set(re.findall(r"[\"'](TITHE_[A-Z_]+)[\"'=]", text)) - {"TITHE_AS_RANK"}
    assert named == {cell for cell in first_cells(read("docs/reference/environment.md")) if cell.startswith("TITHE_")}


def test_editor_syntax_contains_every_keyword():
    typed, parse = read("lang/front/typed_calls.cc"), read("lang/front/parse_expr.cc")
    tables = re.findall(r"constexpr \w+(?:::\w+)? k(?:Functions|Reductions|Conversions)\[\] = \{(.*?)\};", typed, re.S)
    assert len(tables) == 3
    words = {w for table in tables for w in re.findall(r'\{"(\w+)"', table)}
    words |= set(re.findall(r'"(\w+)"', re.search(r"kOthers\[\] = \{(.*?)\};", typed, re.S)[1]))
    words |= set(re.findall(r'"(\w+)"', re.search(r"kReserved\[\] = \{(.*?)\};", parse, re.S)[1]))
    sections = re.search(r"kSections\[\] = \{(.*?)\};", read("lang/front/tokenize.h"), re.S)[1]
    words |= set(re.findall(r'"(\w+)"', sections))
    assert len(words) > 40
    known = " ".join(re.findall(r"^syntax keyword \w+ (.*)$", read("tools/editors/codec.vim"), re.MULTILINE))
    assert words <= set(known.split())


@pytest.mark.parametrize("page", ["start/hosts", "guide/diagnose"])
def test_names_in_guides_exist(page):
    """Guides name existing options of attach() and of tcp, verbs, strategies, variables, numbers of stats()."""
    text, session, tcp = read(f"docs/{page}.md"), read("include/tithe/session.h"), ROOT / "src/transport/tcp"
    in_python = read("python/tithe/torch/_hook/state.py") + read("python/tithe/_session.py")
    for call in re.findall(r"attach\(([^)]*)\)", text):
        for option in re.findall(r"(\w+)=", re.sub(r'"[^"]*"', "", call)):
            in_engine = re.search(rf"^  [\w:<>]+ {option} = ", session, re.M)
            assert in_engine or f" {option}: " in in_python or f'"{option}"' in in_python, option
    for option in re.findall(r"tcp:(\w+)=", text):
        assert any(f'"{option}"' in path.read_text() for path in tcp.glob("*.cc")), option
    verbs = {verb.replace("_", " ") for verb in re.findall(r"^TITHE_VERB\((\w+)", read("apps/tithe/verbs.def"), re.M)}
    for verb in re.findall(r"`tithe ([a-z]+(?: [a-z]+)?)", text):
        assert verb in verbs or verb.split()[0] in verbs, verb
    for variable in re.findall(r"TITHE_[A-Z]+", text):
        assert variable in first_cells(read("docs/reference/environment.md")), variable
    for strategy in re.findall(r"strategy `(\w+)`", text):
        assert strategy in listed("strategies"), strategy
    known = set(re.findall(r'"(\w+)"', read("python/src/stats_dicts.cc") + read("python/tithe/_stats.py")))
    known |= set(re.findall(r"^TITHE_(?:STAT|SUM)\(\w+, (\w+)", read("include/tithe/stats.def"), re.M))
    named = set(re.findall(r'stats(?:\(\))?\["(\w+)"\]', text))
    assert named and named <= known, named - known


def test_the_index_lists_every_document_once():
    """docs/README.md is the index, and the site's navigation."""
    linked = [
        (ROOT / "docs" / link).resolve()
        for link in re.findall(r"^- \[[^\]]+\]\(([^)]+)\):", read("docs/README.md"), re.M)
    ]
    assert len(linked) == len(set(linked))
    documents = {*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")} - {ROOT / "docs/README.md"}
    assert documents <= set(linked)


def test_every_header_has_a_tier():
    """docs/start/install.md states for each installed header whether it is stable or a seam."""
    table = read("docs/start/install.md").split("## What is stable")[1].split("\n\n")[2]
    stable, seams = (re.findall(r"`(\w+\.h)`", row) for row in table.splitlines()[3::2])
    assert sorted(stable) == sorted(path.name for path in ROOT.glob("include/tithe/*.h"))
    assert sorted(seams) == sorted(path.name for path in ROOT.glob("include/tithe/seam/*.h"))


def test_version_is_the_same_everywhere():
    """The released, the cited and the built version are equal."""
    version = re.search(r"project\(tithe VERSION ([\d.]+)", read("CMakeLists.txt"))[1]
    assert f"\nversion: {version}\n" in read("CITATION.cff")
    assert re.search(r"^## ([\d.]+)$", read("CHANGELOG.md"), re.M)[1] == version


def test_readme_figures_are_measured():
    """The README's table has the figures of lab/results/demo_100mbit/results.json."""
    measured = json.loads(read("lab/results/demo_100mbit/results.json"))["runs"]
    runs = {f"tithe-{run['codec']}" if run["kind"] == "tithe" else run["name"]: run for run in measured}
    rows = re.findall(
        r"^\| (.+?) \| (.+?) ms(?:\*\*)? \| (.+?) ([kM]B) \| (.+?) % \| (.+?) s \|$", read("README.md"), re.M
    )
    assert len(rows) == len(runs)
    for name, ms, sent, unit, accuracy, seconds in rows:
        run = runs[re.sub("[*`]", "", name).lower().replace(" ", "-")]
        assert ms.strip("*") == f"{1e3 * run['step_seconds']:.1f}"
        assert sent == (f"{run['bytes_per_step'] / 1e6:.2f}" if unit == "MB" else f"{run['bytes_per_step'] / 1e3:.0f}")
        assert accuracy == f"{100 * run['accuracy']:.2f}"
        assert seconds == f"{run['seconds_to_target']:.1f}"
