"""A task the service refuses stops the command and is named; nothing completes a job whose tasks do not all stand."""

from __future__ import annotations

from typing import Any

import pytest
from azure.batch import models

from batchtrain.errors import ServiceError
from batchtrain.plan import Plan, Step
from batchtrain.service import submit


class Service:
    """Answers a task collection; notes what was asked."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self.answers, self.asked = list(answers), []  # type: ignore[var-annotated]

    def create_task_collection(self, job_id: str, group: Any, **_: Any) -> models.BatchCreateTaskCollectionResult:
        self.asked.append([task["id"] for task in group["value"]])
        return models.BatchCreateTaskCollectionResult({"value": self.answers.pop(0)})

    def update_job(self, job_id: str, options: Any) -> None:
        self.asked.append("complete")


PLAN = Plan(
    steps=(
        Step("task.add", "j", {"value": [{"id": "a"}, {"id": "b"}]}),
        Step("job.complete", "j", {"onAllTasksComplete": "terminatejob"}),
    )
)
REFUSED = {"code": "InvalidPropertyValue", "message": {"lang": "en-US", "value": "It is wrong.\nRequestId:1\nTime:2"}}


def carry_out(service: Service) -> list[submit.Event]:
    return list(submit.submit(service, PLAN, lambda name: "", lambda path, data: None))  # type: ignore[arg-type]


def test_a_refused_task_is_named_with_the_services_reason_and_its_job_is_not_completed() -> None:
    service = Service(
        [{"taskId": "a", "status": "Success"}, {"taskId": "b", "status": "clienterror", "error": REFUSED}]
    )
    with pytest.raises(ServiceError, match=r"add task j/b: It is wrong \(InvalidPropertyValue\)"):
        carry_out(service)
    assert "complete" not in service.asked


def test_what_the_server_could_not_take_is_sent_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "NOT_NOW", submit.NOT_NOW._replace(first=0.0))
    service = Service(
        [{"taskId": "b", "status": "servererror"}, {"taskId": "a", "status": "Success"}],
        [{"taskId": "b", "status": "Success"}],
    )
    carry_out(service)
    assert service.asked == [["a", "b"], ["b"], "complete"]
