"""What runs left in an account: pools, jobs and job schedules that carry the mark of a run, with their age and cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from azure.batch import BatchClient

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import money
from batchtrain.errors import BatchtrainError, NotFound
from batchtrain.plan.marks import Marks, marks_of
from batchtrain.runs.directory import RunDirectory
from batchtrain.service import submit
from batchtrain.service.connect import Account
from batchtrain.service.register import COLLECTIONS, KINDS, Kind, Thing, read_marks
from batchtrain.service.requests import Page, listed, query
from batchtrain.service.retry import span

SELECT = "id,state,creationTime,metadata"
OF_POOL = ",vmSize,currentDedicatedNodes,currentLowPriorityNodes"


OF_JOB = ",poolInfo,executionInfo"


class _Document(msgspec.Struct, rename="camel"):
    id: str
    state: str = ""
    creation_time: datetime | None = None
    metadata: tuple[dict[str, str], ...] = ()
    vm_size: str = ""
    current_dedicated_nodes: int = 0
    current_low_priority_nodes: int = 0
    pool_info: dict[str, Any] = {}
    execution_info: dict[str, Any] = {}

    @property
    def pool(self) -> str:
        """The pool of a job."""
        return str(self.execution_info.get("poolId") or self.pool_info.get("poolId") or "")


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
    in_use: bool
    """Whether it may be alive elsewhere: a job that has not ended and whose run is not known here, or its pool."""


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
    busy_pools: set[str] = set()
    for kind in KINDS:
        for document in _documents(client, kind):
            marks = marks_of(document.metadata)
            age = now - (document.creation_time or now)
            run = RunDirectory(root / marks.run)
            of_user = user is None or marks.user == user
            in_use = kind == "pool" and document.id in busy_pools
            if kind != "pool" and document.state != "completed":
                in_use = _state(run) in ("", "running")
                busy_pools |= {document.pool} if in_use else set()
            if marks.run and of_user and age >= timedelta(seconds=older_than) and _state(run) != "running":
                row = _row(account, kind, document, marks, age, catalog, run)
                rows.append(Leftover(Thing(kind, document.id), marks, row, in_use))
    return tuple(rows)


def delete(client: BatchClient, things: Iterable[Leftover]) -> Iterator[tuple[Leftover, BatchtrainError | None]]:
    """Delete what still carries the same mark, without waiting; yields each thing, with the error if it stays."""
    remove = {"pool": submit.delete_pool, "job": submit.delete_job, "job schedule": submit.delete_schedule}
    for item in things:
        failure: BatchtrainError | None = None
        try:
            if read_marks(client, item.thing) == item.marks:
                remove[item.thing.kind](client, item.thing.id)
        except NotFound:
            continue  # it is gone
        except BatchtrainError as error:
            failure = error
        yield item, failure


def _documents(client: BatchClient, kind: Kind) -> Iterator[_Document]:
    select = SELECT + {"pool": OF_POOL, "job": OF_JOB}.get(kind, "")
    url = f"/{COLLECTIONS[kind]}{query({'$select': select})}"
    return listed(client, url, f"list {COLLECTIONS[kind]}", Page[_Document])


def _state(run: RunDirectory) -> str:
    """The state of a run on this machine; empty if it is not here."""
    try:
        return run.record().state
    except BatchtrainError:
        return ""


def _row(
    account: Account,
    kind: Kind,
    document: _Document,
    marks: Marks,
    age: timedelta,
    catalog: Catalog,
    run: RunDirectory,
) -> LeftoverRow:
    dedicated, spot = document.current_dedicated_nodes, document.current_low_priority_nodes
    price = None
    if kind == "pool" and account.region is not None:
        price = catalog.price(document.vm_size, account.region)
    cost = price.of(dedicated, spot) if price else None
    return LeftoverRow(
        kind,
        document.id,
        document.state,
        marks.run,
        marks.user,
        marks.host,
        span(age.total_seconds()),
        dedicated + spot if kind == "pool" else None,
        money(cost, price.currency) if price is not None and cost is not None else "",
        _results(run) if kind == "job" else "",
    )


def _results(run: RunDirectory) -> str:
    try:
        return "here" if run.record().results == "complete" else "not here"
    except BatchtrainError:
        return "not here"
