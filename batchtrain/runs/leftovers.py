"""What runs left in an account: pools, jobs and job schedules that carry the mark of a run, with their age and cost."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from azure.batch import BatchClient

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import money
from batchtrain.errors import BatchtrainError, NotFound
from batchtrain.plan.marks import Marks, is_controller, marks_of
from batchtrain.records import Job, JobSchedule, Pool
from batchtrain.runs import directory, lease
from batchtrain.runs.directory import RunDirectory, RunRecord
from batchtrain.service import deletion, observe, pool_users, read
from batchtrain.service.connect import Account
from batchtrain.service.register import KINDS, Kind, Thing, read_marks
from batchtrain.service.retry import span


class LeftoverRow(NamedTuple):
    """Something that a run left."""

    kind: str
    id: str
    state: str
    run: str
    user: str
    host: str
    age: str
    nodes: int | None
    hour: str
    """What an hour of its nodes costs; empty if it is unknown or nothing."""
    results: str
    """Whether the results of a job are in the run directory on this machine."""


class Leftover(NamedTuple):
    """A thing of the account with the mark of a run."""

    thing: Thing
    marks: Marks
    row: LeftoverRow
    elsewhere: bool
    """Whether its run is not known here, so that it may be alive in another directory or on another machine."""
    is_controller: bool = False
    """Whether it is the job of a controller, whose requests are in storage."""


def leftovers(
    client: BatchClient,
    account: Account,
    root: Path,
    catalog: Catalog,
    now: datetime,
    *,
    user: str | None = None,
    older_than: float = 0.0,
) -> tuple[Leftover, ...]:
    """What runs left that have ended, in the order in which it is deleted; nothing of a living run of this machine, and
    no pool on which another job is not over.

    user: only that of this user. older_than: the age in seconds from which something counts.
    """
    jobs, rows = read.jobs(client, f"{read.LISTED_JOB},metadata"), dict[Thing, Leftover]()
    find_run = functools.cache(lambda name: directory.named(root, name).record_or_none())
    is_alive = functools.cache(lambda name: _is_alive(client, directory.named(root, name), jobs))
    for kind in KINDS:
        for record in jobs if kind == "job" else _marked(client, kind):
            marks, thing = marks_of(record.metadata), Thing(kind, record.id)
            age = now - (record.created or now)
            is_chosen = (user is None or marks.user == user) and age >= timedelta(seconds=older_than)
            if not marks.run or not is_chosen or is_alive(marks.run):
                continue
            users = [Thing("job", job.id) for job in pool_users.on(jobs, record.id)] if kind == "pool" else []
            if rows.keys() >= set(users):
                run = find_run(marks.run)
                row = _row(account, kind, record, marks, age, catalog, run)
                is_elsewhere = run is None or any(rows[user].elsewhere for user in users)
                rows[thing] = Leftover(thing, marks, row, is_elsewhere, is_controller(record.metadata))
    return tuple(rows.values())


def _is_alive(client: BatchClient, run: RunDirectory, jobs: Iterable[Job]) -> bool:
    """Whether a run of this machine lives: a process records it, such as one that still adds the controller of a
    detached run, or it still uses a job."""
    record = run.record_or_none()
    if record is None or record.state == "running" or lease.holder(run.path) == "process":
        return record is not None
    return any(
        observe.is_used(client, job.id, record.state, job) for job in jobs if marks_of(job.metadata).run == run.name
    )


def delete(client: BatchClient, things: Iterable[Leftover]) -> Iterator[tuple[Leftover, str, BatchtrainError | None]]:
    """Delete what still carries the same mark, without waiting; yields each thing, its result, and the error if
    it could not be deleted."""
    for item in things:
        text, failure = _result(client, item)
        if text:
            yield item, text, failure


def _result(client: BatchClient, item: Leftover) -> tuple[str, BatchtrainError | None]:
    try:
        if read_marks(client, item.thing) != item.marks:  # another run replaced it
            return "", None
        text = deletion.request(client, item.thing, {item.marks.run})  # a pool that is used since it was listed stays
        return text or f"{item.thing.name} is being deleted", None
    except NotFound:  # it is gone
        return "", None
    except BatchtrainError as error:
        return f"{item.thing.name} was not deleted: {error}", error


def _marked(client: BatchClient, kind: Kind) -> Sequence[Pool | JobSchedule]:
    return read.pools(client, read.MARKED_POOL) if kind == "pool" else read.schedules(client, read.MARKED)


def _row(
    account: Account,
    kind: Kind,
    record: Pool | Job | JobSchedule,
    marks: Marks,
    age: timedelta,
    catalog: Catalog,
    run: RunRecord | None,
) -> LeftoverRow:
    price = cost = nodes = None
    if isinstance(record, Pool):
        nodes = record.nodes
        price = catalog.price(record.vm_size, account.region) if account.region is not None else None
        cost = price.of(record.dedicated, record.spot) if price else None
    return LeftoverRow(
        kind,
        record.id,
        record.state,
        marks.run,
        marks.user,
        marks.host,
        span(age.total_seconds()),
        nodes,
        money(cost, price.currency) if price is not None and cost is not None else "",
        ("here" if run and run.results == "complete" else "not here") if kind == "job" else "",
    )
