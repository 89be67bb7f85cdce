"""`batchtrain run DIR`: run a recipe from start to end."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from batchtrain.cli import detached, live, loading, scripts
from batchtrain.cli.connecting import connect, settle_copy
from batchtrain.cli.documents import plain
from batchtrain.cli.event_lines import results_last
from batchtrain.cli.messages import say, value_options
from batchtrain.cli.options import settings
from batchtrain.cli.output import show_rows
from batchtrain.cli.progress import bar
from batchtrain.cli.run_directories import origin
from batchtrain.cli.run_page import RunPage
from batchtrain.client.client import Client
from batchtrain.client.limits import Limits
from batchtrain.client.run import Outcome, run
from batchtrain.client.session import Session
from batchtrain.config import factories
from batchtrain.config.load import Loaded, recipe_of_script
from batchtrain.config.types import Job, Recipe
from batchtrain.emulator import server
from batchtrain.emulator.local_service import alone, emulator_faults
from batchtrain.errors import NoAccount, ServiceError, TaskFailed, UsageError, counted
from batchtrain.life.intents import of_run
from batchtrain.plan.idling import with_idle_timeout
from batchtrain.records import Task
from batchtrain.runs import compare
from batchtrain.runs.beginnings import Beginning
from batchtrain.runs.directory import Labels, RunDirectory, checked_tags, find, of_job
from batchtrain.runs.recording import Origin
from batchtrain.service import read

NAMED = 20
"""Tasks that did not succeed and are named at the end; more are counted."""


@scripts.options
def command(
    directory: str | None,
    wish: scripts.Options,
    timeout: float | None,
    detach: bool,
    controller: bool,
    keep: bool,
    reuse: bool,
    idle: str | None,
    max_price: float | None,
    max_duration: float | None,
    fresh: bool,
    dashboard: bool,
    resume: str | None,
    tags: tuple[str, ...],
    note: str,
) -> None:
    """Create the pool and the jobs, show the output, fetch the results, delete everything, and exit with the result.

    SCRIPT is a Python script without a recipe, such as train.py. --nodes, --processes-per-node, --size and --spot are
    for both, and so are ARGUMENTS after --: those of the script, or of the command of a recipe with one task.

    Results are the files that the program creates where it starts, or what the `results` of its task say. At
    --max-price or --max-duration the tasks are terminated, the results are fetched, and the exit code is 7.
    """
    if (keep or reuse) and max_price is not None:
        kept_by = "--keep" if keep else "--reuse"
        raise UsageError(f"--max-price deletes the pool at its limit, and {kept_by} keeps it; give one of them")
    if detach:
        detached.refuse_others(
            keep=keep, reuse=reuse, idle=idle, timeout=timeout, fresh=fresh, resume=resume, dashboard=dashboard
        )
    if controller and not detach:
        raise UsageError(
            "--controller moves the job of a detached run; give --detach, too, or leave it out: `run` moves it"
        )
    if idle is not None and not reuse:
        raise UsageError("--idle is for a pool that stands; give --reuse, too")
    options = settings()
    source = directory or options.configdir or "."
    if not scripts.is_script(directory):
        options.values |= wish.as_settings(source)
        wish = scripts.Options()
    config, origin = _loaded(directory, source, wish, detach=detach)
    origin = origin._replace(labels=Labels(checked_tags(tags), note.strip()))
    beginning = Beginning(fresh, find(origin.root, resume) if resume else None)
    config = config._replace(recipe=with_idle_timeout(config.recipe, idle)) if idle else config
    settle_copy(config.recipe)
    try:
        client = connect(config, changes=f"running {source}", ends_it=True, creates=True)
    except NoAccount as error:
        raise UsageError(f"{error}. Without an account, {_offline(source, wish)}") from None
    limits = Limits(max_price, max_duration)
    if detach:
        detached.run(client, config.recipe, origin, limits, controller=controller)
        return

    def report(outcome: Outcome) -> None:
        if options.output != "table":
            show_rows(list(task_results(outcome)))
            return
        for line in failed_tasks(outcome.tasks):
            say(line, "failure")

    how: dict[str, Any] = {"timeout": timeout, "limits": limits, "beginning": beginning}
    how["ask"] = lambda price: detached.can_ask() and detached.continues("the run", price)
    outcome = carried_out(client, config.recipe, origin, report, opens_page=dashboard, keep=keep, reuse=reuse, how=how)
    words = shlex.join(["batchtrain", "run", source, *wish.words, "--reuse"]) + value_options(options)
    words += f" -- {shlex.join(wish.arguments)}" if wish.arguments else ""
    if options.output == "table" and (hint := _hint(outcome.runs, "" if keep or reuse else words)):
        say(hint)


def _offline(source: str, wish: scripts.Options) -> str:
    """What shows the requests of a run."""
    if not scripts.is_script(source):
        return f"`{shlex.join(('batchtrain', 'config', 'plan', source))}` shows what a run would send"
    return recipe_of_script(
        (source, *wish.words, *(("--", *wish.arguments) if wish.arguments else ())), Path(source).parent
    )


def _hint(runs: Sequence[RunDirectory], reusing: str) -> str:
    """The next command, of a sweep or for the first and the second run of a job; empty after later ones. reusing: runs
    it again on a pool that stays."""
    if len(runs) != 1:
        return ""
    newest = runs[0]
    if command := compare.sweep_command(newest, newest.record()):
        return f"  the tasks, the best first: {command}"
    earlier = [other.name for other in of_job(newest.path.parent, newest.record().job) if other.name < newest.name]
    if not earlier:
        return reusing and f"  keep the pool next: {reusing}"
    is_second = len(earlier) == 1
    return f"  see what changed: batchtrain runs compare {earlier[0]} {newest.name}" if is_second else ""


def carried_out(
    client: Client,
    recipe: Recipe,
    origin: Origin,
    report: Callable[[Outcome], None],
    *,
    opens_page: bool = False,
    keep: bool = False,
    reuse: bool = False,
    how: Mapping[str, Any],
) -> Outcome:
    """Run a recipe and show all that happens. Raises what failed, and stops an emulator that was started for it.

    report: prints the result before the last lines. opens_page: open the page of the run. how: further arguments of
    `client.run`.
    """
    try:
        with (
            contextlib.ExitStack() as stack,
            live.block(client.account, recipe) as block,
            results_last(block) as tell,
            bar() as progress,
        ):
            _say_what_is_made(recipe)
            page = RunPage(origin.root, tell, starts=opens_page, stack=stack)
            outcome = run(
                client,
                recipe,
                tell=page.tell,
                origin=origin,
                progress=progress,
                intent=of_run(keep=keep, reuse=reuse),
                ranks=settings().ranks,
                **how,
            )
            report(outcome)
        if outcome.failure is not None:
            reason = _raised(recipe, outcome.failure) if isinstance(outcome.failure, TaskFailed) else ""
            settings().rest = f"{reason}its output is above, and in {outcome.runs[0].path}"
            raise outcome.failure from outcome.problem
        if outcome.problem is not None:
            raise outcome.problem
        return outcome
    finally:
        for session in (*client.others, client):
            if session.account.started and not keep:
                _stop_emulator(session)


def _loaded(directory: str | None, source: str, wish: scripts.Options, *, detach: bool) -> tuple[Loaded, Origin]:
    """The recipe of a directory or of a script, and the facts about the start of the run."""
    options = settings()
    if scripts.is_script(directory):
        arguments = f" -- {shlex.join(wish.arguments)}" if wish.arguments else ""
        options.script = shlex.join([source, *wish.words]), arguments
        config = scripts.load(source, wish, uploads=detach)
        return config, origin()._replace(files={scripts.FILE: scripts.text_of(config.recipe).encode()})
    return loading.load(directory, needs=("pool_specification", "job_specifications")), origin(source)


def _raised(recipe: Recipe, failure: TaskFailed) -> str:
    """The line on this machine that raised the exception of a task, if it is in the `source` of the task."""
    file, _, line = failure.raised.rpartition(":")
    tasks = [task for job in recipe.jobs if failure.task.startswith(f"{job.id}/") for task in job.tasks]
    paths = [Path(recipe.directory, task.source, file) for task in tasks if task.source]
    path = next((path for path in paths if path.is_file()), None)
    return f"raised at {os.path.relpath(path)}:{line}; " if path and file else ""


def _say_what_is_made(recipe: Recipe) -> None:
    pool = recipe.pool
    if pool is not None:
        spot = f" ({pool.vm_count.low_priority} spot)" if pool.vm_count.low_priority else ""
        say(f"pool {pool.id}: {counted(pool.vm_count.total, 'node')} of {pool.vm_size}{spot}")
    for job in recipe.jobs:
        say(f"job {job.id}: {_tasks_of(job)}")


def _tasks_of(job: Job) -> str:
    """The id of the only task, or the number of tasks; files or a function may decide the number later."""
    sizes = [factories.size_of(task) for task in job.tasks]
    if sizes == [1] and job.tasks[0].id and not job.tasks[0].task_factory and job.merge_task is None:
        return f"task {job.tasks[0].id}"
    number = sum(size or 0 for size in sizes) + (job.merge_task is not None)
    return "tasks with generated ids" if None in sizes else counted(number, "task")


def task_results(outcome: Outcome) -> Iterator[dict[str, Any]]:
    """Each task with the last and the best value of its metrics, and its run directory."""
    tasks = iter(outcome.tasks)
    for record, metrics in zip(outcome.runs, outcome.metrics, strict=True):
        for task in itertools.islice(tasks, sum(1 for _ in record.each_task())):
            yield {**plain(task), "metrics": plain(metrics.get(task.id, {})), "run": str(record.path)}


def failed_tasks(tasks: Sequence[Task]) -> Iterator[str]:
    """How those of several tasks ended that did not succeed."""
    failed = [task for task in tasks if task.failed or task.state != "completed"] if len(tasks) > 1 else []
    for task in failed[:NAMED]:
        how = "ended without an exit code" if task.exit_code is None else f"ended with exit code {task.exit_code}"
        yield f"task {task.id} {how if task.state == 'completed' else f'is still {task.state}'}"
    if len(failed) > NAMED:
        yield f"{len(failed) - NAMED:,} more of {len(failed):,} tasks that did not succeed"


def _stop_emulator(client: Session) -> None:
    """Stop the emulator that this run started, unless it still has pools or another process uses it."""
    home = Path(client.account.home)
    # A service that does not answer keeps what it has, and the command's own error counts.
    with contextlib.suppress(ServiceError), emulator_faults(), alone(home) as is_unused:
        if server.status(home) is None or server.is_kept(home):
            return
        if not is_unused:
            say("another command uses the embedded Azure Batch, so it continues; `batchtrain emulator stop` stops it")
        elif not read.pools(client.batch):
            server.stop(home)
