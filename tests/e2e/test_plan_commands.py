"""`config plan --diff` as a person starts it."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Shell


def test_a_diff_of_what_does_not_stand_says_that_it_would_be_made(small: Shell) -> None:
    told = small("config", "plan", "--diff", "--local").stdout.splitlines()
    assert told == ["+ pool p: to be made", "+ job j: to be made", "+ task j/a, j/task-00000: to be made"]


@pytest.mark.slow
def test_a_diff_of_what_stands_as_planned_says_so_and_of_what_does_not_says_what(small: Shell) -> None:
    small("pool", "add", "--local")
    small("jobs", "add", "--local")
    told = small("config", "plan", "--diff", "--exit-code", "--local").stdout.splitlines()
    assert told == ["= pool p: as planned", "= job j: as planned", "= task j/a, j/task-00000: as planned"]
    more = ("--set", "pool_specification.vm_count.dedicated=2", "--set", "job_specifications[0].priority=5")
    told = small("config", "plan", "--diff", "--exit-code", "--local", *more, code=11).stdout.splitlines()
    assert "    targetDedicatedNodes: 1 -> 2   (`batchtrain pool resize`)" in told
    assert "    priority: 0 -> 5   (in place (PATCH))" in told
