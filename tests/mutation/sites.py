"""Small ways to break a file: each is a place in its syntax tree and what stands there instead."""

from __future__ import annotations

import ast
import copy
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple


class Mutant(NamedTuple):
    """A file with one change."""

    path: Path
    line: int
    """Of the change, from 1."""
    kind: str
    before: str
    after: str
    text: str
    """The whole file with the change."""


class Site(NamedTuple):
    """A place of a file that can be broken."""

    path: Path
    line: int
    number: int
    """Of the place in the walk through the file's syntax tree."""
    kind: str


Change = tuple["ast.expr | ast.stmt", "ast.expr | ast.stmt"]
"""What is replaced, and what replaces it."""


def sites(path: Path) -> Iterator[Site]:
    """Every place of a file that one of the kinds of change applies to."""
    for number, node in enumerate(_nodes(ast.parse(path.read_text(encoding="utf-8")))):
        for kind, change in CHANGES.items():
            if replaced := change(node):
                yield Site(path, replaced[0].lineno, number, kind)


def choose(candidates: Sequence[Site], count: int, seed: int) -> list[Site]:
    """Sites of all kinds in turn, and of one kind at random."""
    randomness = random.Random(seed)
    by_kind = [[site for site in candidates if site.kind == kind] for kind in CHANGES]
    for group in by_kind:
        randomness.shuffle(group)
    turns = (group[turn] for turn in range(len(candidates)) for group in by_kind if turn < len(group))
    return list(itertools.islice(turns, count))


def mutant(site: Site) -> Mutant:
    """The file of a site with its change."""
    text = site.path.read_text(encoding="utf-8")
    node = next(itertools.islice(_nodes(ast.parse(text)), site.number, None))
    change = CHANGES[site.kind](node)
    assert change is not None, site
    replaced, replacement = change
    lines = text.encode().split(b"\n")
    last_line = replaced.end_lineno or replaced.lineno
    head = b"\n".join([*lines[: replaced.lineno - 1], lines[replaced.lineno - 1][: replaced.col_offset]])
    tail = b"\n".join([lines[last_line - 1][replaced.end_col_offset :], *lines[last_line:]])
    after = ast.unparse(replacement)
    code = f"({after})" if isinstance(replacement, ast.expr) else after
    changed = (head + code.encode() + tail).decode()
    return Mutant(site.path, replaced.lineno, site.kind, ast.unparse(replaced), after, changed)


def _nodes(tree: ast.Module) -> Iterator[ast.expr | ast.stmt]:
    """What functions do. Left out: annotations, texts, messages of errors, and the tables and settings of a module."""
    for statement in ast.walk(tree):
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for child in statement.body:
                yield from _inside(child)


def _inside(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.JoinedStr, ast.Raise, ast.Assert)):
        return  # a function inside a function is walked by itself
    if isinstance(node, (ast.expr, ast.stmt)):
        yield node
    for name, value in ast.iter_fields(node):
        if name != "annotation":
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _inside(child)


_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def _comparison_turned(node: ast.AST) -> Change | None:
    if not isinstance(node, ast.Compare):
        return None
    turned = copy.deepcopy(node)
    turned.ops[0] = _OPPOSITE[type(node.ops[0])]()
    return node, turned


def _constant_off_by_one(node: ast.AST) -> Change | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node, ast.Constant(node.value + 1)
    return None


def _branch_dropped(node: ast.AST) -> Change | None:
    """The first branch of `if` is never taken."""
    return (node.test, ast.Constant(False)) if isinstance(node, (ast.If, ast.IfExp)) else None


_ANY_ORDER = ("max", "min", "contextlib.suppress", "suppress", "hmac.compare_digest")
"""Calls that do the same with their arguments in any order."""


def _argument_swapped(node: ast.AST) -> Change | None:
    """The first two arguments of a call."""
    if not isinstance(node, ast.Call) or any(isinstance(item, ast.Starred) for item in node.args[:2]):
        return None
    if len({ast.dump(argument) for argument in node.args[:2]}) < 2 or ast.unparse(node.func) in _ANY_ORDER:
        return None
    swapped = copy.deepcopy(node)
    swapped.args[:2] = reversed(swapped.args[:2])
    return node, swapped


def _call_removed(node: ast.AST) -> Change | None:
    """A call whose value is unused, as in `file.close()`."""
    if not isinstance(node, ast.Expr):
        return None
    value = node.value.value if isinstance(node.value, ast.Await) else node.value
    return (node, ast.Pass()) if isinstance(value, ast.Call) else None


CHANGES: dict[str, Callable[[ast.AST], Change | None]] = {
    "comparison turned": _comparison_turned,
    "constant off by one": _constant_off_by_one,
    "branch dropped": _branch_dropped,
    "argument swapped": _argument_swapped,
    "call removed": _call_removed,
}
