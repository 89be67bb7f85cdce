"""The metadata with which batchtrain marks what it adds."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.plan import diff, plan_recipe
from batchtrain.plan.diff import Living
from batchtrain.plan.marks import HOST, RUN, SHOWN, USER, Marks, marked, marked_plan, marks_of
from batchtrain.plan.types import Plan
from tests.unit.plan.jobs import plan, recipe

MARKS = Marks("20261124T080000Z-j-0a1b", "ada", "laptop")
OWN = [
    {"name": RUN, "value": "20261124T080000Z-j-0a1b"},
    {"name": USER, "value": "ada"},
    {"name": HOST, "value": "laptop"},
]
MINE = {"name": "mine", "value": "1"}
NIGHTLY = {"recurrence": {"schedule": {"recurrence_interval": "1.00:00:00"}}}
VARIABLES = [{"name": "BATCHTRAIN_RUN", "value": MARKS.run}]


def document(planned: Plan, action: str) -> dict[str, Any]:
    """The request of a plan's first step of an action."""
    return dict(next(step.document for step in planned.steps if step.action == action))


@pytest.mark.parametrize("action", ["pool.add", "job.add"])
@pytest.mark.parametrize("before", [[], [MINE]], ids=["without metadata", "with metadata"])
def test_a_pool_and_a_job_are_marked_after_their_own_metadata(action: str, before: list[Any]) -> None:
    body = {"id": "x", "metadata": before} if before else {"id": "x"}
    variables = {"commonEnvironmentSettings": VARIABLES} if action == "job.add" else {}
    assert marked(action, body, MARKS) == {"id": "x", **variables, "metadata": [*before, *OWN]}


def test_the_tasks_of_a_job_know_their_run_beside_its_own_variables() -> None:
    own = {"name": "MINE", "value": "1"}
    body = marked("job.add", {"commonEnvironmentSettings": [own]}, MARKS)
    assert body["commonEnvironmentSettings"] == [own, *VARIABLES]


def test_a_schedule_and_the_jobs_that_it_creates_are_marked() -> None:
    pool = {"poolInfo": {"poolId": "p"}}
    specification = {**pool, "metadata": [MINE, *OWN], "commonEnvironmentSettings": VARIABLES}
    body = {"id": "s", "jobSpecification": {**pool, "metadata": [MINE]}}
    assert marked("schedule.add", body, MARKS) == {"id": "s", "jobSpecification": specification, "metadata": OWN}


def automatic(metadata: list[Any] | None = None) -> dict[str, Any]:
    pool: dict[str, Any] = {"vmSize": "v"} | ({"metadata": metadata} if metadata else {})
    return {"poolInfo": {"autoPoolSpecification": {"poolLifetimeOption": "job", "pool": pool}}}


def test_the_automatic_pool_of_a_job_is_marked() -> None:
    assert marked("job.add", automatic([MINE]), MARKS) == {
        **automatic([MINE, *OWN]), "metadata": OWN, "commonEnvironmentSettings": VARIABLES,
    }  # fmt: skip


def test_the_automatic_pool_of_a_schedule_is_marked() -> None:
    specification = marked("schedule.add", {"jobSpecification": automatic()}, MARKS)["jobSpecification"]
    assert specification == {**automatic(OWN), "metadata": OWN, "commonEnvironmentSettings": VARIABLES}


def test_a_request_is_not_changed_by_its_marks() -> None:
    body = {"jobSpecification": automatic([MINE]), "metadata": [MINE]}
    marked("schedule.add", body, MARKS)
    assert body == {"jobSpecification": automatic([MINE]), "metadata": [MINE]}


@pytest.mark.parametrize("action", ["task.add", "job.complete", "pool.resize", "node.user"])
def test_nothing_else_is_marked(action: str) -> None:
    assert marked(action, {"id": "x"}, MARKS) == {"id": "x"}


def test_without_user_and_host_only_the_run_is_written() -> None:
    assert Marks("r").metadata == [{"name": RUN, "value": "r"}]


def test_marks_are_read_back_among_other_metadata() -> None:
    assert marks_of([MINE, *OWN]) == MARKS
    assert marks_of([{"name": RUN, "value": "r"}]) == Marks("r")


@pytest.mark.parametrize("metadata", [[], [MINE], [{"name": RUN}]], ids=["none", "other", "without a value"])
def test_an_object_of_another_program_has_no_run(metadata: list[Any]) -> None:
    assert marks_of(metadata).run == ""


@pytest.mark.parametrize("job", [{}, NIGHTLY, {"auto_pool": {}}], ids=["job", "schedule", "automatic pool"])
def test_a_plan_for_display_is_what_is_sent(job: dict[str, Any]) -> None:
    planned = plan(job)
    shown = marked_plan(planned, MARKS)
    assert [step.document for step in shown.steps] == [
        marked(step.action, step.document, MARKS) for step in planned.steps
    ]
    assert shown._replace(steps=planned.steps) == planned


def test_a_plan_for_display_has_a_text_in_place_of_the_run() -> None:
    shown = marked_plan(plan_recipe(recipe()), Marks(SHOWN))
    for action in ("pool.add", "job.add"):
        assert {"name": RUN, "value": "(the name of the run)"} in document(shown, action)["metadata"]


def test_marks_of_existing_objects_are_no_difference() -> None:
    planned = plan_recipe(recipe())
    bodies = {action: marked(action, document(planned, action), MARKS) for action in ("pool.add", "job.add")}
    compared = diff.compare(planned, Living(pools={"p": bodies["pool.add"]}, jobs={"j": bodies["job.add"]}))
    assert [step.differences for step in compared if step.kind in ("pool", "job")] == [(), ()]
