"""A failed task in one sentence: where it failed, its exception or exit code, and what that means."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.errors import JobExpired, JobStopped
from batchtrain.records import Failure, Job, Task
from batchtrain.records.failure import EXIT_CODE
from batchtrain.records.jobs import EXPIRED
from batchtrain.records.rank_end import RankEnd
from batchtrain.service.failed import MEANINGS, ended_early, failed

RAISED = ("Traceback (most recent call last):", "ValueError: no rows")
LOST = Failure("ResourceFileMissing", "There is no blob.")
OF_CODE = Failure(EXIT_CODE, "The task exited with an exit code representing a failure")
NODE = {"node": "n", "failure": OF_CODE}
KILLED = MEANINGS[137]


@pytest.mark.parametrize(
    ("task", "lines", "end", "text"),
    [
        ({**NODE, "exit_code": 3}, (), RankEnd(), "on node n with exit code 3"),
        ({**NODE, "exit_code": 137}, (), RankEnd(), f"on node n with exit code 137 ({KILLED})"),
        ({**NODE, "exit_code": 137}, ("batchtrain: no GPU",), RankEnd(), "on node n with exit code 137: no GPU"),
        ({**NODE, "exit_code": 137}, RAISED, RankEnd(), "on node n: ValueError: no rows (exit code 137)"),
        ({**NODE, "exit_code": 137}, (), RankEnd("rank 3", 3, "m", signal=9),
         f": rank 3 on node m was killed by signal 9 ({KILLED})"),
        ({**NODE, "exit_code": 1}, RAISED, RankEnd("rank 3", node="m", signal=6),
         ": rank 3 on node m: ValueError: no rows (then killed by signal 6)"),
        ({**NODE, "exit_code": 1}, RAISED, RankEnd("rank 3", exit_code=1),
         ": rank 3 on an unknown node: ValueError: no rows (exited with code 1)"),
        ({"exit_code": 1, "failure": LOST}, (), RankEnd(), f"on node (none) with exit code 1 ({LOST})"),
        ({"exit_code": 1, "failure": LOST}, ("bye",), RankEnd(), "on node (none) with exit code 1"),
        ({"failure": LOST}, (), RankEnd(), f"on node (none) with {LOST}"),
        ({}, (), RankEnd(), "on node (none) with no exit code"),
    ],
)  # fmt: skip
def test_a_failure_is_told_once(task: dict[str, Any], lines: tuple[str, ...], end: RankEnd, text: str) -> None:
    error = failed("j", Task("t", "completed", "failure", **task), lines, end)
    assert str(error).removeprefix("task j/t failed").strip() == text


@pytest.mark.parametrize(("seconds", "limit"), [(None, ""), (60.0, " (60 s)")])
def test_a_job_that_a_user_terminated_is_told_from_one_that_reached_its_limit(
    seconds: float | None, limit: str
) -> None:
    stopped, expired = (ended_early(Job("j", reason=reason, wall_clock=seconds)) for reason in ("enough", EXPIRED))
    assert type(stopped) is JobStopped and "terminated by a user" in str(stopped)
    assert type(expired) is JobExpired and expired.finding is not None
    assert expired.finding.cause == f"the job reached its limit of run time{limit}"
