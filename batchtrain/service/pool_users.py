"""Who uses a pool, and how a pool that several runs use ends: with the last of them.

A run that begins to use the pool of another run notes itself in the metadata of the pool once its job exists. A run
that ends reads the pool, then the jobs, and changes the pool only if it is still the same version (ETag). So either the
deletion sees the new job, or the new user sees the deletion.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from azure.batch import BatchClient

from batchtrain.errors import NotAllowed, NotFound, ServiceError
from batchtrain.plan.marks import ENDS_WITH, LAST_USER, USED_BY, marks_of
from batchtrain.records import Job
from batchtrain.records.record import minute
from batchtrain.service import read, submit
from batchtrain.service.meant_version import versions
from batchtrain.service.read import Version
from batchtrain.service.register import Thing
from batchtrain.service.requests import CHANGED, ask

POOL_GONE = frozenset({"PoolNotFound", "PoolBeingDeleted"})
"""The codes of requests that need a pool which ends or has ended."""


class PoolUser(NamedTuple):
    """A job on a pool that is not over, or the run that added the pool and has no job yet."""

    run: str
    """Empty for a job of another program."""
    job: str
    since: datetime | None
    ends: bool
    """Whether a run deletes it at its end, and with its last user the pool."""

    def __str__(self) -> str:
        name = f"run {self.run}" if self.run else f"job {self.job}"
        return f"{name} since {minute(self.since)}" if self.since else name


def is_living(job: Job) -> bool:
    """Whether the work of a job is not over. One that its run deletes lives until then: its results are fetched."""
    return not job.is_over or (job.state != "deleting" and bool(marks_of(job.metadata).ends_with))


def users(client: BatchClient, pool_id: str, runs: Collection[str] = ()) -> tuple[PoolUser, ...]:
    """The living jobs on a pool, the oldest first, without those of some runs."""
    jobs = ((job, marks_of(job.metadata)) for job in on(read.jobs(client, f"{read.LISTED_JOB},metadata"), pool_id))
    users = (PoolUser(marks.run, job.id, job.created, bool(marks.ends_with)) for job, marks in jobs)
    return tuple(sorted((user for user in users if user.run not in runs), key=lambda user: str(user.since)))


def on(jobs: Iterable[Job], pool_id: str) -> Iterator[Job]:
    """The jobs that use a pool."""
    return (job for job in jobs if job.pool.lower() == pool_id.lower() and is_living(job))


def stays(pool_id: str, others: Sequence[PoolUser], option: str) -> str:
    """Why a pool that a run would delete stays, and when it ends. option: selects its account."""
    names = ", ".join(dict.fromkeys(f"run {user.run}" if user.run else f"job {user.job}" for user in others))
    verb = "uses" if len(others) == 1 else "use"
    end = "it is deleted when its last user ends"
    if not all(user.ends for user in others):
        end = f"delete it afterwards: {Thing('pool', pool_id).command('del', option)}"
    return f"pool {pool_id} stays: {names} {verb} it; {end}"


def join(client: BatchClient, pool_id: str, run: str) -> None:
    """Note a run, whose job exists, as a user of a pool that another run would delete. Raises NotFound for a pool that
    ends."""
    for version in versions(client, Thing("pool", pool_id)):
        if version.state == "deleting":
            raise NotFound(f"pool {pool_id} is being deleted", operation=f"use pool {pool_id}", code="PoolBeingDeleted")
        with contextlib.suppress(NotAllowed):  # its jobs protect it, but for a moment
            if marks_of(version.metadata).ends_with and not _noted(client, version, USED_BY, run):
                continue
        return


def end(client: BatchClient, pool_id: str, runs: Collection[str]) -> tuple[PoolUser, ...]:
    """End a pool for its user or users `runs`: delete it, or leave it to the others, which are returned.

    The run that added the pool hands it over; other runs delete only a pool that was handed over. Raises NotFound.
    """
    for version in versions(client, Thing("pool", pool_id)):
        if version.state == "deleting":
            return ()
        marks, others = marks_of(version.metadata), users(client, pool_id, runs)
        is_handed_over = marks.ends_with == LAST_USER
        if not others and (is_handed_over or marks.run in runs):
            if _is_done(partial(submit.delete_version, client, Thing("pool", pool_id), version.etag)):
                return ()
        elif is_handed_over or marks.run not in runs:
            return others or (PoolUser(marks.run, "", None, ends=True),)
        else:
            _noted(client, version, ENDS_WITH, LAST_USER)  # and its users may have ended meanwhile
    raise AssertionError("unreachable")


def hand_over(client: BatchClient, pool_id: str) -> None:
    """Let a pool whose run has ended end with its last user. Raises NotFound."""
    for version in versions(client, Thing("pool", pool_id)):
        if marks_of(version.metadata).ends_with in ("", LAST_USER) or _noted(client, version, ENDS_WITH, LAST_USER):
            return


def _noted(client: BatchClient, version: Version, name: str, value: str) -> bool:
    """Set an item of the metadata of a pool. Returns False if the pool has changed."""
    items = [*(item for item in version.metadata if item["name"] != name), {"name": name, "value": value}]
    thing = Thing("pool", version.id)
    body = {"metadata": items}
    return _is_done(lambda: ask(client, "PATCH", thing.path, f"update {thing.name}", body, etag=version.etag))


def _is_done(request: Callable[[], None]) -> bool:
    """Send a request for a version of a pool. Returns False if the pool has changed, or is being deleted."""
    try:
        request()
    except ServiceError as error:
        if error.code not in (CHANGED, "PoolBeingDeleted"):
            raise
        return False
    return True
