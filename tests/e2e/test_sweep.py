"""A sweep's tasks beside one another: read from their nodes, then from the run directory when the job is gone."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from .conftest import Shell

pytestmark = pytest.mark.process
POOL = """\
pool_specification:
  id: p
  vm_configuration: {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}
  vm_size: STANDARD_D2S_V5
  vm_count: {dedicated: 1}
"""
JOBS = """\
job_specifications:
- id: j
  tasks:
  - {id: merge, command: 'true'}
  - task_factory: {grid: {lr: ['0.003', '0.005', '0.004'], net: [a]}}
    command: 'echo "accuracy={lr} loss={lr}"'
"""


@pytest.fixture
def local(batchtrain: Shell, tmp_path: Path) -> Shell:
    (tmp_path / "pool.yaml").write_text(POOL, encoding="utf-8")
    (tmp_path / "jobs.yaml").write_text(JOBS, encoding="utf-8")
    batchtrain.environment["BATCHTRAIN_LOCAL"] = "1"
    return batchtrain


@pytest.mark.slow
def test_a_sweep_is_read_from_the_output_of_its_tasks(local: Shell) -> None:
    local("pool", "add")
    local("jobs", "add")
    local("jobs", "wait")
    table = local("jobs", "sweep", "j", "--metric", "accuracy").stdout.splitlines()
    assert [line.split() for line in table] == [
        ["task", "accuracy", "lr", "net", "state"],
        ["task-00001", "0.005", "0.005", "a", "succeeded"],
        ["task-00002", "0.004", "0.004", "a", "succeeded"],
        ["task-00000", "0.003", "0.003", "a", "succeeded"],
    ]
    rows = list(csv.DictReader(local("jobs", "sweep", "j", "--metric", "loss", "-o", "csv").stdout.splitlines()))
    assert [row["task"] for row in rows] == ["task-00000", "task-00002", "task-00001"]
    missing = local("jobs", "sweep", "j", "--metric", "acuracy", code=3).stderr
    assert "job j has no metric acuracy; no task has printed one" in missing


@pytest.mark.slow
def test_a_sweep_whose_job_is_gone_is_read_from_its_run(local: Shell) -> None:
    local("run", ".")
    rows = json.loads(local("jobs", "sweep", "j", "--metric", "accuracy", "--min", "-o", "json").stdout)
    assert rows[0]["parameters"] == {"lr": 0.003, "net": "a"}
    assert [row["value"] for row in rows] == [0.003, 0.004, 0.005]
    assert "there is no job k and no run of it" in local("jobs", "sweep", "k", "--metric", "x", code=3).stderr
