"""The package's modules import each other in one direction only (docs/architecture.md).

All imports count: at the top of a module, inside functions, for type checkers, and by
``import_module`` with a name that starts with a fixed text.
"""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "scsigmoid"
#: Modules at the top of the package that every module may import. They import only each other.
EVERYWHERE = {"errors", "files", "progress", "seeds", "version"}
#: For each folder of the package, and each other module at its top: what it may import, too. The
#: name of a package is that of its folder, and `scsigmoid` is `__init__.py` of the package itself.
ALLOWED = {
    "attention": "kernels",
    "kernels": "",
    "config": "kernels",
    "records": "",
    "corpus": "config records",
    "tokens": "config corpus records",
    "model": "attention config kernels tokens",
    "training": "attention config kernels model records tokens",
    "evaluation": "config corpus model records tokens",
    "benchmarks": "attention config kernels model records tokens training",
    "results": "benchmarks config kernels records training",
    "paper": "benchmarks config model records results",
    "report": "benchmarks config kernels model paper records results",
    "study": "config evaluation model records report results tokens training",
    "forecast": "config corpus model tokens",
    "cells": "config corpus model tokens",
    "scsigmoid": "cells",
    "cli": "benchmarks cells config corpus evaluation forecast model report results study tokens "
    "training",
    "__main__": "cli",
}


def name_of(path: Path) -> str:
    """Return a module's name without the package's, e.g. ``model.encoder``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "scsigmoid"


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def folder_of(module: str) -> str:
    return module.partition(".")[0]


def module_of(name: str) -> str:
    """Return the module that an import of ``name`` loads, if ``name`` is its object or itself."""
    name = name.removeprefix("scsigmoid.")
    return name if name in MODULES else name.rpartition(".")[0] or "scsigmoid"


def fixed_text(node: ast.expr) -> str:
    """Return a text, or the part of an f-string before its first value."""
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def imported_names(module: str) -> Iterator[str]:
    """Yield the full names of what a module imports, e.g. ``scsigmoid.model.encoder.Encoder``."""
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                assert not node.level, f"{module}: write the import with the package's name"
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            case ast.Call(func=ast.Name("import_module") | ast.Attribute(attr="import_module")):
                # Of f"scsigmoid.cli.{name}", only the folder is known.
                folder = fixed_text(node.args[0]).rstrip(".")
                if folder != f"scsigmoid.{folder_of(module)}":
                    yield folder


@cache
def imports_of(module: str) -> set[str]:
    """Return the modules of the package that a module imports."""
    names = imported_names(module)
    return {module_of(name) for name in names if folder_of(name) == "scsigmoid"} - {module}


def test_every_folder_is_in_the_table() -> None:
    assert {folder_of(module) for module in MODULES} == ALLOWED.keys() | EVERYWHERE


def test_the_table_has_no_circle() -> None:
    TopologicalSorter({folder: text.split() for folder, text in ALLOWED.items()}).prepare()


@pytest.mark.parametrize("folder", sorted(ALLOWED.keys() | EVERYWHERE))
def test_imports_go_in_one_direction(folder: str) -> None:
    allowed = {folder, *EVERYWHERE, *ALLOWED.get(folder, "").split()}
    if folder in EVERYWHERE:
        allowed = EVERYWHERE
    for module in MODULES:
        if folder_of(module) == folder:
            forbidden = {name for name in imports_of(module) if folder_of(name) not in allowed}
            assert not forbidden, f"{module}: remove these imports, or move the module"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """If this fails, move what both sides need to a third module."""
    TopologicalSorter({module: imports_of(module) for module in MODULES}).prepare()
