"""`batchtrain run DIR`: run a recipe from start to end."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchtrain.cli import detached, live, options, scripts
from batchtrain.cli.help import Command
from batchtrain.cli.options import POSITIVE, Tone, duration, results_last, say, seconds, settings
from batchtrain.cli.output import plain, show_rows
from batchtrain.errors import ServiceError, UsageError, counted

if TYPE_CHECKING:
    from batchtrain.client.client import Client
    from batchtrain.client.run import Outcome
    from batchtrain.client.session import Session
    from batchtrain.config.load import Loaded
    from batchtrain.config.types import Recipe
    from batchtrain.errors import TaskFailed
    from batchtrain.records import Task
    from batchtrain.runs.recording import Origin


NAMED = 20
"""Tasks that succeeded and are named at the end; more are counted."""
DETACH = "Return after the job is added: the service ends it, deletes its pool, and uploads its results to storage."
CONTROLLER = "With --detach: a job on a small node moves the job if its pool loses nodes (`candidates.recover`)."
MAX_PRICE = "End the run when its nodes have cost this, by the prices of the catalogue. The emulator counts the same."


@click.command("run", cls=Command)
@click.argument("directory", metavar="[DIR|SCRIPT]", required=False, shell_complete=options.directories)
@scripts.options
@click.option(
    "--timeout",
    type=float,
    callback=seconds,
    help="Maximum seconds for each wait. Default: the tasks' wall-clock limits and an hour; else 24 hours.",
)
@click.option("--detach", is_flag=True, help=DETACH)
@click.option("--controller", is_flag=True, help=CONTROLLER)
@click.option("--keep", is_flag=True, help="Keep the pool and the jobs. Results are always kept, in the run directory.")
@click.option("--reuse", is_flag=True, help="Use the existing pool, or create it, and keep it for the next run.")
@options.idle
@click.option("--max-price", type=POSITIVE, metavar="AMOUNT", help=MAX_PRICE)
@click.option(
    "--max-duration", callback=duration, metavar="TIME", help="End the run after this time, such as 90m or 2h."
)
@options.ranks
@click.option("--fresh", is_flag=True, help="Start anew, although there are checkpoints. They are kept.")
@click.option("--dashboard", is_flag=True, help="Open the page of the run in the browser.")
@click.option("--resume", metavar="RUN", help="Continue the checkpoints of this run, also of another project.")
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
) -> None:
    """Create the pool and the jobs, show the output, fetch the results, delete everything, and exit with the result.

    SCRIPT is a Python script without a recipe, such as train.py; its options say how many nodes and processes it gets,
    and its ARGUMENTS come after --.

    Results are the files below `output` in the working directory of each task, or what its `results` say. At
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
    from batchtrain.client.idling import with_idle_timeout
    from batchtrain.client.limits import Limits
    from batchtrain.runs.beginnings import Beginning
    from batchtrain.runs.directory import find

    options = settings()
    source = directory or options.configdir or "."
    config, origin = _loaded(directory, source, wish)
    beginning = Beginning(fresh, find(origin.root, resume) if resume else None)
    config = config._replace(recipe=with_idle_timeout(config.recipe, idle)) if idle else config
    options.settle_copy(config.recipe)
    client = options.connect(config, changes=f"running {source}", ends_it=True)
    limits = Limits(max_price, max_duration)
    if detach:
        detached.run(client, config.recipe, origin, limits, controller=controller)
        return

    def report(outcome: Outcome) -> None:
        if options.output != "table":
            show_rows(list(task_results(outcome)))
            return
        for line, tone in _ends(outcome.tasks):
            say(line, tone)
        if not keep and outcome.failure is None and outcome.problem is None:
            say("next, after an edit:" if reuse else "next, to keep the pool for further runs:")
            words = shlex.join(["batchtrain", "run", source, *wish.words, "--reuse"]) + options.value_options
            say(f"  {words}" + (f" -- {shlex.join(wish.arguments)}" if wish.arguments else ""))

    how = {"timeout": timeout, "reuse": reuse, "limits": limits, "beginning": beginning, "ask": _asks_on}
    carried_out(client, config.recipe, origin, report, opens_page=dashboard, keep=keep, how=how)


def _asks_on(price_an_hour: str) -> bool:
    return detached.can_ask() and detached.continues("the run", price_an_hour)


def carried_out(
    client: Client,
    recipe: Recipe,
    origin: Origin,
    report: Callable[[Outcome], None],
    *,
    opens_page: bool = False,
    keep: bool = False,
    how: Mapping[str, Any],
) -> Outcome:
    """Run a recipe and show all that happens. Raises what failed, and stops an emulator that was started for it.

    report: prints the result before the last lines. opens_page: open the page of the run. how: further arguments of
    `client.run`.
    """
    from batchtrain.cli.dashboard import RunPage
    from batchtrain.cli.progress import bar
    from batchtrain.client.run import run

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
                keep=keep,
                ranks=settings().ranks,
                **how,
            )
            report(outcome)
        if outcome.failure is not None:
            reason = _raised(recipe, outcome.failure)
            settings().rest = f"{reason}its output is above, and in {outcome.runs[0].path}"
            raise outcome.failure from outcome.problem
        if outcome.problem is not None:
            raise outcome.problem
        return outcome
    finally:
        for session in (*client.others, client):
            if session.account.started and not keep:
                _stop_emulator(session)


def _loaded(directory: str | None, source: str, wish: scripts.Options) -> tuple[Loaded, Origin]:
    """The recipe of a directory or of a script, and the facts about the start of the run."""
    options = settings()
    if scripts.is_script(directory):
        arguments = f" -- {shlex.join(wish.arguments)}" if wish.arguments else ""
        options.script = shlex.join([source, *wish.words]), arguments
        config = scripts.load(source, wish)
        return config, options.origin()._replace(files={scripts.FILE: scripts.text_of(config.recipe).encode()})
    wish.refuse(source)
    return options.load(directory, needs=("pool_specification", "job_specifications")), options.origin(source)


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
        ids = [task.id for task in job.tasks]
        label = f"task {ids[0]}" if ids and ids[0] else "tasks with generated ids"
        say(f"job {job.id}: {label if len(ids) == 1 else f'{len(ids)} tasks'}")


def task_results(outcome: Outcome) -> Iterator[dict[str, Any]]:
    """Each task with the last and the best value of its metrics, and its run directory."""
    tasks = iter(outcome.tasks)
    for run, metrics in zip(outcome.runs, outcome.metrics, strict=True):
        for task in itertools.islice(tasks, sum(1 for _ in run.each_task())):
            yield {**plain(task), "metrics": plain(metrics.get(task.id, {})), "run": str(run.path)}


def _ends(tasks: Sequence[Task]) -> Iterator[tuple[str, Tone]]:
    """How each task ended; many that succeeded are one line."""
    succeeded = [task.seconds or 0.0 for task in tasks if task.state == "completed" and not task.failed]
    for task in tasks:
        if len(succeeded) <= NAMED or task.state != "completed" or task.failed:
            took = f" in {task.seconds:.1f} s" if task.seconds is not None else ""
            how = "without an exit code" if task.exit_code is None else f"with exit code {task.exit_code}"
            yield (
                f"task {task.id} ended {how}{took}",
                "success" if task.state == "completed" and not task.failed else "failure",
            )
    if len(succeeded) > NAMED:
        yield f"{len(succeeded):,} tasks succeeded, in {min(succeeded):.1f} to {max(succeeded):.1f} s", "success"


def _stop_emulator(client: Session) -> None:
    """Stop the emulator that this run started, unless it still has pools or another process uses it."""
    from batchtrain.client.local import alone, emulator_faults
    from batchtrain.emulator import server
    from batchtrain.service import read

    home = Path(client.account.home)
    # A service that does not answer keeps what it has, and the command's own error counts.
    with contextlib.suppress(ServiceError), emulator_faults(), alone(home) as is_unused:
        if server.status(home) is None or server.is_kept(home):
            return
        if not is_unused:
            say("another command uses the embedded Azure Batch, so it continues; `batchtrain emulator stop` stops it")
        elif not read.pools(client.batch):
            server.stop(home)
