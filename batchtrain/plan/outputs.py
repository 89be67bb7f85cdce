"""The upload of a task's results to storage: one output file of Batch for each pattern."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

import msgspec

from batchtrain.config.task_results import only_named
from batchtrain.config.types import Recipe, Results, StorageOutput, Task
from batchtrain.plan import inputs, wire

_WILD = re.compile(r"[*?\[]")
_TASK = re.compile(r"^\$(?:AZ_BATCH_TASK_DIR\b|\{AZ_BATCH_TASK_DIR\})/?")
_WORKING = re.compile(r"^\$(?:AZ_BATCH_TASK_WORKING_DIR\b|\{AZ_BATCH_TASK_WORKING_DIR\})/?")
_FILE = re.compile(r"[^/]\.[A-Za-z0-9]{1,8}$")
"""The end of a path to one file: decided by the name, because the file cannot be inspected."""


def outputs(recipe: Recipe, storage_outputs: tuple[StorageOutput, ...]) -> tuple[wire.OutputFile, ...]:
    """Each output of a task except those to file shares, which a check reports."""
    return tuple(file for output in storage_outputs if not output.is_file_share for file in _output(recipe, output))


LEFT = ("../std*.txt", "ranks/**/*", ".batchtrain-lineage.json", ".batchtrain-packages.json")
"""What a task leaves behind besides its results: its output, the records of its launch, and those of its ranks."""


def left(recipe: Recipe, container: str, task: Task, task_id: str) -> tuple[wire.OutputFile, ...]:
    """Everything that `run` would fetch of a task, uploaded below `tasks/ID` as it lies in the directory of the task.

    container: `link/container`; without one nothing is uploaded."""
    if not container:
        return ()
    link, _, name = container.partition("/")
    whole = wire.OutputContainer(container_url=inputs.results_link(recipe, link, name))
    names = dict.fromkeys((*LEFT, *_of_results(only_named(task.results))))
    paths = {name: posixpath.join("tasks", task_id, *_fixed(posixpath.join("wd", name))) for name in names}
    return tuple(_file(name, whole, path, "taskcompletion") for name, path in paths.items())


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


def _of_results(results: Results) -> Iterator[str]:
    """The patterns of a task's results as the service takes them: a name may be a file, or everything below it."""
    for pattern in (pattern.removeprefix("./").rstrip("/") for pattern in results.include or ()):
        if _WILD.search(pattern):
            yield f"{pattern}/*" if pattern.endswith("**") else pattern
        else:
            yield from (pattern, f"{pattern}/**/*")


def _fixed(pattern: str) -> list[str]:
    """The blob of a pattern that is one file; the fixed directories of one with wildcards, which the service drops."""
    parts = posixpath.normpath(pattern).split("/")
    first_wild = next((number for number, part in enumerate(parts) if _WILD.search(part)), len(parts))
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
    if _WILD.search(base) or _FILE.search(base):
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
    if name and not _WILD.search(output.local_path or ""):
        return posixpath.join(path, *(part for part in _fixed(name) if part != "..")) or None
    return (path or None) if _WILD.search(pattern) else posixpath.join(path, posixpath.basename(pattern))
