"""Which calls a program comes to each time it runs, and which only under a condition. Pure; nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_EXITS = ("sys.exit", "exit", "quit", "os._exit")


class Module(NamedTuple):
    """A file of a program."""

    file: Path
    name: str
    """Its name as it is imported; empty for the script itself."""
    tree: ast.Module

    def name_of(self, function: str) -> str:
        """The full name of a function of the file."""
        return f"{self.name}.{function}" if self.name else function

    def imported_from(self, node: ast.ImportFrom) -> str:
        """The full name of the module from which a statement imports. A relative one of the script names a module
        beside it."""
        is_package = self.file.stem == "__init__"
        parents = self.name.split(".")[: len(self.name.split(".")) + is_package - node.level] if node.level else []
        return ".".join(filter(None, (*parents, node.module)))


class Call(NamedTuple):
    """A call in a file."""

    name: str
    """The full name of an imported function."""
    file: Path
    node: ast.Call
    certain: bool


Parts: TypeAlias = Mapping[str, Sequence[Call]]
"""The calls of a program, by the full name of the function that contains them; "" is module level."""


def parts_of(modules: Iterable[Module]) -> Parts:
    """The calls of a script and of what it imports. Certain are those that no condition decides."""
    parts: dict[str, list[Call]] = {}
    for module in modules:
        names = _names(module)
        for owner, call, certain in _calls(module.tree, is_script=not module.name):
            head, dot, rest = ast.unparse(call.func).partition(".")
            here = names.get(owner, owner)
            parts.setdefault(here, []).append(Call(f"{names.get(head, head)}{dot}{rest}", module.file, call, certain))
    return parts


def functions(parts: Parts) -> frozenset[str]:
    """The functions that a program comes to each time it runs: those that certain calls name, from module level on."""
    called = [""]
    for function in called:  # grows on the way
        called += {call.name for call in parts.get(function, ()) if call.certain}.difference(called)
    return frozenset(called)


def calls(parts: Parts) -> Iterator[Call]:
    """All calls of a program. Certain are those that it comes to each time it runs."""
    called = functions(parts)
    for function, contents in parts.items():
        yield from (call._replace(certain=call.certain and function in called) for call in contents)


def is_conditional(node: ast.AST) -> bool:
    """Whether what is in the statement happens only sometimes: in an `if`, except that for the program itself, in a
    loop, and in a `try` that continues without it."""
    if isinstance(node, ast.If):
        return "__name__" not in ast.unparse(node.test)
    if isinstance(node, ast.Try):
        return not all(_ends_program(handler.body[-1]) for handler in node.handlers)
    return isinstance(node, ast.For | ast.AsyncFor | ast.While | ast.Match | ast.IfExp | ast.Lambda | ast.BoolOp)


def _ends_program(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return ast.unparse(statement.value.func) in _EXITS
    return isinstance(statement, ast.Raise)


def _names(module: Module) -> Mapping[str, str]:
    """The full names of what a file imports and defines."""
    names: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and (base := module.imported_from(node)):
            names |= {alias.asname or alias.name: f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, Function):
            names[node.name] = module.name_of(node.name)
    return names


def _calls(tree: ast.Module, *, is_script: bool) -> Iterator[tuple[str, ast.Call, bool]]:
    """Each call of a file, with the function that contains it (empty at module level), and whether that one comes to
    it each time."""
    todo: list[tuple[ast.AST, str, bool]] = [(tree, "", True)]
    for node, owner, certain in todo:  # grows on the way
        if isinstance(node, ast.Call):
            yield owner, node, certain
        if isinstance(node, Function):
            owner, certain = node.name, True
        is_other = isinstance(node, ast.If) and not is_script and "__name__" in ast.unparse(node.test)
        certain = certain and not is_conditional(node) and not is_other
        for child in ast.iter_child_nodes(node):
            todo.append((child, owner, certain))
            if is_conditional(child) and any(isinstance(part, ast.Return) for part in ast.walk(child)):
                certain = False  # what follows a statement that may return
