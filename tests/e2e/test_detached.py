"""`run --detach` and `runs fetch`: a run whose client is gone, completed by another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import azurite
from tests.bench.endings import POOL
from tests.waiting import until

from .conftest import Shell

pytestmark = [pytest.mark.process, pytest.mark.slow]

JOBS = """\
job_specifications:
- id: j
  tasks:
  - {id: t, command: 'echo step=1 loss=0.5; mkdir output; echo model >output/model.pt; exit CODE'}
"""


@pytest.fixture
def recipe(batchtrain: Shell) -> Path:
    azurite.require()
    (batchtrain.cwd / "pool.yaml").write_text(POOL, encoding="utf-8")
    return batchtrain.cwd


def content(run: Path) -> dict[str, bytes]:
    files = (path for path in run.rglob("*") if path.is_file() and path.name != "lease.json")
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize(("code", "state"), [(0, "completed"), (3, "failed")])
def test_another_client_completes_the_run_as_the_first_one_does(
    batchtrain: Shell, recipe: Path, code: int, state: str
) -> None:
    (recipe / "jobs.yaml").write_text(JOBS.replace("CODE", str(code)), encoding="utf-8")
    said = batchtrain("run", ".", "--local", "--detach", "--max-duration", "30m", "--runs-dir", "first")
    assert "job j ends 30 min after its creation at the latest" in said.stderr
    until(lambda: batchtrain("pool", "list", "--local", "-o", "json").stdout.strip() == "[]")
    first = (recipe / "first" / "latest").resolve()
    assert json.loads((first / "run.json").read_bytes())["state"] == "detached"
    batchtrain("runs", "fetch", first.name, "--local", "--runs-dir", "other")
    other = recipe / "other" / first.name
    record = json.loads((other / "run.json").read_bytes())
    assert (record["state"], record["results"]) == (state, "complete")
    assert record["summary"]["loss"]["last"] == 0.5
    assert (other / "outputs/t/model.pt").read_bytes() == b"model\n"
    before = content(other)
    batchtrain("runs", "fetch", first.name, "--local", "--runs-dir", "other")
    assert content(other) == before
    batchtrain("runs", "fetch", "--local", "--runs-dir", "first")
    assert content(first) == before


def test_a_colleague_follows_a_run_and_has_the_same_directory(batchtrain: Shell, recipe: Path) -> None:
    (recipe / "jobs.yaml").write_text(JOBS.replace("echo step", "sleep 2; echo step").replace("CODE", "3"))
    batchtrain("run", ".", "--local", "--detach", "--runs-dir", "first")
    first = (recipe / "first" / "latest").resolve()
    [row] = json.loads(batchtrain("runs", "list", "--account", "--local", "-o", "json").stdout)
    assert (row["run"], row["job"]) == (first.name, "j")
    elsewhere = {"HOME": str(batchtrain.cwd / "home"), "XDG_CONFIG_HOME": ""}
    attached = batchtrain(
        "runs", "attach", first.name[-4:], "--local", "--runs-dir", "other", code=10, environment=elsewhere
    )
    assert attached.stdout.count("step=1 loss=0.5") == 1
    assert json.loads((recipe / "other" / first.name / "run.json").read_bytes())["state"] == "failed"
    batchtrain("runs", "fetch", "--local", "--runs-dir", "first")
    assert content(recipe / "other" / first.name) == content(first)


def test_a_run_is_stopped_from_another_machine(batchtrain: Shell, recipe: Path) -> None:
    (recipe / "jobs.yaml").write_text(JOBS.replace("exit CODE", "sleep 86400"))
    batchtrain("run", ".", "--local", "--detach", "--runs-dir", "first")
    until(lambda: batchtrain("jobs", "tasks", "j", "--local", "-o", "json").stdout.count('"running"') > 0)
    batchtrain("runs", "stop", "--local", "--runs-dir", "other", "-y")
    until(lambda: batchtrain("pool", "list", "--local", "-o", "json").stdout.strip() == "[]")
    batchtrain("runs", "fetch", "--local", "--runs-dir", "other")
    [run] = (path for path in (recipe / "other").iterdir() if not path.is_symlink() and path.is_dir())
    assert json.loads((run / "run.json").read_bytes())["state"] == "failed"


def test_a_run_that_is_not_detached_is_followed_by_no_second_command(batchtrain: Shell, recipe: Path) -> None:
    (recipe / "jobs.yaml").write_text(JOBS.replace("CODE", "0"))
    batchtrain("run", ".", "--local")
    said = batchtrain("runs", "attach", "--local", code=3).stderr
    assert f"has ended; its results are in {recipe / 'runs'}" in said
