"""From run directories to recipes: how the sources of two runs differ, and a recipe that runs one again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from batchtrain.config import projects
from batchtrain.config.types import Job, Recipe, Task, convert
from batchtrain.config.types.secret import MASK
from batchtrain.errors import UsageError
from batchtrain.runs import source_copy
from batchtrain.runs.compare import SECTIONS, effective_of, leaves
from batchtrain.runs.directory import RunDirectory
from batchtrain.runs.source_copy import SourceDirectory


class Restored(NamedTuple):
    """A recipe that was written from a run."""

    run: str
    directory: str
    sources: tuple[str, ...]
    """The directories of its sources."""
    masked: tuple[str, ...]
    """Secrets that no run directory has: the paths of settings, and files of sources."""


def restore(run: RunDirectory, directory: Path) -> Restored:
    """Write the recipe of a run, with the values of `--set` and the files of its sources, to a new directory.

    It is a project of its own, so it does not continue the checkpoints of the run. Raises UsageError for a run without
    a copy of its source, and for a directory that has files.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} exists and is not an empty directory; name a new one")
    document = effective_of(run)
    if not document:
        raise UsageError(f"run {run.name} has no config/effective.yaml, such as one that `jobs fetch` recorded")
    copy = source_copy.read(run)
    jobs = [job for job in document.get("job_specifications") or () if job["id"] == run.record().job]
    tasks = (task for job in jobs for task in (*(job.get("tasks") or ()), job.get("merge_task") or {}))
    if any(task.get("source") for task in tasks) and not (copy and copy.kept):
        why = copy.reason if copy else "it was recorded by an earlier version"
        raise UsageError(f"run {run.name} has no copy of its source: {why}")
    sources = copy.sources if copy else ()
    folders = _folders(sources)
    for source in sources:
        for file in source.files:
            if ".." in PurePosixPath(file.name).parts or PurePosixPath(file.name).is_absolute():
                folder = directory / folders[source.name]
                raise UsageError(f"{run.path}: `{file.name}` would be written outside of {folder}")
    document["job_specifications"] = jobs
    parts = {field: document[name] for name, field in SECTIONS.items() if name in document}
    try:
        recipe: Recipe = convert({"directory": str(directory / "config"), **parts}, Recipe)
    except (msgspec.ValidationError, TypeError) as error:
        raise UsageError(f"{run.config / 'effective.yaml'} cannot be restored: {error}") from None
    restored_jobs = tuple(_with_sources_in(job, folders) for job in recipe.jobs)
    msgspec.structs.replace(recipe, jobs=restored_jobs).save(directory / "config")
    projects.write(directory / "config")
    for source in sources:
        _extract(run, source, directory / folders[source.name])
    files = (f"{folders[source.name]}/{file.name}" for source in sources for file in source.files if file.masked)
    settings = (path for path, value in leaves(document) if MASK in str(value))
    return Restored(run.name, str(directory), tuple(folders.values()), (*settings, *files))


def _folders(sources: tuple[SourceDirectory, ...]) -> dict[str, str]:
    """The name of each source beside `config`: its own last name, where that is free."""
    folders: dict[str, str] = {}
    for source in sources:
        name = PurePosixPath(source.name).name
        free = name not in ("", "..", "config", *folders.values())
        folders[source.name] = name if free else f"source-{source.folder}"
    return folders


def _with_sources_in(job: Job, folders: Mapping[str, str]) -> Job:
    def moved(task: Task) -> Task:
        source = task.source if task.source is None else f"../{folders[task.source]}"
        return msgspec.structs.replace(task, source=source)

    merge = moved(job.merge_task) if job.merge_task else None
    return msgspec.structs.replace(job, tasks=tuple(map(moved, job.tasks)), merge_task=merge)


def _extract(run: RunDirectory, source: SourceDirectory, folder: Path) -> None:
    for file, data, modified in source_copy.files_of(run, source):
        target = folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(file.mode)
        os.utime(target, (modified, modified))


# --- the difference of two sources ----------------------------------------------------------------------------------


def difference(first: RunDirectory, second: RunDirectory) -> str:
    """The unified difference of the sources of two runs; empty if they are equal or unknown."""
    first_copy, second_copy = source_copy.read(first), source_copy.read(second)
    if not first_copy or not second_copy:
        return ""
    before, after = _by_path(first_copy.sources), _by_path(second_copy.sources)
    differing = sorted(path for path in before | after if before.get(path) != after.get(path))
    if not differing:
        return ""
    texts = {"A": _texts(first, first_copy), "B": _texts(second, second_copy)}
    differences = []
    for path in differing:
        old, new = (contents.get(path, b"") for contents in texts.values())
        names = [f"{label}/{path}" if path in contents else "/dev/null" for label, contents in texts.items()]
        if old is None or new is None:
            differences.append(f"{path} differs, and its text was not kept\n")
        else:
            differences.append(source_copy.difference(names[0], old, names[1], new))
    return "".join(differences)


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
