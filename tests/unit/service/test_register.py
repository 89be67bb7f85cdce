"""The register of what a command creates: each outcome of a request, and what a later look decides."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest
from azure.batch import BatchClient, models

from batchtrain.errors import AlreadyExists, NotAllowed, QuotaReached, ServiceError, Unreachable
from batchtrain.plan.marks import Marks
from batchtrain.service.register import LATE_SECONDS, Register, State, Thing
from batchtrain.service.retry import Attempts
from tests.submitting import METADATA, RUN, new_register
from tests.unit.service.test_retry import EMPTY, NEAR, NO_ANSWER, NO_CONNECTION, Service, refusal

POOL, JOB, SCHEDULE = Thing("pool", "p"), Thing("job", "j"), Thing("job schedule", "s")
THINGS = (POOL, JOB, SCHEDULE)
OTHER = Thing("job", "other")
BODIES: Mapping[Thing, dict[str, Any]] = {
    POOL: {"id": "p"},
    JOB: {"id": "j"},
    SCHEDULE: {"id": "s", "jobSpecification": {}},
}
EXISTS = refusal("PoolExists")
GONE = refusal("PoolNotFound", 404)
OURS = (200, {"id": "p", "metadata": METADATA})
OF_ANOTHER_RUN = (200, {"id": "p", "metadata": Marks("another").metadata})
WITHOUT_RUN = (200, {"id": "p"})
FORBIDDEN = refusal("InsufficientAccountPermissions", 403)


def create(service: Service, register: Register, thing: Thing = POOL) -> None:
    """Create a thing as a submission does."""

    def send(body: Mapping[str, Any], attempts: Attempts) -> None:
        service.client.create_pool(models.BatchPoolCreateOptions(body), attempts=attempts)

    register.create(service.client, thing, BODIES[thing], send)


# --- one request ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.kind)
def test_a_thing_is_pending_while_its_request_with_the_run_is_sent_and_ours_after_its_answer(thing: Thing) -> None:
    register, sent = new_register(), list[tuple[State | None, Any]]()
    client: Any = None
    register.create(
        client, thing, BODIES[thing], lambda body, _: sent.append((register.state(thing), body["metadata"]))
    )
    assert (sent, register.state(thing)) == ([("pending", METADATA)], "ours")


def test_what_is_adopted_counts_as_created_and_keeps_the_run_that_lost_its_process() -> None:
    register = new_register()
    register.adopt(POOL, "lost")
    assert (register.state(POOL), register.marks(POOL).run) == ("ours", "lost")
    assert register.runs == {RUN, "lost"}


OUTCOMES: dict[str, tuple[tuple[Any, ...], type[ServiceError] | None, State | None]] = {
    "201": (((201, None),), None, "ours"),
    "201 after a lost answer": ((NO_ANSWER, (201, None)), None, "ours"),
    "refused": ((refusal("InvalidPropertyValue", 400),), ServiceError, None),
    "quota": ((refusal("PoolQuotaReached"),), QuotaReached, None),
    "not allowed": ((FORBIDDEN,), NotAllowed, None),
    "no connection": ((NO_CONNECTION,), Unreachable, None),
    "lost answer": ((NO_ANSWER,), Unreachable, "pending"),
    "503": (((503, EMPTY),), Unreachable, "pending"),
    "409 ours": ((EXISTS, OURS), None, "ours"),
    "409 ours after a lost answer": ((NO_ANSWER, EXISTS, OURS), None, "ours"),
    "409 of another run": ((EXISTS, OF_ANOTHER_RUN), AlreadyExists, None),
    "409 without a run": ((EXISTS, WITHOUT_RUN), AlreadyExists, None),
    "409 of another run after a lost answer": ((NO_ANSWER, EXISTS, OF_ANOTHER_RUN), AlreadyExists, None),
    "409 and no look": ((EXISTS, NO_ANSWER), Unreachable, "pending"),
}


@pytest.mark.parametrize(("answers", "error", "state"), OUTCOMES.values(), ids=OUTCOMES)
def test_each_outcome_of_a_request_decides_about_its_thing(
    answers: tuple[Any, ...], error: type[ServiceError] | None, state: State | None
) -> None:
    register, service = new_register(), Service(*answers, patience=NEAR)
    with pytest.raises(error) if error else contextlib.nullcontext():
        create(service, register)
    assert register.state(POOL) == state


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError()], ids=lambda error: type(error).__name__)
def test_a_thing_whose_request_was_interrupted_stays_pending(error: BaseException) -> None:
    def send(*_: object) -> None:
        raise error

    register = new_register()
    client: Any = None
    with pytest.raises(type(error)):
        register.create(client, POOL, BODIES[POOL], send)
    assert register.state(POOL) == "pending"


def test_a_thing_that_is_refused_at_a_second_request_is_removed() -> None:
    register = new_register()
    with pytest.raises(Unreachable):
        create(Service(NO_ANSWER), register)
    with pytest.raises(AlreadyExists):
        create(Service(EXISTS, OF_ANOTHER_RUN), register)
    assert register.things() == ()


# --- a later look ---------------------------------------------------------------------------------------------------


def pending(*things: Thing) -> Register:
    """A register of things whose requests had no answer."""
    register = new_register()
    for thing in things or (POOL,):
        register.note(thing, "pending")
    return register


LOOKS: dict[str, tuple[tuple[Any, ...], State | None]] = {
    "ours": ((OURS,), "ours"),
    "of another run": ((OF_ANOTHER_RUN,), None),
    "without a run": ((WITHOUT_RUN,), None),
    "late": ((GONE, OURS), "ours"),
    "late and of another run": ((GONE, OF_ANOTHER_RUN), None),
    "not there": ((GONE, GONE), None),
    "no answer": ((NO_ANSWER,), "pending"),
    "no answer at the second look": ((GONE, NO_ANSWER), "pending"),
    "not allowed": ((FORBIDDEN,), "pending"),
}


@pytest.mark.parametrize(("answers", "state"), LOOKS.values(), ids=LOOKS)
def test_a_look_decides_about_a_pending_thing(answers: tuple[Any, ...], state: State | None) -> None:
    register, slept = pending(), list[float]()
    register.settle(Service(*answers).client, slept.append)
    assert (register.state(POOL), slept) == (state, [LATE_SECONDS] * (answers[0] is GONE))


def test_every_pending_thing_alone_is_looked_at_though_the_first_gives_no_answer() -> None:
    register, service = pending(POOL, JOB), Service(FORBIDDEN, OURS)
    register.note(SCHEDULE, "existing")
    register.note(OTHER, "ours")
    register.settle(service.client)
    assert service.asked == ["GET /jobs/j", "GET /pools/p"]
    states = [register.state(thing) for thing in (JOB, POOL, SCHEDULE, OTHER)]
    assert states == ["pending", "ours", "existing", "ours"]


@pytest.mark.parametrize(
    ("thing", "path"),
    [(POOL, "/pools/p"), (JOB, "/jobs/j"), (SCHEDULE, "/jobschedules/s"), (Thing("job", "a/b"), "/jobs/a%2Fb")],
)  # fmt: skip
def test_a_thing_is_looked_at_by_its_kind_and_id(thing: Thing, path: str) -> None:
    service = Service(OURS)
    assert new_register().is_ours(service.client, thing)
    assert service.asked == [f"GET {path}"]


# --- what is registered ---------------------------------------------------------------------------------------------


def test_jobs_come_before_schedules_and_both_before_the_pool() -> None:
    register = pending(POOL, Thing("job", "one"), SCHEDULE, Thing("job", "two"))
    assert [thing.name for thing in register.things()] == ["job one", "job two", "job schedule s", "pool p"]


def test_things_are_selected_by_their_states() -> None:
    register = new_register()
    register.note(POOL, "existing")
    register.note(JOB, "ours")
    register.note(SCHEDULE, "pending")
    assert register.things("ours", "pending") == (JOB, SCHEDULE)
    register.note(JOB, None)
    assert register.things() == (SCHEDULE, POOL)


def test_each_job_carries_its_own_run_and_the_pool_that_of_the_command() -> None:
    register = Register(Marks("first", "user", "host"), {"j": "first", "k": "second"})
    things = (POOL, JOB, Thing("job", "k"), Thing("job", "other"), Thing("pool", "k"))
    runs = [register.marks(thing) for thing in things]
    assert runs == [Marks(run, "user", "host") for run in ("first", "first", "second", "first", "first")]


def test_a_job_is_ours_by_its_own_run() -> None:
    register = Register(Marks("first"), {"j": "second"})
    metadata = [Marks(run).metadata for run in ("first", "second")]
    client: BatchClient = Service(*((200, {"id": "j", "metadata": items}) for items in metadata)).client
    assert [register.is_ours(client, JOB) for _ in metadata] == [False, True]


@pytest.mark.parametrize(("thing", "group"), [(POOL, "pool"), (JOB, "jobs"), (SCHEDULE, "jobs")])
def test_a_thing_has_a_command_and_its_id_is_one_segment_of_its_path(thing: Thing, group: str) -> None:
    assert thing.command("del", " --local") == f"batchtrain {group} del {thing.id} --local"
    assert Thing("job", "j/tasks/t").path == "/jobs/j%2Ftasks%2Ft"
