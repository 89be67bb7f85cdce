"""From run directories to recipes: how the sources of two runs differ, and a recipe that runs one again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from batchtrain.config import document, projects
from batchtrain.config.schema import dotted
from batchtrain.config.types import Job, Recipe, Task, convert
from batchtrain.config.types.secret import MASK
from batchtrain.errors import UsageError
from batchtrain.runs import source_copy
from batchtrain.runs.compare import SECTIONS, effective_of
from batchtrain.runs.directory import RunDirectory
from batchtrain.runs.local_names import LocalNames, safe_name
from batchtrain.runs.source_copy import SourceDirectory
from batchtrain.service.local_files import Folder

DIRECTORY_MODE, MOST_MODE, OWNERS_MODE = 0o777, 0o755, 0o600
"""Of restored directories; the most and the least of restored files: nothing that changes who runs a file."""


class MaskedPlace(NamedTuple):
    """Where a restored recipe has `***` in place of a secret, or lacks one."""

    file: str
    """Relative to the directory of the recipe."""
    line: int
    """0 for a property that the file lacks."""
    property: str
    """Its path, such as `pool_specification.rdp.password`; empty in a file of a source."""

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        return f"{self.file}{line}{f' ({self.property})' if self.property else ''}"


class Restored(NamedTuple):
    """A recipe that was written from a run."""

    run: str
    directory: str
    sources: tuple[str, ...]
    """The directories of its sources."""
    masked: tuple[MaskedPlace, ...]
    """Secrets that no run directory has, which the user writes again."""
    remarks: tuple[str, ...] = ()
    """Files of sources that were left out, or have another name."""


class _File(NamedTuple):
    """A file of a source, as it was written or left out."""

    path: str
    """Relative to the directory of the recipe."""
    is_masked: bool
    remark: str
    """What is not as it was; empty if nothing is."""


def restore(run: RunDirectory, directory: Path) -> Restored:
    """Write the recipe of a run, with the values of `--set` and the files of its sources, to a new directory.

    It is a project of its own, so it does not continue the checkpoints of the run. The run directory may be that of
    another user: nothing is written outside of `directory`. Raises UsageError for a run without a copy of its source,
    and for a directory that has files.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} exists and is not an empty directory; name a new one")
    configuration = _configuration_of(run)
    recipe, copy = _recipe_of(run, configuration, directory), source_copy.read(run)
    sources = copy.sources if copy and copy.kept else ()
    folders = _folders(sources)
    for source in (task.source for job in recipe.jobs for task in source_copy.tasks_of(job)):
        if source is not None and source not in folders:
            why = copy.reason or f"source.json has no {source}" if copy else "it was recorded by an earlier version"
            raise UsageError(f"run {run.name} has no copy of its source: {why}")
    for source_directory in sources:
        _check_names(run, source_directory)
    jobs = tuple(_with_sources_in(job, folders) for job in recipe.jobs)
    msgspec.structs.replace(recipe, jobs=jobs).save(directory / "config")
    projects.write(directory / "config")
    files = [file for source in sources for file in _written(run, source, directory, folders[source.name])]
    masked_files = [file.path for file in files if file.is_masked]
    places = (*_in_configuration(directory, configuration), *_in_files(directory, masked_files))
    remarks = tuple(file.remark for file in files if file.remark)
    return Restored(run.name, str(directory), tuple(folders.values()), places, remarks)


def _configuration_of(run: RunDirectory) -> dict[str, Any]:
    """effective.yaml with the job of the run alone."""
    configuration = effective_of(run)
    if not configuration:
        raise UsageError(
            f"run {run.name} has no config/effective.yaml that can be read, such as one that `jobs fetch` recorded"
        )
    jobs, job_id = configuration.get("job_specifications"), run.record().job
    entries = jobs if isinstance(jobs, list) else []
    configuration["job_specifications"] = [job for job in entries if isinstance(job, dict) and job.get("id") == job_id]
    if not configuration["job_specifications"]:
        raise UsageError(f"{run.config / 'effective.yaml'} has no job {job_id}, which run.json names")
    return configuration


def _recipe_of(run: RunDirectory, configuration: Mapping[str, Any], directory: Path) -> Recipe:
    parts = {field: configuration[name] for name, field in SECTIONS.items() if name in configuration}
    try:
        recipe: Recipe = convert({"directory": str(directory / "config"), **parts}, Recipe)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{run.config / 'effective.yaml'} cannot be restored: {error}") from None
    return recipe


def _in_configuration(directory: Path, effective: Any) -> Iterator[MaskedPlace]:
    """The masked values of the configuration; those that a file lacks because of their type, at its end."""
    missing = dict.fromkeys(_masked_paths(effective))
    files: dict[str | int, str] = {}
    for path in sorted((directory / "config").glob("*.yaml")):
        yaml, _ = document.parse(path.name, path.read_bytes())
        files |= dict.fromkeys(yaml.data or (), f"config/{path.name}")
        for value_path in _masked_paths(yaml.data):
            missing.pop(value_path, None)
            yield from _in_value(yaml, f"config/{path.name}", value_path)
    for value_path in missing:
        yield MaskedPlace(files.get(value_path[0], "config/config.yaml"), 0, dotted(value_path))


def _masked_paths(value: Any, path: document.Path = ()) -> Iterator[document.Path]:
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _masked_paths(item, (*path, key))
    elif MASK in str(value):
        yield path


def _in_value(yaml: document.Document, file: str, path: document.Path) -> Iterator[MaskedPlace]:
    """Each line of a value of a file with a mask."""
    value: Any = yaml.data
    for step in path:
        value = value[step]
    at, lines = yaml.position(path).start, dict[int, None]()
    for _ in range(value.count(MASK)):
        at = yaml.text.index(MASK, at) + len(MASK)
        lines[yaml.text.count("\n", 0, at) + 1] = None
    yield from (MaskedPlace(file, line, dotted(path)) for line in lines)


def _in_files(directory: Path, files: Iterable[str]) -> Iterator[MaskedPlace]:
    """Each line of the files of sources with a mask; the first line of a file that could not be searched."""
    for file in files:
        lines = (directory / file).read_bytes().split(b"\n")
        numbers = [number for number, line in enumerate(lines, 1) if MASK.encode() in line]
        yield from (MaskedPlace(file, number, "") for number in numbers or (1,))


def _folders(sources: tuple[SourceDirectory, ...]) -> dict[str, str]:
    """The name of each source beside `config`: its own last name, where that is free."""
    folders: dict[str, str] = {}
    taken = {"config"}
    for source in sources:
        own_name = PurePosixPath(source.name).name
        names = itertools.chain((safe_name(own_name),), (f"source-{number}" for number in itertools.count()))
        name = next(name for name in names if name.casefold() not in taken and name.strip("_"))
        taken.add(name.casefold())
        folders[source.name] = name
    return folders


def _check_names(run: RunDirectory, source: SourceDirectory) -> None:
    """Refuse a source with a name that leads out of its directory, which batchtrain never recorded."""
    for file in source.files:
        path = PurePosixPath(file.name)
        if ".." in path.parts or path.is_absolute():
            raise UsageError(f"{run.path}: `{file.name}` would be written outside of its source {source.name}")


def _written(run: RunDirectory, source: SourceDirectory, directory: Path, folder: str) -> Iterator[_File]:
    """Write the files of a source. One may be left out, or get another name."""
    names = LocalNames()
    for file, data, modified in source_copy.files_of(run, source):
        if data is None:
            kind = "a link, a device or a sparse file"
            remark = f"{folder}/{file.name} is left out: it is {kind} in {source_copy.ARCHIVE}"
            yield _File("", is_masked=False, remark=remark)
            continue
        name = names.of(file.name)
        target = directory / folder / name
        with Folder(directory, target.parent, DIRECTORY_MODE) as target_folder:
            target_folder.write(target.name, (data,), file.mode & MOST_MODE | OWNERS_MODE, modified)
        remark = f"{folder}/{file.name} is {folder}/{name}" if name != file.name else ""
        yield _File(f"{folder}/{name}", file.masked, remark)


def _with_sources_in(job: Job, folders: Mapping[str, str]) -> Job:
    def moved(task: Task) -> Task:
        source = task.source if task.source is None else f"../{folders[task.source]}"
        return msgspec.structs.replace(task, source=source)

    merge = moved(job.merge_task) if job.merge_task else None
    return msgspec.structs.replace(job, tasks=tuple(map(moved, job.tasks)), merge_task=merge)


# --- the difference of two sources ----------------------------------------------------------------------------------


NOTEBOOK = ".ipynb"
"""Notebooks beside a program are saved again with each output of a cell; of their difference one line is shown."""


def difference(first: RunDirectory, second: RunDirectory) -> str:
    """The unified difference of the sources of two runs; empty if they are equal or unknown."""
    first_copy, second_copy = source_copy.read(first), source_copy.read(second)
    if not first_copy or not second_copy:
        return ""
    before, after = _by_path(first_copy.sources), _by_path(second_copy.sources)
    differing = {
        path for path in {**before, **after}
        if path not in before or path not in after or before[path] != after[path]
    }  # fmt: skip
    if not differing:
        return ""
    sides = [_texts(run, copy) for run, copy in ((first, first_copy), (second, second_copy))]
    parts = []
    for path in sorted(differing):
        before_text, after_text = (texts.get(path, b"") for texts in sides)
        before_name, after_name = (
            f"{label}/{path}" if path in texts else "/dev/null" for label, texts in zip("AB", sides, strict=True)
        )
        if before_text is None or after_text is None:
            parts.append(f"{path} differs, and its text was not kept\n")
        elif path.endswith(NOTEBOOK):
            parts.append(f"notebooks {before_name} and {after_name} differ\n")
        else:
            parts.append(source_copy.difference(before_name, before_text, after_name, after_text))
    return "".join(parts)


def _by_path(sources: tuple[SourceDirectory, ...]) -> dict[str, str]:
    """The digest of each file. The only source of a run is compared with the only one of another, whatever its name."""
    return {_path(sources, source, file.name): file.sha256 for source in sources for file in source.files}


def _path(sources: tuple[SourceDirectory, ...], source: SourceDirectory, name: str) -> str:
    return name if len(sources) == 1 else f"{source.name}/{name}"


def _texts(run: RunDirectory, copy: source_copy.SourceRecord) -> dict[str, bytes | None]:
    """Each file; None for one that was not kept."""
    if not copy.kept:
        return dict.fromkeys(_by_path(copy.sources))
    return {
        _path(copy.sources, source, file.name): data
        for source in copy.sources
        for file, data, _ in source_copy.files_of(run, source)
    }
