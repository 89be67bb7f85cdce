"""`run`: a recipe from nothing to its end, its output shown as it comes, and what this made cleaned up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from batchtrain.config.types import Recipe
from batchtrain.errors import BatchtrainError, NotFound
from batchtrain.service import files, watch
from batchtrain.service.seen import Table, TaskSeen
from batchtrain.service.submit import Event

if TYPE_CHECKING:
    from batchtrain.client import Client, Job, Tell

FILES = ("stdout.txt", "stderr.txt")


def run(
    client: Client,
    recipe: Recipe,
    *,
    tell: Tell,
    timeout: float,
    keep: bool = False,
) -> Table[TaskSeen]:
    """Add the pool and the jobs, follow them to their end, delete what was made (also after Ctrl-C).

    Raises TaskFailed for the first task that failed, and whatever kept the work from being done. With `keep`, what was
    made stays.
    """
    made = _Made(client, tell, keep)
    try:
        tasks = _work(client, recipe, made, tell, timeout)
    except BaseException:
        made.clean_up()
        raise
    made.clean_up()
    return tasks


def _work(client: Client, recipe: Recipe, made: _Made, tell: Tell, timeout: float) -> Table[TaskSeen]:
    def note(event: Event) -> None:
        made.note(event)
        tell(event)

    client.pools.add(recipe, timeout=timeout, tell=note)
    jobs = client.jobs.add_all(recipe, tell=note, timeout=timeout)
    ended: list[TaskSeen] = []
    for job in jobs:
        follow = Follow(client, job, tell, named=len(job.tasks) > 1)
        tasks = watch.tasks_ended(client.batch, job.id, timeout, client.pace, follow.look)
        follow.look(tasks)
        ended.extend(tasks)
        job.raise_failed(tasks)
    return Table(ended)


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

    def note(self, event: Event) -> None:
        if event.kind == "pool.add":
            self._pools.append(event.subject)
        if event.kind == "job.add":
            self._jobs.append(event.subject)

    def clean_up(self) -> None:
        """Delete jobs, then pools; what cannot be deleted is said with the command that does it."""
        if self._keep:
            return
        for job_id in self._jobs:
            self._delete(f"job {job_id}", f"jobs del {job_id}", self._client.jobs.get(job_id).delete)
        for pool_id in self._pools:
            self._delete(f"pool {pool_id}", f"pool del {pool_id}", partial(self._client.pools.delete, pool_id))

    def _delete(self, what: str, command: str, delete: Callable[[], None]) -> None:
        try:
            delete()
        except NotFound:
            return
        except (BatchtrainError, KeyboardInterrupt) as error:
            reason = str(error) or "interrupted"
            self._tell(Event("leftover", what, f"{what} still stands ({reason}); delete it: batchtrain {command}"))
        else:
            self._tell(Event("deleted", what, f"deleted {what}"))
