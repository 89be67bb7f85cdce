"""A job schedule on its way to the service: what is asked, what is said, and how it is ended."""

from __future__ import annotations

import pytest

from batchtrain.errors import BatchtrainError
from tests.submitting import carry_out
from tests.unit.plan.jobs import plan
from tests.unit.service.test_retry import Service, refusal

NIGHTLY = {"recurrence": {"schedule": {"recurrence_interval": "1.00:00:00"}}}


def test_a_schedule_is_one_request_and_is_said_before_and_after() -> None:
    service = Service((201, None))
    events = list(carry_out(service.client, plan(NIGHTLY)))
    assert [(event.kind, event.subject) for event in events] == [("schedule.adding", "j"), ("schedule.add", "j")]
    assert service.asked == ["POST /jobschedules"]
    assert service.bodies[0]["schedule"] == {"recurrenceInterval": "P1D"}
    assert service.bodies[0]["jobSpecification"]["jobManagerTask"]["commandLine"] == "/bin/bash -c 'echo hello'"


def test_a_schedule_that_is_refused_is_an_error_with_its_name() -> None:
    service = Service(refusal("JobScheduleExists"), (200, {"id": "j"}))
    with pytest.raises(BatchtrainError, match="add job schedule j"):
        list(carry_out(service.client, plan(NIGHTLY)))
