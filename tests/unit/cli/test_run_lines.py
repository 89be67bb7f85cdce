"""The lines with which `run` begins."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from batchtrain.cli import run
from batchtrain.config.types import Job


@pytest.mark.parametrize(
    ("tasks", "merge", "text"),
    [
        ([{"id": "a"}], False, "task a"),
        ([{"id": "a"}], True, "2 tasks"),
        ([{"task_factory": {"repeat": 9}}, {}], False, "10 tasks"),
        ([{"task_factory": {"repeat": 10}}], False, "10 tasks"),
        ([{"task_factory": {"custom": {"module": "m"}}}, {}], False, "tasks with generated ids"),
    ],
)
def test_a_job_has_the_tasks_that_its_factories_make(tasks: list[dict[str, Any]], merge: bool, text: str) -> None:
    settings = {"id": "j", "tasks": [{"command": "x", **task} for task in tasks]}
    job = msgspec.convert(settings | ({"merge_task": {"command": "x"}} if merge else {}), Job)
    assert run._tasks_of(job) == text
