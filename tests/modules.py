"""The package's modules and their imports, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "batchtrain"


def files() -> list[Path]:
    """Every Python file of the package but for data."""
    return sorted(path for path in PACKAGE.rglob("*.py") if "_data" not in path.parts)


def name_of(path: Path) -> str:
    """The module's dotted name."""
    return ".".join(("batchtrain", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file's syntax tree. The files are parsed once for all the tests that look through them."""
    return tuple(ast.walk(tree(path)))


@cache
def imports(path: Path) -> frozenset[str]:
    """The dotted names that a file imports, at its top or later; of `from x import y` both `x` and `x.y`."""
    names: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


@cache
def graph() -> dict[str, set[str]]:
    """The modules that each module of the package imports.

    An import from a package's `__init__` counts only where the name is no module of its own.
    """
    known = {name_of(path): path for path in files()}
    return {name: _modules(imports(path), known) - {name} for name, path in known.items()}


def _modules(names: Iterable[str], known: Mapping[str, Path]) -> set[str]:
    ours = {name for name in names if name in known}
    packages = {name for name in ours if known[name].name == "__init__.py"}
    return {name for name in ours if name not in packages or not any(other.startswith(f"{name}.") for other in ours)}


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other, directly or through others."""
    reached = {name: _reached(name, edges) for name in edges}
    groups = {frozenset(other for other in seen if name in reached[other]) for name, seen in reached.items()}
    return sorted(sorted(group) for group in groups if group)


def _reached(name: str, edges: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    todo = set(edges[name])
    while todo:
        seen |= todo
        todo = {further for module in todo for further in edges[module]} - seen
    return seen
