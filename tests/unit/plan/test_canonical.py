"""The digest of a plan and the marks of tasks: equal for what means the same, and different otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.config.types import Secret
from batchtrain.plan import Plan, Step, wire
from batchtrain.plan.canonical import digest, mark
from batchtrain.plan.task_stream import ListedTasks, TaskStream

JOB = Step("job.add", "j", {"id": "j", "priority": 1})
TASK = {"id": "t", "commandLine": "train"}
ADD = Step("task.add", "j", {"value": [TASK]})


def digest_of(*steps: Step, hidden: tuple[Secret, ...] = ()) -> str:
    return digest(Plan(steps, hidden=hidden), "j")


@pytest.mark.parametrize(
    "other",
    [
        (JOB,),
        (ADD,),
        (ADD, JOB),
        (JOB._replace(body={"id": "j", "priority": 2}), ADD),
        (JOB, ADD._replace(body={"value": [TASK, {**TASK, "id": "u"}]})),
        (JOB, ADD._replace(body={"value": [{**TASK, "commandLine": "other"}]})),
        (JOB, ADD, Step("job.complete", "j", {"onAllTasksComplete": "terminatejob"})),
        (JOB, ADD._replace(action="job.complete")),
    ],
)
def test_another_plan_of_a_job_has_another_digest(other: tuple[Step, ...]) -> None:
    assert digest_of(*other) != digest_of(JOB, ADD)


@pytest.mark.parametrize(
    "step", [Step("pool.add", "p", {"id": "p"}), Step("job.add", "k", {"id": "k"}), Step("blob.upload", "j", {"x": 1})]
)
def test_the_digest_of_a_job_has_nothing_of_what_else_the_plan_does(step: Step) -> None:
    assert digest_of(step, JOB, ADD) == digest_of(JOB, ADD)


def test_a_hidden_secret_changes_no_digest() -> None:
    def hiding(text: str) -> str:
        step = ADD._replace(body={"value": [{**TASK, "commandLine": f"train {text}"}]})
        return digest_of(JOB, step, hidden=(Secret(text),))

    assert hiding("first-secret") == hiding("other-secret")


def test_the_digest_of_a_stream_has_the_rule_that_determines_its_tasks() -> None:
    def stream(*names: str) -> Step:
        bodies = tuple(wire.TaskCreate(id=name, command_line="train") for name in names)
        return Step("task.add", "j", TaskStream((ListedTasks(bodies),)))

    assert digest_of(JOB, stream("a", "b")) != digest_of(JOB, stream("a", "c"))
    assert digest_of(JOB, stream("a", "b")) == digest_of(JOB, stream("a", "b"))


def settings(**values: str) -> dict[str, Any]:
    return {**TASK, "environmentSettings": [{"name": name, "value": value} for name, value in values.items()]}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TASK, {**TASK, "state": "active", "eTag": "0x1", "url": "https://x"}),
        (TASK, {**TASK, "environmentSettings": [], "displayName": None}),
        (TASK, {**TASK, "requiredSlots": 1}),
        (settings(A="1", B="2"), settings(B="2", A="1")),
        (settings(API_TOKEN="x"), settings(API_TOKEN="y")),
        ({**TASK, "resourceFiles": [{"httpUrl": "https://x/f?sv=1&sig=a%3D"}]},
         {**TASK, "resourceFiles": [{"httpUrl": "https://x/f?sv=2&sig=b%3D"}]}),
        ({**TASK, "userIdentity": {"autoUser": {"scope": "Pool"}}},
         {**TASK, "userIdentity": {"autoUser": {"scope": "pool"}}}),
    ],
)  # fmt: skip
def test_tasks_that_mean_the_same_have_one_mark(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert mark(one) == mark(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TASK, {**TASK, "commandLine": "Train"}),
        (TASK, {**TASK, "id": "T"}),
        (TASK, {**TASK, "requiredSlots": 2}),
        (settings(A="1"), settings(A="2")),
        (settings(API_TOKEN="x"), settings()),
        (settings(API_TOKEN="x"), settings(OTHER_TOKEN="x")),
        ({**TASK, "resourceFiles": [{"httpUrl": "https://x/f"}, {"httpUrl": "https://x/g"}]},
         {**TASK, "resourceFiles": [{"httpUrl": "https://x/g"}, {"httpUrl": "https://x/f"}]}),
        ({**TASK, "resourceFiles": [{"httpUrl": "https://x/f?sig=a"}]},
         {**TASK, "resourceFiles": [{"httpUrl": "https://x/g?sig=a"}]}),
        ({**TASK, "resourceFiles": [{"httpUrl": "https://x/f?v=1"}]},
         {**TASK, "resourceFiles": [{"httpUrl": "https://x/f?v=2"}]}),
    ],
)  # fmt: skip
def test_tasks_that_differ_have_two_marks(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert mark(one) != mark(other)


def test_a_task_without_constraints_has_the_retries_of_its_job() -> None:
    limited = {**TASK, "constraints": {"maxTaskRetryCount": 2}}
    assert mark(TASK, 2) == mark(limited)
    assert mark(TASK, 1) != mark(limited)
    assert mark({**TASK, "constraints": {"maxTaskRetryCount": 3}}, 2) != mark(limited)
