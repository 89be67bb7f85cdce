"""Follows the tasks of a job until they have ended: the one wait of every command, whose intents differ."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from batchtrain.errors import BatchtrainError, LimitReached, NotFound
from batchtrain.life import intents
from batchtrain.life.intents import Intent
from batchtrain.runs.log_follower import Follow, Followed
from batchtrain.service import job_actions, read, tasks, watch
from batchtrain.service.deadlines import JOB_SECONDS, STOP_SECONDS
from batchtrain.service.tasks import Glance

if TYPE_CHECKING:
    from batchtrain.client.session import Session
    from batchtrain.records.events import Event
    from batchtrain.service.watch import Tell


class Nodes(Protocol):
    """The nodes of the job, which may be missing or have faults: a `NodeWatch`."""

    moves: bool

    def note(self, event: Event) -> None: ...

    def look(self) -> int: ...


def until_ended(
    client: Session,
    job: Followed,
    intent: Intent,
    deadline: watch.Deadline,
    *,
    lines: Callable[[str, str, Sequence[str]], None] | None = None,
    ranks: Iterable[int] = (),
    nodes: Nodes | None = None,
    count_nodes: Callable[[], int] = lambda: 0,
    comes_back: Callable[[], bool] = lambda: False,
    runs: Collection[str] = (),
) -> Follow:
    """Show what `intent` wants of the tasks of a job until all have ended, or never start; returns what showed them. At
    a limit of the command they are stopped and shown to their last line.

    lines and ranks: as for `Follow`. count_nodes: looks at the nodes that cost money; returns its requests. comes_back:
    whether a job that is gone is being moved. runs: those whose job is stopped. Raises as `watch.tasks_ended` does, and
    LimitReached, NodesLost and ReplacementFailed.
    """
    batch, pace, tell = client.batch, client.pace, nodes.note if nodes is not None else deadline.tell
    while True:
        follow = Follow(batch, job, tell, lines=lines, turns=pace.turns, output=intent.shows == "output", ranks=ranks)
        deadline.progress = follow.progress

        def look(glance: Glance, follow: Follow = follow) -> int:
            requests = follow.look(glance) if intent.shows else 0
            return requests + (nodes.look() if nodes is not None else 0) + count_nodes()

        try:
            watch.tasks_ended(batch, job.id, deadline, pace, look, moves=nodes is not None and nodes.moves)
            return follow
        except NotFound:
            if not comes_back():
                raise
        except LimitReached:
            with watch.limited(None), contextlib.suppress(BatchtrainError):  # it ends, or the service does not answer
                stop_tasks(client, job.id, runs, deadline.tell)
                follow.look(tasks.glance(batch, job.id))
            raise
        deadline.pause(pace.most, "its controller moves it")


def watch_job(
    client: Session,
    job: Followed,
    *,
    tell: Tell,
    timeout: float = JOB_SECONDS,
    intent: Intent = intents.WATCH,
    ranks: Iterable[int] = (),
    comes_back: Callable[[], bool] = lambda: False,
) -> None:
    """Show the nodes of a job, and follow its tasks as `until_ended` does. Fetches and deletes nothing."""
    with contextlib.suppress(NotFound):
        watch.show_nodes(client.batch, read.job(client.batch, job.id).pool, tell)
    deadline = watch.Deadline(timeout, watch.tasks_of(job.id), tell)
    until_ended(client, job, intent, deadline, ranks=ranks, comes_back=comes_back)


def stop_tasks(client: Session, job_id: str, runs: Collection[str], tell: Tell) -> None:
    """End the tasks of a job of one of the runs; its results are fetched then. Raises NotFound, also for a job of
    another run, and TimedOut if tasks still run."""
    deadline = watch.Deadline(STOP_SECONDS, f"{watch.tasks_of(job_id)} to end", tell)
    job_actions.stop(client.batch, job_id, runs, deadline, client.pace)
