"""A job schedule on its way to the service: what is asked, what is said, and how it is ended."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.exceptions import ResourceExistsError

from batchtrain.errors import BatchtrainError
from tests.submitting import carry_out
from tests.unit.plan.jobs import plan

NIGHTLY = {"recurrence": {"schedule": {"recurrence_interval": "1.00:00:00"}}}


class Service:
    """Notes the schedules it is asked for."""

    def __init__(self, refuses: bool = False) -> None:
        self.asked: list[Any] = []
        self.refuses = refuses

    def create_job_schedule(self, options: Any, **_: Any) -> None:
        if self.refuses:
            raise ResourceExistsError("it is there")
        self.asked.append(options.as_dict())


def test_a_schedule_is_one_request_and_is_said_before_and_after() -> None:
    service = Service()
    events = list(carry_out(service, plan(NIGHTLY)))
    assert [(event.kind, event.subject) for event in events] == [("schedule.adding", "j"), ("schedule.add", "j")]
    assert service.asked[0]["schedule"] == {"recurrenceInterval": "P1D"}
    assert service.asked[0]["jobSpecification"]["jobManagerTask"]["commandLine"] == "/bin/bash -c 'echo hello'"


def test_a_schedule_that_is_refused_is_an_error_with_its_name() -> None:
    with pytest.raises(BatchtrainError, match="add job schedule j"):
        list(carry_out(Service(refuses=True), plan(NIGHTLY)))
