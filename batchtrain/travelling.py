"""A function and what it needs on another machine: its source, the local files it imports, and the values it uses."""

from __future__ import annotations

import ast
import builtins
import dis
import importlib.util
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from batchtrain.errors import UsageError
from batchtrain.runtime.call_function import pack

MODULE = "batchtrain_function"
"""The module on the node that holds the source of a function of a notebook or a script."""
_INSTALLED = ("site-packages", "dist-packages")
_READS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")


class Travelling(NamedTuple):
    """A function on its way: `module` and `name` find it among the files."""

    module: str
    name: str
    files: dict[str, bytes]
    values: dict[str, Any]


def travelling(function: Any) -> Travelling:
    """What a node needs to call a function. Raises UsageError for a function that cannot be sent."""
    function = inspect.unwrap(function)
    if not isinstance(function, FunctionType):
        raise UsageError(f"{function!r} is a {type(function).__name__}; give a function that is made with `def`")
    if function.__name__ == "<lambda>":
        raise UsageError("a lambda has no source of its own; give a function that is made with `def`")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise UsageError(f"{function.__name__} is asynchronous or a generator; give a function that returns its value")
    files: dict[str, bytes] = {}
    if _importable(function):
        _take(function.__module__, files)
        return Travelling(function.__module__, function.__qualname__, files, {})
    text = _Text(function, files)
    files[f"{MODULE}.py"] = text.source.encode()
    return Travelling(MODULE, function.__name__, files, text.values)


def _importable(function: FunctionType) -> bool:
    """Whether an import on the node gives the same function."""
    module = sys.modules.get(function.__module__)
    return function.__module__ != "__main__" and getattr(module, function.__qualname__, None) is function


class _Text:
    """The source of a function of a notebook or a script, with what it uses of its module."""

    def __init__(self, function: FunctionType, files: dict[str, bytes]) -> None:
        self._function, self._files = function, files
        self._imports: dict[str, str] = {}
        self._parts: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self._define(function.__name__, function, first=True)

    @property
    def source(self) -> str:
        """The text of the module."""
        values = "globals().update(__import__('__main__').VALUES)"  # call_function.py is the program
        parts = ["from __future__ import annotations", "", *self._imports.values(), values, *self._parts.values()]
        return "\n".join(parts) + "\n"

    def _define(self, name: str, thing: Any, *, first: bool = False) -> None:
        """Add the source of a function or class, after what it uses."""
        self._parts[name] = ""  # a function may call itself
        source = _source(thing)
        tree = ast.parse(source).body[0]
        if first and isinstance(tree, ast.FunctionDef):  # without its decorators, of which `gang` is one
            source = "\n".join(source.splitlines()[tree.lineno - 1 :])
            tree = ast.parse(source).body[0]
        _take_imports(tree, self._files)
        around = inspect.getclosurevars(thing).nonlocals if isinstance(thing, FunctionType) else {}
        known = {**getattr(thing, "__globals__", self._function.__globals__), **around}
        for used in _names(compile(source, MODULE, "exec", annotations.compiler_flag)):
            new = used in known and used not in (*self._parts, *self._imports, *self.values)
            if new and not _everywhere(used, known[used]):
                self._use(used, known[used])
        del self._parts[name]  # after its parts, because decorators and defaults run at once
        self._parts[name] = f"\n\n{source}"

    def _use(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType):
            self._imports[name] = f"import {value.__name__} as {name}"
            _take(value.__name__, self._files)
            return
        home, called = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        if isinstance(value, (FunctionType, type)) and (home == self._function.__module__ or "<locals>" in called):
            self._define(name, value)
        elif isinstance(home, str) and called and getattr(sys.modules.get(home), called, None) is value:
            self._imports[name] = f"from {home} import {called} as {name}"
            _take(home, self._files)
        else:
            try:
                pack(value, {}, where=f"`{name}`, which {self._function.__name__} uses,")
            except TypeError as error:
                raise UsageError(f"{error}; or create it in the function") from None
            self.values[name] = value


def _source(thing: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError):
        raise UsageError(
            f"the source of {thing.__qualname__} is not known; write it in a file that is imported, or in a cell"
        ) from None


def _names(code: CodeType) -> Iterator[str]:
    """The names that code reads from its module."""
    assigned: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname == "STORE_NAME":
            assigned.add(step.argval)
        elif step.opname in _READS and step.argval not in assigned:
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _everywhere(name: str, value: Any) -> bool:
    """Whether a name is one that Python gives every module (`__name__`), or IPython every notebook (its `open`)."""
    of_ipython = str(getattr(value, "__module__", "")).startswith(("IPython.", "ipykernel."))
    return (of_ipython and hasattr(builtins, name)) or (name.startswith("__") and hasattr(ast, name))


# --- files ----------------------------------------------------------------------------------------------------------


def _take(module: str, files: dict[str, bytes]) -> None:
    """Add the files of a module, and of what it imports, unless it is installed: a module alone, of a package all."""
    name = module.partition(".")[0]
    if name in sys.stdlib_module_names or name in ("batchtrain", "__main__"):
        return
    source = sys.modules.get(name) or importlib.util.find_spec(name)
    origin = getattr(source, "__file__", None) or getattr(source, "origin", None)
    if not origin or not origin.endswith(".py") or any(part in _INSTALLED for part in Path(origin).parts):
        return
    path = Path(origin)
    package = path.name == "__init__.py"
    for file in sorted(path.parent.rglob("*.py")) if package else [path]:
        local = str(file.relative_to(path.parent.parent if package else path.parent))
        if local not in files:
            files[local] = file.read_bytes()
            _take_imports(ast.parse(files[local]), files)


def _take_imports(tree: ast.AST, files: dict[str, bytes]) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                _take(alias.name, files)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            _take(node.module, files)
