"""Changes of what is meant: of the version of a pool, a job or a job schedule that was read, and of no successor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from functools import partial

from azure.batch import BatchClient

from batchtrain.errors import NotFound, ServiceError
from batchtrain.plan.marks import marks_of
from batchtrain.service import read
from batchtrain.service.read import Version
from batchtrain.service.register import COLLECTIONS, Thing
from batchtrain.service.requests import CHANGED, Body, ask

REPLACED = "Replaced"
MOST_READS = 20
"""How often a thing is read again because another command has changed it."""
IsMeant = Callable[[Version], bool]


def of_runs(runs: Collection[str]) -> IsMeant:
    """What one of these runs created is meant."""
    return lambda version: marks_of(version.metadata).run in runs


def of_time(created: datetime | None) -> IsMeant:
    """What was created at this time is meant; None: what has the id now."""
    return lambda version: created in (None, version.created)


NOW = of_time(None)
"""What has the id now is meant."""


def change_meant(
    client: BatchClient,
    thing: Thing,
    verb: str,
    is_meant: IsMeant,
    change: Callable[[str], None],
    etag: str | None = None,
) -> None:
    """Change a thing if it is the one that is meant, and none that gets its id later: a request may arrive after it was
    given up. change: sends the request for the version with this ETag. etag: of a version that is meant, which then is
    not read first. Raises NotFound, with the code REPLACED for another thing."""
    if etag and _is_changed(change, etag):
        return
    created: datetime | None = None
    for version in versions(client, thing):
        created = created or version.created
        if version.created != created or not is_meant(version):
            raise replaced(thing, verb)
        if _is_changed(change, version.etag):
            return


def _is_changed(change: Callable[[str], None], etag: str) -> bool:
    """Whether the thing still had the version with this ETag, and so was changed."""
    try:
        change(etag)
    except ServiceError as error:
        if error.code != CHANGED:
            raise
        return False
    return True


def look(client: BatchClient, thing: Thing, verb: str, is_meant: IsMeant) -> Version:
    """The version of the thing that is meant, for what has no condition. Raises as `change_meant` does."""
    version = read.version(client, thing.kind, COLLECTIONS[thing.kind], thing.id)
    if not is_meant(version):
        raise replaced(thing, verb)
    return version


def replaced(thing: Thing, verb: str) -> NotFound:
    return NotFound(f"{thing.name} was replaced by a new one", operation=f"{verb} {thing.name}", code=REPLACED)


def versions(client: BatchClient, thing: Thing) -> Iterator[Version]:
    """A thing now, as often as another command has changed it. Raises NotFound."""
    for _ in range(MOST_READS):
        yield read.version(client, thing.kind, COLLECTIONS[thing.kind], thing.id)
    raise ServiceError(f"{thing.name} is changed by other commands all the time", code=CHANGED)


def update_job(
    client: BatchClient, job_id: str, verb: str, body: Body, is_meant: IsMeant, etag: str | None = None
) -> None:
    """Change properties of a job. etag, and what it raises: as `change_meant`."""
    job = Thing("job", job_id)
    send = partial(ask, client, "PATCH", job.path, f"{verb} {job.name}", body)
    change_meant(client, job, verb, is_meant, lambda etag: send(etag=etag), etag)
