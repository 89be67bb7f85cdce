"""Which tasks list the package versions of their environment, and with which Python."""

from __future__ import annotations

from typing import Any

import pytest

from batchtrain.config.travel import Source
from batchtrain.launchers.launch import File
from tests.unit.plan.jobs import plan, sent_task

SOURCES = {"src": Source((File("train.py", b"1"),))}
TO = '-s "$AZ_BATCH_TASK_SHARED_DIR/.batchtrain/package_versions.py" "$AZ_BATCH_TASK_DIR/.batchtrain-packages.json"'
APPTAINER: dict[str, Any] = {"singularity_image": "docker://x"}


def line(**task: Any) -> str:
    return str(sent_task(plan(task={"source": "src", **task}, sources=SOURCES))["commandLine"])


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"command": "/opt/env/bin/python -u train.py"}, f"(/opt/env/bin/python {TO} "),
        ({"command": "bash train.sh"}, f"(python3 {TO} "),
        ({"command": "python x", "multi_instance": {"num_instances": 2, "pytorch": {}}}, f"(python {TO} "),
        ({"command": "python x", **APPTAINER}, f'apptainer.sh" python {TO} '),
    ],
)
def test_a_task_with_a_source_lists_its_packages_with_the_python_of_its_command(
    task: dict[str, Any], words: str
) -> None:
    assert f"{words}</dev/null >/dev/null 2>&1 &); " in line(**task)


@pytest.mark.parametrize(
    "task",
    [
        {"source": None, "multi_instance": {"num_instances": 2, "pytorch": {}}},
        {"multi_instance": {"num_instances": 2, "pytorch": {}, "pre_execution_command": "source env"}},
        {**APPTAINER, "singularity_execution": {"cmd": "run"}},
    ],
    ids=["no source", "prepared", "own command"],
)
def test_other_tasks_list_none(task: dict[str, Any]) -> None:
    assert "package_versions" not in line(**task)
