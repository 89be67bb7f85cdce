"""Job schedules: the one task travels inside, and what cannot is refused with the way out."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.errors import PlanError
from batchtrain.plan import Plan
from tests.unit.plan.jobs import bodies, plan, said

NIGHTLY = {"schedule": {"recurrence_interval": "1.00:00:00"}}


def scheduled(job: dict[str, Any] | None = None, task: dict[str, Any] | None = None, **more: Any) -> Plan:
    return plan({"recurrence": NIGHTLY, **(job or {})}, task, **more)


def sent(made: Plan) -> dict[str, Any]:
    return bodies(made, "schedule.add")[0]


def test_a_recurrence_makes_a_schedule_in_one_request() -> None:
    made = scheduled()
    assert [(step.action, step.path) for step in made.steps] == [("schedule.add", "/jobschedules")]
    assert sent(made)["id"] == "j"


def test_the_schedule_says_when() -> None:
    when = {"recurrence_interval": "00:30:00", "start_window": "00:05:00",
            "do_not_run_until": "2027-01-01 08:00:00", "do_not_run_after": "2027-02-01T00:00:00+01:00"}  # fmt: skip
    assert sent(scheduled({"recurrence": {"schedule": when}}))["schedule"] == {
        "recurrenceInterval": "PT30M", "startWindow": "PT5M",
        "doNotRunUntil": "2027-01-01T08:00:00Z", "doNotRunAfter": "2027-01-31T23:00:00Z",
    }  # fmt: skip


def test_a_moment_that_is_none_is_named_with_its_place() -> None:
    when = {"schedule": {"do_not_run_until": "tomorrow"}}
    with pytest.raises(PlanError, match=r"schedule\.do_not_run_until: `tomorrow` is no moment"):
        scheduled({"recurrence": when})


def test_the_one_task_is_the_job_manager_task_with_all_it_has() -> None:
    task = {"id": "train", "display_name": "Train", "docker_image": "a/b", "environment_variables": {"A": "1"},
            "max_wall_time": "02:00:00", "required_slots": 2, "application_packages": [{"id": "tool"}]}  # fmt: skip
    made = scheduled(task=task)
    led = sent(made)["jobSpecification"]["jobManagerTask"]
    assert led["containerSettings"]["imageName"] == "a/b"
    assert led.items() >= {
        "id": "train", "displayName": "Train", "environmentSettings": [{"name": "A", "value": "1"}],
        "constraints": {"maxWallClockTime": "PT2H"}, "requiredSlots": 2, "runExclusive": False,
        "applicationPackageReferences": [{"applicationId": "tool"}], "allowLowPriorityNode": True,
    }.items()  # fmt: skip
    assert said(made, "schedule-task") == [("job_manager", "train", "job_specifications[0].tasks[0]")]


def test_a_job_of_a_schedule_ends_with_its_one_task() -> None:
    made = scheduled()
    assert sent(made)["jobSpecification"]["jobManagerTask"]["killJobOnCompletion"] is True
    assert said(made, "schedule-job-ends")


def test_a_job_that_completes_by_itself_is_not_ended_by_its_task() -> None:
    specification = sent(scheduled({"auto_complete": True}))["jobSpecification"]
    assert specification["onAllTasksComplete"] == "terminatejob"
    assert specification["jobManagerTask"]["killJobOnCompletion"] is False


def test_the_pool_of_a_schedule_may_live_as_long_as_it() -> None:
    info = sent(scheduled({"auto_pool": {"pool_lifetime": "job_schedule"}}))["jobSpecification"]["poolInfo"]
    assert info["autoPoolSpecification"]["poolLifetimeOption"] == "jobschedule"


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ({"tasks": [{"command": "a"}, {"command": "b"}]}, "2 tasks, but a job of a schedule"),
        ({"tasks": [{"command": "a", "task_factory": {"repeat": 3}}]}, "3 tasks"),
        ({"merge_task": {"command": "m"}}, "2 tasks"),
        ({"tasks": []}, "no task"),
        ({"tasks": [{"command": "a", "multi_instance": {"num_instances": 2}}]}, "multi-instance"),
        ({"job_manager": {"command": "m"}}, "added by that alone"),
    ],
)
def test_what_a_schedule_cannot_carry_is_refused_with_the_way_out(job: dict[str, Any], reason: str) -> None:
    with pytest.raises(PlanError, match=rf"{reason}.*batchtrain jobs add.*recurrence-tasks"):
        scheduled(job)


def test_a_job_manager_of_ones_own_leads_the_jobs_of_a_schedule() -> None:
    led = sent(scheduled({"tasks": [], "job_manager": {"command": "m"}}))["jobSpecification"]["jobManagerTask"]
    assert led["id"] == "jobmanager"


def test_properties_that_a_job_manager_task_cannot_have_are_reported() -> None:
    made = scheduled(task={"affinity_id": "TVM:n"})
    assert [(one.rule, one.path) for one in made.warnings] == [("recurrence-tasks", "job_specifications[0].tasks[0]")]
