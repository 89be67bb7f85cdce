"""`run`: what it refuses, what each kind of error leaves standing, how long it waits, and how it cleans up."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from batchtrain.client import ending
from batchtrain.client.existing import refuse_existing
from batchtrain.client.limits import Limits
from batchtrain.client.run import follow, run
from batchtrain.client.work import Work, seconds_for
from batchtrain.config.types import Secret
from batchtrain.errors import (
    AlreadyExists,
    ConfigError,
    NotFound,
    PlanError,
    QuotaReached,
    ReplacementFailed,
    ServiceError,
    TaskFailed,
    TimedOut,
    Unreachable,
)
from batchtrain.life.endings import SeenEnd, cause_of
from batchtrain.life.intents import REUSE
from batchtrain.plan.marks import Marks
from batchtrain.records import Job, Pool, Task
from batchtrain.records.events import Event, JobAdded, JobAdding, PoolAdded, PoolAdding, PoolReused, TasksAdded, Waiting
from batchtrain.records.jobs import Counts
from batchtrain.runs import directory, lease
from batchtrain.runs.directory import RunRecord
from batchtrain.runs.recording import Origin
from batchtrain.service import pool_users, read, register
from batchtrain.service.connect import Account
from batchtrain.service.faults import NO_CONNECTION
from batchtrain.service.register import Thing
from batchtrain.service.tasks import Glance
from batchtrain.service.watch import NEAR
from tests.submitting import RUN
from tests.unit.plan.jobs import recipe


def test_jobs_without_their_pool_leave_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "pool_or_none", lambda *_: None)
    client = SimpleNamespace(batch=None)
    with pytest.raises(NotFound, match="there is no pool p for the jobs"):
        follow(client, recipe(), tell=lambda event: None, origin=Origin(tmp_path / "runs"))  # type: ignore[arg-type]
    assert not (tmp_path / "runs").exists()


DELETES, LEAVES = False, True


@pytest.mark.parametrize(
    ("error", "nothing_added", "some_added", "all_submitted"),
    [
        (KeyboardInterrupt(), DELETES, DELETES, DELETES),
        (TimedOut("x"), LEAVES, LEAVES, LEAVES),
        (Unreachable("x"), LEAVES, LEAVES, LEAVES),
        (NotFound("its pool is gone", code="PoolNotFound"), DELETES, DELETES, DELETES),
        (NotFound("an image is gone", code="ImageNotFound"), DELETES, DELETES, LEAVES),
        (QuotaReached("x"), DELETES, DELETES, LEAVES),
        (ReplacementFailed("x"), DELETES, DELETES, DELETES),
        (ServiceError("refused"), DELETES, DELETES, LEAVES),
        (PlanError("x"), DELETES, DELETES, LEAVES),
        (ConfigError(()), DELETES, DELETES, LEAVES),
        (ZeroDivisionError(), DELETES, LEAVES, LEAVES),
        (BrokenPipeError(), DELETES, LEAVES, LEAVES),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_each_error_leaves_standing(
    error: BaseException, nothing_added: bool, some_added: bool, all_submitted: bool
) -> None:
    seen = SeenEnd(cause_of(error))
    assert seen.stays is nothing_added
    assert seen._replace(has_tasks=True).stays is some_added
    assert seen._replace(has_tasks=True, is_submitted=True).stays is all_submitted


HOUR = 3600.0


@pytest.mark.parametrize(
    ("job", "seconds"),
    [
        ({}, 24 * HOUR),
        ({"tasks": [{"command": "x", "max_wall_time": "02:00:00"}]}, 3 * HOUR),
        ({"tasks": [{"command": "x", "max_wall_time": "02:00:00"}] * 3}, 7 * HOUR),
        ({"tasks": [{"command": "x", "max_wall_time": "02:00:00", "max_task_retries": 1}]}, 5 * HOUR),
        ({"tasks": [{"command": "x", "max_wall_time": "02:00:00", "max_task_retries": -1}]}, 24 * HOUR),
        ({"tasks": [{"command": "x", "max_wall_time": "02:00:00"}, {"command": "y"}]}, 24 * HOUR),
        ({"max_wall_time": "3.00:00:00", "tasks": [{"command": "x"}]}, 73 * HOUR),
    ],
)
def test_a_run_waits_as_long_as_its_wall_clock_limits_allow(job: dict[str, Any], seconds: float) -> None:
    (found,) = recipe(job).jobs
    assert seconds_for(found) == seconds


AZURE = Account("https://a.b.c", "a", "a2V5")


POOL, JOB = Thing("pool", "p"), Thing("job", "j")


class Register(register.Register):
    """Looks at the state of a fake service in place of metadata."""

    def __init__(self, service: Service) -> None:
        super().__init__(Marks(RUN))
        self.service = service

    def is_ours(self, client: Any, thing: Thing) -> bool:
        if thing in self.service.gone_already:
            raise NotFound(f"{thing.name} is gone")
        return True


class Service:
    """A client whose pool and job come and go at once, unless something is raised."""

    def __init__(
        self, *standing: str, deleting: BaseException | None = None, adding: BaseException | None = None
    ) -> None:
        self.account = Account("http://127.0.0.1:1", "x", Secret("a2V5"), emulated=True)
        self.pools = self.jobs = self
        self.others: list[Any] = []
        self.batch: Any = self
        self.pace = NEAR
        self.id = "j"
        self.tasks = (Task("t", "completed", exit_code=0),)
        self.deleting, self.adding = deleting, adding
        self.failure: TaskFailed | None = None
        self.standing = standing
        self.job_state = "active"
        self.creation_time = 1
        """The day on which the existing job was created."""
        self.gone_already: set[Thing] = set()
        self.deleted: list[str] = []
        self.open = True

    def foresee(self, recipe: Any) -> None:
        pass

    def glance(self) -> Glance:
        return Glance((), Counts(), 1)

    def register(self, recipe: Any, names: Any, beginning: Any = None) -> Register:
        return Register(self)

    def send_request(self, request: Any, **_: Any) -> Any:
        """The job, or the answer to its deletion."""
        if request.method == "DELETE":
            self.delete()
            return SimpleNamespace(content=b"", request=request)
        document = {"id": "j", "state": self.job_state, "creationTime": f"2026-01-0{self.creation_time}T00:00:00Z"}
        return SimpleNamespace(content=msgspec.json.encode(document), request=request)

    def add(self, recipe: Any, *, tell: Any, register: Register, **_: Any) -> None:
        tell(PoolAdding("p", ""))
        register.note(POOL, "ours")
        tell(PoolAdded("p", ""))

    def ready(self, recipe: Any, *, tell: Any, register: Register, **_: Any) -> Pool:
        register.note(POOL, "existing")
        tell(PoolReused("p", ""))
        return Pool("p", "active", "steady", "STANDARD_D2S_V5", 1, 1, 2, 2)

    def add_all(self, recipe: Any, *, tell: Any, register: Register, **_: Any) -> None:
        for job in recipe.jobs:
            tell(JobAdding(job.id, ""))
            if isinstance(self.adding, AlreadyExists) and self.adding.code == "JobExists":
                raise self.adding
            register.note(Thing("job", job.id), "ours")
            tell(JobAdded(job.id, ""))
            register.tasks_added = True
            if self.adding:
                raise self.adding
            tell(TasksAdded(f"{job.id}/t", ""))

    def stands(self, name: str) -> bool:
        return name in self.standing

    def seen(self, name: str) -> Job | None:
        created = datetime(2026, 1, self.creation_time, tzinfo=timezone.utc)
        return Job(name, self.job_state, created=created) if name in self.standing else None

    def handle(self, name: str) -> Service:
        self.id = name
        return self

    def first_failure(self, tasks: Any, **_: Any) -> TaskFailed | None:
        return self.failure

    def delete(self, name: str = "job", **_: Any) -> None:
        if self.deleting and name != "job":
            raise self.deleting
        self.deleted.append(name)

    def request(self, thing: Thing) -> str:
        self.delete(thing.id if thing.kind == "pool" else "job")
        return ""

    def gone(self, name: str = "", **_: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def _used_by_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pool_users` has its own tests."""
    monkeypatch.setattr("batchtrain.client.existing.observe.has_work", lambda service, _: service.open)
    monkeypatch.setattr(read, "job_or_none", lambda service, job_id: service.seen(job_id))
    monkeypatch.setattr(ending.deletion, "request", lambda client, thing, *_: client.request(thing))
    monkeypatch.setattr(ending.deletion, "gone", lambda client, thing, _, tell: client.gone(thing.id, tell=tell))


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """What the wait for the tasks raises; nothing by itself."""
    raised: list[BaseException] = []

    def ended(*_: Any, **__: Any) -> None:
        if raised:
            raise raised[0]

    monkeypatch.setattr("batchtrain.client.watching.watch.tasks_ended", ended)
    return raised


def runs(service: Service, said: list[Event], *jobs: str, **how: Any) -> Any:
    listed = [{"id": name, "tasks": [{"command": "x"}]} for name in jobs or ("j",)]
    return run(service, recipe(jobs=listed), tell=said.append, **how)


def test_a_pool_that_still_stands_is_an_error_though_the_tasks_ended_well(watched: list[BaseException]) -> None:
    said: list[Event] = []
    service = Service(deleting=ServiceError("no"))
    service.account = AZURE
    outcome = runs(service, said)
    assert outcome.failure is None
    assert isinstance(outcome.problem, ServiceError)
    assert "the tasks ended well, but pool p could not be deleted, and nodes cost money" in str(outcome.problem)
    assert str(outcome.problem).endswith("delete by: batchtrain pool del p")
    assert [event.kind for event in said if event.kind in ("leftover", "deleted")] == ["leftover", "deleted"]


def test_a_limit_does_not_end_the_clean_up_of_a_run_that_succeeded(
    watched: list[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = iter(range(100))
    monkeypatch.setattr(
        "batchtrain.client.run.now", lambda: datetime(2026, 11, 23, next(hours) % 24, tzinfo=timezone.utc)
    )
    service = Service()
    monkeypatch.setattr(service, "gone", lambda *_, tell, **how: tell(Waiting("p", "")))
    outcome = runs(service, [], limits=Limits(seconds=60))
    assert (outcome.failure, outcome.problem) == (None, None)
    assert "p" in service.deleted


def test_a_run_that_moves_deletes_its_jobs_and_not_its_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    things, registered = list[Thing](), register.Register(Marks(RUN))
    for thing in (JOB, POOL):
        registered.note(thing, "ours")
    monkeypatch.setattr(ending.deletion, "request", lambda _client, thing, _runs: things.append(thing))
    work: Any = SimpleNamespace(client=Service(), tell=lambda _: None)
    work.ending = SimpleNamespace(recordings={}, register=registered, submitted=True, ended={"j"})
    Work.withdraw(work)
    assert (things, registered.things()) == ([JOB], (POOL,))
    assert not work.ending.submitted and not work.ending.ended


def test_a_limit_of_the_price_counts_the_nodes_of_all_automatic_pools_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pools, looks = {"a": "pool-of-a", "b": "pool-of-b", "c": ""}, dict[str, Any]()
    monkeypatch.setattr("batchtrain.client.work.read.job", lambda _, job_id: SimpleNamespace(pool=pools[job_id]))
    monkeypatch.setattr("batchtrain.client.work.watch.show_nodes", lambda _, *look: looks.update([look]))
    jobs = tuple(recipe({"id": job_id, "auto_pool": {}}).jobs[0] for job_id in pools)
    client, guard = SimpleNamespace(batch=None), SimpleNamespace(note="limits", due=lambda: True)
    work: Any = SimpleNamespace(client=client, recipe=replace(recipe(), jobs=jobs), tell="views", guard=guard)
    assert Work._count_nodes(work, "b") == 7, "a request for each job, and two for each pool"
    assert looks == {"pool-of-a": "limits", "pool-of-b": "views"}


@pytest.mark.parametrize("name", ["p", "j"])
def test_what_stood_before_is_refused_before_anything_is_made_and_never_deleted(name: str) -> None:
    service, said = Service(name, adding=KeyboardInterrupt()), list[Event]()
    with pytest.raises(AlreadyExists):
        runs(service, said)
    assert (said, service.deleted) == ([], [])


@pytest.mark.parametrize("root", ["here", "elsewhere"])
def test_a_run_of_another_directory_on_the_same_emulator_is_told_how_each_has_its_own(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = datetime(2026, 11, 28, tzinfo=timezone.utc)
    other = directory.make(tmp_path / root, "j", start)
    other.write(RunRecord(id=other.name, job="j", started=start, state="running"))
    monkeypatch.setattr(pool_users, "users", lambda *_: (pool_users.PoolUser(other.name, "j", start, ends=True),))
    monkeypatch.setattr("batchtrain.service.register.read_marks", lambda *_: Marks(other.name))
    service = Service("p")
    with pytest.raises(AlreadyExists) as caught:
        runs(service, [], origin=Origin(tmp_path / "here"))
    assert ("BATCHTRAIN_EMULATOR_DIR=DIR" in str(caught.value)) is (root == "elsewhere")


@pytest.mark.parametrize(("ends_with", "step"), [("a", "jobs wait j"), ("", "jobs del j")], ids=["run", "jobs add"])
def test_a_job_that_a_living_run_follows_is_not_to_be_deleted(
    ends_with: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchtrain.service.register.read_marks", lambda *_: Marks("a", ends_with=ends_with))
    service = Service("j")
    with pytest.raises(AlreadyExists) as caught:
        runs(service, [])
    assert f"`batchtrain {step}`" in str(caught.value)
    assert ("jobs del" in str(caught.value)) == (not ends_with)


class NobodyThere(Service):
    """Takes no connection."""

    def add(self, recipe: Any, *, tell: Any, register: Register, **_: Any) -> None:
        tell(PoolAdding("p", ""))
        raise Unreachable("x", code=NO_CONNECTION)


def test_a_run_on_plain_processes_says_first_what_they_lack(watched: list[BaseException]) -> None:
    service, said = Service(), list[Event]()
    service.account = service.account._replace(plain_nodes="the kernel refuses it", plain_nodes_remedy="allow it")
    runs(service, said, "one")
    assert said[0].text.startswith("the nodes are plain processes of this machine, because the kernel refuses it")
    assert "counts one host" in said[0].text and said[0].text.endswith("; allow it")


def test_where_nothing_was_ever_sent_nothing_is_said(watched: list[BaseException]) -> None:
    said: list[Event] = []
    with pytest.raises(Unreachable):
        runs(NobodyThere(), said)
    assert [event.kind for event in said] == ["pool.adding"]


@pytest.mark.parametrize(("code", "deleted"), [("JobExists", ["p"]), ("TaskExists", ["job", "p"])])
def test_a_job_that_exists_is_not_deleted_and_one_whose_task_exists_is_ours(
    code: str, deleted: list[str], watched: list[BaseException]
) -> None:
    service = Service(adding=AlreadyExists("x", code=code))
    with pytest.raises(AlreadyExists):
        runs(service, [])
    assert service.deleted == deleted


def test_a_completed_job_is_replaced_on_a_reused_pool_only(watched: list[BaseException]) -> None:
    service, said = Service("j"), list[Event]()
    with pytest.raises(AlreadyExists, match=r"job j is active.*batchtrain jobs wait j"):
        runs(service, said, intent=REUSE)
    service.job_state = "completed"
    with pytest.raises(AlreadyExists, match="and is completed"):
        runs(service, said)
    assert (said, service.deleted) == ([], [])
    runs(service, said, intent=REUSE)
    kinds = [event.kind for event in said]
    assert kinds.index("pool.reused") < kinds.index("job.replaced") < kinds.index("job.adding")
    assert service.deleted == ["job", "job"]


def test_a_completed_job_whose_run_fetches_its_results_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = directory.make(tmp_path, "j", datetime(2026, 11, 28, tzinfo=timezone.utc))
    other.write(RunRecord(id=other.name, job="j", started=datetime(2026, 11, 28, tzinfo=timezone.utc), state="running"))
    held = lease.take(other.path)
    monkeypatch.setattr("batchtrain.service.register.read_marks", lambda *_: Marks(other.name, ends_with=other.name))
    service = Service("j")
    service.job_state, service.open = "completed", False
    with pytest.raises(AlreadyExists, match=f"job j is used by run {other.name}"):
        runs(service, [], intent=REUSE, origin=Origin(tmp_path))
    assert held and service.deleted == []


@pytest.mark.parametrize(
    ("job_state", "state", "results", "message"),
    [
        ("active", "detached", "", "job j is used by run .*batchtrain runs attach 2"),
        ("completed", "detached", "", "job j of the detached run .*`batchtrain runs fetch 2"),
        ("completed", "completed", "complete", ""),
    ],
)
def test_the_job_of_a_detached_run_is_replaced_once_its_results_are_here(
    job_state: str, state: str, results: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = datetime(2026, 11, 28, tzinfo=timezone.utc)
    other = directory.make(tmp_path, "j", started)
    other.write(RunRecord(id=other.name, job="j", started=started, state=state, results=results))
    monkeypatch.setattr("batchtrain.service.register.read_marks", lambda *_: Marks(other.name))
    service = Service("j")
    service.job_state = job_state
    wanted = recipe(jobs=[{"id": "j", "tasks": [{"command": "x"}]}])
    if message:
        with pytest.raises(AlreadyExists, match=message):
            refuse_existing(service, wanted, Origin(tmp_path), print, reuse=False)
    else:
        assert list(refuse_existing(service, wanted, Origin(tmp_path), print, reuse=False)) == ["j"]


class ReplacedWhileThePoolIsAwaited(Service):
    def ready(self, recipe: Any, *, tell: Any, register: Register, **_: Any) -> Pool:
        self.creation_time = 2
        return super().ready(recipe, tell=tell, register=register)


class ReplacedOnceItWasSeen(Service):
    def seen(self, name: str) -> Job | None:
        job, self.creation_time = super().seen(name), 2
        return job


@pytest.mark.parametrize("kind", [ReplacedWhileThePoolIsAwaited, ReplacedOnceItWasSeen])
def test_a_completed_job_that_another_run_has_replaced_meanwhile_is_not_deleted(
    kind: type[Service], watched: list[BaseException]
) -> None:
    service = kind("j")
    service.job_state = "completed"
    with pytest.raises(AlreadyExists, match="job j was added anew while this run waited"):
        runs(service, [], intent=REUSE)
    assert service.deleted == []
