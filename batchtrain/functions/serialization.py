"""A function and what it needs on another machine: its source, the local files it imports, and the values it uses."""

from __future__ import annotations

import ast
import builtins
import contextlib
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
_INSTALLED = frozenset({"site-packages", "dist-packages"})
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
    files, module = _LocalFiles(), sys.modules.get(function.__module__)
    is_importable = function.__module__ != "__main__" and getattr(module, function.__qualname__, None) is function
    if is_importable:  # an import on the node gives the same function
        files.take(function.__module__)
        return Travelling(function.__module__, function.__qualname__, files.contents, {})
    text = _Text(function, files)
    return Travelling(MODULE, text.name, {**files.contents, f"{MODULE}.py": text.source.encode()}, text.values)


class _Text:
    """The source of a function of a notebook or a script, with what it uses of its module."""

    def __init__(self, function: FunctionType, files: _LocalFiles) -> None:
        self._function, self._files = function, files
        self._imports: list[str] = []
        self._parts: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.name, source, tree = _definition(function)
        self._named: dict[str, Any] = {self.name: function}
        """What each name of the module stands for."""
        self._define(self.name, function, _after_gang(source, tree, _known(function, {})))

    @property
    def source(self) -> str:
        """The text of the module."""
        values = "globals().update(__import__('call_function').values())"
        parts = ["from __future__ import annotations", "", *self._imports, values, *self._parts.values()]
        return "\n".join(parts) + "\n"

    def _define(self, name: str, thing: FunctionType | type, source: str) -> None:
        """Add the source of a function or class, after what it uses."""
        self._parts[name] = ""  # a function may call itself, also by another name
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                raise UsageError(
                    f"{name} imports `{'.' * node.level}{node.module or ''}`, but its source travels without its"
                    " package; import it by its full name"
                )
        self._files.take_imports(tree)
        scope = _known(thing, self._function.__globals__)
        for word in _names(compile(source, MODULE, "exec", annotations.compiler_flag)):
            if word in scope and not _everywhere(word, scope[word]):
                self._use(word, scope[word])
        self._imports += _submodules(tree, scope)
        other_names = self._parts.pop(name)
        self._parts[name] = f"\n\n{source}{other_names}"  # after its parts, as decorators and defaults run at once

    def _use(self, name: str, value: Any) -> None:
        thing = _unwrapped(value)
        if name in self._named:
            if _unwrapped(self._named[name]) is not thing:
                raise UsageError(
                    f"{self.name} uses two things that are called `{name}`, and only one can travel; rename one,"
                    " or write the decorator with functools.wraps"
                )
            return
        self._named[name] = value
        home, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        is_own = home in ("__main__", self._function.__module__) or "<locals>" in qualname
        if isinstance(value, ModuleType) and value.__name__ != "__main__":
            self._imports.append(f"import {value.__name__} as {name}")
            self._files.take(value.__name__)
        elif is_own and isinstance(thing, (FunctionType, type)):
            self._define_as(name, thing, wrapped=thing is not value)
        elif home != "__main__" and qualname and getattr(sys.modules.get(str(home)), qualname, None) is value:
            self._imports.append(f"from {home} import {qualname} as {name}")
            self._files.take(str(home))
        else:
            where, instead = (
                f"`{name}`, which {self.name} uses,",
                "create it in the function, or give it as an argument",
            )
            try:
                pack(value, {}, where=where, instead=instead)
                self.values[name] = value
            except TypeError as error:
                # The module of the type of a value, or of the object of a method: `random` for `random.randint`.
                module, word = type(getattr(value, "__self__", value)).__module__, getattr(value, "__name__", name)
                if module == "__main__" or getattr(sys.modules.get(module), word, None) is not value:
                    raise UsageError(str(error)) from None
                self._imports.append(f"from {module} import {word} as {name}")
                self._files.take(module)

    def _define_as(self, name: str, thing: FunctionType | type, *, wrapped: bool) -> None:
        """Define a function or class by its own name, and give it the name that is used."""
        defined_name, source, tree = _definition(thing)
        if wrapped and not getattr(tree, "decorator_list", ()):
            raise UsageError(f"the wrapper of `{name}` is not in its source; write it as a decorator with `@`")
        if defined_name == name:
            self._define(name, thing, source)
        else:
            self._use(defined_name, thing)
            self._parts[defined_name] += f"\n{name} = {defined_name}\n"


def _unwrapped(value: Any) -> Any:
    """The function below its decorators; any other value as it is."""
    return value if isinstance(value, type) else inspect.unwrap(value)


def _known(thing: FunctionType | type, globals_: dict[str, Any]) -> dict[str, Any]:
    """What the names in a function or class stand for: globals, and variables of the functions around it."""
    functions = [thing] if isinstance(thing, FunctionType) else map(_unwrapped, vars(thing).values())
    scope = dict(getattr(thing, "__globals__", globals_))
    for function in functions:
        if isinstance(function, FunctionType):
            scope.update(inspect.getclosurevars(function).nonlocals)
    return scope


def _definition(thing: FunctionType | type) -> tuple[str, str, ast.stmt]:
    """The statement that makes a function or class: the name that it gives, its source, and its tree."""
    try:
        source = textwrap.dedent(inspect.getsource(thing))
        (tree,) = ast.parse(source).body
    except (OSError, TypeError, SyntaxError):
        source, tree = "", ast.Pass()
    match tree:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name, source, tree
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda()):
            return name, source, tree
    raise UsageError(
        f"the source of {thing.__qualname__} is not known; write it with `def` or `class` in a file that is imported,"
        " or in a cell"
    )


def _after_gang(source: str, tree: ast.stmt, scope: dict[str, Any]) -> str:
    """The source of a function without the decorator `gang`, and those above it."""
    lines, start = source.splitlines(), 0
    for decorator in getattr(tree, "decorator_list", ()):
        made_by = decorator.func if isinstance(decorator, ast.Call) else decorator
        with contextlib.suppress(Exception):  # what cannot be found here is not `gang`
            if getattr(eval(ast.unparse(made_by), scope), "__module__", "") == "batchtrain.functions.gangs":
                start = decorator.end_lineno or 0
    return "\n".join(lines[start:])


def _submodules(tree: ast.AST, scope: dict[str, Any]) -> Iterator[str]:
    """Imports of the modules of packages, such as `concurrent.futures`; the import of a package may not load them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            package, _, submodule = ast.unparse(node).partition(".")
            if isinstance(scope.get(package), ModuleType) and f"{scope[package].__name__}.{submodule}" in sys.modules:
                yield f"import {scope[package].__name__}.{submodule}"


def _names(code: CodeType) -> Iterator[str]:
    assigned_names: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname == "STORE_NAME":
            assigned_names.add(step.argval)
        elif step.opname in _READS and step.argval not in assigned_names:
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _everywhere(name: str, value: Any) -> bool:
    """Whether a name is one that Python gives every module (`__name__`), or IPython every notebook (its `open`)."""
    of_ipython = str(getattr(value, "__module__", "")).startswith(("IPython.", "ipykernel."))
    return (of_ipython and hasattr(builtins, name)) or (name.startswith("__") and hasattr(ast, name))


class _LocalFiles:
    """The files of modules that are not installed, and of what they import, by their path on the node."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self._modules: set[str] = set()

    def take(self, module: str) -> None:
        """Add the files of a module, unless it is installed: a module alone, of a package all."""
        name = module.partition(".")[0]
        if name in sys.stdlib_module_names or name in ("batchtrain", "__main__") or name in self._modules:
            return
        self._modules.add(name)
        source = sys.modules.get(name) or importlib.util.find_spec(name)
        origin = getattr(source, "__file__", None) or getattr(source, "origin", None)
        folders = getattr(source, "__path__", None) or getattr(source, "submodule_search_locations", None)
        for top in map(Path, folders or filter(None, [origin])):  # a package may have several folders
            for path in _python_files(top):
                local = str(path.relative_to(top.parent))
                if local not in self.contents:
                    self.contents[local] = path.read_bytes()
                    with contextlib.suppress(SyntaxError, ValueError):  # a file that is never imported may be no Python
                        self.take_imports(ast.parse(self.contents[local]))

    def take_imports(self, tree: ast.AST) -> None:
        """Add the files of what a module imports."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.take(alias.name)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self.take(node.module)


def _python_files(top: Path) -> list[Path]:
    """The files of a module or a folder, but not those of installed packages."""
    if not _INSTALLED.isdisjoint(top.parts):
        return []
    paths = sorted(top.rglob("*.py")) if top.is_dir() else [top]
    return [path for path in paths if path.suffix == ".py" and _INSTALLED.isdisjoint(path.parts)]
