"""Reads the `source` directories of a recipe in a fixed order, so that they give the same bytes on every machine."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from batchtrain.config import travel
from batchtrain.config.patterns import late
from batchtrain.config.projects import FILE as PROJECT_FILE
from batchtrain.config.schema import shortened
from batchtrain.config.travel import AnySource, FileOnDisk, LargeSource, LeftOut, Source, Survey
from batchtrain.config.types import Recipe
from batchtrain.errors import PlanError
from batchtrain.launchers.launch import File

SCHEMAS = ".schemas"
"""The directory of the schemas beside a recipe, for editors."""
CACHES = frozenset(
    {"__pycache__", ".git", ".ipynb_checkpoints", ".venv", ".mypy_cache", ".DS_Store", SCHEMAS, PROJECT_FILE}
)
"""Names that are left out without mention."""
_KEYS = ("id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")
CREDENTIALS = (
    ".env*", "*.pem", *_KEYS, *(f"{key}.pub" for key in _KEYS), "credentials.yaml", "credentials.yml",
    "credentials.json", "application_default_credentials.json", ".netrc",
    ".git-credentials", ".pypirc", ".aws", ".azure", ".ssh",
)  # fmt: skip
"""Names that often hold secrets, as patterns."""
CREDENTIALS_NAME = late("|".join(map(fnmatch.translate, CREDENTIALS)))
IGNORE_FILE = ".batchtrainignore"
"""The file in a source that lists what is not sent, in the syntax of gitignore."""
GIT_IGNORE = ".gitignore"
LINKS = "the rule that links to directories are not followed"
_CACHE, _RUN = "the rule for caches", "the rule that results of earlier runs are not sent"
_ITSELF = "the .gitignore of a directory that leaves itself out"  # as `runs` and the caches of many tools do
"""Rules that leave out much and are not mentioned in a plan."""
MOST_BYTES = 64 * 1024 * 1024
MOST_FILES = 20_000
"""Where the look at a source that must fit into a request ends."""
SMALL = 64 * 1024
"""A file of a large source that is smaller is no part of its archive, unless they are many."""
MOST_PYTHON = 1024 * 1024
"""Number of bytes of Python files that are compiled while validating."""
SHELL_SCRIPTS = (".sh", ".bash")
SCRIPT_START = 65_536
"""Number of bytes of a script that are searched for CR LF while validating."""
LARGE = 1024 * 1024
"""A larger source that goes to the account of credentials.yaml has an archive of its own."""


class _Found(NamedTuple):
    """A file to send."""

    path: str
    name: str
    size: int
    mode: int
    modified: int


class _Unfit(Exception):
    """A directory that cannot be sent: the broken check and the reason."""

    def __init__(self, rule: str, message: str) -> None:
        self.rule, self.message = rule, message


def surveys(recipe: Recipe, *, local: bool = False) -> dict[str, Survey]:
    """The survey of every `source` of the recipe, by its name as written; and of each path of `global_resources.files`
    that does not exist. local: the emulator takes any size."""
    packs = not (local or travel.link_of(recipe))
    directory = Path(recipe.directory)
    sources = sorted(_named(recipe).items())
    surveys = {name: _survey(directory, name, commands, packs=packs) for name, commands in sources}
    for files in recipe.resources.files:
        path = os.path.normpath(directory.absolute() / files.source.path)
        if not os.access(path, os.F_OK):
            surveys[files.source.path] = surveys.get(files.source.path, Survey())._replace(absent=path)
    return surveys


def read_sources(recipe: Recipe) -> dict[str, AnySource]:
    """The files of every `source` of the recipe, by its name as written. Raises PlanError for files that cannot be
    sent."""
    largest, directory = LARGE if travel.link_of(recipe) else MOST_BYTES, Path(recipe.directory)
    return {name: _read_all(directory, name, largest) for name in sorted(_named(recipe))}


def _read_all(directory: Path, source: str, largest: int) -> AnySource:
    try:
        files, walk = _files(directory, source)
        if sum(file.size for file in files) <= largest:
            return Source(tuple(map(_read, files)), walk.left_out)
        return _large(files, walk.left_out)
    except (_Unfit, OSError) as error:
        raise PlanError(f"the source `{shortened(source)}` of {directory}: {_unfit(error).message}") from None


def _named(recipe: Recipe) -> dict[str, set[str]]:
    """The commands of the tasks with each source."""
    commands: dict[str, set[str]] = {}
    for job in recipe.jobs:
        for task in (*job.tasks, job.merge_task):
            if task is not None and task.source is not None:
                commands.setdefault(task.source, set()).add(task.command or "")
    return commands


def _survey(directory: Path, source: str, commands: Iterable[str], *, packs: bool) -> Survey:
    try:
        files, walk = _files(directory, source, ends=packs)
        fits = not packs or travel.surely_fits(file.size for file in files)
        too_large = "" if fits else travel.too_large(map(_read, files))
        syntax_errors, line_ends = tuple(_syntax_errors(files)), tuple(_line_ends(files))
        unsent = dict(walk.unsent(commands))
    except (_Unfit, OSError) as error:
        unfit = _unfit(error)
        return Survey(rule=unfit.rule, message=unfit.message)
    return Survey(
        tuple(file.name for file in files), too_large=too_large, syntax_errors=syntax_errors, line_ends=line_ends,
        unsent=unsent,
    )  # fmt: skip


def _syntax_errors(files: list[_Found]) -> Iterator[tuple[str, str]]:
    """The Python files that do not compile: the name, and the line with the reason. Raises OSError."""
    total, version = 0, ".".join(map(str, sys.version_info[:2]))
    for file in (file for file in files if file.name.endswith(".py")):
        total += file.size
        if total > MOST_PYTHON:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                compile(Path(file.path).read_bytes(), file.name, "exec", dont_inherit=True)
            except SyntaxError as error:
                yield file.name, f"line {error.lineno or 1}: {error.msg} (Python {version})"
            except (ValueError, RecursionError, MemoryError) as error:
                yield file.name, f"line 1: {error} (Python {version})"


def _line_ends(files: list[_Found]) -> Iterator[str]:
    """The scripts with CR LF: of a shell anywhere, of others in the line that names the interpreter. Raises OSError."""
    for file in files:
        is_shell = file.name.endswith(SHELL_SCRIPTS)
        if is_shell or file.mode & 0o100:
            with open(file.path, "rb") as script:
                start = script.read(SCRIPT_START)
            text = start if is_shell else start.partition(b"\n")[0] + b"\n"
            if b"\r\n" in text and (is_shell or text.startswith(b"#!")):
                yield file.name


def _read(file: _Found) -> File:
    return File(file.name, Path(file.path).read_bytes(), 0o755 if file.mode & 0o100 else 0o644, file.modified)


def _large(files: list[_Found], left_out: tuple[LeftOut, ...]) -> LargeSource:
    entries = tuple(
        FileOnDisk(file.name, file.path, 0o755 if file.mode & 0o100 else 0o644, sha256_of(file.path)) for file in files
    )
    small = [file for file in files if file.size < SMALL]
    others = tuple(map(_read, small if sum(file.size for file in small) <= LARGE else ()))
    size = sum(file.size for file in files) - sum(len(file.data) for file in others)
    source = LargeSource(entries, size, "", left_out, others)
    facts = "".join(f"{file.name}\0{file.mode}\0{file.sha256}\0" for file in source.archived)
    return source._replace(digest=hashlib.sha256(facts.encode()).hexdigest())


def sha256_of(path: str | Path) -> str:
    """The digest of a file of any size, in hexadecimal digits."""
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _unfit(error: _Unfit | OSError) -> _Unfit:
    if isinstance(error, _Unfit):
        return error
    return _Unfit("source-unreadable", f"`{shortened(str(error.filename))}` cannot be read: {error.strerror or error}")


def _files(directory: Path, source: str, *, ends: bool = False) -> tuple[list[_Found], _Walk]:
    """The files to send, in order, and the walk that read them. ends: give up far above what fits into a request, so
    that a data directory is not read whole. Raises _Unfit, OSError."""
    folder = directory / source
    if not source.strip():
        raise _Unfit("source-missing", "it does not name a directory; write one such as `../src`, or remove the key")
    if "\0" in source or not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        raise _Unfit("source-missing", f"the directory `{shortened(source)}` does not exist beside this file")
    files: list[_Found] = []
    total = 0
    walk = _Walk(folder)
    for name, entry in walk.files():
        status = entry.stat()
        total += status.st_size
        if ends and (total > MOST_BYTES or len(files) == MOST_FILES):
            sizes = [*((file.name, file.size) for file in files), (name, status.st_size)]
            raise _Unfit("source-size", travel.larger(sizes))
        files.append(_Found(entry.path, name, status.st_size, status.st_mode, int(status.st_mtime)))
    if not files:
        left_out = travel.listed(walk.left_out)
        raise _Unfit(
            "source-empty",
            f"`{shortened(source)}` has no file for the task{f' (left out: {left_out})' if left_out else ''}; put the"
            f" program there, write `!NAME` for a file that is left out into its `{IGNORE_FILE}`, or remove `source`",
        )
    if wrong := travel.reserved(file.name for file in files):
        raise _Unfit("source-reserved", wrong)
    return sorted(files, key=lambda file: file.name), walk


class _Ignores(NamedTuple):
    """The lines of an ignore file."""

    lines: tuple[tuple[bool, re.Pattern[str]], ...]
    any: re.Pattern[str]
    above: str = ""
    """The path of the source from the directory of a file that lies above it."""
    depth: int = 0
    """The length of the path of the file's directory in the source."""

    def decision(self, name: str) -> bool | None:
        """Whether the last line that names a path of the source leaves it out; None if no line names it."""
        path = self.above + name[self.depth :]
        if not self.any.search(path):
            return None
        return next((ignores for ignores, regex in reversed(self.lines) if _names(regex, path)), None)


def _names(regex: re.Pattern[str], path: str) -> bool:
    """Whether a line names a path itself, and not only a directory above it: the walk descends into no such one."""
    return any(
        match.end() == len(path)
        if match.lastgroup  # the slash at the end of a directory
        else match.end() < len(path) or not path.endswith("/")  # `data/**` names what is in data/
        for match in regex.finditer(path)
    )


def _ignores(file: Path, above: str = "", depth: int = 0) -> tuple[_Ignores, ...]:
    """The lines of an ignore file; empty without the file. As in git, a line of .gitignore that is no rule is skipped.
    Raises _Unfit, OSError."""
    if not os.path.isfile(file):  # noqa: PTH113 - Path.is_file raises for a name that is too long
        return ()
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # a slow import (40 ms)

    lines: list[tuple[bool, re.Pattern[str]]] = []
    try:
        strict = file.name == IGNORE_FILE
        for line in file.read_text(encoding="utf-8", errors="strict" if strict else "surrogateescape").splitlines():
            with contextlib.nullcontext() if strict else contextlib.suppress(ValueError):
                rule = GitIgnoreSpecPattern(line)
                if rule.include is not None and rule.regex is not None:
                    lines.append((rule.include, rule.regex))
    except ValueError as error:  # also text that is not UTF-8
        raise _Unfit("source-unreadable", f"`{IGNORE_FILE}` has a line that is no rule of gitignore: {error}") from None
    texts = (regex.pattern.replace("?P<ps_d>", "?:") for _, regex in lines)
    return (_Ignores(tuple(lines), re.compile("|".join(texts)), above, depth),) if lines else ()


def _above(folder: Path) -> tuple[_Ignores, ...]:
    """The .gitignore files above a source, up to the root of its git repository; none outside of a repository."""
    parents = list(folder.resolve().parents) if not (folder / ".git").exists() else []
    root = next((number for number, parent in enumerate(parents, 1) if (parent / ".git").exists()), 0)
    source = folder.resolve()
    return tuple(
        ignores
        for parent in reversed(parents[:root])
        for ignores in _ignores(parent / GIT_IGNORE, f"{source.relative_to(parent).as_posix()}/")
    )


class _Walk:
    """The files below a source one by one, so that a huge tree is abandoned early. Does not descend into links and
    directories that are left out. Does not recurse, however deep the tree is."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._own = folder, _ignores(folder / IGNORE_FILE)
        self._left_out: dict[str, str] = {}  # the rule of each name

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        rules = sorted({*self._left_out.values()} - {_CACHE, _RUN, _ITSELF})
        return tuple(
            LeftOut(rule, tuple(sorted(n for n, of in self._left_out.items() if of == rule))) for rule in rules
        )

    def unsent(self, commands: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Each file that a command names and a rule leaves out, with the rule, and each directory (with `/` at the
        end), except that what git ignores is usually made by the program."""
        rules, tops = self._left_out, {name.partition("/")[0] for name in self._left_out}
        words = (path for command in commands if tops for path in travel.paths_in(command))
        for path in {path for path in words if path.partition("/")[0] in tops}:
            name = travel.left_out_of(path, rules)
            if name and os.path.isfile(self._folder / path):  # noqa: PTH113 - as above
                yield path, rules[name]
            elif name and rules[name] not in (GIT_IGNORE, _ITSELF) and os.path.isdir(self._folder / path):  # noqa: PTH112
                yield f"{path}/", rules[name]

    def files(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Each file with its path in the source."""
        waiting = [("", _above(self._folder))]
        while waiting:
            below, rules = waiting.pop()
            rules += _ignores(self._folder / below / GIT_IGNORE, depth=len(below))
            with os.scandir(self._folder / below) as entries:
                for entry in entries:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    name = f"{below}{entry.name}{'/' if is_folder else ''}"
                    if self._leaves_out(name, entry.name, rules):
                        continue
                    if is_folder and Path(entry.path, "run.json").is_file() and Path(entry.path, "config").is_dir():
                        self._left_out[name] = _RUN
                    elif is_folder:
                        waiting.append((name, rules))
                    elif entry.is_file():
                        yield name, entry
                    elif entry.is_dir():
                        self._left_out[f"{name}/"] = LINKS

    def _leaves_out(self, name: str, last: str, rules: tuple[_Ignores, ...]) -> bool:
        decision_here = self._own[0].decision(name) if self._own else None
        decisions = ((ignores.decision(name), ignores) for ignores in reversed(rules))  # the deepest file wins
        if decision_here is not None:
            rule = IGNORE_FILE if decision_here else ""
        elif last in CACHES or last.endswith(".pyc") or name == IGNORE_FILE:
            rule = _CACHE
        elif by := next(
            (ignores if decision else None for decision, ignores in decisions if decision is not None), None
        ):
            is_own = by.depth and by.decision(f"{name[: by.depth]}{GIT_IGNORE}")
            rule = _ITSELF if is_own else GIT_IGNORE
        else:
            rule = "the default rules" if CREDENTIALS_NAME.fullmatch(last) else ""
        if rule:
            self._left_out[name] = rule
        return bool(rule)
