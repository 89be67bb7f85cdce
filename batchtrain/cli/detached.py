"""`batchtrain run DIR --detach`, and the commands that read such a run from any machine."""

from __future__ import annotations

import contextlib
import os
import sys
from datetime import timedelta

import click

from batchtrain.catalog.prices import money
from batchtrain.cli import live
from batchtrain.cli.connecting import connect, connect_to, service_of, waiting
from batchtrain.cli.event_lines import tell
from batchtrain.cli.messages import confirm, say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show, show_rows
from batchtrain.cli.run_directories import runs_root
from batchtrain.client import account_runs, detached_results
from batchtrain.client.account_runs import AccountRuns
from batchtrain.client.client import Client
from batchtrain.client.detach import detach
from batchtrain.client.limits import Limits
from batchtrain.client.operations import Operations
from batchtrain.config.types import Recipe
from batchtrain.errors import TerminalClosed, Terminated, UsageError
from batchtrain.records.record import minute
from batchtrain.runs.directory import RunDirectory, named
from batchtrain.runs.recording import Origin, Recording
from batchtrain.service import read


def run(client: Client, recipe: Recipe, origin: Origin, limits: Limits, *, controller: bool) -> None:
    """Add the jobs, and say how to come back to them."""
    runs = detach(client, recipe, tell=tell, origin=origin, limits=limits, has_controller=controller)
    if settings().output != "table":
        show_rows([{"run": made.run.name, "job": made.job, "ends_after": made.seconds} for made in runs])
        return
    for made in runs:
        _say_next(made.run.name, " without this command", "attach", "fetch", "stop")


def _say_next(run: str, how: str, *verbs: str) -> None:
    say(f"run {run} continues{how}; next:")
    for verb in verbs:
        say(f"  batchtrain runs {verb} {run}")


def fetch(run: str, link: str | None, everything: bool) -> None:
    """Fetch what the tasks of a detached run have uploaded, on any machine; once its job has ended, write its end.

    RUN is a name, its beginning or end, or `latest`, of this machine or else of the account. On its own machine, it may
    be a run that its user left: its results are fetched from the nodes, and at its end what it created is deleted.
    """
    runs, name, job_id = _found(run, link)
    recording = runs.fetch(name, job_id, tell=tell, everything=everything)
    _show_results(recording)
    if (record := recording.run.record()).state in (detached_results.DETACHED, "left") and settings().output == "table":
        say(f"job {record.job} has not ended; fetch again")


def attach(run: str, link: str | None, timeout: float) -> None:
    """Follow a detached run, on any machine, until it ends, and complete its run directory. Fails if a task failed.

    RUN is a name, its beginning or end, or `latest`, of this machine or else of the account; on its own machine also a
    run that its user left. Ctrl-C asks whether the run stops; without a terminal it continues.
    """
    runs, name, job_id = _found(run, link)
    client = runs.client
    try:
        with waiting("job", job_id, client), live.block(client.account, None, job_id) as block:
            recording = runs.attach(name, job_id, tell=block, timeout=timeout)
    except KeyboardInterrupt as interrupt:
        is_typed = not isinstance(interrupt, (TerminalClosed, Terminated))
        if is_typed and can_ask() and not continues(f"run {name}", _cost(named(runs.root, name), client, job_id)):
            _stopped(runs, name, job_id)
        else:
            _say_next(name, "", "attach", "stop")
        raise
    _show_results(recording)
    if recording.failure is not None:
        settings().rest = f"its output is above, and in {recording.run.path}"
        raise recording.failure


def stop(run: str) -> None:
    """End the tasks and the job of a run, on any machine. `runs fetch` fetches what a detached run has uploaded.

    RUN is a name, its beginning or end, or `latest`, of this machine or else of the account.
    """
    runs, name, job_id = _found(run)
    confirm(f"Stop run {name}, job {job_id}, on {service_of(runs.client.account)}?")
    _stopped(runs, name, job_id)
    say(f"run {name} ends; next: `batchtrain runs fetch {name}`")


def list_account() -> None:
    """List the runs whose jobs the account has."""
    show_rows(account_runs.of(connect(), runs_root()).listed(), empty="the account has no job of a run")


def _found(name: str, link: str | None = None) -> tuple[AccountRuns, str, str]:
    """The runs of the account of a run, the full name of the run, and its job."""
    runs = account_runs.of(connect_to(name), runs_root(), link)
    return runs, *runs.find(name)


def _show_results(recording: Recording) -> None:
    """Where the results of a run are; for a program its state, too."""
    record = recording.run.record()
    if settings().output == "table":
        tell(recording.outcome())
    else:
        show({"run": recording.run.name, "state": record.state, "results": record.results})


def _stopped(runs: AccountRuns, name: str, job_id: str) -> None:
    runs.stop(name, job_id)
    say(f"job {job_id} is being terminated")


def can_ask() -> bool:
    """Whether there is a user at a terminal who can be asked, sees the question, and types to this process."""
    if settings().yes or any(stream is None or not stream.isatty() for stream in (sys.stdin, sys.stderr)):
        return False
    return not hasattr(os, "tcgetpgrp") or os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


def continues(run: str, cost: str) -> bool:
    """Ask whether a run continues without its command. A further Ctrl-C stops it."""
    choice = click.Choice(("stop", "continue"))
    with settings().undrawn(), contextlib.suppress(click.Abort):
        say(f"{run} can continue without this command{f': {cost}' if cost else ''}")
        return bool(click.prompt("Stop it, or let it continue?", type=choice, default="stop", err=True) == "continue")
    return False


def _cost(run: RunDirectory, client: Operations, job_id: str) -> str:
    """What an hour of a detached run costs, and when the service ends it."""
    cost = run.record().cost
    job = read.job(client.batch, job_id, read.EXAMINED_JOB)
    hour = f"{money(cost.hour, cost.currency)} an hour" if cost and cost.hour is not None else "its nodes"
    if job.created is None or job.wall_clock is None:
        return hour
    with contextlib.suppress(OverflowError):  # a service may claim any time
        return f"{hour}, until {minute(job.created + timedelta(seconds=job.wall_clock))} at the latest"
    return hour


def refuse_others(**options: object) -> None:
    """Raise UsageError for options of a run that a client follows."""
    for name, value in options.items():
        if value:
            raise UsageError(f"--{name} is for a run that this command follows; leave it or --detach out")
