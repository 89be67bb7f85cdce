"""What a Python script imports and calls, itself and in what it imports from its own directory; nothing is executed."""

from __future__ import annotations

import ast
import itertools
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from batchtrain.errors import UsageError

RUNS_PROGRAMS = ("subprocess.", "os.system", "os.popen", "os.exec", "os.spawn", "os.posix_spawn")
"""How the functions begin that start another program."""


class Place(NamedTuple):
    """A name in a file: of a module that is imported, or of what is called."""

    name: str
    file: Path
    line: int

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


class Script(NamedTuple):
    """What was read of a script."""

    path: Path
    imports: tuple[Place, ...]
    """The modules from elsewhere, without those of Python itself."""
    calls: tuple[Place, ...]
    """The functions that are called, by their full names."""
    programs: tuple[Place, ...]
    """The commands of other programs that are started, as far as they are written out."""


def read(path: Path) -> Script:
    """Read a script. Raises UsageError for a file that cannot be read or does not compile."""
    if path.is_dir():
        raise UsageError(
            f"{path} is a directory without a configuration; name the script in it, such as {path}/train.py"
        )
    if not path.is_file():
        raise UsageError(f"{path} does not exist; name a recipe directory or a Python script")
    imports: dict[str, Place] = {}
    calls: list[Place] = []
    programs: list[Place] = []
    for file, tree in _files(path):
        for mention in _imported(file, tree):
            is_local = (path.parent / mention.top).is_dir() or (path.parent / f"{mention.top}.py").is_file()
            if not is_local and mention.top not in sys.stdlib_module_names:
                imports.setdefault(mention.name, mention)
        for name, call in _called(tree):
            calls.append(Place(name, file, call.lineno))
            arguments = (*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "args"))
            if name.startswith(RUNS_PROGRAMS) and arguments and (text := _written(arguments[0])):
                programs.append(Place(text, file, call.lineno))
    return Script(path, tuple(imports.values()), tuple(calls), tuple(programs))


def _files(script: Path) -> Iterator[tuple[Path, ast.Module]]:
    """The script and the files of its directory that it imports, directly or not."""
    files = [script]
    for file in files:  # grows on the way
        tree = _parsed(file)
        yield file, tree
        for mention in _imported(file, tree):
            files += [local for local in _local_files(script.parent, mention.name) if local not in files]


def _parsed(file: Path) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(file.read_bytes(), str(file))
    except SyntaxError as error:
        version = ".".join(map(str, sys.version_info[:2]))
        raise UsageError(
            f"{file}:{error.lineno or 1}: {error.msg} (Python {version}); correct the line, and repeat the command"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None


def _imported(file: Path, tree: ast.Module) -> Iterator[Place]:
    """The imports of a file, without those for type checkers. A relative one names a module of the directory."""
    nodes: list[ast.AST] = [tree]
    for node in nodes:  # grows on the way
        if isinstance(node, ast.If) and ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING":
            nodes.extend(node.orelse)
            continue
        nodes.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            yield from (Place(alias.name, file, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield from (
                Place(".".join(filter(None, (module, alias.name))), file, node.lineno)
                for alias in node.names
                if alias.name != "*" or module
            )


def _local_files(directory: Path, module: str) -> Iterator[Path]:
    """The files of a module in the directory: packages on the way, and the module itself."""
    path = directory
    for part in module.split("."):
        path = path / part
        yield from (file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file())


def _called(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """The calls of a file, with the full names of imported functions."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            head, dot, rest = ast.unparse(node.func).partition(".")
            yield f"{names.get(head, head)}{dot}{rest}", node


def _written(argument: ast.expr) -> str:
    """A command that is written as a text, or as a list that begins with texts; empty if it is computed."""
    words = argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
    if words and ast.unparse(words[0]) == "sys.executable":
        words = [ast.Constant("python"), *words[1:]]
    texts = itertools.takewhile(lambda word: isinstance(word, ast.Constant) and isinstance(word.value, str), words)
    return " ".join(ast.literal_eval(text) for text in texts)
