"""Looks for the nodes of a pool: tries its candidates in their order until one has all nodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

from batchtrain.client.target_account import where
from batchtrain.config.candidates import Candidate
from batchtrain.config.times import duration
from batchtrain.config.types import Recipe
from batchtrain.errors import NoCapacity, ServiceError
from batchtrain.records import Pool
from batchtrain.records.events import CandidateTried, Deleted, Standing
from batchtrain.records.pools import PoolAttempt
from batchtrain.runs.recording import now
from batchtrain.service import faults, pool_users, read, retry, watch
from batchtrain.service.deadlines import GONE_SECONDS
from batchtrain.service.register import Register, Thing

if TYPE_CHECKING:
    from batchtrain.client.session import Session
    from batchtrain.client.shown_progress import Tell

Client = TypeVar("Client", bound="Session")


def patience_of(recipe: Recipe) -> float | None:
    """The seconds that a candidate has to allocate all nodes; None for a pool without candidates."""
    settings = recipe.pool.candidates if recipe.pool is not None else None
    return None if settings is None else duration(settings.patience)


def recovery_of(recipe: Recipe) -> float | None:
    """The seconds that the pool of a running job has to get its nodes back; None if its job is not moved."""
    settings = recipe.pool.candidates if recipe.pool is not None else None
    return patience_of(recipe) if settings is not None and settings.recover else None


def client_at(client: Client, candidate: Candidate) -> Client:
    """A client of the account of a candidate."""
    sessions: list[Any] = [client, *client.others]
    for session in sessions:
        if session.account.label == (candidate.account or client.account.label):
            return cast("Client", session)
    account = where(
        local=client.account.emulated,
        credentials=candidate.recipe.credentials,
        environment=os.environ,
        label=candidate.account,
    )
    session = type(client)(account)
    session.display, session.say, session.credentials = client.display, client.say, candidate.recipe.credentials
    client.others.append(session)
    return session


def place(
    client: Client,
    options: Iterable[Candidate],
    create: Callable[[Client, Candidate], Pool],
    register: Register,
    tell: Tell,
) -> tuple[Client, Candidate, Pool]:
    """Create a pool from the first of several candidates that has its nodes; what another one allocated in part is
    deleted before the next is tried.

    Raises NoCapacity, and the first error that is not about nodes. A service that cannot be reached ends the search: it
    may have the nodes.
    """
    candidates, reasons = tuple(options), []
    for candidate in candidates:
        began, session = now(), client_at(client, candidate)
        name = f"candidate {candidate.number} of {len(candidates)}, {candidate}"
        try:
            pool = create(session, candidate)
        except ServiceError as error:
            if not faults.lacks_nodes(error):
                raise
            attempt = attempt_of(session, candidate, began, error)
            text = retry.span((attempt.ended - began).total_seconds())
            tell(CandidateTried(candidate.pool.id, f"{name}, has no nodes after {text}: {error}", attempt=attempt))
            discard(session, candidate.pool.id, register, tell)
            reasons.append(f"{candidate}: {error.code}")
            continue
        tell(CandidateTried(pool.id, f"{name}, has the nodes", attempt=attempt_of(session, candidate, began)))
        return session, candidate, pool
    raise NoCapacity(
        f"none of {len(reasons)} candidates has nodes for the pool ({'; '.join(reasons)}); run again later, or add"
        " candidates to pool.yaml",
        code="NoCapacity",
    )


def attempt_of(
    session: Session, candidate: Candidate, began: datetime, error: ServiceError | None = None
) -> PoolAttempt:
    return PoolAttempt(
        candidate=str(candidate),
        account=session.account.name,
        vm_size=candidate.pool.vm_size,
        began=began,
        ended=now(),
        code=error.code if error else "",
        reason=str(error) if error else "",
    )


def discard(client: Session, pool_id: str, register: Register, tell: Tell) -> None:
    """Delete what was allocated of a pool; one that another run uses stays. Raises the error of the deletion."""
    register.settle(client.batch)
    thing = Thing("pool", pool_id)
    if register.state(thing) in ("ours", "pending") and register.is_ours(client.batch, thing):
        if others := pool_users.end(client.batch, pool_id, register.runs):
            tell(Standing(thing.name, pool_users.stays(pool_id, others, client.account.option)))
        else:
            watch.gone(lambda: read.pool(client.batch, pool_id), GONE_SECONDS, client.pace, thing.name, tell)
            tell(Deleted(thing.name, f"deleted {thing.name}"))
    register.note(thing, None)
