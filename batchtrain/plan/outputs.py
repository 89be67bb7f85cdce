"""The upload of a task's results to storage: one output file of Batch for each pattern."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterator

import msgspec

from batchtrain.config.task_paths import LINKED, NODES, WILD
from batchtrain.config.task_results import for_job, names_all, only_named, settings_of
from batchtrain.config.types import Recipe, Results, StorageOutput, Task
from batchtrain.plan import inputs, wire

_TASK = re.compile(r"^\$(?:AZ_BATCH_TASK_DIR\b|\{AZ_BATCH_TASK_DIR\})/?")
_WORKING = re.compile(r"^\$(?:AZ_BATCH_TASK_WORKING_DIR\b|\{AZ_BATCH_TASK_WORKING_DIR\})/?")
_FILE = re.compile(r"[^/]\.[A-Za-z0-9]{1,8}$")
"""The end of a path to one file: decided by the name, because the file cannot be inspected."""


def outputs(recipe: Recipe, storage_outputs: tuple[StorageOutput, ...]) -> tuple[wire.OutputFile, ...]:
    """Each output of a task except those to file shares, which a check reports."""
    return tuple(file for output in storage_outputs if not output.is_file_share for file in _output(recipe, output))


LEFT = ("../std*.txt", "ranks/**/*", ".batchtrain-lineage.json", ".batchtrain-packages.json")
"""What a task leaves behind besides its results: its output, the records of its launch, and those of its ranks."""
HIDDEN = 2
"""Directories in an uploaded path whose names begin with a dot. No wildcard of the service matches such names."""


def left(recipe: Recipe, container: str, task: Task, task_id: str, tasks: int) -> tuple[wire.OutputFile, ...]:
    """Everything that `run` would fetch of a task, uploaded below `tasks/ID` as it lies in the directory of the task.
    The client leaves out what is no result: a pattern of the service excludes nothing.

    container: `link/container`; without one nothing is uploaded. tasks: the number of those of its job."""
    if not container:
        return ()
    link, _, name = container.partition("/")
    whole = wire.OutputContainer(container_url=inputs.results_link(recipe, link, name))
    names = dict.fromkeys((*LEFT, *((LINKED,) if task.source else ()), *_of_results(task, tasks)))
    if other_nodes(task, tasks):
        names |= dict.fromkeys(_with_hidden(f"../{NODES}/**/*"))
    paths = {name: posixpath.join("tasks", task_id, *_fixed(posixpath.join("wd", name))) for name in names}
    return tuple(_file(name, whole, path, "taskcompletion") for name, path in paths.items())


def other_nodes(task: Task, tasks: int) -> tuple[str, ...]:
    """The paths in a working directory below which the results of the other nodes of a gang are; empty if none are
    fetched."""
    settings = for_job(settings_of(task), tasks)
    source = (settings.results or Results()).from_
    has_created = source is None and settings.every_node and not names_all(settings.results)
    if task.multi_instance is None or not (source == "all" or (has_created and not uploads_named_only(task, tasks))):
        return ()
    return tuple(dict.fromkeys("/".join(_fixed(pattern)) for pattern in _included(task, tasks)))


def uploads_named_only(task: Task, tasks: int) -> bool:
    """Whether a detached run uploads only the named results of a task: its inputs lie among the others, or its job has
    too many tasks."""
    settings = for_job(settings_of(task), tasks)
    return bool(settings.inputs) or only_named(settings.results) == settings.results


def _file(pattern: str, container: wire.OutputContainer, path: str | None, condition: str) -> wire.OutputFile:
    return wire.OutputFile(
        file_pattern=pattern,
        destination=wire.OutputDestination(container=msgspec.structs.replace(container, path=path)),
        upload_options=wire.UploadOptions(upload_condition=condition),
    )


TOKEN = "BATCHTRAIN_RESULTS_TOKEN"


def live(recipe: Recipe, container: str, task: Task) -> tuple[wire.Environment, ...]:
    """Where the launcher of a gang uploads its output while it runs. container: as for `left`."""
    gang = task.multi_instance
    if not container or gang is None or not gang.is_watched:
        return ()
    link, _, name = container.partition("/")
    return (wire.Environment(name=TOKEN, value=inputs.results_link(recipe, link, name)),)


def _of_results(task: Task, tasks: int) -> Iterator[str]:
    """The patterns of a task's results as the service takes them: a name may be a file, or everything below it."""
    for pattern in (pattern.removeprefix("./").rstrip("/") for pattern in _included(task, tasks)):
        if WILD.search(pattern):
            yield from _with_hidden(f"{pattern}/*" if pattern.endswith("**") else pattern)
        else:
            yield from (pattern, *_with_hidden(f"{pattern}/**/*"))


def _included(task: Task, tasks: int) -> tuple[str, ...]:
    """The patterns of a task's results, as the user writes them."""
    return (only_named(task.results).include or ()) if uploads_named_only(task, tasks) else ("**",)


def _with_hidden(pattern: str) -> Iterator[str]:
    """A pattern, and those of the names that begin with a dot. Each of them matches other files."""
    directories = ["/".join(("**", *(".*/**",) * number)) for number in range(HIDDEN + 1)]
    parts = (
        directories if part == "**" else [part, f".{part}"] if part.startswith("*") else [part]
        for part in pattern.split("/")
    )
    return map("/".join, itertools.product(*parts))


def _fixed(pattern: str) -> list[str]:
    """The blob of a pattern that is one file; the fixed directories of one with wildcards, which the service drops."""
    parts = posixpath.normpath(pattern).split("/")
    first_wild = next((number for number, part in enumerate(parts) if WILD.search(part)), len(parts))
    return parts[:first_wild]


def _output(recipe: Recipe, output: StorageOutput) -> tuple[wire.OutputFile, ...]:
    container, _, path = output.remote_path.strip("/").partition("/")
    headers = tuple(wire.UploadHeader(name=name, value=value) for name, value in output.upload_headers.items())
    account = recipe.credentials.storage.get(output.storage_account_settings)
    url: wire.Text  # signed where a key writes; the container's own where an identity of the pool does
    if output.identity is None or account is None:
        url = inputs.container_link(recipe, output.storage_account_settings, container, write=True)
    else:
        url = inputs.container_url(account, container)
    identity = inputs.identity(output.identity)
    whole = wire.OutputContainer(container_url=url, identity_reference=identity, upload_headers=headers)
    return tuple(
        _file(pattern, whole, _target(path, pattern, output, name), output.condition)
        for pattern, name in zip(patterns(output), output.include or ("",), strict=True)
    )


def patterns(output: StorageOutput) -> tuple[str, ...]:
    """What is uploaded, relative to the working directory: by default all of the task's directory."""
    base = relative(output.local_path)
    if output.include:
        return tuple(posixpath.join(base, pattern) if base else pattern for pattern in output.include)
    if WILD.search(base) or _FILE.search(base):
        return (base,)
    return (posixpath.join(base, "**/*") if base else "**/*",)


def relative(path: str | None) -> str:
    """A directory or file of the task as the service takes it; empty for the working directory itself."""
    if path is None:
        return ".."
    path = path.strip()
    if (inside := _WORKING.sub("", path)) != path:
        return inside.strip("/")
    if (below := _TASK.sub("", path).strip("/")) != path.strip("/"):
        return below[3:] if f"{below}/".startswith("wd/") else posixpath.join("..", below).rstrip("/")
    path = path.removeprefix("./").rstrip("/")
    return "" if path in ("", ".", "wd") else path.removeprefix("wd/")


def _target(path: str, pattern: str, output: StorageOutput, name: str) -> str | None:
    """Below the path; a pattern that is one file gets its whole name, as the service wants it.

    name: the `include` of the pattern, whose directories stay, so that files of the same name do."""
    if name and not WILD.search(output.local_path or ""):
        return posixpath.join(path, *(part for part in _fixed(name) if part != "..")) or None
    return (path or None) if WILD.search(pattern) else posixpath.join(path, posixpath.basename(pattern))
