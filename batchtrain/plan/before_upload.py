"""What a task of a detached run does between its command and the upload by the service."""

from __future__ import annotations

from collections.abc import Iterator

from batchtrain.config.task_paths import OURS
from batchtrain.config.task_results import NO_RESULTS, names_all
from batchtrain.config.types import Task
from batchtrain.frameworks.base import Shape
from batchtrain.launchers import shell, steps
from batchtrain.launchers.launch import File, Step
from batchtrain.plan import outputs
from batchtrain.plan.frame import Frame

_NAME = f"{OURS}/prepare.sh"


def step(frame: Frame, task: Task, shape: Shape) -> Step:
    """Prepares the upload after the script, with the exit code of the script; empty if there is nothing to prepare."""
    commands = tuple(_commands(frame, task, shape)) if frame.facts.results else ()
    if not commands:
        return Step()
    files = (steps.SSH, steps.BEFORE_UPLOAD, File(_NAME, shell.script(*commands).encode()))
    after = f'; }} || code=$?; /bin/bash "$AZ_BATCH_TASK_SHARED_DIR/{_NAME}" "$code"; exit "$code"'
    return Step(files=files, before="code=0; { ", after=after)


def _commands(frame: Frame, task: Task, shape: Shape) -> Iterator[str]:
    script = f'bash "$AZ_BATCH_TASK_SHARED_DIR/{steps.BEFORE_UPLOAD.name}"'
    if task.source and not task.output_data.azure_storage:
        yield shell.block(
            "The service follows links, and uploads no file of the source. A task that failed may start again:",
            f'[ "$1" -ne 0 ] || {script} unlink',
        )
    paths = outputs.other_nodes(task, len(frame.job.tasks)) if shape.instances > 1 else ()
    if paths and task.multi_instance is not None:
        port = steps.SSHD_PORT if steps.starts_sshd(shape, task.multi_instance.coordination_command) else ""
        excluded = () if names_all(task.results) else map(_find_pattern, NO_RESULTS)
        words = " ".join(map(shell.word, (port, *paths, "!", *excluded)))
        yield shell.block("The service uploads only files of the primary:", f"{script} collect {words}")


def _find_pattern(pattern: str) -> str:
    """A pattern of results as `find -path` takes it, whose `*` matches directories, too."""
    return f"./{pattern}".replace("./**/", "*/").replace("**", "*")
