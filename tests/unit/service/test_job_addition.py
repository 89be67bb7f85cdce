"""A job that exists already is continued or refused, by the plan that it was added with and the tasks that it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from batchtrain.errors import AlreadyExists, Differs, NotFound, QuotaReached, ServiceError, TasksRefused, TimedOut
from batchtrain.plan import Plan, Step, wire
from batchtrain.plan.canonical import digest
from batchtrain.plan.marks import COMPLETE, DIGEST, RUN, Marks
from batchtrain.plan.task_stream import ListedTasks, TaskStream
from batchtrain.records.events import Event
from batchtrain.service import job_addition, read, standing
from batchtrain.service.job_addition import NAMED, AddOptions
from batchtrain.service.register import Register, Thing
from batchtrain.service.requests import Creation
from batchtrain.service.submission import Progress
from tests import submitting
from tests.submitting import METADATA, carry_out, new_register
from tests.unit.service.test_retry import EMPTY, NO_ANSWER, Service, refusal

EXISTS = refusal("JobExists")
JOB = {"id": "j", "poolInfo": {"poolId": "p"}}
RESUME = AddOptions(resume=True)
COUNTS = (200, {"taskCounts": {}})


def task(name: str, command: str = "true") -> dict[str, Any]:
    return {"id": name, "commandLine": command}


def plan(*names: str, **job: Any) -> Plan:
    return Plan((Step("job.add", "j", {**JOB, **job}), Step("task.add", "j", {"value": [*map(task, names)]})))


def existing(of: Plan, state: str = "active", **metadata: str) -> tuple[Any, ...]:
    """The answers about a job that another run added by this plan: to its addition, and to the looks at its run and at
    its plan."""
    items = {DIGEST: digest(of, "j"), **metadata}
    known = [{"name": name, "value": value} for name, value in items.items()]
    job = (200, {**JOB, "state": state, "onAllTasksComplete": "noaction", "metadata": known})
    return EXISTS, job, job


def listed(*tasks: Any) -> tuple[int, Any]:
    return 200, {"value": list(tasks)}


def stand(*names: str) -> tuple[int, Any]:
    return 200, {"value": [{"taskId": name, "status": "success"} for name in names]}


def refuse(*names: str) -> tuple[int, Any]:
    error = {"code": "Bad", "message": {"value": "It is bad."}}
    return 200, {"value": [{"taskId": name, "status": "clienterror", "error": error} for name in names]}


def added(service: Service, planned: Plan, adding: AddOptions = RESUME) -> list[str]:
    """The sentences of the addition."""
    return [event.text for event in carry_out(service.client, planned, options=adding)]


class Slow:
    """A submission that reports its progress once."""

    added, refused, existing = 1, (), ()

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def add(self, _: Any) -> Iterator[Progress]:
        yield Progress(1, 1.0)


@pytest.mark.parametrize(("age", "clock"), [(300, "PT15M"), (86000, "P1D")])
def test_a_job_with_a_short_wall_clock_gets_more_time_while_its_tasks_are_added(
    monkeypatch: pytest.MonkeyPatch, age: int, clock: str
) -> None:
    monkeypatch.setattr(job_addition, "Submission", Slow)
    monkeypatch.setattr(job_addition, "EXTENSION_SECONDS", 0.0)
    monkeypatch.setattr(job_addition, "creation", lambda *_: Creation(None, age))
    planned = plan("a", constraints={"maxWallClockTime": "PT10M"})
    end = Step("job.complete", "j", {"constraints": {"maxWallClockTime": "P1D"}})
    version = 200, {"id": "j", "metadata": Marks(submitting.RUN).metadata}
    service = Service((201, None), version, (200, None), version, (200, None))
    added(service, planned._replace(steps=(*planned.steps, end)), AddOptions())
    assert service.asked == ["POST /jobs", *["GET /jobs/j", "PATCH /jobs/j"] * 2]
    assert service.bodies[2] == {"constraints": {"maxWallClockTime": clock}}


def test_a_job_that_another_run_added_meanwhile_is_not_told_to_end() -> None:
    service = Service((201, None), stand("a"), (200, {"id": "j", "metadata": Marks("other").metadata}))
    planned = plan("a")
    end = Step("job.complete", "j", {"onAllTasksComplete": "terminatejob"})
    with pytest.raises(NotFound, match="job j was replaced"):
        added(service, planned._replace(steps=(*planned.steps, end)), AddOptions())
    assert service.asked[-1] == "GET /jobs/j"


# --- a job that exists ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["active", "disabled", "disabling", "enabling"])
def test_only_the_missing_tasks_are_added_to_a_job_with_the_same_plan(state: str) -> None:
    planned = plan("a", "b", "c")
    service = Service(*existing(planned, state), COUNTS, listed(task("b")), stand("a", "c"))
    assert added(service, planned) == [
        "adding j",
        "job j exists with 1 task; adding what is missing",
        "added 2 tasks; 1 existed already",
    ]
    assert service.asked[-2:] == ["GET /jobs/j/tasks", "POST /jobs/j/addtaskcollection"]
    assert service.bodies[-1] == {"value": [task("a"), task("c")]}


def test_a_job_is_added_with_the_digest_of_its_plan_after_its_own_metadata() -> None:
    own = {"name": "mine", "value": "1"}
    planned = plan("a", metadata=[own])
    service = Service((201, None), stand("a"))
    assert added(service, planned) == ["adding j", "added job j", "added 1 task"]
    assert service.bodies[0]["metadata"] == [own, {"name": DIGEST, "value": digest(planned, "j")}, *METADATA]


def test_the_digest_of_a_job_is_the_same_in_every_run() -> None:
    digests = []
    for marks in (Marks("one", "user", "host"), Marks("two")):
        service = Service((201, None), stand("a"))
        list(carry_out(service.client, plan("a"), register=Register(marks)))
        digests += [item["value"] for item in service.bodies[0]["metadata"] if item["name"] == DIGEST]
    assert digests == [digest(plan("a"), "j")] * 2


def test_of_a_job_that_may_not_exist_only_the_run_is_looked_at() -> None:
    service = Service(*existing(plan("a")))
    with pytest.raises(AlreadyExists):
        added(service, plan("a"), AddOptions())
    assert service.asked == ["POST /jobs", "GET /jobs/j"]


def test_a_job_of_another_program_is_not_continued() -> None:
    of_another = (200, {**JOB, "state": "active", "metadata": [{"name": "mine", "value": "1"}]})
    with pytest.raises(AlreadyExists, match="add job j"):
        added(Service(EXISTS, of_another), plan("a"))


def test_a_job_that_is_continued_is_registered_as_existing() -> None:
    planned, register = plan("a"), new_register()
    service = Service(*existing(planned), COUNTS, listed(task("a")))
    assert "job.reused" in [
        event.kind for event in carry_out(service.client, planned, options=RESUME, register=register)
    ]
    assert register.state(Thing("job", "j")) == "existing"


def test_a_job_that_an_earlier_attempt_of_this_run_added_is_not_continued() -> None:
    ours = (200, {**JOB, "state": "active", "metadata": METADATA})
    assert added(Service(NO_ANSWER, EXISTS, ours, stand("a")), plan("a")) == ["adding j", "added job j", "added 1 task"]


@pytest.mark.parametrize("state", ["completed", "terminating", "deleting"])
def test_a_job_that_is_over_takes_no_more_tasks(state: str) -> None:
    with pytest.raises(AlreadyExists, match=f"job j is {state}, and takes no more tasks; .*--recreate") as caught:
        added(Service(*existing(plan("a"), state)), plan("a"))
    assert caught.value.code == "JobExists"


@pytest.mark.parametrize(
    ("count", "whole"), [("1", "its only task"), ("2", "all of its 2 tasks"), ("1500", "all of its 1,500 tasks")]
)
def test_the_tasks_of_a_job_that_has_all_of_them_are_not_listed(count: str, whole: str) -> None:
    planned = plan("a", "b")
    counts = (200, {"taskCounts": {"succeeded": int(count)}})
    service = Service(*existing(planned, **{COMPLETE: count}), counts)
    assert added(service, planned)[1:] == [
        f"job j exists with {whole}",
        f"added 0 tasks; {int(count):,} existed already",
    ]
    assert service.asked == ["POST /jobs", "GET /jobs/j", "GET /jobs/j", "GET /jobs/j/taskcounts"]


def test_the_only_task_of_a_job_that_has_it_is_not_added_again() -> None:
    planned = Plan((Step("job.add", "j", JOB), Step("task.add", "j", task("a"))))
    counts = (200, {"taskCounts": {"succeeded": 1}})
    service = Service(*existing(planned, **{COMPLETE: "1"}), counts)
    assert added(service, planned)[-1] == "added 0 tasks; 1 existed already"
    listing = Service(*existing(planned), COUNTS, listed(task("a")))
    assert added(listing, planned)[-1] == "added 0 tasks; 1 existed already"


ONE_IS_LEFT = (200, {"taskCounts": {"succeeded": 1}})
MANAGED = {"jobManagerTask": {"id": "m", "commandLine": "true"}}
RETRIED = {"constraints": {"maxTaskRetryCount": 3}}
LACKING: dict[str, tuple[Plan, Plan, dict[str, str], list[Any]]] = {
    "it lost one since it had all of them": (
        plan("a", "b"), plan("a", "b"), {COMPLETE: "2"}, [ONE_IS_LEFT, listed(task("a"))]),
    "its plan has more": (plan("a"), plan("a", "b"), {COMPLETE: "1"}, [listed(task("a"))]),
    "beside those of a job manager": (
        plan("a", "b", **MANAGED), plan("a", "b", **MANAGED), {}, [COUNTS, listed(task("a"), task("spawned"))]),
    "with the retries of the job": (
        plan("a", "b", **RETRIED), plan("a", "b", **RETRIED), {}, [COUNTS, listed({**task("a"), **RETRIED})]),
}  # fmt: skip


@pytest.mark.parametrize(("of", "planned", "metadata", "answers"), LACKING.values(), ids=LACKING)
def test_a_job_that_lacks_a_task_gets_it(of: Plan, planned: Plan, metadata: dict[str, str], answers: list[Any]) -> None:
    service = Service(*existing(of, **metadata), *answers, stand("b"))
    assert added(service, planned)[-1] == "added 1 task; 1 existed already"


def test_a_task_that_another_program_added_since_the_job_had_all_of_its_own_differs_from_the_plan() -> None:
    planned = plan("a", "b")
    counts = (200, {"taskCounts": {"succeeded": 3}})
    service = Service(*existing(planned, **{COMPLETE: "2"}), counts, listed(task("a"), task("b"), task("x")))
    with pytest.raises(Differs, match="1 of its tasks are not in the plan"):
        added(service, planned)


@pytest.mark.parametrize(
    ("planned", "tasks", "why"),
    [
        (plan("a", priority=5), [task("a")], r"priority: 0 -> 5 .*\n.*exists, and its plan has changed"),
        (plan("a", "b"), [task("a", "other")], "1 of its tasks differ from the plan: a; `batchtrain config plan"),
        (plan("a"), [task("a"), task("x"), task("y")], "2 of its tasks are not in the plan"),
    ],
)
def test_a_job_that_differs_from_a_changed_plan_gets_no_task(planned: Plan, tasks: Sequence[Any], why: str) -> None:
    service = Service(*existing(plan("z")), listed(*tasks))
    with pytest.raises(Differs, match=why):
        added(service, planned)
    assert service.asked == ["POST /jobs", "GET /jobs/j", "GET /jobs/j", "GET /jobs/j/tasks"]


@pytest.mark.parametrize(("count", "rest"), [(NAMED, ""), (NAMED + 3, " and 3 more")])
def test_an_error_names_the_first_of_many_tasks_that_differ_and_has_all_of_them(count: int, rest: str) -> None:
    names = [f"t{number:02}" for number in range(count)]
    service = Service(*existing(plan("z")), listed(*(task(name, "other") for name in names)))
    with pytest.raises(Differs, match=f"t00, t01, .*{names[NAMED - 1]}{rest};") as caught:
        added(service, plan(*names))
    assert caught.value.tasks == tuple(names)


# --- many tasks -----------------------------------------------------------------------------------------------------


def stream(*names: str) -> Plan:
    bodies = tuple(wire.TaskCreate(id=name, command_line="true") for name in names)
    return Plan((Step("job.add", "j", JOB), Step("task.add", "j", TaskStream((ListedTasks(bodies),)))))


@pytest.mark.parametrize(("page", "noted"), [(1, True), (2, False)])
def test_a_job_notes_that_it_has_all_tasks_if_they_exceed_a_page(
    page: int, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "PAGE", page)
    version = 200, {"id": "j", "metadata": Marks(submitting.RUN).metadata}
    service = Service((201, None), stand("a", "b"), version, (200, None))
    assert added(service, stream("a", "b"))[-1] == "added 2 tasks"
    assert (service.asked[-1] == "PATCH /jobs/j") == noted
    if noted:
        metadata = {item["name"]: item["value"] for item in service.bodies[-1]["metadata"]}
        assert metadata == {DIGEST: digest(stream("a", "b"), "j"), COMPLETE: "2", RUN: submitting.RUN}


def test_a_note_that_the_service_refuses_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "PAGE", 1)
    version = 200, {"id": "j", "metadata": Marks(submitting.RUN).metadata}
    service = Service((201, None), stand("a", "b"), version, refusal("JobCompleted"))
    assert added(service, stream("a", "b"))[-1] == "added 2 tasks"


@pytest.mark.parametrize("planned", [plan("a", "b", "c"), stream("a", "b", "c")])
def test_tasks_that_the_digest_does_not_determine_are_listed_the_next_time(
    planned: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "PAGE", 1)
    service = Service((201, None), stand("a", "b", "c"))
    added(service, planned)
    assert service.asked[-1] == "POST /jobs/j/addtaskcollection"


@pytest.mark.parametrize(("few", "looks"), [(1, ["GET /jobs/j/tasks/a"]), (0, ["GET /jobs/j/tasks"])])
def test_a_task_that_another_command_added_meanwhile_counts_if_it_is_equal(
    few: int, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "FEW", few)
    there = {"taskId": "a", "status": "clienterror", "error": {"code": "TaskExists"}}
    answer = (200, {"value": [there, {"taskId": "b", "status": "success"}]})
    for command, differs in (("true", False), ("other", True)):
        document = task("a", command)
        service = Service((201, None), answer, (200, document) if few else listed(document))
        if differs:
            with pytest.raises(Differs, match="1 of its tasks differ from the plan: a"):
                added(service, plan("a", "b"))
        else:
            assert added(service, plan("a", "b"))[-1] == "added 2 tasks"
        assert service.asked[2:] == looks


# --- refused tasks --------------------------------------------------------------------------------------------------


def test_several_refused_tasks_are_named_and_counted_with_those_that_stand() -> None:
    answer = (200, {"value": [*refuse("b", "c")[1]["value"], *stand("d")[1]["value"]]})
    service = Service(*existing(plan("a", "b", "c", "d")), COUNTS, listed(task("a")), answer)
    with pytest.raises(TasksRefused) as caught:
        added(service, plan("a", "b", "c", "d"))
    assert str(caught.value) == (
        "add task j/b: It is bad (Bad); also refused: c. 2 of 4 tasks stand, 2 were refused; correct the tasks, and"
        " `batchtrain jobs add` again adds what is missing"
    )
    assert (caught.value.added, caught.value.total) == (2, 4)


def test_tasks_that_differ_are_counted_beside_those_that_are_refused() -> None:
    there = {"taskId": "a", "status": "clienterror", "error": {"code": "TaskExists"}}
    answer = (200, {"value": [there, *refuse("b")[1]["value"]]})
    with pytest.raises(TasksRefused, match=r"0 of 2 tasks stand, 1 was refused, 1 differ; correct the tasks$"):
        added(Service((201, None), answer, (200, task("a", "other"))), plan("a", "b"), AddOptions())


@pytest.mark.parametrize(
    ("adding", "more"), [(AddOptions(), ""), (RESUME, "; `batchtrain jobs add` again adds the others")]
)
def test_an_addition_that_lost_its_job_says_how_many_tasks_it_has(adding: AddOptions, more: str) -> None:
    service, events = Service((201, None), refusal("JobNotFound", 404)), list[Event]()
    steps = carry_out(service.client, plan("a", "b"), options=adding)
    with pytest.raises(ServiceError, match="JobNotFound"):
        events.extend(steps)
    assert (events[-1].kind, events[-1].text) == ("task.left", f"job j has at least 0 of 2 tasks{more}")


CREATED = tuple(wire.TaskCreate(id=name, command_line="true") for name in "ab")


@pytest.mark.parametrize("body", [wire.TaskCollection(value=CREATED), TaskStream((ListedTasks(CREATED),))])
def test_the_planned_tasks_are_counted_in_each_of_their_forms(body: Any) -> None:
    planned = Plan((Step("job.add", "j", JOB), Step("task.add", "j", body)))
    answer = 200, {"value": [*refuse("a")[1]["value"], *stand("b")[1]["value"]]}
    with pytest.raises(TasksRefused, match=r"1 of 2 tasks stand, 1 was refused"):
        added(Service((201, None), answer), planned)


def test_the_only_planned_task_of_a_job_that_is_continued_is_counted() -> None:
    planned = Plan((Step("job.add", "j", JOB), Step("task.add", "j", task("a"))))
    with pytest.raises(TasksRefused, match=r"0 of 1 tasks stand, 1 was refused"):
        added(Service(*existing(planned), COUNTS, listed(), refuse("a")), planned)


# --- the quota of active jobs ---------------------------------------------------------------------------------------

QUOTA = refusal("ActiveJobAndScheduleQuotaReached")


def test_a_job_waits_until_the_account_may_have_another_active_one(pauses: list[float]) -> None:
    service = Service(QUOTA, QUOTA, QUOTA, (201, None), stand("a"))
    assert added(service, plan("a"), AddOptions(quota_seconds=7200)) == [
        "adding j",
        "job j waits up to 2 h 0 min: the account has as many active jobs as its quota allows; `batchtrain jobs list`"
        " shows them",
        "added job j",
        "added 1 task",
    ]
    assert len(pauses) == 2
    assert all(0 <= pause <= 30 for pause in pauses)


@pytest.mark.parametrize(
    ("answer", "seconds", "kind", "said"),
    [
        (QUOTA, 0.0, QuotaReached, "ActiveJobAndScheduleQuotaReached"),  # it may not wait
        (refusal("PoolQuotaReached"), 7200, QuotaReached, "PoolQuotaReached"),  # no wait ends another quota
        (QUOTA, 1e-9, TimedOut, r"job j was not added within 0 s: add job j: No.*`batchtrain jobs term ID`"),
    ],
)
def test_the_wait_for_the_quota_of_active_jobs_has_an_end(
    answer: Any, seconds: float, kind: type[Exception], said: str, pauses: list[float]
) -> None:
    with pytest.raises(kind, match=said):
        added(Service(answer), plan("a"), AddOptions(quota_seconds=seconds))
    assert pauses == [] or kind is TimedOut


def test_another_error_ends_the_wait_for_the_quota(pauses: list[float]) -> None:
    service = Service(QUOTA, QUOTA, EXISTS, (200, EMPTY))
    with pytest.raises(AlreadyExists):
        added(service, plan("a"), AddOptions(quota_seconds=7200))
    assert service.asked == [*["POST /jobs"] * 3, "GET /jobs/j"]
