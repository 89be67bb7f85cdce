"""What a Python script imports and calls, itself and in what it imports from its own project; nothing is executed."""

from __future__ import annotations

import ast
import itertools
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from batchtrain.errors import UsageError
from batchtrain.scripts import reached
from batchtrain.scripts.distributions import packages_of
from batchtrain.scripts.reached import Module

SOURCES = "src"
"""The directory of a repository in which its packages may be."""
RUNS_PROGRAMS = ("subprocess.", "os.system", "os.popen", "os.exec", "os.spawn", "os.posix_spawn")
"""How the functions begin that start another program."""
SETTERS = {"keras.config.set_backend": "KERAS_BACKEND"}
"""The functions that set a variable of the environment to their argument."""
READERS = ("os.environ.get", "environ.get", "os.getenv", "getenv")
"""The functions that return a variable of the environment, or their second argument."""


class Place(NamedTuple):
    """A name in a file: of a module that is imported, or of what is called."""

    name: str
    file: Path
    line: int
    certain: bool = True
    """Whether the program comes to it each time: no condition decides, and the script calls the function in which it
    is."""
    function: str = ""
    """The full name of the function in which an import is."""

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]


class SetVariable(NamedTuple):
    """A place where a program sets a variable of its own environment."""

    name: str
    value: str
    """Empty if it is computed."""
    file: Path
    line: int
    is_default: bool
    """Whether a variable that is set already keeps its value."""


class Script(NamedTuple):
    """What was read of a script."""

    path: Path
    imports: tuple[Place, ...]
    """The modules from elsewhere, without those of Python itself."""
    calls: tuple[Place, ...]
    """The functions that are called, by their full names."""
    programs: tuple[Place, ...]
    """The commands of other programs that are started, as far as they are written out."""
    words: frozenset[str] = frozenset()
    """All words of the script and of the modules of its project that it imports."""
    above: tuple[Path, ...] = ()
    """Further directories whose modules it imports: above that of the script, or a `src`."""
    variables: tuple[SetVariable, ...] = ()

    @property
    def root(self) -> Path:
        """The directory with all files of the program: that of the script, or one above."""
        folder = self.path.parent.resolve()
        parents = reversed(folder.parents)
        return next((item for item in parents if item in self.above or item / SOURCES in self.above), folder)

    @property
    def python_path(self) -> str:
        """The directories whose modules it imports, as Python takes them where the program starts."""
        return ":".join(home.relative_to(self.root).as_posix() for home in self.above)


def read(path: Path) -> Script:
    """Read a script. Raises UsageError for a file that cannot be read or does not compile."""
    if path.is_dir():
        raise UsageError(
            f"{path} is a directory without a configuration; name the script in it, such as {path}/train.py"
        )
    if not path.is_file():
        raise UsageError(f"{path} does not exist; name a recipe directory or a Python script")
    with path.open("rb") as script:
        first_line = script.readline(200)
    if path.suffix == ".sh" or (first_line.startswith(b"#!") and b"python" not in first_line):
        raise UsageError(f"{path} is no Python script; name the script that it starts: `batchtrain run train.py`")
    search_path = [path.parent]
    modules = list(_modules(path, search_path))
    imports: dict[str, Place] = {}
    parts = reached.parts_of(modules)
    functions = reached.functions(parts)
    for module in modules:
        for mention in _imported(module):
            if _is_elsewhere(search_path, mention.top):
                certain = mention.certain and mention.function in functions
                former = imports.setdefault(mention.name, mention._replace(certain=certain))
                imports[mention.name] = former._replace(certain=former.certain or certain)
    calls: list[Place] = []
    programs: list[Place] = []
    for name, file, call, certain in reached.calls(parts):
        calls.append(Place(name, file, call.lineno, certain))
        arguments = (*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "args"))
        if name.startswith(RUNS_PROGRAMS) and arguments and (text := _written(arguments[0])):
            programs.append(Place(text, file, call.lineno, certain))
    words = {
        word
        for module in modules
        for word in re.findall(r"\w+", module.file.read_text(encoding="utf-8", errors="replace"))
    }
    above = tuple(search_path[1:])
    variables = tuple(variable for module in modules for variable in _variables(module, parts))
    return Script(path, tuple(imports.values()), tuple(calls), tuple(programs), frozenset(words), above, variables)


def _modules(script: Path, search_path: list[Path]) -> Iterator[Module]:
    """The script and the modules of its project that it imports, directly or not. search_path: gets each directory
    above the script that has one of them."""
    files = {script: ""}
    for file in (todo := [script]):  # grows on the way
        module = Module(file, files[file], _parsed(file))
        yield module
        for mention in _imported(module):
            if _is_elsewhere(search_path, mention.top):
                search_path += _above(script, mention.top)
            local = {path: name for home in search_path for path, name in _local_files(home, mention.name)}
            todo += [path for path in local if path not in files]
            files = local | files


def _is_elsewhere(search_path: Iterable[Path], module: str) -> bool:
    """Whether a module is neither Python's nor in one of the directories."""
    if module in sys.stdlib_module_names:
        return False
    return not any((home / module).is_dir() or (home / f"{module}.py").is_file() for home in search_path)


def _above(script: Path, module: str) -> list[Path]:
    """The nearest directory above a script, or `src` in one, that has a module which no package is known to bring;
    within the repository, or else the working directory."""
    if packages_of(module):
        return []
    folders = (script.parent.resolve() / script.name).parents
    repository = next((number for number, folder in enumerate(folders) if (folder / ".git").exists()), None)
    last = folders.index(Path.cwd()) if repository is None and Path.cwd() in folders else repository or 0
    homes = (home for folder in folders[: last + 1] for home in (folder, folder / SOURCES))
    files = (f"{module}.py", f"{module}/*.py", f"{module}/*/*.py")
    return [home for home in homes if any(True for pattern in files for _ in home.glob(pattern))][:1]


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


def _imported(module: Module) -> Iterator[Place]:
    """The imports of a file, without those for type checkers."""
    nodes: list[tuple[ast.AST, bool, str]] = [(module.tree, True, "")]
    for node, certain, function in nodes:  # grows on the way
        if isinstance(node, ast.If) and ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING":
            nodes.extend((child, certain, function) for child in node.orelse)
            continue
        certain_below = certain and not reached.is_conditional(node)
        below = module.name_of(node.name) if isinstance(node, reached.Function) else function
        nodes.extend((child, certain_below, below) for child in ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = module.imported_from(node)
            names = [".".join(filter(None, (base, alias.name))) for alias in node.names if alias.name != "*" or base]
        else:
            continue
        yield from (Place(name, module.file, node.lineno, certain, function) for name in names)


def _variables(module: Module, parts: reached.Parts) -> Iterator[SetVariable]:
    """The variables that a file sets in its environment: by SETTERS, `os.environ[NAME] = TEXT`, `setdefault` and
    `update`."""
    assignments = [node for node in ast.walk(module.tree) if isinstance(node, ast.Assign)]
    times = Counter(ast.unparse(node.targets[0]) for node in assignments)
    assigned = {target: node.value for node in assignments if times[target := ast.unparse(node.targets[0])] == 1}
    for setter, file, call, _ in reached.calls(parts):
        if setter in SETTERS and file == module.file and call.args:
            yield SetVariable(SETTERS[setter], _text(call.args[0], assigned)[0], file, call.lineno, is_default=False)
    for node in ast.walk(module.tree):
        pairs: list[tuple[ast.expr | None, ast.expr]] = []
        is_default = False
        match node:
            case ast.Assign(targets=[ast.Subscript(value=environ, slice=key)], value=value):
                pairs = [(key, value)]
            case ast.Call(func=ast.Attribute(value=environ, attr="setdefault"), args=[key, value]):
                pairs, is_default = [(key, value)], True
            case ast.Call(func=ast.Attribute(value=environ, attr="update"), args=args, keywords=keywords):
                pairs = [
                    pair for arg in args if isinstance(arg, ast.Dict) for pair in zip(arg.keys, arg.values, strict=True)
                ]
                pairs += [(ast.Constant(keyword.arg), keyword.value) for keyword in keywords]
            case _:
                continue
        if ast.unparse(environ) not in ("os.environ", "environ"):
            continue
        for variable, expression in pairs:
            text, name_read = _text(expression, assigned)
            if isinstance(variable, ast.Constant) and isinstance(name := variable.value, str):
                yield SetVariable(name, text, module.file, node.lineno, is_default or name_read == name)


def _text(value: ast.expr, assigned: Mapping[str, ast.expr]) -> tuple[str, str]:
    """The text of an expression, empty if it is computed, and the variable of the environment that goes before it.
    assigned: what the file assigns to the names to which it assigns once."""
    match value:
        case ast.Constant(value=str(text)):
            return text, ""
        case ast.Name(id=name) if name in assigned:
            return _text(assigned[name], {other: assigned[other] for other in assigned if other != name})
        case ast.BoolOp(op=ast.Or(), values=[first, default]):
            return _text(default, assigned)[0], _text(first, assigned)[1]
        case ast.Call(func=reader, args=[ast.Constant(value=str(name)), *defaults]) if ast.unparse(reader) in READERS:
            return "".join(_text(default, assigned)[0] for default in defaults), name
    return "", ""


def _local_files(directory: Path, module: str) -> Iterator[tuple[Path, str]]:
    """The files of a module in the directory, each with its name: packages on the way, and the module itself."""
    path, parts = directory, module.split(".")
    for number, part in enumerate(parts, 1):
        path = path / part
        for file in (path / "__init__.py", path.with_suffix(".py")):
            if file.is_file():
                yield file, ".".join(parts[:number])


def _written(argument: ast.expr) -> str:
    """A command that is written as a text, or as a list that begins with texts; empty if it is computed."""
    words = argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
    if words and ast.unparse(words[0]) == "sys.executable":
        words = [ast.Constant("python"), *words[1:]]
    texts = itertools.takewhile(lambda word: isinstance(word, ast.Constant) and isinstance(word.value, str), words)
    return " ".join(ast.literal_eval(text) for text in texts)
