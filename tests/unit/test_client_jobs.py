"""What the client says of jobs before it asks the service for anything."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.cli.jobs import _either
from batchtrain.client import Jobs, Pools
from batchtrain.errors import NotFound, PlanError, ServiceError, UsageError
from tests.unit.plan.jobs import recipe

NOBODY: Any = None


def test_one_job_that_is_a_schedule_is_not_given_back_as_a_job() -> None:
    nightly = recipe({"recurrence": {"schedule": {"recurrence_interval": "01:00:00"}}})
    with pytest.raises(UsageError, match=r"use jobs\.add_all"):
        Jobs(NOBODY).add(nightly)


def test_a_pool_that_its_jobs_bring_themselves_is_not_made_beside_them() -> None:
    with pytest.raises(PlanError, match="brings a pool of its own"):
        Pools(NOBODY).add(recipe({"auto_pool": {}}))


def refuse(error: ServiceError) -> Any:
    def ask() -> None:
        raise error

    return ask


def test_a_name_that_is_no_job_may_be_a_schedule() -> None:
    assert _either(refuse(NotFound("no job")), lambda: "a schedule") == "a schedule"


def test_a_name_that_is_neither_is_said_of_the_job() -> None:
    with pytest.raises(NotFound, match="no job"):
        _either(refuse(NotFound("no job")), refuse(ServiceError("no schedules here")))
