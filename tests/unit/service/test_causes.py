"""Why a task failed, read from its stderr."""

from __future__ import annotations

import pytest

from batchtrain.service.causes import Cause, cause, lines_of

NODE = "tvmps_" + "732a" * 16 + "_d"
PLACE = f"on node {NODE} (10.0.0.5)"
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    1 / 0",
    "ZeroDivisionError: division by zero",
)
ABORTED = (
    *TRACEBACK,
    "Abort(1) on node 3 (rank 3 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process 3",
    f"batchtrain: rank 3 {PLACE} was killed by signal 6",
    f"batchtrain: rank 3 {PLACE} exited with code 1 through MPI_Abort",
)


def test_a_task_without_a_gang_has_its_exception() -> None:
    assert cause(("a warning", *TRACEBACK), 1) == Cause(exception="ZeroDivisionError: division by zero")


def test_the_innermost_line_of_the_task_s_own_files_is_where_an_exception_was_raised() -> None:
    directory = "/mnt/batch/tasks/workitems/digits/job-1/train"
    own = [f'  File "{directory}/src/{file}", line {line}, in x' for file, line in (("train.py", 7), ("net.py", 3))]
    library = '  File "/usr/lib/python3/site-packages/torch/nn.py", line 9, in y'
    assert cause((TRACEBACK[0], *own, library, "ValueError: no"), 1).raised == "src/net.py:3"
    assert cause((TRACEBACK[0], library, "ValueError: no"), 1).raised == ""


def test_of_two_ends_of_one_rank_that_of_the_exit_code_is_named() -> None:
    found = cause(ABORTED, 1)
    assert (found.who, found.rank, found.node) == ("rank 3", 3, NODE)
    assert (found.ending, found.signal) == ("exited with code 1 through MPI_Abort", None)
    assert found.exception == "ZeroDivisionError: division by zero"


def test_a_process_that_was_aborted_after_its_exception_has_both() -> None:
    found = cause((*TRACEBACK, f"batchtrain: rank 3 {PLACE} was killed by signal 6"), 134)
    assert (found.exception, found.signal) == ("ZeroDivisionError: division by zero", 6)


@pytest.mark.parametrize("prefix", ["[1:3] ", "[1:torchrun 1] [rank3]: ", "[rank3]: "])
def test_the_exception_is_that_of_the_rank_that_failed_first(prefix: str) -> None:
    others = [f"[0:1] {line}" for line in (*TRACEBACK[:3], "ConnectionError: lost a peer")]
    own = [prefix + line for line in TRACEBACK]
    lines = (*own, *others, f"batchtrain: rank 3 {PLACE} exited with code 1")
    assert cause(lines, 1).exception == "ZeroDivisionError: division by zero"


def test_an_exception_that_another_one_caused_ends_the_chain() -> None:
    during = ("", "During handling of the above exception, another exception occurred:", "")
    last = (*TRACEBACK[:3], "RuntimeError: training failed")
    assert cause((*TRACEBACK, *during, *last, "bye"), 1).exception == "RuntimeError: training failed"


def test_without_a_report_and_a_traceback_nothing_is_known() -> None:
    assert cause(("some words",), 3) == Cause()


def test_a_process_without_a_rank_is_named_too() -> None:
    found = cause((f"batchtrain: scheduler {PLACE} exited with code 4",), 4)
    assert (found.who, found.rank, found.ending) == ("scheduler", None, "exited with code 4")


@pytest.mark.parametrize(
    ("who", "text"),
    [
        ("rank 3", ["of its label", "of its number", "of PyTorch", "of any process"]),
        ("rank 0", ["of another", "of any process"]),
        ("the launcher", ["of the launcher", "of any process"]),
        ("", ["of any process"]),
    ],
)
def test_the_lines_of_one_process_have_no_prefix_and_no_report(who: str, text: list[str]) -> None:
    lines = [
        "[1:rank 3] of its label",
        "[1:3] of its number",
        "[rank3]: of PyTorch",
        "[0:rank 0] of another",
        "[0:the launcher] of the launcher",
        "of any process",
        "batchtrain: rank 3 on node n (10.0.0.4) exited with code 7",
    ]
    assert list(lines_of(lines, Cause(who=who))) == text
