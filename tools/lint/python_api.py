# SPDX-License-Identifier: Apache-2.0
"""Every public name of the Python package has a docstring, and docs/reference/python_reference.md names it in back
quotes.

Modules are parsed and not imported, because their dependencies (Lightning, transformers) may not be installed. The
docstrings are only in the code; `page` makes a page of them for the site of tools/make_docs.py.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from tree import Problem, main

PAGE = "docs/reference/python_reference.md"
COMPILED = "tithe._core"  # its names have no Python source
OPENED = {"tithe.Session"}  # constructed by class methods, not by calling them
OURS = {"_Slots"}  # base classes that belong to tithe


class Module:
    def __init__(self, root: Path, name: str) -> None:
        base = root / "python" / name.replace(".", "/")
        self.root, self.name = root, name
        self.path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        self.tree = ast.parse(self.path.read_text())

    def public(self) -> list[str]:
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in node.targets):
                return ast.literal_eval(node.value)
        return []

    def find(self, name: str) -> tuple[Module, ast.AST] | None:
        """Returns the definition of a name: in this module, or in the module of tithe from which it is imported."""
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                return self, node
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tithe":
                for alias in node.names:
                    if (alias.asname or alias.name) == name and node.module not in (COMPILED, self.name):
                        return Module(self.root, node.module).find(alias.name)
        return None


def signature(node: ast.FunctionDef, method: bool) -> str:
    """Returns the signature as called: without self and types, with `default` for the session's defaults."""
    arguments = ast.parse(f"def f({ast.unparse(node.args)}): pass").body[0].args
    for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]:
        if each is not None:
            each.annotation = None
    if method and not any(getattr(d, "id", "") == "staticmethod" for d in node.decorator_list):
        arguments.args.pop(0)
    return "(" + re.sub(r"\b_?DEFAULT\.\w+", "default", ast.unparse(arguments)) + ")"


def is_property(node: ast.FunctionDef) -> bool:
    return any(getattr(decorator, "id", "") == "property" for decorator in node.decorator_list)


def block(text: str) -> str:
    return f"```text\n{inspect.cleandoc(text)}\n```\n"


def entries(module: Module) -> Iterator[tuple[str, str | None, Path, int]]:
    """Yields heading, docstring, file and line of every public name of a module."""
    for name in module.public():
        found = module.find(name)
        if found is None:
            continue
        where, node = found
        full = f"{module.name}.{name}"
        if isinstance(node, ast.FunctionDef):
            yield f"### `{full}{signature(node, False)}`", ast.get_docstring(node), where.path, node.lineno
            continue
        methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
        init = next((m for m in methods if m.name == "__init__"), None)
        head = signature(init, True) if init is not None and full not in OPENED else ""
        foreign = any(getattr(base, "id", "") not in OURS for base in node.bases)
        yield f"### `{full}{head}`", ast.get_docstring(node), where.path, node.lineno
        for method in methods:
            text = ast.get_docstring(method)
            if not method.name.startswith("_") and (text or not foreign):  # otherwise the framework calls it
                called = method.name if is_property(method) else method.name + signature(method, True)
                yield f"**`.{called}`**", text, where.path, method.lineno


def modules(root: Path) -> list[str]:
    """Returns the public modules: no part of their names begins with an underscore."""
    files = (path.relative_to(root / "python") for path in (root / "python/tithe").rglob("*.py"))
    names = (".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files)
    return sorted(name for name in names if "._" not in name)


def page(root: Path) -> str:
    """Returns the page of all names with signatures and docstrings, in Markdown."""
    text = "# Every name in Python\n\n`default` stands for what `Session` has without options.\n"
    for name in modules(root):
        module = Module(root, name)
        text += f"\n## {name}\n\n{block(ast.get_docstring(module.tree) or '')}"
        for head, docstring, _, _ in entries(module):
            text += f"\n{head}\n\n{block(docstring or '')}"
    return text


def check(root: Path) -> Iterator[Problem]:
    quoted = " ".join(re.findall(r"`([^`\n]+)`", (root / PAGE).read_text()))
    for name in modules(root):
        for head, docstring, path, line in entries(Module(root, name)):
            called = re.sub(r"\(.*", "", head.strip("#*` "))
            if not docstring:
                yield path, line, f"{called} has no docstring"
            if not re.search(rf"\b{called.split('.')[-1]}\b", quoted):
                yield root / PAGE, 1, f"lacks {called} of {name}"


if __name__ == "__main__":
    main("python docs", check)
