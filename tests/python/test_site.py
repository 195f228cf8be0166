# SPDX-License-Identifier: Apache-2.0
"""The conversion of documents by tools/make_docs.py, before the generator reads them. `make docs` and the lint run
that."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools/lint")]

import make_docs as docs  # noqa: E402

import python_api  # noqa: E402


def test_the_navigation_is_the_index():
    shelves = docs.shelves()
    assert [title for title, _ in shelves] == ["Start", "Guide", "Reference", "Inside", "Results"]
    assert all(documents and all((ROOT / path).is_file() for _, path in documents) for _, documents in shelves)


def test_navigation_contains_every_results_page():
    results = next(entries for shelf in docs.navigation() for title, entries in shelf.items() if title == "Results")
    listed = [page for entry in results for pages in entry.values() if isinstance(pages, list) for page in pages]
    there = {str(p.relative_to(ROOT)) for p in (ROOT / "lab/results").rglob("*.md")} - {"lab/results/README.md"}
    assert {path for page in listed for path in page.values()} == there
    assert len({title for page in listed for title in page}) == len(listed)


def test_ambiguous_markdown_is_found():
    text = "Below a paragraph:\n- one\n- two\n  more\n- three\n\n```python run\n- x = 1\n```\n"
    made = "Below a paragraph:\n\n- one\n- two\n  more\n- three\n\n```python\n- x = 1\n```\n"
    assert docs.as_markdown(text) == made


def test_every_name_is_a_page_of_the_site(tmp_path):
    page = python_api.page(ROOT)
    assert "### `tithe.torch.attach(model, codec=None, strategy=default, *, optimizer=None, replicas=None, " in page
    assert "Starts to average the arrays in place; returns a ticket for wait()." in page


def test_undocumented_names_are_found(tmp_path):
    (tmp_path / "python/tithe").mkdir(parents=True)
    (tmp_path / "docs/reference").mkdir(parents=True)
    (tmp_path / "python/tithe/__init__.py").write_text(
        '"""A."""\n__all__ = ["told", "bare"]\n\n\ndef told():\n    """It."""\n\n\ndef bare():\n    pass\n'
    )
    (tmp_path / "docs/reference/python_reference.md").write_text("`tithe.bare()`\n")
    found = [text for _, _, text in python_api.check(tmp_path)]
    assert found == ["lacks tithe.told of tithe", "tithe.bare has no docstring"]
