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


@pytest.mark.parametrize(("words", "lost", "code"), [(("wait",), True, 5), (("logs", "-f"), False, 6)])
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
