"""Jobs and tasks that exist are listed, ended, run again, moved, counted and tidied up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until

from .conftest import Shell, pool_file

pytestmark = pytest.mark.process
JOBS = """\
job_specifications:
- id: j
  tasks:
  - {id: good, command: 'true'}
  - {id: bad, command: 'echo the reason >&2; test -e $AZ_BATCH_NODE_SHARED_DIR/mended'}
  - {id: mend, command: 'touch $AZ_BATCH_NODE_SHARED_DIR/mended'}
- id: long
  tasks:
  - {id: first, command: 'sleep 1000'}
  - {id: second, command: 'sleep 1000'}
"""


@pytest.fixture
def local(batchtrain: Shell, tmp_path: Path) -> Shell:
    """The command line with a pool of one node, and both jobs."""
    place = tmp_path / "recipe"
    place.mkdir()
    for name in ("p", "q"):
        (place / f"{name}.yaml").write_text(pool_file(name), encoding="utf-8")
    (place / "jobs.yaml").write_text(JOBS, encoding="utf-8")
    batchtrain.environment.update(BATCHTRAIN_LOCAL="1", BATCHTRAIN_CONFIGDIR=str(place))
    batchtrain.environment["BATCHTRAIN_POOL_FILE"] = str(place / "p.yaml")
    batchtrain("pool", "add")
    batchtrain("jobs", "add")
    return batchtrain


def document(shell: Shell, *words: str, code: int = 0) -> Any:
    return json.loads(shell(*words, "-o", "json", code=code).stdout)


def ids(shell: Shell, job: str, *words: str) -> list[str]:
    return [task["id"] for task in document(shell, "jobs", "tasks", job, *words)]


@pytest.mark.slow
def test_failed_tasks_are_found_explained_and_run_again(local: Shell) -> None:
    assert "task j/bad failed" in local("jobs", "wait", "j", code=10).stderr
    assert ids(local, "j", "--state", "failed") == ["bad"]
    assert ids(local, "j", "--tail", "2") == ["bad", "mend"]
    assert (
        local("jobs", "tasks", "j", "--state", "succeeded", "--limit", "1", "-o", "csv")
        .stdout.splitlines()[1]
        .startswith("good,completed,success,0,")
    )
    stats = local("jobs", "stats", "j").stdout
    assert "3 tasks: 2 succeeded, 1 failed" in stats
    assert "1 failed: exit code 1, for example bad\n  task j/bad failed" in stats
    assert "jobs resubmit j --failed" in local("jobs", "resubmit", "j", code=2).stderr
    assert document(local, "jobs", "resubmit", "j", "--failed")["reactivated"] == ["bad"]
    local("jobs", "task", "term", "long", "--state", "running", "-y")
    local("jobs", "task", "term", "long", "second", "-y")
    local("jobs", "wait", "j")
    refused = local("jobs", "task", "reactivate", "j", "good", "none", code=4).stderr
    assert "2 of 2 tasks of job j were not reactivated" in refused
    assert "(TaskSucceeded)" in refused
    local("jobs", "term", "j", "-y")
    refused = local("jobs", "resubmit", "j", "--failed", code=4).stderr  # it may be terminating still
    assert "the service runs tasks again only in a job that continues" in refused


@pytest.mark.slow
def test_tasks_are_ended_and_deleted_after_a_question(local: Shell) -> None:
    assert "Terminate task first of job long on the embedded Azure Batch? There is no terminal" in (
        local("jobs", "task", "term", "long", "first", code=2).stderr
    )
    assert document(local, "jobs", "task", "term", "long", "second", "-y")["terminated"] == ["second"]
    assert document(local, "jobs", "task", "term", "long", "second", "-y")["unchanged"] == ["second"]
    assert "batchtrain jobs tasks long --local` lists the tasks" in (
        local("jobs", "task", "del", "long", "none", "-y", code=3).stderr
    )
    assert document(local, "jobs", "task", "del", "long", "--state", "failed", "-y")["deleted"] == ["second"]
    assert ids(local, "long") == ["first"]
    assert "choose them with --state" in local("jobs", "task", "del", "long", code=2).stderr


@pytest.mark.slow
def test_a_job_moves_to_another_pool_and_completed_jobs_are_tidied_up(local: Shell) -> None:
    assert "job long has pool p already" in local("jobs", "migrate", "long", "p", code=2).stderr
    assert "(PoolNotFound)" in local("jobs", "migrate", "long", "q", code=3).stderr
    local("pool", "add", "--pool", str(Path(local.environment["BATCHTRAIN_CONFIGDIR"], "q.yaml")))
    assert document(local, "jobs", "migrate", "long", "q") == {"job": "long", "pool": "q"}
    moved = document(local, "jobs", "show", "long")
    assert (moved["pool"], moved["state"]) == ("q", "active")

    local("jobs", "term", "long", "-y")
    assert "so no task of it can run on pool p" in local("jobs", "migrate", "long", "p", code=4).stderr
    assert document(local, "jobs", "gc", "--older-than", "1h") == []
    until(lambda: bool(document(local, "jobs", "gc", "--older-than", "0s", "--dry-run")))
    assert "Delete 1 completed job with their tasks on the embedded" in (
        local("jobs", "gc", "--older-than", "0s", code=2).stderr
    )
    assert [job["id"] for job in document(local, "jobs", "gc", "--older-than", "0s", "-y")] == ["long"]
    assert [job["id"] for job in document(local, "jobs", "list")] == ["j"]
    assert "is not an age" in local("jobs", "gc", "--older-than", "7x", code=2).stderr
