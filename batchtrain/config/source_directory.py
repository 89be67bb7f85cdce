"""Reads the `source` directories of a recipe in a fixed order, so that they give the same bytes on every machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from batchtrain.config import travel
from batchtrain.config.schema import shortened
from batchtrain.config.travel import FileOnDisk, LargeSource, Survey
from batchtrain.config.types import Recipe
from batchtrain.errors import PlanError

if TYPE_CHECKING:
    from batchtrain.launchers.launch import File

LEFT_OUT = frozenset({"__pycache__", ".git", ".ipynb_checkpoints", ".venv", ".mypy_cache", ".DS_Store"})
SECRET = frozenset({"credentials.yaml", "credentials.yml", "credentials.json"})  # these must not be in a request
IGNORE_FILE = ".batchtrainignore"
"""The file in a source that lists what is not sent, in the syntax of gitignore."""
NEVER = SECRET | {IGNORE_FILE}
MOST_BYTES = 64 * 1024 * 1024
MOST_FILES = 20_000
"""Limits far above the files of a task, so that a data directory is not read whole."""
LARGE = 1024 * 1024
"""A larger source that goes to the account of credentials.yaml is an archive of its own."""


class _Found(NamedTuple):
    """A file to send."""

    path: str
    name: str
    size: int
    mode: int


class _Unfit(Exception):
    """A directory that cannot be sent: the broken check and the reason."""

    def __init__(self, rule: str, message: str) -> None:
        self.rule, self.message = rule, message


def surveys(recipe: Recipe) -> dict[str, Survey]:
    """The survey of every `source` of the recipe, by its name as written."""
    limited = not travel.any_size(recipe)
    packs = limited and not travel.through_storage(recipe)
    directory = Path(recipe.directory)
    return {name: _survey(directory, name, packs=packs, limited=limited) for name in sorted(_named(recipe))}


def read_sources(recipe: Recipe) -> dict[str, tuple[File, ...] | LargeSource]:
    """The files of every `source` of the recipe, by its name as written. Raises PlanError for files that cannot be
    sent."""
    limited, largest = not travel.any_size(recipe), LARGE if travel.through_storage(recipe) else MOST_BYTES
    directory = Path(recipe.directory)
    return {name: _read_all(directory, name, largest, limited=limited) for name in sorted(_named(recipe))}


def _read_all(directory: Path, source: str, largest: int, *, limited: bool) -> tuple[File, ...] | LargeSource:
    try:
        files = _files(directory, source, limited=limited)
        if limited or sum(file.size for file in files) <= largest:
            return tuple(map(_read, files))
        return _large(files)
    except (_Unfit, OSError) as error:
        unfit = error if isinstance(error, _Unfit) else _unreadable(error)
        raise PlanError(f"the source `{shortened(source)}` of {directory}: {unfit.message}") from None


def _named(recipe: Recipe) -> set[str]:
    tasks = (task for job in recipe.jobs for task in (*job.tasks, job.merge_task) if task is not None)
    return {task.source for task in tasks if task.source is not None}


def _survey(directory: Path, source: str, *, packs: bool, limited: bool) -> Survey:
    try:
        files = _files(directory, source, limited=limited)
        fits = not packs or travel.surely_fits(file.size for file in files)
        too_large = "" if fits else travel.too_large(map(_read, files))
    except OSError as error:
        unfit = _unreadable(error)
        return Survey(rule=unfit.rule, message=unfit.message)
    except _Unfit as unfit:
        return Survey(rule=unfit.rule, message=unfit.message)
    return Survey(tuple(file.name for file in files), too_large=too_large)


def _read(file: _Found) -> File:
    from batchtrain.launchers.launch import File  # a slow import (2 ms), not needed to validate a small source

    return File(file.name, Path(file.path).read_bytes(), 0o755 if file.mode & 0o100 else 0o644)


def _large(files: list[_Found]) -> LargeSource:
    known = tuple(
        FileOnDisk(file.name, file.path, 0o755 if file.mode & 0o100 else 0o644, _sha256(file.path)) for file in files
    )
    digest = hashlib.sha256("".join(f"{name}\0{mode}\0{sha256}\0" for name, _, mode, sha256 in known).encode())
    return LargeSource(known, sum(file.size for file in files), digest.hexdigest())


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _unreadable(error: OSError) -> _Unfit:
    return _Unfit("source-unreadable", f"`{shortened(str(error.filename))}` cannot be read: {error.strerror or error}")


def _files(directory: Path, source: str, *, limited: bool) -> list[_Found]:
    """The files to send, in order. Raises _Unfit, OSError."""
    folder = directory / source
    if not source.strip():
        raise _Unfit("source-missing", "it does not name a directory; write one such as `../src`, or remove the key")
    if "\0" in source or not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        raise _Unfit("source-missing", f"the directory `{shortened(source)}` does not exist beside this file")
    files: list[_Found] = []
    total = 0
    for entry in _walk(str(folder), _ignored(folder)):
        status = entry.stat()
        total += status.st_size
        if limited and (total > MOST_BYTES or len(files) == MOST_FILES):
            most = f"{MOST_BYTES >> 20} MiB" if total > MOST_BYTES else f"{MOST_FILES:,} files"
            raise _Unfit(
                "source-huge",
                f"it has more than {most}, which every task would carry; send data with `input_data` or"
                " `resource_files`, or the source through a storage account (`batchtrain.storage_account_settings`)",
            )
        name = os.path.relpath(entry.path, folder).replace(os.sep, "/")
        files.append(_Found(entry.path, name, status.st_size, status.st_mode))
    if not files:
        ignored = ", ".join(sorted(LEFT_OUT | SECRET))
        raise _Unfit(
            "source-empty",
            f"`{shortened(source)}` has no file for the task; put the program there, or remove `source`"
            f" (ignored: {ignored}, and what {IGNORE_FILE} names)",
        )
    if wrong := travel.reserved(file.name for file in files):
        raise _Unfit("source-reserved", wrong)
    return sorted(files, key=lambda file: file.name)


def _ignored(folder: Path) -> Callable[[str], bool]:
    """Whether the ignore file names a path; paths of directories end with `/`. Raises _Unfit, OSError."""
    file = folder / IGNORE_FILE
    if not file.is_file():
        return lambda _: False
    import pathspec  # a slow import (40 ms), needed only for an ignore file

    try:
        spec = pathspec.GitIgnoreSpec.from_lines(file.read_text(encoding="utf-8").splitlines())
    except ValueError as error:  # also text that is not UTF-8
        raise _Unfit("source-unreadable", f"`{IGNORE_FILE}` has a line that is no rule of gitignore: {error}") from None
    return lambda path: spec.match_file(os.path.relpath(path, folder) + ("/" if path.endswith("/") else ""))


def _walk(directory: str, ignored: Callable[[str], bool]) -> Iterator[os.DirEntry[str]]:
    """Yields the files below a directory one by one, so that a huge tree is abandoned early; does not follow links to
    directories. Does not recurse, however deep the tree is."""
    waiting = [directory]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name in LEFT_OUT:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if not ignored(f"{entry.path}/"):
                        waiting.append(entry.path)
                elif _may_travel(entry) and not ignored(entry.path):
                    yield entry


def _may_travel(entry: os.DirEntry[str]) -> bool:
    return entry.name not in NEVER and not entry.name.endswith(".pyc") and entry.is_file()
