"""The one way in which a pool, a job or a job schedule is deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from datetime import datetime

from azure.batch import BatchClient

from batchtrain.errors import NotFound
from batchtrain.records.events import Event
from batchtrain.service import pool_users, submit
from batchtrain.service.deadlines import GONE_SECONDS
from batchtrain.service.meant_version import NOW, look, of_runs, of_time
from batchtrain.service.register import Thing
from batchtrain.service.watch import Deadline, Pace

Tell = Callable[[Event], None] | None


def request(client: BatchClient, thing: Thing, runs: Collection[str], option: str = "") -> str:
    """Request the deletion of a thing for its users `runs`. Returns why it stays, if others use the pool; otherwise
    empty. Raises NotFound. option: selects the account in the next command."""
    if thing.kind == "pool":
        others = pool_users.end(client, thing.id, runs)
        return pool_users.stays(thing.id, others, option) if others else ""
    submit.delete_meant(client, thing, of_runs(runs))
    return ""


def request_named(
    client: BatchClient, thing: Thing, tell: Tell, *, created: datetime | None = None, seconds: float = GONE_SECONDS
) -> None:
    """Request the deletion of a thing that the user names, also one of another program. Raises NotFound.

    created: when the one that is meant was created; by default the one that exists now is meant.
    """
    with Deadline(seconds, f"the deletion of {thing.name}", tell):
        submit.delete_meant(client, thing, of_time(created))


def gone(client: BatchClient, thing: Thing, pace: Pace, tell: Tell, seconds: float = GONE_SECONDS) -> None:
    """Wait until the deletion of a thing has finished. Another one may have its id at once."""
    with contextlib.suppress(NotFound), Deadline(seconds, f"{thing.name} to be gone", tell) as deadline:
        is_meant = of_time(look(client, thing, "wait for", NOW).created)
        for pause in pace.steps():
            deadline.pause(pause)
            look(client, thing, "wait for", is_meant)
