"""The module that names the best task of a sweep, and the tasks that it comes with."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batchtrain.errors import PlanError
from batchtrain.runtime import batchtrain_sweep as sweep
from tests.unit.plan.jobs import plan, sent_task
from tests.unit.plan.pools import WINDOWS


def wrote(directory: Path, task: str, text: str = "", **result: Any) -> None:
    (directory / task).mkdir()
    (directory / task / "result.json").write_text(text or json.dumps(result))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Three results with a value, one without, and one that is not a number."""
    wrote(tmp_path, "a", parameters={"lr": 0.1}, accuracy=0.5, loss=3)
    wrote(tmp_path, "b", parameters={"lr": 0.2, "net": "big, deep"}, accuracy=0.9, loss=1.25)
    wrote(tmp_path, "c", parameters={"lr": 0.3}, accuracy=0.7, loss=2)
    wrote(tmp_path, "d", parameters={"lr": 0.4})
    wrote(tmp_path, "e", '{"parameters": {"lr": 0.5}, "accuracy": NaN, "loss": NaN}')
    return tmp_path


@pytest.mark.parametrize(
    ("metric", "highest", "order"),
    [("accuracy", None, "bcade"), ("accuracy", False, "acbde"), ("loss", None, "bcade"), ("loss", True, "acbde")],
)
def test_the_best_value_is_first_and_tasks_without_one_are_last(
    results: Path, metric: str, highest: bool | None, order: str
) -> None:
    assert "".join(row.task for row in sweep.results(str(results), metric, highest)) == order


def test_the_table_has_a_column_for_each_parameter(results: Path) -> None:
    path = results / "output" / "sweep.csv"
    sweep.write_csv(sweep.results(str(results), "accuracy"), "accuracy", str(path))
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[:3] == [["task", "accuracy", "lr", "net"], ["b", "0.9", "0.2", "big, deep"], ["c", "0.7", "0.3", ""]]
    assert len(rows) == 6


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", sweep.__file__, *words], capture_output=True, text=True, check=False
    )


def test_the_command_prints_the_best_ones(results: Path) -> None:
    done = ran(str(results), "--metric", "accuracy", "--most", "2", "--csv", str(results / "sweep.csv"))
    assert done.stdout.splitlines() == [
        "5 results",
        '0.9 {"lr": 0.2, "net": "big, deep"}',
        '0.7 {"lr": 0.3}',
        'best {"lr": 0.2, "net": "big, deep"} accuracy 0.9',
    ]
    assert (results / "sweep.csv").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is no result.json below it"),
        ('{"loss": 1}', "no result.json below it has a number `accuracy`"),
        ('{"accuracy"', "result.json is no result of a task: "),
        ("[1]", "result.json is no result of a task: "),
    ],
)
def test_the_command_names_what_is_wrong_with_the_results(tmp_path: Path, text: str, words: str) -> None:
    if text:
        wrote(tmp_path, "a", text)
    done = ran(str(tmp_path), "--metric", "accuracy")
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr


COMMAND = {"command": "python -m batchtrain_sweep results --metric accuracy"}


@pytest.mark.parametrize("task", [{}, {"multi_instance": {"num_instances": 2, "pytorch": {}}}], ids=["alone", "gang"])
def test_the_module_comes_with_a_task_whose_command_names_it(task: dict[str, Any]) -> None:
    ((_, text),) = plan(task={**COMMAND, **task}).launch
    assert text.count("export PYTHONPATH=") == 1
    assert "python/batchtrain_sweep.py" in text


def test_the_module_comes_with_no_other_task() -> None:
    assert "launch.sh" in sent_task(plan(task=COMMAND))["commandLine"]
    assert "launch.sh" not in sent_task(plan(task={"command": "python -m sweep"}))["commandLine"]


def test_the_module_is_for_linux_nodes() -> None:
    windows = {"vm_configuration": {"platform_image": WINDOWS}, "inter_node_communication_enabled": False}
    with pytest.raises(PlanError, match="batchtrain_sweep"):
        plan(task=COMMAND, pool=windows)
