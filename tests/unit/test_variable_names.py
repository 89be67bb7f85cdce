"""A variable is named after the thing it holds: these names say nothing about it, and a constant has one value."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from tests import modules

EMPTY = {"one", "place", "found", "said", "told"}


def bound(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Each parameter and assigned name with its line; the fields of a class, which JSON documents may have, are left
    out."""
    nodes = tuple(nodes)
    fields = {
        node.target for node in nodes if isinstance(node, ast.AnnAssign) and node.value is None
    }  # `name: type` assigns nothing
    for node in nodes:
        if isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in fields:
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def empty_names(nodes: Iterable[ast.AST]) -> list[str]:
    return [f"line {line}: {name}" for line, name in bound(nodes) if name in EMPTY]


def test_no_parameter_or_variable_has_an_empty_name() -> None:
    wrong = {
        str(path.relative_to(modules.PACKAGE)): names
        for path in modules.files()
        if (names := empty_names(modules.nodes(path)))
    }
    assert wrong == {}, "name each variable after the thing it holds, such as `task` or `path`"


@pytest.mark.parametrize(
    "code",
    [
        "def f(one): ...", "found = 1", "for place in (): ...", "(lambda said: 0)", "[0 for told in ()]",
        "if (found := 1): ...", "a.told = 1", "found: int = 1",
    ],
)  # fmt: skip
def test_an_empty_name_is_found(code: str) -> None:
    assert empty_names(ast.walk(ast.parse(code))) != []


def test_a_field_may_have_any_name() -> None:
    assert empty_names(ast.walk(ast.parse("class Row:\n    found: str\n"))) == []


NAME = re.compile(r"(?:^|(?<== ))([A-Z_][A-Z0-9_]*)(?= *=[^=]|:.*=)", re.M)


def rebound(source: str) -> list[str]:
    """The constants of a file that are bound more than once: functions above use the later value too."""
    if max(Counter(NAME.findall(source)).values(), default=0) < 2:  # parsing takes a hundred times as long
        return []
    targets = [
        target
        for node in ast.parse(source).body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    count = Counter(target.id for target in targets if isinstance(target, ast.Name))
    return [name for name, times in count.items() if name.isupper() and times > 1]


def test_no_file_gives_one_constant_two_values() -> None:
    tests = modules.PACKAGE.parent / "tests"
    files = (*modules.files(), *tests.rglob("*.py"))
    wrong = {str(path): names for path in files if (names := rebound(path.read_text(encoding="utf-8")))}
    assert wrong == {}


def test_a_constant_with_two_values_is_found() -> None:
    assert rebound("A = 1\nB: int = 2\nA = 3\nb = 1\nb = 2\nC[0] = C[1] = 4") == ["A"]
    assert rebound("A = B = 2\nB: int = 3") == ["B"]
