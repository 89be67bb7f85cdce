"""`config plan`, `config plan --diff` and `config explain` as a person starts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Shell

POOL = """\
pool_specification:
  id: p
  vm_size: STANDARD_D2S_V5
  vm_count: {dedicated: 1}
  vm_configuration: {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}
"""
JOBS = """\
job_specifications:
- id: j
  max_task_retries: 1
  tasks:
  - {id: a, command: echo a, max_wall_time: '00:10:00'}
  - {command: echo b}
"""


@pytest.fixture
def small(batchtrain: Shell, tmp_path: Path) -> Shell:
    """The command line, in a directory with a small recipe."""
    (tmp_path / "pool.yaml").write_text(POOL)
    (tmp_path / "jobs.yaml").write_text(JOBS)
    return batchtrain


def test_a_plan_ends_with_what_an_hour_of_the_pool_is(small: Shell, tmp_path: Path) -> None:
    assert "an hour of pool p is 1 node hours of STANDARD_D2S_V5" in small("config", "plan").stderr
    (tmp_path / "catalog.yaml").write_text("prices: [{region: westeurope, dedicated: {Standard_D2s_v5: 0.12}}]\n")
    assert "an hour of pool p costs 0.12 USD in westeurope" in small("config", "plan").stderr
    assert json.loads(small("config", "plan", "-o", "json").stdout)["cost"]["hour"] == 0.12
    assert json.loads(small("config", "plan", "--local", "-o", "json").stdout)["cost"]["hour"] is None


def test_explain_tells_every_decision_as_json(small: Shell) -> None:
    told = json.loads(small("config", "explain", "-o", "json").stdout)
    assert {item["rule"] for item in told["decisions"]} == {"user-identity"}
    assert told["decisions"][0]["source"]


def test_explain_takes_the_directory_first_as_the_other_commands_do(small: Shell, tmp_path: Path) -> None:
    orders = (str(tmp_path), "user_identity"), ("user_identity", str(tmp_path))
    first, last = (small("config", "explain", *order).stdout for order in orders)
    assert first == last
    assert "user_identity = " in first


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
