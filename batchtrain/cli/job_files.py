"""`batchtrain jobs files`, `get` and `fetch`: files of tasks on their nodes, and the run directory of a job."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click

from batchtrain.cli import loading
from batchtrain.cli.connecting import connect
from batchtrain.cli.event_lines import tell
from batchtrain.cli.messages import say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show, show_rows
from batchtrain.cli.progress import bar
from batchtrain.cli.run_directories import origin
from batchtrain.client import orphans
from batchtrain.client.client import Client
from batchtrain.client.job import Job
from batchtrain.config.load import Loaded
from batchtrain.config.types.base import ID
from batchtrain.errors import NotFound, UsageError, counted
from batchtrain.runs import export

MOST_COMMANDS = 10
"""The most jobs of jobs.yaml for which a message has the command."""


def files(job_id: str, task_id: str | None, node: str | None, all_nodes: bool) -> None:
    """List the files of a task (by default the first task) on the node of its primary."""
    job = connect().jobs.handle(job_id)
    show_rows(job.files(task_id, node=node, all_nodes=all_nodes), empty="no files")


def get(job_id: str, words: tuple[str, ...], directory: str | None, node: str | None, all_nodes: bool) -> None:
    """Download files of a task (by default the first task), byte for byte.

    A PATTERN is relative to the working directory of the task or to its directory: `output/model.pt`, `*.log`,
    `output/**`. A directory means everything below it. Without a PATTERN, all files are downloaded. A file that is
    already there is skipped.
    """
    job = connect().jobs.handle(job_id)
    task_id, patterns = _task_and_patterns(job, words)
    with bar() as progress:
        rows = job.get(
            *patterns, task_id=task_id, directory=directory or job_id, node=node, all_nodes=all_nodes, progress=progress
        )
    show_rows(rows)


def _task_and_patterns(job: Job, words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The first word is a task if the job has one of that name."""
    if words and re.fullmatch(ID, words[0]):
        with contextlib.suppress(NotFound):
            return job.seen_task(words[0]).id, words[1:]
    return job.seen_task().id, words


def fetch(job_id: str | None, everything: bool) -> None:
    """Fetch logs and results of all tasks of a job into its run directory; files that are already there are skipped."""
    name, config = named(job_id)
    client = connect(config)
    settings_of_job = next((job for job in config.recipe.jobs if job.id == name), None) if config else None
    orphan = orphans.orphan_of(client, origin().root, name)
    with bar() as progress:
        if orphan is not None:
            recording = orphans.fetch(client, orphan, tell, everything=everything, progress=progress)
        else:
            recording, _ = client.jobs.handle(name).fetch(
                origin(), settings=settings_of_job, everything=everything, progress=progress
            )
    if settings().output == "table":
        say(recording.conclusion())
    else:
        show({"run": str(recording.run.path), "missing": [*recording.unsaved, *recording.lost]})
    if recording.missing:
        raise recording.missing


def tensorboard(job_id: str | None, port: int) -> None:
    """Fetch a job and show its metrics and event files in TensorBoard until Ctrl-C.

    TensorBoard reads the run directory: the metrics, which are exported for it, and event files among the results. For
    a job that is gone, it is the newest run directory of that job. The exit code is that of TensorBoard.
    """
    directories = (str(Path(sys.executable).parent), *os.get_exec_path())
    program = shutil.which("tensorboard", path=os.pathsep.join(directories))
    if program is None:
        raise UsageError(
            "TensorBoard is not installed: `pip install tensorboard` installs it here, and"
            " `batchtrain runs export RUN --tensorboard` writes its event files for one elsewhere"
        )
    name, client = opened(job_id)
    job = client.jobs.handle(name)
    try:
        with bar() as progress:
            recording, _ = job.fetch(origin(), progress=progress)
        run = recording.run
    except NotFound as error:
        recorded_run = job.recorded(settings().runs_dir)
        if recorded_run is None:
            raise
        run = recorded_run
        say(f"{error}; this is its run directory {run.path}")
    count = export.write_tensorboard(run, run.path / "export" / "tensorboard")
    say(f"{count} values of {run.path}; TensorBoard is at http://127.0.0.1:{port} until Ctrl-C")
    with contextlib.suppress(KeyboardInterrupt):
        code = subprocess.call([program, "--logdir", str(run.path), "--host", "127.0.0.1", "--port", str(port)])
        raise SystemExit(code)


def opened(job_id: str | None, changes: str = "", question: str = "") -> tuple[str, Client]:
    """The job to use, and a client of its account. The texts have `{}` for the job; see `Settings.connect`."""
    name, config = named(job_id)
    return name, connect(config, changes=changes.format(name), question=question.format(name))


def named(job_id: str | None) -> tuple[str, Loaded | None]:
    """The job to use: the named one, otherwise the only job of jobs.yaml, with its files."""
    if job_id:
        return job_id, None
    config = loading.load(needs=("job_specifications",), checks=False)
    jobs = config.recipe.jobs
    if len(jobs) != 1:
        command = click.get_current_context().command_path
        commands = [f"`{command} {job.id}`" for job in jobs[:MOST_COMMANDS]]
        more = f", and {len(jobs) - MOST_COMMANDS} more" if jobs[MOST_COMMANDS:] else ""
        raise UsageError(f"jobs.yaml has {counted(len(jobs), 'job')}; name one: {', '.join(commands)}{more}")
    return jobs[0].id, config
