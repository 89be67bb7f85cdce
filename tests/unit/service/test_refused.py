"""A refused task does not stop the others and is named; no job is completed whose tasks do not all stand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from batchtrain.errors import ServiceError, TasksRefused, UsageError
from batchtrain.plan import Plan, Step
from batchtrain.plan.task_stream import TaskDocument, TaskStream
from batchtrain.service import retry
from batchtrain.service.job_addition import ONCE, AddOptions
from tests import submitting
from tests.unit.service.test_retry import Service, refusal

PLAN = Plan(
    steps=(
        Step("task.add", "j", {"value": [{"id": "a"}, {"id": "b"}]}),
        Step("job.complete", "j", {"onAllTasksComplete": "terminatejob"}),
    )
)
REFUSED = {"code": "InvalidPropertyValue", "message": {"lang": "en-US", "value": "It is wrong.\nRequestId:1\nTime:2"}}
A_STANDS = {"taskId": "a", "status": "Success"}
B_STANDS = {"taskId": "b", "status": "Success"}
B_REFUSED = {"taskId": "b", "status": "clienterror", "error": REFUSED}
BY_A_PROXY = (413, "no document of the service", {"reason": "Reason of the status"})
TOO_LARGE = (413, {"code": "RequestBodyTooLarge", "message": {"value": "It is too large."}})
COMPLETED = ((200, {"id": "j"}), (200, None))


def answering(*answers: Any) -> Service:
    """A service with these answers; a list has the results of tasks."""
    return Service(*((200, {"value": answer}) if isinstance(answer, list) else answer for answer in answers))


def sent(service: Service) -> list[Any]:
    """The tasks of each request, and `complete`."""
    return [
        [task["id"] for task in body["value"]] if "value" in body else "complete" for body in service.bodies if body
    ]


def carry_out(service: Service, options: AddOptions = ONCE, plan: Plan = PLAN) -> None:
    list(submitting.carry_out(service.client, plan, options=options))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(retry, "NOT_NOW", retry.NOT_NOW._replace(first=0.0))
    yield


def test_a_refused_task_is_named_with_the_services_reason_and_its_job_is_not_completed() -> None:
    service = answering([A_STANDS, B_REFUSED])
    with pytest.raises(TasksRefused, match=r"add task j/b: It is wrong \(InvalidPropertyValue\)") as caught:
        carry_out(service)
    assert "1 of 2 tasks stand, 1 was refused" in str(caught.value)
    assert caught.value.refused == (("b", "InvalidPropertyValue", "It is wrong"),)
    assert sent(service) == [["a", "b"]]


@pytest.mark.parametrize("resume", [True, False])
def test_only_a_job_that_can_be_continued_is_said_to_get_what_is_missing(resume: bool) -> None:
    with pytest.raises(TasksRefused) as caught:
        carry_out(answering([A_STANDS, B_REFUSED]), AddOptions(resume=resume))
    assert ("adds what is missing" in str(caught.value)) == resume


def test_what_the_server_could_not_take_is_sent_again_alone() -> None:
    busy = {"taskId": "b", "status": "servererror"}
    service = answering([busy, A_STANDS], [B_STANDS], *COMPLETED)
    carry_out(service)
    assert sent(service) == [["a", "b"], ["b"], "complete"]


def test_a_refusal_without_a_document_of_the_service_names_the_status() -> None:
    with pytest.raises(TasksRefused, match=r"add task j/b: Reason of the status \(413\)"):
        carry_out(answering(BY_A_PROXY, [A_STANDS], BY_A_PROXY))


def test_a_collection_that_is_too_large_is_sent_in_halves() -> None:
    service = answering(TOO_LARGE, [A_STANDS], [B_STANDS], *COMPLETED)
    carry_out(service)
    assert sent(service) == [["a", "b"], ["a"], ["b"], "complete"]


@pytest.mark.parametrize("most", range(1, 8))
def test_each_task_of_a_collection_that_is_sent_in_parts_is_added_once(most: int) -> None:
    """By a service that takes collections of at most `most` tasks, and each task at the second time."""
    seen, added = set[str](), list[str]()

    def answer(request: Any) -> Any:
        tasks = [task["id"] for task in json.loads(request.content)["value"]]
        if len(tasks) > most:
            return TOO_LARGE
        new = {name for name in tasks if name not in seen}
        seen.update(new)
        added.extend(name for name in tasks if name not in new)
        states = {name: "servererror" if name in new else "success" for name in tasks}
        return 200, {"value": [{"taskId": name, "status": state} for name, state in states.items()]}

    names = [f"t{number}" for number in range(7)]
    carry_out(Service(answer), plan=Plan((Step("task.add", "j", {"value": [{"id": name} for name in names]}),)))
    assert sorted(added) == names


def test_a_task_that_is_too_large_alone_is_refused_and_the_others_are_added() -> None:
    service = answering(TOO_LARGE, TOO_LARGE, [B_STANDS])
    with pytest.raises(TasksRefused, match=r"add task j/a: It is too large \(RequestBodyTooLarge\)"):
        carry_out(service)
    assert sent(service) == [["a", "b"], ["a"], ["b"]]


class Failing:
    """Tasks of a function that fails after two."""

    count, numbered, rule = None, True, None

    def documents(self) -> Iterator[TaskDocument]:
        yield from (TaskDocument(name, msgspec.json.encode({"id": name})) for name in "ab")
        raise UsageError("the custom factory failed after 2 tasks")


def test_what_ended_the_making_of_tasks_is_named_beside_the_refused_ones() -> None:
    plan = Plan((Step("task.add", "j", TaskStream((Failing(),))),))  # type: ignore[arg-type]
    with pytest.raises(TasksRefused) as caught:
        carry_out(answering([A_STANDS, B_REFUSED]), plan=plan)
    assert str(caught.value).startswith(
        "add task j/b: It is wrong (InvalidPropertyValue); then the custom factory failed after 2 tasks. 1 tasks stand"
    )


def test_an_answer_about_the_job_ends_the_addition() -> None:
    service = Service(refusal("JobNotFound", 404))
    with pytest.raises(ServiceError) as caught:
        carry_out(service)
    assert not isinstance(caught.value, TasksRefused)
    assert sent(service) == [["a", "b"]]
