"""What is done with jobs, tasks and nodes that exist: the requests in order, and what becomes of refusals."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any

import pytest
from azure.batch import BatchClient

from batchtrain.errors import NotFound, PlanError, ServiceError, Unreachable, UsageError
from batchtrain.plan import Plan, Step
from batchtrain.plan.marks import RUN, Marks
from batchtrain.plan.types import Upload
from batchtrain.records.events import Event, FilesUploaded
from batchtrain.service import deletion, job_actions, meant_version, read, requests, submit, task_actions, tasks
from batchtrain.service.register import Kind, Thing
from batchtrain.service.task_actions import ACTIONS, NAMED, Changed, Refusal, refusal
from batchtrain.service.watch import Deadline, Pace
from tests import submitting
from tests.unit.plan.jobs import plan
from tests.unit.service import test_retry
from tests.unit.service.test_retry import NO_ANSWER, NO_CONNECTION, Service

DONE = (204, None)
VERSION = {"id": "j", "eTag": "0x1", "creationTime": "2026-01-01T00:00:00Z"}
CREATED, LATER = (datetime(2026, 1, day, tzinfo=timezone.utc) for day in (1, 2))
FORMULA = Step("pool.autoscale", "p", {"autoScaleFormula": "x"})
MISSING = test_retry.refusal("TaskNotFound", 404)


# --- tasks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "request_sent", "needless"),
    [
        ("term", "POST /jobs/j/tasks/a/terminate", "TaskCompleted"),
        ("del", "DELETE /jobs/j/tasks/a", None),
        ("reactivate", "POST /jobs/j/tasks/a/reactivate", "TaskNotCompleted"),
    ],
)
def test_a_task_that_already_is_as_wanted_is_neither_changed_nor_refused(
    name: str, request_sent: str, needless: str | None
) -> None:
    service = Service(DONE)
    assert task_actions.change(service.client, "j", ACTIONS[name], ["a"]) == (("a",), (), ())
    assert service.asked == [request_sent]
    if needless:
        refused = Service(test_retry.refusal(needless))
        assert task_actions.change(refused.client, "j", ACTIONS[name], ["a"]) == ((), ("a",), ())


def test_a_refused_task_does_not_stop_the_others_and_outcomes_are_in_the_order_of_the_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_actions, "THREADS", 1)
    monkeypatch.setattr(task_actions, "REPORTED", 2)
    completed = test_retry.refusal("TaskCompleted")
    reported: list[int] = []
    service = Service(DONE, MISSING, completed, DONE, MISSING)
    changed = task_actions.change(service.client, "j", ACTIONS["term"], "abcde", reported.append)
    assert (changed.done, changed.needless) == (("a", "d"), ("c",))
    assert [(item.task, item.error.code) for item in changed.refused] == [("b", "TaskNotFound"), ("e", "TaskNotFound")]
    assert reported == [2, 4]


def test_a_fault_of_the_job_stops_the_change_of_its_tasks() -> None:
    with pytest.raises(ServiceError, match="terminate task j/a: No"):
        task_actions.change(Service(test_retry.refusal("JobNotFound", 404)).client, "j", ACTIONS["term"], ["a"])


@pytest.mark.parametrize("more", [0, 1])
def test_an_error_names_as_many_refused_tasks_as_fit(more: int) -> None:
    refused = tuple(Refusal(f"t{number}", NotFound(f"no t{number}")) for number in range(NAMED + more))
    lines = str(refusal("j", ACTIONS["del"], Changed((), (), refused))).splitlines()
    assert lines[0] == f"{NAMED + more} of {NAMED + more} tasks of job j were not deleted:"
    assert lines[1 : NAMED + 1] == [f"  no t{number}" for number in range(NAMED)]
    assert lines[NAMED + 1 :] == ["  and 1 more"] * more


def test_the_error_of_the_only_task_is_its_own_and_that_of_several_has_their_common_kind() -> None:
    error = Refusal("t", NotFound("no t", code="TaskNotFound"))
    assert refusal("j", ACTIONS["del"], Changed((), (), (error,))) is error.error
    assert refusal("j", ACTIONS["del"], Changed((), ("a",), (error,))) is not error.error
    other = Refusal("x", ServiceError("busy", code="TaskCompleted"))
    kinds = [type(refusal("j", ACTIONS["del"], Changed((), (), refused))) for refused in ((error,) * 2, (error, other))]
    assert kinds == [NotFound, ServiceError]


def test_the_parameters_of_tasks_are_those_that_batchtrain_wrote() -> None:
    def task(name: str, **variables: str) -> dict[str, Any]:
        settings = [{"name": variable, "value": value} for variable, value in variables.items()]
        return {"id": name, "environmentSettings": settings}

    named = [task("a", OTHER="1", BATCHTRAIN_PARAMETERS='{"lr": 0.1}'), task("b", BATCHTRAIN_PARAMETERS="not ours"),
             task("c", OTHER="2"), task("d", BATCHTRAIN_PARAMETERS="{}")]  # fmt: skip
    service = Service((200, {"value": named}))
    assert tasks.parameters(service.client, "j") == {"a": {"lr": 0.1}, "d": {}}
    assert list(read.variables(service.client, "j", "OTHER")) == [("a", "1"), ("c", "2")]


@pytest.mark.parametrize(
    ("document", "count"),
    [
        ({"state": "active"}, "active"),
        ({"state": "preparing"}, "running"),
        ({"state": "running"}, "running"),
        ({"state": "completed", "executionInfo": {"result": "Success", "exitCode": 0}}, "succeeded"),
        ({"state": "completed", "executionInfo": {"result": "Failure"}}, "failed"),
        ({"state": "completed", "executionInfo": {"exitCode": 1}}, "failed"),
    ],
)
def test_a_task_is_counted_as_the_service_counts_it(document: Any, count: str) -> None:
    (seen,) = tasks.glance(Service((200, {"value": [{"id": "t", **document}]})).client, "j").first
    assert seen.counts_as == count


# --- jobs -----------------------------------------------------------------------------------------------------------


def job(state: str, **pool: Any) -> tuple[int, Any]:
    return 200, {"id": "j", "state": state, "poolInfo": pool or {"poolId": "old"}}


@pytest.mark.parametrize(("later_run", "etags"), [("r", ["0x1", "0x2"]), ("another", ["0x1"])])
def test_a_run_deletes_the_version_of_its_job_that_it_read_and_no_later_job_of_its_id(
    later_run: str, etags: list[str]
) -> None:
    def version(etag: str, run: str) -> tuple[int, Any]:
        return 200, {"id": "j", "eTag": etag, "metadata": Marks(run).metadata}

    changed = test_retry.refusal("ConditionNotMet", 412)
    service = Service(version("0x1", "r"), changed, version("0x2", later_run), DONE)
    with contextlib.suppress(NotFound):
        deletion.request(service.client, Thing("job", "j"), {"r"})
    sent = [request.headers["If-Match"] for request in service.transport.requests if request.method == "DELETE"]
    assert sent == [f'"{etag}"' for etag in etags]


@pytest.mark.parametrize(
    ("meant", "answers", "deletions"), [(None, (1, 1), 2), (1, (1, 2), 1), (None, (1, 2), 1), (1, (2,), 0)]
)
def test_a_user_deletes_the_job_that_was_meant_and_no_later_job_of_its_id(
    meant: int | None, answers: tuple[int, ...], deletions: int
) -> None:
    days = {day: datetime(2026, 1, day, tzinfo=timezone.utc) for day in (1, 2)}
    changed = test_retry.refusal("ConditionNotMet", 412)
    versions = [(200, {"id": "j", "eTag": "0x1", "creationTime": days[day].isoformat()}) for day in answers]
    service = Service(versions[0], changed, *versions[1:], DONE)
    job, created = Thing("job", "j"), days[meant] if meant else None
    with contextlib.suppress(NotFound):
        deletion.request_named(service.client, job, None, created=created)
    assert sum(request.method == "DELETE" for request in service.transport.requests) == deletions


def test_the_failed_tasks_of_a_job_run_again() -> None:
    service = Service(job("active"), (200, {"value": [{"id": "a"}]}), DONE)
    assert job_actions.resubmit_failed(service.client, "j", lambda count: None).done == ("a",)
    assert service.queries[1] == {
        "$filter": "executionInfo/result eq 'failure'", "$select": "id", "maxresults": "1000",
    }  # fmt: skip
    assert service.asked[-1] == "POST /jobs/j/tasks/a/reactivate"


@pytest.mark.parametrize("state", ["completed", "terminating", "deleting"])
def test_tasks_of_a_job_that_is_over_do_not_run_again(state: str) -> None:
    with pytest.raises(ServiceError, match=f"job j is {state}, and the service runs tasks again only") as caught:
        job_actions.resubmit_failed(Service(job(state)).client, "j", lambda count: None)
    assert caught.value.code == "JobCompleted"


POOL = (200, {"id": "new", "state": "active", "vmSize": "d2"})


def migrate(service: Service, pool_id: str = "new", seconds: float = 60) -> list[str]:
    events: list[Event] = []
    deadline = Deadline(seconds, "job j to be disabled", events.append, clock=service.policy.clock)
    with contextlib.suppress(Unreachable):
        job_actions.migrate(service.client, "j", pool_id, "wait", deadline, Pace(2.0, 2.0), events.append)
    return [event.text for event in events]


def test_a_job_that_moves_is_disabled_until_it_has_its_new_pool() -> None:
    sent = [job("active"), DONE, job("disabling"), job("disabled"), job("disabled"), DONE, job("disabled"), DONE]
    service = Service(job("active"), POOL, *sent)
    assert migrate(service) == []
    assert service.asked == [
        "GET /jobs/j", "GET /pools/new", "GET /jobs/j", "POST /jobs/j/disable", "GET /jobs/j", "GET /jobs/j",
        "GET /jobs/j", "PATCH /jobs/j", "GET /jobs/j", "POST /jobs/j/enable",
    ]  # fmt: skip
    assert (service.bodies[3], service.bodies[7]) == ({"disableTasks": "wait"}, {"poolInfo": {"poolId": "new"}})
    assert service.time.pauses == [2.0]


@pytest.mark.parametrize("changes", range(3))
def test_a_job_that_replaced_the_one_that_moves_is_not_changed(changes: int) -> None:
    def version(day: int, state: str) -> Any:
        return 200, {**job(state)[1], "creationTime": f"2026-01-0{day}T00:00:00Z", "eTag": f"0x{day}"}

    answers = [version(1, "active"), POOL, version(1, "active"), DONE, version(1, "disabled"), version(1, "disabled"),
               DONE, version(1, "disabled")]  # fmt: skip
    read_before = (2, 5, 7)[changes]
    service = Service(*answers[:read_before], version(2, "active"))
    with pytest.raises(NotFound, match="job j was replaced"):
        migrate(service)
    sent = [request for request in service.transport.requests if request.method != "GET"]
    assert [request.headers["If-Match"] for request in sent] == ['"0x1"'] * changes


@pytest.mark.parametrize(("state", "disables"), [("disabled", False), ("disabling", True)])
def test_a_job_that_was_disabled_before_stays_disabled_on_its_new_pool(state: str, disables: bool) -> None:
    service = Service(job(state), POOL, *[job(state), DONE] * disables, job("disabled"), job("disabled"), DONE)
    assert migrate(service) == ["job j stays disabled: `batchtrain jobs enable j`"]
    assert ("POST /jobs/j/disable" in service.asked) == disables
    assert service.asked[-1] == "PATCH /jobs/j"


@pytest.mark.parametrize(
    ("answers", "pool_id"), [((NO_CONNECTION,), "old"), ((job("disabled"), NO_CONNECTION), "old"),
                             ((job("disabled"), job("disabled"), DONE, NO_CONNECTION), "new")],
)  # fmt: skip
def test_an_interrupted_move_says_where_the_disabled_job_is(answers: Sequence[Any], pool_id: str) -> None:
    last = migrate(Service(job("active"), POOL, job("active"), DONE, *answers), seconds=1)[-1]
    assert last == f"job j is disabled; `batchtrain jobs enable j` continues it on pool {pool_id}"


@pytest.mark.parametrize(
    ("document", "error", "text"),
    [
        (job("completed"), ServiceError, "job j is completed, so no task of it can run on pool new"),
        (job("active", autoPoolSpecification={}), PlanError, "job j has a pool of its own"),
        (job("active", poolId="NEW"), UsageError, "job j has pool new already"),
    ],
)
def test_a_job_that_cannot_move_is_left_as_it_is(document: Any, error: type[Exception], text: str) -> None:
    service = Service(document)
    with pytest.raises(error, match=text):
        migrate(service)
    assert service.asked == ["GET /jobs/j"]


def test_a_job_is_terminated_in_the_version_that_was_read_and_never_its_successor() -> None:
    later = {"id": "j", "eTag": "0x2", "creationTime": "2026-01-01T00:00:01Z"}
    service = Service((200, VERSION), test_retry.refusal("ConditionNotMet", 412), (200, later))
    with pytest.raises(NotFound, match="job j was replaced"):
        submit.terminate(service.client, Thing("job", "j"))
    assert service.asked == ["GET /jobs/j", "POST /jobs/j/terminate", "GET /jobs/j"]


@pytest.mark.parametrize("is_current", [True, False])
def test_a_job_is_changed_in_a_version_that_is_known_and_read_if_it_has_changed(is_current: bool) -> None:
    outdated = () if is_current else (test_retry.refusal("ConditionNotMet", 412), (200, VERSION))
    service = Service(*outdated, DONE)
    meant_version.update_job(service.client, "j", "change", {"priority": 1}, meant_version.NOW, "0x0")
    assert service.asked == ["PATCH /jobs/j"] + ["GET /jobs/j", "PATCH /jobs/j"] * (not is_current)
    tags = [request.headers["If-Match"] for request in service.transport.requests if request.method == "PATCH"]
    assert tags == ['"0x0"'] + ['"0x1"'] * (not is_current)


def test_a_wait_for_a_job_ends_when_another_job_has_its_id() -> None:
    def own(state: str, run: str) -> Any:
        return 200, {**VERSION, "state": state, "metadata": Marks(run).metadata}

    service = Service(own("terminating", "run"), own("completed", "another"))
    is_meant, deadline = meant_version.of_runs({"run"}), Deadline(60, "x", clock=service.policy.clock)
    with pytest.raises(NotFound, match="job j was replaced by a new one"):
        job_actions.until(service.client, "j", job_actions.COMPLETED, is_meant, deadline, Pace(2.0, 2.0))


def stop(service: Service) -> None:
    job_actions.stop(service.client, "j", {"run"}, Deadline(60, "x", clock=service.policy.clock), Pace(2.0, 2.0))


@pytest.mark.parametrize(
    ("document", "request_sent", "body", "state"),
    [
        (job("active"), "POST /jobs/j/terminate", {"terminateReason": "UserTerminate"}, "completed"),
        (job("active", autoPoolSpecification={}), "POST /jobs/j/disable", {"disableTasks": "terminate"}, "disabled"),
    ],
)
def test_a_job_of_this_run_is_stopped_so_that_the_files_of_its_tasks_stay(
    document: Any, request_sent: str, body: dict[str, str], state: str
) -> None:
    own, other = ({**VERSION, "metadata": [{"name": RUN, "value": run}]} for run in ("run", "other"))
    service = Service(document, (200, own), DONE, (200, {**own, "state": "active"}), (200, {**own, "state": state}))
    stop(service)
    assert service.asked == ["GET /jobs/j", "GET /jobs/j", request_sent, "GET /jobs/j", "GET /jobs/j"]
    assert (service.bodies[2], service.transport.requests[2].headers["If-Match"]) == (body, '"0x1"')
    later = Service(document, (200, other))
    with pytest.raises(NotFound, match="job j was replaced"):
        stop(later)
    assert later.asked == ["GET /jobs/j", "GET /jobs/j"]


def test_a_job_that_is_stopped_already_is_only_read() -> None:
    service = Service(job("completed"))
    stop(service)
    assert service.asked == ["GET /jobs/j"]


@pytest.mark.parametrize(("own", "limit"), [(None, "PT2M40S"), ("PT2M41S", "PT2M40S"), ("PT2M40S", None)])
def test_a_job_gets_a_limit_unless_its_own_ends_it_earlier(own: str | None, limit: str | None) -> None:
    constraints = {"maxTaskRetryCount": 1, **({"maxWallClockTime": own} if own else {})}
    own_mark = {"metadata": Marks("run").metadata}
    document = {"id": "j", "creationTime": "2026-11-22T12:00:00Z", "constraints": constraints, **own_mark}
    service = Service((200, document), (200, document), (200, None))
    job_actions.limit(service.client, "j", {"run"}, 60, datetime(2026, 11, 22, 12, 1, 40, tzinfo=timezone.utc))
    changes = [body and body["constraints"] for body in service.bodies[2:]]
    assert changes == ([{**constraints, "maxWallClockTime": limit}] if limit else [])


# --- single requests ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "sent", "code"),
    [
        ("pool", "DELETE /pools/x", "PoolBeingDeleted"),  # also of a job that ends
        ("job", "DELETE /jobs/x", "JobBeingDeleted"),
        ("job schedule", "DELETE /jobschedules/x", "JobScheduleBeingDeleted"),
    ],
)
def test_a_deletion_is_one_request_and_what_is_being_deleted_counts_as_deleted(
    kind: Kind, sent: str, code: str
) -> None:
    for answer in ((202, None), test_retry.refusal(code)):
        service = Service(answer)
        submit.delete_version(service.client, Thing(kind, "x"), "")
        assert (service.asked, service.bodies) == ([sent], [None])


@pytest.mark.parametrize(
    ("act", "sent", "body"),
    [
        (lambda c: submit.terminate(c, Thing("job schedule", "s")), "POST /jobschedules/s/terminate", None),
        (lambda c: submit.terminate(c, Thing("job", "j")), "POST /jobs/j/terminate",
         {"terminateReason": "UserTerminate"}),
        (lambda c: submit.disable_job(c, "j", "requeue"), "POST /jobs/j/disable", {"disableTasks": "requeue"}),
        (lambda c: submit.enable_job(c, "j"), "POST /jobs/j/enable", None),
        (lambda c: meant_version.update_job(c, "j", "change", {"priority": 1}, meant_version.NOW), "PATCH /jobs/j",
         {"priority": 1}),
        (lambda c: job_actions.complete(c, "j", {""}), "PATCH /jobs/j", {"onAllTasksComplete": "terminatejob"}),
        (lambda c: submit.resize_pool(c, "p", 3, None, "terminate", CREATED), "POST /pools/p/resize",
         {"targetDedicatedNodes": 3, "nodeDeallocationOption": "terminate"}),
        (lambda c: submit.resize_pool(c, "p", None, 0, "requeue", CREATED), "POST /pools/p/resize",
         {"targetLowPriorityNodes": 0, "nodeDeallocationOption": "requeue"}),
        (lambda c: submit.remove_nodes(c, "p", ("n", "m"), CREATED), "POST /pools/p/removenodes",
         {"nodeList": ["n", "m"], "nodeDeallocationOption": "requeue"}),
        (lambda c: submit.scale_pool(c, FORMULA, meant_version.NOW), "POST /pools/p/enableautoscale",
         {"autoScaleFormula": "x"}),
        (lambda c: submit.reboot_node(c, "p", "n", CREATED), "POST /pools/p/nodes/n/reboot",
         {"nodeRebootOption": "requeue"}),
    ],
)  # fmt: skip
def test_a_change_is_sent_for_the_version_that_was_read(
    act: Callable[[BatchClient], None], sent: str, body: Any
) -> None:
    service = Service((200, VERSION), (202, None))
    act(service.client)
    assert (service.asked[1:], service.bodies[1]) == ([sent], body)
    headers = service.transport.requests[1].headers
    assert headers.get("If-Match") == (None if "/nodes/" in sent else '"0x1"')
    if body is not None:
        assert headers["Content-Type"] == "application/json; odata=minimalmetadata"


@pytest.mark.parametrize(
    "act",
    [
        lambda c: submit.resize_pool(c, "p", 3, None, "terminate", LATER),
        lambda c: submit.remove_nodes(c, "p", ("n", "m"), LATER),
        lambda c: submit.reboot_node(c, "p", "n", LATER),
        lambda c: submit.scale_pool(c, FORMULA, meant_version.of_runs({"another"})),
        lambda c: list(submitting.carry_out(c, Plan((FORMULA,)), str, lambda path, data: False)),
    ],
)
def test_a_pool_that_was_made_anew_under_the_same_id_is_not_changed(act: Callable[[BatchClient], None]) -> None:
    service = Service((200, {**VERSION, "id": "p"}))
    with pytest.raises(NotFound, match="pool p was replaced by a new one"):
        act(service.client)
    assert service.asked == ["GET /pools/p"]


@pytest.mark.parametrize(
    ("act", "refused", "state"),
    [
        (lambda c: submit.delete_version(c, Thing("pool", "p"), ""), "OperationInvalidForCurrentState", "active"),
        (lambda c: submit.enable_job(c, "j"), "JobCompleted", "completed"),
        (lambda c: submit.reboot_node(c, "p", "n", None), "NodeNotReady", "unusable"),
    ],
)
def test_an_action_whose_answer_was_lost_is_an_error_if_its_object_is_as_before(
    act: Callable[[BatchClient], None], refused: str, state: str
) -> None:
    version = [(200, VERSION)] * (refused != "OperationInvalidForCurrentState")
    service = Service(*version, NO_ANSWER, test_retry.refusal(refused), (200, {"state": state}))
    with pytest.raises(ServiceError, match=refused):
        act(service.client)
    assert service.asked[-1].startswith("GET ")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "an empty id names nothing"),
        (None, "an empty id names nothing"),
        (".", "`.` is not"),
        ("..", "`..` is not"),
    ],
)
def test_nothing_is_asked_about_what_is_no_id(name: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        requests.quoted(name)


# --- steps of a plan ------------------------------------------------------------------------------------------------


def carry_out(service: Service, *steps: Step, **options: Any) -> list[tuple[str, str, str]]:
    uploads = options.pop("uploads", ())
    upload = options.pop("upload", lambda path, data: False)
    events = submitting.carry_out(
        service.client, Plan(steps, uploads=uploads), lambda name: "secret", upload, **options
    )
    return [(event.kind, event.subject, event.text) for event in events]


def test_a_pool_is_reported_before_and_after_it_is_added() -> None:
    reported = carry_out(Service((201, None)), Step("pool.add", "p", {"id": "p"}))
    assert reported == [("pool.adding", "p", "adding p"), ("pool.add", "p", "added pool p")]


@pytest.mark.parametrize(("sent", "text"), [(True, "uploaded 3 bytes to"), (False, "the files are there already:")])
def test_an_upload_says_whether_the_files_were_there(sent: bool, text: str) -> None:
    paths: list[tuple[str, object]] = []

    def upload(path: str, data: object) -> bool:
        paths.append((path, data))
        return sent

    step = Step("blob.upload", "link/c/f", {})
    events = carry_out(Service(DONE), step, uploads=(Upload("link/c/f", b"abc"),), upload=upload)
    assert events == [("blob.upload", "/link/c/f", f"{text} /link/c/f")]
    assert paths == [("link/c/f", b"abc")]


def test_another_program_carries_out_its_own_steps() -> None:
    step = Step("files.upload", "x", {})
    others = {"files.upload": lambda given: FilesUploaded(given.subject, "done elsewhere")}
    service = Service(DONE)
    assert carry_out(service, step, others=others) == [("files.upload", "x", "done elsewhere")]
    assert service.asked == []


def test_the_only_task_of_a_job_is_a_request_of_its_own() -> None:
    service = Service((201, None))
    assert carry_out(service, Step("task.add", "j", {"id": "t"})) == [("task.add", "j/t", "added task t")]
    assert service.asked == ["POST /jobs/j/tasks"]


NIGHTLY = {"recurrence": {"schedule": {"recurrence_interval": "1.00:00:00"}}}


def test_a_schedule_is_one_request_and_is_said_before_and_after_and_with_a_refusal() -> None:
    service, refused = Service((201, None)), Service(test_retry.refusal("JobScheduleExists"), (200, {"id": "j"}))
    events = list(submitting.carry_out(service.client, plan(NIGHTLY)))
    assert [(event.kind, event.subject) for event in events] == [("schedule.adding", "j"), ("schedule.add", "j")]
    assert (service.asked, service.bodies[0]["schedule"]) == (["POST /jobschedules"], {"recurrenceInterval": "P1D"})
    assert service.bodies[0]["jobSpecification"]["jobManagerTask"]["commandLine"] == "/bin/bash -c 'echo hello'"
    with pytest.raises(ServiceError, match="add job schedule j"):
        list(submitting.carry_out(refused.client, plan(NIGHTLY)))


def test_a_job_that_ends_by_itself_is_told_so_at_the_end() -> None:
    service = Service((200, VERSION), (200, None))
    body = {"onAllTasksComplete": "terminatejob"}
    assert carry_out(service, Step("job.complete", "j", body)) == [
        ("job.complete", "j", "job j ends when its tasks have ended")
    ]
    assert (service.asked[1:], service.bodies[1:]) == (["PATCH /jobs/j"], [body])


def test_a_login_is_added_on_every_node_and_updated_where_it_exists() -> None:
    nodes = (200, {"value": [{"id": "a"}, {"id": "b"}]})
    service = Service(nodes, test_retry.refusal("NodeUserExists"), (200, None), (201, None))
    body = {"name": "me", "isAdmin": True, "sshPublicKey": "k"}
    assert carry_out(service, Step("node.user", "p", body)) == [
        ("node.user", "p", "user me can log in on 2 nodes of pool p")
    ]
    assert service.asked[1:] == [
        "POST /pools/p/nodes/a/users", "PUT /pools/p/nodes/a/users/me", "POST /pools/p/nodes/b/users",
    ]  # fmt: skip
    assert service.bodies[1:] == [body, {"sshPublicKey": "k"}, body]


def test_a_login_that_is_refused_for_another_reason_is_an_error() -> None:
    service = Service((200, {"value": [{"id": "a"}]}), test_retry.refusal("NodeNotReady"))
    with pytest.raises(ServiceError, match="add user me to a: No"):
        carry_out(service, Step("node.user", "p", {"name": "me"}))


@pytest.mark.parametrize(
    ("action", "text"),
    [("pool.resize", "gets its nodes"), ("pool.autoscale", "has a new formula for its number of nodes")],
)
def test_a_fresh_pool_is_resized_as_soon_as_it_is_steady(action: str, text: str, pauses: list[float]) -> None:
    busy = test_retry.refusal("PoolBeingResized")
    own = (200, {**VERSION, "metadata": Marks(submitting.RUN).metadata})
    service = Service(own, busy, own, busy, own, (202, None))
    step = Step(action, "p", {"targetDedicatedNodes": 2})
    assert carry_out(service, step) == [(action, "p", f"pool p {text}")]
    assert service.asked == ["GET /pools/p", f"{step.method} {step.path}"] * 3
    assert len(pauses) == 2
    with pytest.raises(ServiceError, match=f"{action.removeprefix('pool.')} pool p: No"):
        carry_out(Service(own, test_retry.refusal("PoolNotFound", 404)), step)
