"""What runs left in an account: pools, jobs and job schedules that carry the mark of a run, with their age and cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from azure.batch import BatchClient

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import money
from batchtrain.errors import BatchtrainError, NotFound
from batchtrain.plan.marks import Marks, marks_of
from batchtrain.records import Job, JobSchedule, Pool
from batchtrain.runs import directory
from batchtrain.runs.directory import RunRecord
from batchtrain.service import read, submit
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
    """What runs left that have ended, in the order in which it is deleted; not what a living run of this machine uses.

    user: only that of this user. older_than: the age in seconds from which something counts.
    """
    rows = []
    for kind in KINDS:
        for record in _marked(client, kind):
            marks = marks_of(record.metadata)
            age = now - (record.created or now)
            run = directory.named(root, marks.run).record_or_none()
            of_user = user is None or marks.user == user
            if marks.run and of_user and age >= timedelta(seconds=older_than) and not (run and run.state == "running"):
                row = _row(account, kind, record, marks, age, catalog, run)
                rows.append(Leftover(Thing(kind, record.id), marks, row, run is None))
    return tuple(rows)


def delete(client: BatchClient, things: Iterable[Leftover]) -> Iterator[tuple[Leftover, BatchtrainError | None]]:
    """Delete what still carries the same mark, without waiting; yields each thing, with the error if it stays."""
    remove: Mapping[Kind, Callable[[BatchClient, str], None]] = {
        "pool": submit.delete_pool,
        "job": submit.delete_job,
        "job schedule": submit.delete_schedule,
    }
    for item in things:
        failure: BatchtrainError | None = None
        try:
            if read_marks(client, item.thing) != item.marks:
                continue  # another run replaced it
            remove[item.thing.kind](client, item.thing.id)
        except NotFound:
            continue  # it is gone
        except BatchtrainError as error:
            failure = error
        yield item, failure


def _marked(client: BatchClient, kind: Kind) -> Sequence[Pool | Job | JobSchedule]:
    if kind == "pool":
        return read.pools(client, read.MARKED_POOL)
    return read.jobs(client, read.MARKED) if kind == "job" else read.schedules(client, read.MARKED)


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
