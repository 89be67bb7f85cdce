"""A failed task's output cannot move the cursor of the terminal that shows its failure."""

from __future__ import annotations

import pytest

from batchtrain.cli import failures
from batchtrain.cli.options import Settings
from batchtrain.records.rank_end import RankEnd
from batchtrain.records.seen import TaskSeen
from batchtrain.service.failed import failed

STDERR = (
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    raise ValueError(text)",
    "ValueError: \x1b[2Jgone",
    "epoch 1\repoch 2",
)


def test_the_last_lines_of_a_failed_task_are_not_those_of_its_mpi_launcher() -> None:
    noise = ("=   EXIT CODE: 3", "[mpiexec@n1] main (mpiexec/mpiexec.c:270): process manager error")
    task = TaskSeen("train", "completed", "failure", exit_code=3, node="n")
    assert failed("job", task, ("the data is empty", *noise), RankEnd()).lines == ("the data is empty",)


def test_escape_sequences_of_a_failed_task_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    error = failed("job", TaskSeen("train", "completed", "failure", exit_code=1, node="n"), STDERR, RankEnd())
    assert failures.report(error, Settings()) == error.exit_code
    printed = capsys.readouterr().err
    assert "\x1b" not in printed and "\r" not in printed
    assert "ValueError: " in printed and "gone" in printed and "  epoch 2\n" in printed
