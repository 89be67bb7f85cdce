"""`batchtrain jobs task`, `resubmit`, `migrate`, `stats` and `gc`: what is done with jobs and tasks that exist."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import click

from batchtrain.cli.connecting import connect, connect_to, service_of
from batchtrain.cli.documents import plain
from batchtrain.cli.event_lines import tell
from batchtrain.cli.messages import confirm, say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show, show_rows, write
from batchtrain.cli.run_directories import named_run
from batchtrain.client.job import Job
from batchtrain.errors import NoAccount, NotFound, UsageError, counted
from batchtrain.records import Table
from batchtrain.runs.directory import RunDirectory
from batchtrain.runs.sweep import SweepRow, flat, of_run
from batchtrain.service.statistics import Stats
from batchtrain.service.task_actions import Changed

AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def term(job_id: str, task_ids: tuple[str, ...], state: str | None) -> None:
    """Terminate tasks: they end as failed. The other tasks of the job continue."""
    job, ids = _chosen(job_id, task_ids, state, "Terminate {} of job {}")
    _report(job.terminate_tasks(*ids, tell=tell), "terminated", job_id)


def del_(job_id: str, task_ids: tuple[str, ...], state: str | None) -> None:
    """Delete tasks with their files."""
    job, ids = _chosen(job_id, task_ids, state, "Delete {} of job {} with their files")
    _report(job.delete_tasks(*ids, tell=tell), "deleted", job_id)


def reactivate(job_id: str, task_ids: tuple[str, ...], state: str | None) -> None:
    """Run failed tasks again. Their files of the last run are lost."""
    job, ids = _chosen(job_id, task_ids, state)
    _report(job.reactivate_tasks(*ids, tell=tell), "reactivated", job_id)


def _chosen(job_id: str, task_ids: tuple[str, ...], state: str | None, question: str = "") -> tuple[Job, Sequence[str]]:
    """The job, and the ids of the named tasks or of those in a state, after the answer to a question about them."""
    if bool(task_ids) == bool(state):
        raise UsageError(f"name the tasks of job {job_id}, or choose them with --state")
    client = connect()
    job = client.jobs.handle(job_id)
    ids = task_ids if state is None else [task.id for task in job.iter_tasks(state)]
    if question and ids:
        tasks = f"task {ids[0]}" if len(ids) == 1 else counted(len(ids), "task")
        confirm(f"{question.format(tasks, job_id)} on {service_of(client.account)}?")
    return job, ids


def _report(changed: Changed, past: str, job_id: str) -> None:
    text = f"{past} {counted(len(changed.done), 'task')} of job {job_id}"
    if changed.needless:
        text += f"; {len(changed.needless):,} needed no change"
    show({"job": job_id, past: plain(changed.done), "unchanged": plain(changed.needless)}, text)


def resubmit(job_id: str, failed: bool) -> None:
    """Run the failed tasks of a job again. The job must not have completed."""
    if not failed:
        raise UsageError(
            f"choose the tasks: `batchtrain jobs resubmit {job_id} --failed` runs the failed ones again;"
            f" `batchtrain jobs task reactivate {job_id} TASK` runs a task again"
        )
    _report(connect().jobs.handle(job_id).resubmit_failed(tell=tell), "reactivated", job_id)


def migrate(job_id: str, pool_id: str, running: str, timeout: float) -> None:
    """Move a job to another pool: it is disabled, gets the pool, and is enabled."""
    client = connect(changes=f"moving job {job_id} to pool {pool_id}")
    client.jobs.handle(job_id).migrate(pool_id, running=running, timeout=timeout, tell=tell)
    show({"job": job_id, "pool": pool_id}, f"job {job_id} runs on pool {pool_id}")


def stats(job_id: str) -> None:
    """Show the tasks of a job in numbers: times, node hours, the slowest, and why tasks failed."""
    totals = connect().jobs.handle(job_id).stats()
    if settings().output == "table":
        _show_stats(totals)
    else:
        show(totals)


def _show_stats(totals: Stats) -> None:
    print(f"{totals.counts.total:,} tasks: {totals.counts}" if totals.counts.total else "no tasks")
    spreads = {"waited": totals.waited, "ran": totals.ran}
    for name, spread in spreads.items():
        if spread:
            median, p95, longest = (f"{seconds:.3g} s" for seconds in (spread.median, spread.p95, spread.longest))
            print(f"{name:7} median {median}, 95th percentile {p95}, longest {longest}")
    if totals.first_start and totals.last_end:
        total = (totals.last_end - totals.first_start).total_seconds()
        last = " of the last attempts" if totals.retries or totals.requeues else ""
        print(f"from the first start to the last end{last} {total:.1f} s, {totals.node_hours:.2f} node hours")
    if totals.retries or totals.requeues:
        print(f"{totals.retries:,} retries, {totals.requeues:,} requeues")
    if totals.slowest:
        print("\nslowest:")
        show_rows(totals.slowest)
    for failed in totals.failed_by:
        write(f"\n{failed.tasks:,} failed: {failed.cause}, for example {failed.example}")
        if failed.message:
            write(f"  {failed.message}")


def age_of(_ctx: click.Context, _parameter: click.Parameter, value: str) -> timedelta:
    """An age such as 12h, 7d or 4w."""
    match = re.fullmatch(r"(\d{1,6})([smhdw])", value)
    if match is None:
        raise click.BadParameter(f"`{value}` is not an age; write 12h, 7d or 4w")
    return timedelta(seconds=int(match[1]) * AGES[match[2]])


def gc(age: timedelta, dry_run: bool, no_wait: bool) -> None:
    """Delete the jobs of the account that completed some time ago, with their tasks and files."""
    client = connect()
    jobs = client.jobs.ended_before(datetime.now(timezone.utc) - age)
    if dry_run or not jobs:
        show_rows(jobs, empty="no job that may be deleted is that old")
        return
    if settings().output == "table":
        show_rows(jobs)
    confirm(f"Delete {counted(len(jobs), 'completed job')} with their tasks on {service_of(client.account)}?")
    deleted_jobs = client.jobs.delete_seen(jobs, tell=tell)
    for job in deleted_jobs if not no_wait else ():
        client.jobs.handle(job.id).gone(tell=tell)
    say(f"deleted {counted(len(deleted_jobs), 'completed job')}")
    if settings().output != "table":
        show_rows(deleted_jobs)


def sweep(job_id: str, metric: str, highest: bool | None) -> None:
    """Show the tasks of a sweep with their parameters and a metric, best first.

    The values are those of the run directory, otherwise of the end of the tasks' output. In place of a job, the name of
    its run works, too, or its beginning or end: one that has ended is read from its directory, without an account.
    """
    try:
        rows = _swept(job_id, named_run(job_id), metric, highest)
    except (NoAccount, NotFound) as error:
        run = named_run(job_id, in_part=True)
        if run is None or (isinstance(error, NotFound) and error.code != "JobNotFound"):
            raise
        rows = _swept(job_id, run, metric, highest)
    if settings().output == "table":
        show_rows(
            [
                {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()}
                for row in flat(rows, metric)
            ]
        )
    else:
        show_rows(flat(rows, metric) if settings().output == "csv" else rows)


def _swept(job_id: str, run: RunDirectory | None, metric: str, highest: bool | None) -> Table[SweepRow]:
    """The tasks of a run, or else of a job of the account."""
    if run and run.record().ended:
        return of_run(run, metric, highest=highest)
    client = connect_to(run.name) if run else connect()
    job = client.jobs.handle(run.record().job if run else job_id)
    return job.sweep(metric, highest=highest, runs_dir=settings().runs_dir, tell=tell)
