"""`batchtrain jobs`: jobs, their tasks and what they print."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from batchtrain.cli.help import Command, Group
from batchtrain.cli.options import common, say, seconds, settings, standing, tell
from batchtrain.cli.output import plain, show, show_rows
from batchtrain.errors import NotFound, ServiceError, UsageError
from batchtrain.service.deadlines import JOB_SECONDS, POOL_SECONDS
from batchtrain.service.seen import ScheduleSeen

if TYPE_CHECKING:
    from batchtrain.config.load import Loaded

Result = TypeVar("Result")
Other = TypeVar("Other")


@click.group(cls=Group)
def command() -> None:
    """Jobs and their tasks."""


@command.command(cls=Command)
@click.argument("directory", required=False)
@click.option(
    "--timeout",
    type=float,
    callback=seconds,
    default=POOL_SECONDS,
    show_default=True,
    help="Seconds a growing pool is given.",
)
@common
def add(directory: str | None, timeout: float) -> None:
    """Add the jobs of jobs.yaml with their tasks; one with a recurrence becomes a job schedule."""
    loaded = settings().load(directory, needs=("pool_specification", "job_specifications"))
    names = ", ".join(job.id for job in loaded.recipe.jobs)
    client = settings().connect(loaded, changes=f"adding {names}")
    with standing("job", loaded.recipe.jobs[0].id, client):
        jobs = client.jobs.add_all(loaded.recipe, tell=tell, timeout=timeout)
    if settings().output != "table":
        show([plain(job.seen) for job in jobs])


@command.command("list", cls=Command)
@click.option("--schedules", is_flag=True, help="The job schedules in place of the jobs.")
@common
def list_(schedules: bool) -> None:
    """List the jobs, or the job schedules."""
    client = settings().connect()
    if schedules:
        show_rows(client.jobs.schedules(), empty="no job schedules")
    else:
        show_rows(client.jobs.list(), empty="no jobs")


@command.command("show", cls=Command)
@click.argument("job_id", required=False)
@common
def show_(job_id: str | None) -> None:
    """Show a job, its tasks, and what keeps them waiting where that is known; or a job schedule."""
    name, loaded = _named(job_id)
    client = settings().connect(loaded)
    job = client.jobs.get(name)
    seen = _either(lambda: job.seen, lambda: client.jobs.schedule(name).seen)
    if isinstance(seen, ScheduleSeen):
        show_rows([seen])
        return
    tasks = job.tasks
    hints = _hints(name)
    if settings().output == "table":
        show_rows([seen])
        show_rows(tasks, empty="no tasks")
        for hint in hints:
            say(hint)
    else:
        show({**plain(seen), "tasks": plain(tasks), "hints": hints})


@command.command(cls=Command)
@click.argument("job_id", required=False)
@common
def tasks(job_id: str | None) -> None:
    """List a job's tasks."""
    name, loaded = _named(job_id)
    show_rows(settings().connect(loaded).jobs.get(name).tasks, empty="no tasks")


@command.command(cls=Command)
@click.argument("job_id", required=False)
@click.option(
    "--timeout", type=float, callback=seconds, default=JOB_SECONDS, show_default=True, help="Seconds to wait at most."
)
@common
def wait(job_id: str | None, timeout: float) -> None:
    """Wait until a job's tasks have ended; fails when one failed."""
    name, loaded = _named(job_id)
    job = settings().connect(loaded).jobs.get(name).wait(timeout=timeout, check=False)
    tasks = job.tasks
    show_rows(tasks)
    job.raise_failed(tasks)


@command.command(cls=Command)
@click.argument("job_id", required=False)
@click.option("--task", "task_id", help="The task; by default the job's first.")
@click.option("--file", default="stdout.txt", show_default=True, help="The file, as `wd/train.log`.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the task has ended.")
@click.option(
    "--timeout", type=float, callback=seconds, default=JOB_SECONDS, show_default=True, help="Seconds to follow at most."
)
@common
def logs(job_id: str | None, task_id: str | None, file: str, follow: bool, timeout: float) -> None:
    """Print what a task prints."""
    name, loaded = _named(job_id)
    lines = settings().connect(loaded).jobs.get(name).logs(task_id, file=file, follow=follow, timeout=timeout)
    if settings().output in ("json", "yaml"):
        show(list(lines))
        return
    for line in lines:
        if settings().output == "jsonl":
            show({"line": line})
        else:
            print(line, flush=True)


@command.command(cls=Command)
@click.argument("job_id", required=False)
@common
def term(job_id: str | None) -> None:
    """End a job's tasks, or a job schedule; it stays to be looked at."""
    name, loaded = _named(job_id)
    client = settings().connect(loaded, changes=f"terminating job {name}")
    settings().confirm(f"Terminate job {name}?")
    _either(client.jobs.get(name).terminate, client.jobs.schedule(name).terminate)
    show({"terminated": name}, f"terminated job {name}")


@command.command(cls=Command)
@click.argument("job_id", required=False)
@click.option(
    "--running",
    type=click.Choice(["requeue", "terminate", "wait"]),
    default="requeue",
    show_default=True,
    help="What becomes of tasks that run.",
)
@common
def disable(job_id: str | None, running: str) -> None:
    """Let a job start nothing more, until `jobs enable`."""
    name, loaded = _named(job_id)
    settings().connect(loaded, changes=f"disabling job {name}").jobs.get(name).disable(running=running)
    show({"disabled": name}, f"disabled job {name}")


@command.command(cls=Command)
@click.argument("job_id", required=False)
@common
def enable(job_id: str | None) -> None:
    """Let a job that was disabled go on."""
    name, loaded = _named(job_id)
    settings().connect(loaded, changes=f"enabling job {name}").jobs.get(name).enable()
    show({"enabled": name}, f"enabled job {name}")


@command.command("del", cls=Command)
@click.argument("job_id", required=False)
@click.option("--no-wait", is_flag=True, help="Do not wait until it is gone.")
@common
def del_(job_id: str | None, no_wait: bool) -> None:
    """Delete a job with its tasks and their files, or a job schedule with its jobs."""
    name, loaded = _named(job_id)
    client = settings().connect(loaded, changes=f"deleting job {name}")
    settings().confirm(f"Delete job {name} with its tasks?")
    _either(
        lambda: client.jobs.get(name).delete(wait=not no_wait),
        lambda: client.jobs.schedule(name).delete(wait=not no_wait),
    )
    show({"deleted": name}, f"deleted job {name}")


def _named(job_id: str | None) -> tuple[str, Loaded | None]:
    """The job to look at: the one named, else the one job of jobs.yaml, with the files it comes from."""
    if job_id:
        return job_id, None
    loaded = settings().load(needs=("job_specifications",))
    jobs = loaded.recipe.jobs
    if len(jobs) != 1:
        raise UsageError(f"name the job: jobs.yaml has {', '.join(job.id for job in jobs)}")
    return jobs[0].id, loaded


def _either(of_job: Callable[[], Result], of_schedule: Callable[[], Other]) -> Result | Other:
    """What is asked of a job; of a job schedule where there is no such job. Raises what the job's question raised."""
    try:
        return of_job()
    except NotFound as error:
        try:
            return of_schedule()
        except ServiceError:
            raise error from None


def _hints(job_id: str) -> list[str]:
    """What the embedded service knows about waiting tasks; Azure is silent there."""
    if not settings().local:
        return []
    from batchtrain.client import emulator_directory
    from batchtrain.emulator import server

    return [hint.text for hint in server.hints(emulator_directory()) if hint.job_id == job_id]
