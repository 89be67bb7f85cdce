"""Finds the nodes of a run: the loop of `PLACE_RULES` of `life/placing.py`, and what each of its rules does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from batchtrain.client.target_account import where
from batchtrain.config.candidates import Candidate
from batchtrain.config.times import duration
from batchtrain.config.types import Recipe
from batchtrain.errors import NoCapacity, NodesLost, ServiceError
from batchtrain.life import placing
from batchtrain.life.decision_table import drive
from batchtrain.life.placing import PlaceAct, SeenPlace
from batchtrain.records import Pool
from batchtrain.records.events import CandidateTried, Deleted, Standing, Waiting
from batchtrain.records.pools import PoolAttempt
from batchtrain.runs.recording import now
from batchtrain.service import deletion, faults, pool_users, retry
from batchtrain.service.register import Register, Thing

if TYPE_CHECKING:
    from batchtrain.client.session import Session
    from batchtrain.service.watch import Tell

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
    local, credentials = client.account.emulated, candidate.recipe.credentials
    account = where(local=local, credentials=credentials, environment=os.environ, label=candidate.account)
    session = type(client)(account)
    session.display, session.say, session.credentials = client.display, client.say, credentials
    session.real_storage = client.real_storage
    client.others.append(session)
    return session


class Jobs(Protocol):
    """The jobs of a run: added once the pool has its nodes, followed to their end or NodesLost, and deleted so that
    they can be added elsewhere."""

    def add(self) -> None: ...

    def follow(self) -> None: ...

    def withdraw(self) -> None: ...


class Placement(Generic[Client]):
    """Tries the candidates of a pool in their order until one has all nodes; what another one allocated in part is
    deleted before the next is tried. Jobs are added there and followed, and move on if the nodes are lost."""

    def __init__(
        self,
        client: Client,
        options: Iterable[Candidate],
        create: Callable[[Client, Candidate], Pool | None],
        register: Register,
        tell: Tell,
        jobs: Jobs | None = None,
        *,
        has_candidates: bool = True,
    ) -> None:
        self._client, self._create_pool, self._register, self._tell = client, create, register, tell
        self._options, self._jobs, self._has_candidates = tuple(options), jobs, has_candidates
        self._untried, self._reasons = [*self._options], list[str]()
        self._seen = SeenPlace(len(self._options), wants_jobs=jobs is not None)
        self._error = ServiceError("")
        """Why the pool is of no use."""
        self.client, self.candidate, self.pool = client, self._options[0], cast("Pool | None", None)
        """Where the pool is, or is tried."""

    def find(self) -> None:
        """Find the nodes, and with jobs, their end.

        Raises NoCapacity, and the first error that is not about nodes. A service that cannot be reached ends the
        search: it may have the nodes.
        """
        drive(lambda: self._seen._replace(untried=len(self._untried)), placing.decide, lambda act, _: ACTS[act](self))

    def _see(self, **changes: Any) -> None:
        self._seen = self._seen._replace(**changes)

    def _create(self) -> None:
        candidate, began = self._untried.pop(0), now()
        self.candidate, self.client = candidate, client_at(self._client, candidate)
        name = f"candidate {candidate.number} of {len(self._options)}, {candidate}"
        try:
            self.pool = self._create_pool(self.client, candidate)
        except ServiceError as error:
            if self._has_candidates and faults.lacks_nodes(error):
                attempt = self._attempt(began, error)
                text = retry.span((attempt.ended - began).total_seconds())
                text = f"{name}, has no nodes after {text}: {error}"
                self._tell(CandidateTried(candidate.pool.id, text, attempt=attempt))
                self._reasons.append(f"{candidate}: {error.code}")
                self._see(pool="lacking")
                return
            self._see_end(error)
            return
        if self._has_candidates:
            attempt = self._attempt(began)
            self._tell(CandidateTried(candidate.pool.id, f"{name}, has the nodes", attempt=attempt))
        at = self._options.index(candidate)
        self._untried, self._reasons = [*self._options[at + 1 :], *self._options[: at + 1]], []
        self._see(pool="ready")

    def _see_end(self, error: ServiceError) -> None:
        """The pool ended with the run that added it. Raises any other error."""
        if error.code not in pool_users.POOL_GONE or not self._register.things("shared"):
            raise error
        self._see(pool="ended")

    def _add(self) -> None:
        assert self._jobs is not None
        self._see(jobs="added")
        try:
            self._jobs.add()
        except ServiceError as error:
            self._see_end(error)

    def _follow(self) -> None:
        assert self._jobs is not None
        try:
            self._jobs.follow()
            self._see(jobs="over")
        except NodesLost as error:
            text = f"{self.candidate} does not get its nodes back ({error}); the job moves to the next candidate"
            self._tell(CandidateTried(self.candidate.pool.id, text, attempt=self._attempt(now(), error)))
            self._see(pool="lost")

    def _withdraw(self) -> None:
        assert self._jobs is not None
        self._jobs.withdraw()
        self._see(jobs="")

    def _discard(self) -> None:
        discard(self.client, self.candidate.pool.id, self._register, self._tell)
        self._see(pool="")

    def _forget(self) -> None:
        for pool in self._register.things("shared"):
            text = f"{pool.name} was deleted at the end of the run that added it; this run creates it again"
            self._tell(Waiting(pool.id, text))
            self._register.note(pool, None)
        self._untried = [self.candidate, *(option for option in self._untried if option is not self.candidate)]
        self._see(pool="")

    def _give_up(self) -> None:
        raise NoCapacity(
            f"none of {len(self._reasons)} candidates has nodes for the pool ({'; '.join(self._reasons)}); run again"
            " later, or add candidates to pool.yaml",
            code="NoCapacity",
        )

    def _attempt(self, began: datetime, error: ServiceError | None = None) -> PoolAttempt:
        return PoolAttempt(
            candidate=str(self.candidate),
            account=self.client.account.name,
            vm_size=self.candidate.pool.vm_size,
            began=began,
            ended=now(),
            code=error.code if error else "",
            reason=str(error) if error else "",
        )


ACTS: Mapping[PlaceAct, Callable[[Placement[Any]], None]] = {
    "create": Placement._create,
    "add": Placement._add,
    "follow": Placement._follow,
    "withdraw": Placement._withdraw,
    "discard": Placement._discard,
    "forget": Placement._forget,
    "give up": Placement._give_up,
}


def discard(client: Session, pool_id: str, register: Register, tell: Tell) -> None:
    """Delete what was allocated of a pool; one that another run uses stays. Raises the error of the deletion."""
    register.settle(client.batch)
    thing = Thing("pool", pool_id)
    if register.state(thing) in ("ours", "pending") and register.is_ours(client.batch, thing):
        if reason := deletion.request(client.batch, thing, register.runs, client.account.option):
            tell(Standing(thing.name, reason))
        else:
            deletion.gone(client.batch, thing, client.pace, tell)
            tell(Deleted(thing.name, f"deleted {thing.name}"))
    register.note(thing, None)
