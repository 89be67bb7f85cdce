"""`run`: a recipe from nothing to its end, its output shown as it comes, and what this made cleaned up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from batchtrain.config.types import Recipe
from batchtrain.errors import AlreadyExists, BatchtrainError, NotFound, TaskFailed, UsageError
from batchtrain.plan.job import needs_pool
from batchtrain.service import files, watch
from batchtrain.service.seen import Table, TaskSeen
from batchtrain.service.submit import Event

if TYPE_CHECKING:
    from batchtrain.client import Client, Job, Tell

FILES = ("stdout.txt", "stderr.txt")


class Outcome(NamedTuple):
    """How a recipe ended: its tasks, and the failure of the first that failed."""

    tasks: Table[TaskSeen]
    failure: TaskFailed | None = None


def run(client: Client, recipe: Recipe, *, tell: Tell, timeout: float, keep: bool = False) -> Outcome:
    """Add the pool and the jobs, follow them to their end, delete what was made (also after Ctrl-C).

    Raises whatever kept the work from being done, and UsageError for what has no end to follow it to. With `keep`, what
    was made stays.
    """
    _refuse_endless(recipe)
    made = _Made(client, tell, keep)
    try:
        outcome = _work(client, recipe, made, tell, timeout)
    except BaseException as error:
        made.clean_up(error)
        raise
    made.clean_up()
    return outcome


def _work(client: Client, recipe: Recipe, made: _Made, tell: Tell, timeout: float) -> Outcome:
    def note(event: Event) -> None:
        made.note(event)
        tell(event)

    if needs_pool(recipe):
        client.pools.add(recipe, timeout=timeout, tell=note)
    client.jobs.add_all(recipe, tell=note, timeout=timeout)
    jobs = [client.jobs.get(job.id) for job in recipe.jobs]
    ended: list[TaskSeen] = []
    for job in jobs:
        follow = Follow(client, job, tell, named=len(job.tasks) > 1)
        tasks = watch.tasks_ended(client.batch, job.id, timeout, client.pace, follow.look)
        follow.look(tasks)
        ended.extend(tasks)
        try:
            job.raise_failed(tasks)
        except TaskFailed as failure:  # made now, while the task's files can still be read
            return Outcome(Table(ended), failure)
    return Outcome(Table(ended))


def _refuse_endless(recipe: Recipe) -> None:
    """A job schedule has no end, and a pool that is kept alive outlives its job: neither can be cleaned up after."""
    for job in recipe.jobs:
        if job.recurrence is not None:
            raise UsageError(
                f"job {job.id} has a `recurrence`, and a job schedule has no end to run to; add it with"
                " `batchtrain jobs add`, and end it with `batchtrain jobs del`"
            )
        if job.auto_pool is not None and job.auto_pool.keep_alive:
            raise UsageError(
                f"job {job.id} keeps its pool alive (`auto_pool.keep_alive`), and `run` ends what it makes; leave that"
                " out, or add the job with `batchtrain jobs add`"
            )


class Follow:
    """Shows the output of a job's running tasks: events of kind `stdout` and `stderr`."""

    def __init__(self, client: Client, job: Job, tell: Tell, *, named: bool) -> None:
        self._client, self._job, self._tell, self._named = client, job, tell, named
        self._open: dict[str, list[tuple[str, files.Follower]]] = {}
        self._closed: set[str] = set()

    def look(self, tasks: tuple[TaskSeen, ...]) -> None:
        """Show what has come since the last look."""
        for task in tasks:
            if task.state in ("running", "completed") and task.id not in self._closed:
                self._show(task)

    def _show(self, task: TaskSeen) -> None:
        ended = task.state == "completed"
        for file, follower in self._open.setdefault(task.id, self._followers(task.id)):
            for line in follower.new_lines(last=ended):
                text = f"{task.id}: {line}" if self._named else line
                self._tell(Event(file.removesuffix(".txt"), task.id, text))
        if ended:
            self._closed.add(task.id)
            del self._open[task.id]

    def _followers(self, task_id: str) -> list[tuple[str, files.Follower]]:
        return [(file, files.Follower(self._client.batch, self._job.id, task_id, file)) for file in FILES]


class _Made:
    """What a run has made so far, to be deleted in reverse."""

    def __init__(self, client: Client, tell: Tell, keep: bool) -> None:
        self._client, self._tell, self._keep = client, tell, keep
        self._pools: list[str] = []
        self._jobs: list[str] = []
        self._where = client.account.option

    def note(self, event: Event) -> None:
        if event.kind == "pool.adding":
            self._pools.append(event.subject)
        if event.kind == "job.adding":
            self._jobs.append(event.subject)

    def clean_up(self, error: BaseException | None = None) -> None:
        """Ask for the end of every job and pool, then wait for each; what stands is said with its command."""
        if self._keep:
            return
        if isinstance(error, AlreadyExists):  # the last thing that was to be made is somebody else's
            (self._jobs or self._pools).pop()
        jobs, pools = self._client.jobs, self._client.pools
        made = [
            _Thing(f"job {name}", f"jobs del {name}", jobs.get(name).delete, jobs.get(name).gone) for name in self._jobs
        ]
        made += [
            _Thing(f"pool {name}", f"pool del {name}", partial(pools.delete, name), partial(pools.gone, name))
            for name in self._pools
        ]
        asked = [thing for thing in made if self._do(thing, partial(thing.delete, wait=False))]
        for thing in asked:
            if self._do(thing, thing.gone):
                self._tell(Event("deleted", thing.name, f"deleted {thing.name}"))

    def _do(self, thing: _Thing, step: Callable[[], None]) -> bool:
        """One step of a deletion; False, and said, when it failed."""
        try:
            step()
        except NotFound:
            return False
        except (BatchtrainError, KeyboardInterrupt) as error:
            reason = str(error) or "interrupted"
            text = f"{thing.name} still stands ({reason}); delete it: batchtrain {thing.command}{self._where}"
            self._tell(Event("leftover", thing.name, text))
            return False
        return True


class _Thing(NamedTuple):
    """Something to delete: what it is called, the command that would, how to ask, and how to wait."""

    name: str
    command: str
    delete: Callable[..., None]
    gone: Callable[[], None]
