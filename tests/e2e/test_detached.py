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
