"""What is fetched of a task: the settings that the plan sends with it, and their defaults; no rules about files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from batchtrain.config.task_paths import below, beyond
from batchtrain.config.types import FetchSettings, ResourceFile, Results, StorageInput, Task

OUTPUT = "output"
"""The directory of results in a working directory."""
NAMED = (f"{OUTPUT}/**",)
"""The results that no setting has to name."""
NO_RESULTS = ("ranks/**", ".batchtrain*", ".cache/**", "**/__pycache__/**")
"""What is in a working directory besides results and inputs: files of the launch, and caches."""
UNKNOWN = ("**",)
"""The patterns of inputs whose names are not known: any file may be one."""
MOST_TASKS = 1000
"""Of the tasks of a larger job, only the named results are fetched."""
_PLACEHOLDER = r"\{[^{}]*\}"


def settings_of(task: Task) -> FetchSettings:
    """What is fetched of a task and read in its output. Of a task whose inputs have unknown names, only the named
    results are."""
    gang = task.multi_instance
    results, inputs = task.results, tuple(dict.fromkeys(_inputs(task)))
    if "" in inputs:
        results, inputs = only_named(results), UNKNOWN
    every_node = gang is not None and not gang.launches
    return FetchSettings(results=results, metrics=task.metrics, inputs=inputs, every_node=every_node)


def names_all(results: Results | None) -> bool:
    """Whether the user names all results of a task: nothing else that it created is one."""
    return results is not None and results.include is not None


def only_named(results: Results | None) -> Results:
    """The results without what the program created elsewhere."""
    results = results or Results()
    return results if names_all(results) else replace(results, include=NAMED)


def for_job(settings: FetchSettings, tasks: int) -> FetchSettings:
    """The settings of a task of a job with so many tasks."""
    return settings if tasks <= MOST_TASKS else replace(settings, results=only_named(settings.results))


def _inputs(task: Task) -> Iterator[str]:
    """Patterns of what Batch downloads into the working directory; empty for unknown names there."""
    if task.task_factory is not None and task.task_factory.file is not None:
        yield ""
    for file in task.resource_files:
        yield _downloaded(file)
    for data in task.input_data.azure_storage:
        if not data.is_file_share and not beyond(data.local_path):
            yield _pattern(below(data.local_path)) or _prefix_of(data)


def _downloaded(file: ResourceFile) -> str:
    if file.file_path or file.blob_source:
        return _pattern(file.file_path or "")
    return f"{_pattern(file.blob_prefix)}**" if file.blob_prefix else ""


def _prefix_of(data: StorageInput) -> str:
    _, _, path = data.remote_path.strip("/").partition("/")
    return f"{_pattern(path)}**" if path else ""


def _pattern(path: str) -> str:
    """The pattern of a path, in which a task factory may replace parts."""
    path = path.strip("/").removeprefix("./")
    return re.sub(_PLACEHOLDER, "*", "" if path == "." else path)
