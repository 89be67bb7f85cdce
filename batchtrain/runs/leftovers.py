"""What runs left in an account: pools, jobs and job schedules that carry the mark of a run, with their age and cost."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec
from azure.batch import BatchClient

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import money
from batchtrain.errors import BatchtrainError
from batchtrain.plan.marks import Marks, marks_of
from batchtrain.runs.directory import RunDirectory
from batchtrain.service import submit
from batchtrain.service.connect import Account
from batchtrain.service.register import COLLECTIONS, KINDS, Kind, Thing, read_marks
from batchtrain.service.requests import Page, listed, query
from batchtrain.service.retry import span

SELECT = "id,state,creationTime,metadata"
OF_POOL = ",vmSize,currentDedicatedNodes,currentLowPriorityNodes"


class _Document(msgspec.Struct, rename="camel"):
    id: str
    state: str = ""
    creation_time: datetime | None = None
    metadata: tuple[dict[str, str], ...] = ()
    vm_size: str = ""
    current_dedicated_nodes: int = 0
    current_low_priority_nodes: int = 0


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
        for document in _documents(client, kind):
            marks = marks_of(document.metadata)
            age = now - (document.creation_time or now)
            run = RunDirectory(root / marks.run)
            of_user = user is None or marks.user == user
            if marks.run and of_user and age >= timedelta(seconds=older_than) and _state(run) != "running":
                row = _row(account, kind, document, marks, age, catalog, run)
                rows.append(Leftover(Thing(kind, document.id), marks, row))
    return tuple(rows)


def delete(client: BatchClient, things: Iterable[Leftover]) -> Iterator[Leftover]:
    """Delete what still carries the same mark, without waiting; yields each thing that is being deleted."""
    remove = {"pool": submit.delete_pool, "job": submit.delete_job, "job schedule": submit.delete_schedule}
    for item in things:
        with contextlib.suppress(BatchtrainError):
            if read_marks(client, item.thing) == item.marks:
                remove[item.thing.kind](client, item.thing.id)
                yield item


def _documents(client: BatchClient, kind: Kind) -> Iterator[_Document]:
    select = SELECT + (OF_POOL if kind == "pool" else "")
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
    ended = _state(run) in ("completed", "failed")
    return "here" if ended and all(file.fetched for file in run.files()) else "not here"
