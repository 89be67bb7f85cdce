"""`run --reuse`: a pool is made once, used while it is as planned, and left standing with what it costs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from .conftest import Shell, pool_file

pytestmark = [pytest.mark.process, pytest.mark.slow]
POOL = pool_file(
    "p",
    "additional_node_prep: {environment_variables: {A_TOKEN: hidden-word}, commands: {pre: ['true']}}",
    vm_count="{dedicated: 1, low_priority: 1}",
)
JOBS = """\
job_specifications:
- id: j
  tasks:
  - {id: t, source: src, command: 'python3 $AZ_BATCH_TASK_SHARED_DIR/say.py'}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    place = tmp_path / "recipe"
    (place / "src").mkdir(parents=True)
    (place / "pool.yaml").write_text(POOL, encoding="utf-8")
    (place / "jobs.yaml").write_text(JOBS, encoding="utf-8")
    (place / "src" / "say.py").write_text("print('first')\n", encoding="utf-8")
    return place


def test_an_edited_script_runs_on_the_pool_that_stands(batchtrain: Shell, recipe: Path) -> None:
    made = batchtrain("run", str(recipe), "--local", "--reuse")
    assert "added pool p" in made.stderr
    assert made.stdout.splitlines() == ["first"]
    assert re.search(r"left as it is: pool p\n  delete: \S*batchtrain pool del p --local\n", made.stderr)
    (recipe / "src" / "say.py").write_text("print('second')\n", encoding="utf-8")
    again = batchtrain("run", str(recipe), "--local", "--reuse")
    assert "added pool" not in again.stderr
    assert "pool p exists, matches the plan, and is used" in again.stderr
    assert again.stdout.splitlines() == ["second"]
    assert batchtrain("jobs", "list", "--local", "-o", "json").stdout.strip() == "[]"


def test_a_pool_that_stands_has_no_nodes_after_its_idle_time_and_the_next_run_brings_them_back(
    batchtrain: Shell, recipe: Path
) -> None:
    batchtrain("run", str(recipe), "--local", "--reuse", "--idle", "5m")
    batchtrain("emulator", "clock", "--step")
    assert standing(batchtrain) == 2
    batchtrain("emulator", "clock", "--advance", "00:15:00")
    assert standing(batchtrain) == 0
    batchtrain("emulator", "clock", "--scale", "300")
    again = batchtrain("run", str(recipe), "--local", "--reuse", "--idle", "10m")
    assert "pool p has no nodes now" in again.stderr
    assert again.stdout.splitlines() == ["first"]


def standing(batchtrain: Shell) -> int:
    [pool] = json.loads(batchtrain("pool", "list", "--local", "-o", "json").stdout)
    return int(pool["dedicated"]) + int(pool["spot"])
