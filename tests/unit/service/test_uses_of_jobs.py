"""Whether a run still uses a job: by the state of the run, of the job, and of its tasks."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.service import observe
from tests.unit.service.test_retry import EMPTY, Service, refusal

OPEN, ENDED = (200, {"value": [{"id": "t", "state": "active"}]}), (200, EMPTY)


def job(state: str) -> tuple[int, Any]:
    return 200, {"id": "j", "state": state, "poolInfo": {}}


@pytest.mark.parametrize(
    ("run_state", "answers", "is_used"),
    [
        ("running", [], True),
        ("detached", [job("active")], True),
        ("detached", [job("terminating")], False),
        ("lost", [job("deleting")], False),
        ("lost", [job("active"), ENDED], False),
        ("", [job("active"), ENDED], False),
        ("lost", [refusal("JobNotFound", 404)], False),
        ("lost", [job("active"), OPEN, job("active"), (200, {"taskCounts": {"running": 1}}), job("active")], True),
        ("lost", [job("disabled"), OPEN, job("disabled"), (200, {"taskCounts": {"active": 1}}), OPEN], True),
    ],
)
def test_a_job_is_used_while_its_run_or_a_task_of_it_may_go_on(
    run_state: str, answers: list[Any], is_used: bool
) -> None:
    assert observe.is_used(Service(*answers).client, "j", run_state) is is_used
