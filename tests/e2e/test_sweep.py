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
TASK = """\
  - id: t{number}
    command: 'echo "accuracy=0.{number} loss=0.{number}"'
    environment_variables: {{BATCHTRAIN_PARAMETERS: '{{"lr": 0.00{number}, "net": "a{number}"}}'}}
"""
JOBS = "job_specifications:\n- id: j\n  tasks:\n  - {id: merge, command: 'true'}\n" + "".join(
    TASK.format(number=number) for number in (3, 5, 4)
)


@pytest.fixture
def local(batchtrain: Shell, tmp_path: Path) -> Shell:
    (tmp_path / "pool.yaml").write_text(POOL, encoding="utf-8")
    (tmp_path / "jobs.yaml").write_text(JOBS, encoding="utf-8")
    batchtrain.environment.update(BATCHTRAIN_LOCAL="1", BATCHTRAIN_IGNORE="environment-launcher")
    return batchtrain


def test_a_sweep_is_read_from_the_output_of_its_tasks(local: Shell) -> None:
    local("pool", "add")
    local("jobs", "add")
    local("jobs", "wait")
    table = local("jobs", "sweep", "j", "--metric", "accuracy").stdout.splitlines()
    assert [line.split() for line in table] == [
        ["task", "accuracy", "lr", "net", "state"],
        ["t5", "0.5", "0.005", "a5", "completed"],
        ["t4", "0.4", "0.004", "a4", "completed"],
        ["t3", "0.3", "0.003", "a3", "completed"],
    ]
    rows = list(csv.DictReader(local("jobs", "sweep", "j", "--metric", "loss", "-o", "csv").stdout.splitlines()))
    assert [row["task"] for row in rows] == ["t3", "t4", "t5"]
    missing = local("jobs", "sweep", "j", "--metric", "acuracy", code=3).stderr
    assert "job j has no metric acuracy; no task has printed one" in missing


def test_a_sweep_whose_job_is_gone_is_read_from_its_run(local: Shell) -> None:
    local("run", ".")
    rows = json.loads(local("jobs", "sweep", "j", "--metric", "accuracy", "--min", "-o", "json").stdout)
    assert rows[0] == {"task": "t3", "state": "completed", "parameters": {"lr": 0.003, "net": "a3"}, "value": 0.3}
    assert "there is no job k and no run of it" in local("jobs", "sweep", "k", "--metric", "x", code=3).stderr
