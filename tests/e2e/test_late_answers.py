"""What the commands that wait print and exit with when answers are lost or a deadline passes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow]

POOL = """\
pool_specification:
  id: p
  vm_configuration: {platform_image: {publisher: microsoft-dsvm, offer: ubuntu-hpc, sku: '2404'}}
  vm_size: STANDARD_D2S_V5
  vm_count: {dedicated: 1}
"""
JOBS = "job_specifications: [{id: j, tasks: [{id: t, command: COMMAND}]}]\n"


@pytest.fixture
def recipe(tmp_path: Path, batchtrain: Any) -> Path:
    """A recipe of one task, and a running emulator."""
    (tmp_path / "pool.yaml").write_text(POOL, encoding="utf-8")
    task(tmp_path, "echo hello")
    batchtrain("emulator", "start", "--port", "0")
    return tmp_path


def task(recipe: Path, command: str) -> None:
    (recipe / "jobs.yaml").write_text(JOBS.replace("COMMAND", command), encoding="utf-8")


def fault(batchtrain: Any, *words: str) -> None:
    batchtrain("emulator", "fault", "add", *words)


def struck(batchtrain: Any) -> int:
    (row,) = json.loads(batchtrain("emulator", "fault", "list", "-o", "json").stdout)
    return int(row["struck"])


def test_a_run_trains_on_while_answers_are_lost_and_its_pool_is_deleted_at_last(recipe: Path, batchtrain: Any) -> None:
    fault(batchtrain, "drop", "--rate", "0.4", "--seed", "3")
    assert batchtrain("run", str(recipe), "--local").stdout == "hello\n"
    assert struck(batchtrain) > 0
    batchtrain("emulator", "fault", "clear")
    assert json.loads(batchtrain("pool", "list", "--local", "-o", "json").stdout) == []


@pytest.mark.parametrize(("lost", "code"), [(False, 6), (True, 5)])
@pytest.mark.parametrize("words", [("wait",), pytest.param(("logs", "-f"), marks=pytest.mark.slow)])
def test_a_deadline_that_passes_changes_nothing_and_says_how_to_go_on(
    words: tuple[str, ...], lost: bool, code: int, recipe: Path, batchtrain: Any
) -> None:
    task(recipe, "sleep 600")
    batchtrain("pool", "add", str(recipe), "--local")
    batchtrain("jobs", "add", str(recipe), "--local")
    if lost:
        fault(batchtrain, "error")
    said = batchtrain("jobs", words[0], "j", *words[1:], "--local", "--timeout", "1", code=code).stderr
    assert re.search(r"left as it is: job j\n  wait: \S*batchtrain jobs wait j --local\n", said)
    assert re.search(r"  delete: \S*batchtrain jobs del j --local\n", said)
    batchtrain("emulator", "fault", "clear")
    assert json.loads(batchtrain("jobs", "tasks", "j", "--local", "-o", "json").stdout)[0]["state"] != "completed"


def test_a_pool_that_was_not_ready_in_time_is_waited_for_by_the_command_that_was_printed(
    recipe: Path, batchtrain: Any
) -> None:
    batchtrain("emulator", "start", "--port", "0")
    fault(batchtrain, "allocation-slow", "--seconds", "600")
    said = batchtrain("pool", "add", str(recipe), "--local", "--timeout", "0", code=6).stderr
    found = re.search(r"wait: \S*batchtrain (pool wait p --local)\n", said)
    assert found is not None
    batchtrain("emulator", "clock", "--advance", "00:11:00")
    assert "idle" in batchtrain(*found[1].split()).stdout
    batchtrain("pool", "del", "p", "--local", "-y")


def test_a_truncated_answer_is_a_sentence(recipe: Path, batchtrain: Any) -> None:
    task(recipe, "sleep 600")
    batchtrain("pool", "add", str(recipe), "--local")
    batchtrain("jobs", "add", str(recipe), "--local")
    fault(batchtrain, "truncate")
    said = batchtrain("jobs", "wait", "j", "--local", "--timeout", "1", code=5).stderr
    assert re.search(
        r"^batchtrain: look at job j: 127.0.0.1:\d+ does not answer: the answer was truncated$", said, re.M
    )
