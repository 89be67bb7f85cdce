"""`batchtrain jobs`: jobs, their tasks and their output."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TypeVar

import click

from batchtrain.cli import diagnose, job_tasks, live, loading
from batchtrain.cli.connecting import connect, registered, settle_copy, waiting
from batchtrain.cli.documents import plain
from batchtrain.cli.event_lines import results_last, tell
from batchtrain.cli.job_files import opened
from batchtrain.cli.log_lines import EVERYTHING, Selection, Wanted, read
from batchtrain.cli.messages import colored, say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show, show_rows
from batchtrain.cli.progress import bar
from batchtrain.cli.run import task_results
from batchtrain.cli.run_directories import origin, runs_root
from batchtrain.client import orphans
from batchtrain.client.client import Client
from batchtrain.client.job import FEW_RUNNING, Job
from batchtrain.client.run import follow
from batchtrain.client.watching import watch_job
from batchtrain.config.types import Recipe
from batchtrain.errors import BatchtrainError, NotFound, TaskFailed, UsageError
from batchtrain.life import rules
from batchtrain.life.intents import WAIT
from batchtrain.records import JobSchedule
from batchtrain.records.events import Event
from batchtrain.runs.directory import RunDirectory
from batchtrain.service.files import lines_of

SEARCHED = 8192
"""The first bytes of a file, in which a zero says that it is no text."""
Result = TypeVar("Result")
Other = TypeVar("Other")


def regular_expression(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> re.Pattern[str] | None:
    """An option that is a regular expression, compiled."""
    try:
        return re.compile(value) if value is not None else None
    except re.error as error:
        raise click.BadParameter(f"`{value}` is no regular expression: {error}") from None


def add(directory: str | None, timeout: float, follow: bool, recreate: bool, fail_fast: bool) -> None:
    """Add the jobs of jobs.yaml with their tasks; one with a recurrence becomes a job schedule.

    A job that exists already with the same plan gets the tasks that it lacks.
    """
    config = loading.load(directory, needs=("pool_specification", "job_specifications"))
    settle_copy(config.recipe)
    names = ", ".join(job.id for job in config.recipe.jobs)
    question = f"Delete {names} with all tasks and add them again" if recreate else ""
    client = connect(config, changes=f"adding {names}", question=question, creates=True)
    if follow:
        _followed(client, config.recipe, directory, timeout, fail_fast, recreate)
        return
    with live.block(client.account, config.recipe) as tell, registered(client, config.recipe, tell) as ending:
        jobs = client.jobs.add_all(
            config.recipe, tell=tell, timeout=timeout, fail_fast=fail_fast, recreate=recreate, register=ending.register
        )
    if settings().output != "table":
        show([plain(job.seen) for job in jobs])


def _followed(
    client: Client, recipe: Recipe, directory: str | None, timeout: float, fail_fast: bool, recreate: bool
) -> None:
    """Add the jobs, show their output, and fetch their results; only `recreate` deletes anything."""
    source = directory or settings().configdir or "."
    with live.block(client.account, recipe) as block, results_last(block) as tell, bar() as progress:
        outcome = follow(
            client,
            recipe,
            tell=tell,
            timeout=timeout,
            origin=origin(source),
            progress=progress,
            fail_fast=fail_fast,
            recreate=recreate,
            ranks=settings().ranks,
        )
    if settings().output != "table":
        show_rows(list(task_results(outcome)))
    if outcome.failure:
        raise outcome.failure from outcome.problem
    if outcome.problem:
        raise outcome.problem


def list_(schedules: bool) -> None:
    """List the jobs, or the job schedules."""
    client = connect()
    if schedules:
        show_rows(client.jobs.schedules(), empty="no job schedules")
    else:
        show_rows(client.jobs.list(counted=True), empty="no jobs")


def show_(job_id: str | None) -> None:
    """Show a job, its tasks and, if known, why they are waiting; or a job schedule."""
    name, client = opened(job_id)
    job = client.jobs.handle(name)
    row = _either(lambda: job.seen, lambda: client.jobs.schedule(name).seen)
    if isinstance(row, JobSchedule):
        show_rows([row])
        return
    tasks, left_out = job_tasks.some_of(job)
    step = job.reason_to_wait(row)
    hints = diagnose.hints(name) if step is None or step.rule.name == rules.TURN else []
    running = [task for task in tasks if task.state == "running"][:FEW_RUNNING]
    ended = [task for task in tasks if task.state == "completed"][:1]
    progress = list(filter(None, map(job.progress, running or ended)))
    if settings().output == "table":
        show_rows([row])
        print()
        show_rows(job.explained(tasks), empty="no tasks")
        why = f"{step.text}; {step.reason.next_step}" if step else ""
        for text in (*filter(None, (left_out, why)), *hints, *progress):
            say(text)
    else:
        waits = plain(step.finding) if step else None
        more = {"left_out": left_out, "waits": waits, "hints": hints, "progress": progress}
        show({**plain(row), "tasks": plain(tasks), **more})


def wait(job_id: str | None, timeout: float) -> None:
    """Wait until the tasks of a job have ended. Fails if a task failed.

    If the job belongs to a run of this host whose process has ended, its results are fetched, and what the run created
    is deleted.
    """
    name, client = opened(job_id)
    orphan = orphans.orphan_of(client, runs_root(), name)
    if orphan is not None:
        say(f"{orphan.what}: when its tasks have ended, it is ended as `run` does")
    job = client.jobs.handle(name)
    with waiting("job", name, client), _block(client, name) as block:
        watch_job(client, job, tell=block, timeout=timeout, intent=WAIT)
    if orphan is None:
        _show_ended(job)
        return
    failure: TaskFailed | None = None
    try:
        _show_ended(job, run=orphan.run)  # before it is deleted
    except TaskFailed as error:
        failure, settings().rest = error, f"its output is in {orphan.run.path}"
    try:
        with bar() as progress:
            (recording,) = orphans.end(client, [orphan], tell, progress=progress)
        say(recording.conclusion())
        if recording.missing:
            raise recording.missing
    except BatchtrainError as problem:
        if failure is None:
            raise
        raise failure from problem
    if failure is not None:
        raise failure


def watch(job_id: str | None, timeout: float) -> None:
    """Watch a job: its nodes, its ranks, its numbers and its output, until its tasks have ended. Fails if one failed.

    Ctrl-C ends only the watching.
    """
    name, client = opened(job_id)
    job = client.jobs.handle(name)
    with waiting("job", name, client), _block(client, name) as block:
        watch_job(client, job, tell=block, timeout=timeout, ranks=settings().ranks)
    _show_ended(job)


def _block(client: Client, name: str) -> contextlib.AbstractContextManager[Callable[[Event], None]]:
    """The live block of a job. Raises NotFound."""
    return live.block(client.account, None, name, client.jobs.handle(name).seen.created)


def _show_ended(job: Job, *, run: RunDirectory | None = None) -> None:
    """Show the tasks of a job that has ended. Raises TaskFailed if a task failed. run: the run directory that has the
    output of the tasks."""
    if settings().output == "table":
        tasks, left_out = job_tasks.some_of(job)
        show_rows(job.explained(tasks), empty="no tasks")
        if left_out:
            say(left_out)
    else:
        show_rows(job.iter_tasks())
    job.raise_failed(run=run)


def logs(
    job_id: str | None,
    task: str | None,
    task_id: str | None,
    file: str,
    follow: bool,
    ranks: frozenset[int],
    nodes: frozenset[int],
    pattern: re.Pattern[str] | None,
    since: datetime | None,
    as_json: bool,
    timeout: float,
) -> None:
    """Print the output or another file of a task: all its ranks. Output to a pipe or a file is byte for byte.

    --since uses the times that the program writes into its lines, in UTC unless they name a zone. A line without a time
    is as old as the line before it.
    """
    if as_json:
        settings().output = "jsonl"
    filters = Wanted(ranks, nodes, pattern, since)
    name, client = opened(job_id)
    job, task_id = client.jobs.handle(name), task_id or task
    is_whole = not follow and filters == EVERYTHING and settings().output == "table"
    if is_whole and not sys.stdout.isatty():
        sys.stdout.buffer.writelines(job.blocks(task_id, file=file))
        sys.stdout.flush()
        _say_failed(job, task_id, file)
        return
    if is_whole:
        _print_lines(_text(job, task_id, file), Selection(filters))
        _say_failed(job, task_id, file)
        return
    lines = job.logs(task_id, file=file, follow=follow, timeout=timeout, tell=tell)
    selection = Selection(filters)
    with waiting("job", name, client) if follow else contextlib.nullcontext():
        _print_lines(lines, selection)
    selection.check(file, name, lambda: job.seen_task(task_id))
    if settings().output not in ("json", "yaml", "csv"):
        _say_failed(job, task_id, file)


def _print_lines(lines: Iterator[str], selection: Selection) -> None:
    """Print the chosen lines as they come."""
    matches = ((line, parts) for line in lines if selection.takes(parts := read(line)))
    form, on_terminal = settings().output, sys.stdout.isatty()
    if form in ("json", "yaml", "csv"):
        show([line for line, _ in matches])
        return
    color = colored(sys.stdout)
    for line, parts in matches:
        if form == "jsonl":
            show(parts.document)
        else:
            print(parts.on_terminal(color=color) if on_terminal else line, flush=True)


def _text(job: Job, task_id: str | None, file: str) -> Iterator[str]:
    """The lines of a file for a terminal. Raises UsageError for a file that is no text."""
    content = job.blocks(task_id, file=file)
    first = next(content, b"")
    if b"\0" in first[:SEARCHED]:
        words = ["batchtrain", "jobs", "get", job.id, *([task_id] if task_id else []), file]
        raise UsageError(f"{file} is no text; `{shlex.join(words)}` downloads it")
    return lines_of(itertools.chain((first,), content))


def _say_failed(job: Job, task_id: str | None, file: str) -> None:
    """Report a failed task next to its output."""
    task = job.seen_task(task_id)
    if task.result != "failure":
        return
    how = f"exit code {task.exit_code}" if task.exit_code is not None else task.failure
    words = ["batchtrain", "jobs", "logs", job.id, "--task", task.id, "--file", "stderr.txt"]
    why = "" if file == "stderr.txt" else f"; `{shlex.join(words)}` shows why"
    say(f"task {job.id}/{task.id} failed with {how}{why}")


def term(job_id: str | None) -> None:
    """Terminate the tasks of a job, or a job schedule. It is not deleted."""
    name, client = opened(job_id, "terminating job {}", "Terminate job {}")
    _either(client.jobs.handle(name).terminate, client.jobs.schedule(name).terminate)
    show({"terminated": name}, f"terminated job {name}")


def disable(job_id: str | None, running: str) -> None:
    """Disable a job: it starts no more tasks until `jobs enable`."""
    name, client = opened(job_id, "disabling job {}")
    client.jobs.handle(name).disable(running=running)
    show({"disabled": name}, f"disabled job {name}")


def enable(job_id: str | None) -> None:
    """Enable a disabled job."""
    name, client = opened(job_id, "enabling job {}")
    client.jobs.handle(name).enable()
    show({"enabled": name}, f"enabled job {name}")


def del_(job_id: str | None, no_wait: bool) -> None:
    """Delete a job with its tasks and their files, or a job schedule with its jobs."""
    name, client = opened(job_id, "deleting job {}", "Delete job {} with its tasks")
    _either(
        lambda: client.jobs.handle(name).delete(wait=not no_wait),
        lambda: client.jobs.schedule(name).delete(wait=not no_wait),
    )
    show({"deleted": name}, f"deleted job {name}")


def _either(of_job: Callable[[], Result], of_schedule: Callable[[], Other]) -> Result | Other:
    """Ask about a job, or about a job schedule if there is no such job. Raises NotFound for the job if neither
    exists."""
    try:
        return of_job()
    except NotFound as error:
        try:
            return of_schedule()
        except NotFound:
            raise error from None
