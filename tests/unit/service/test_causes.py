"""Why a task failed: the end of its rank, and the exception in its stderr."""

from __future__ import annotations

import pytest

from batchtrain.records.rank_end import ENDED_EARLY, ProgramError, RankEnd, first_failure
from batchtrain.service.causes import (
    LONGEST,
    Cause,
    admissible,
    cause,
    failure_of_another,
    lines_of,
    lines_of_no_process,
)

NODE = "tvmps_" + "732a" * 16 + "_d"
PLACE = f"on node {NODE} (10.0.0.5)"
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    1 / 0",
    "ZeroDivisionError: division by zero",
)
RANK_3 = RankEnd("rank 3", 3, NODE, exit_code=1)


def test_a_task_without_a_gang_has_its_exception_and_what_the_launcher_repeats_is_none() -> None:
    alone = Cause(exception="ZeroDivisionError: division by zero", raised="train.py:3")
    assert cause(("a warning", *TRACEBACK), RankEnd()) == alone
    assert cause([f"batchtrain:     {line}" for line in TRACEBACK], RANK_3) == Cause(RANK_3)


@pytest.mark.parametrize(
    "directory",
    ["", "/mnt/batch/tasks/workitems/digits/job-1/train/", "/mnt/batch/tasks/workitems/digits/job-1/train/wd/"],
)
def test_the_innermost_line_of_the_task_s_own_files_is_where_an_exception_was_raised(directory: str) -> None:
    own = [f'  File "{directory}src/{file}", line {line}, in x' for file, line in (("train.py", 7), ("net.py", 3))]
    imports = '  File "<frozen importlib._bootstrap>", line 241, in f'
    library = '  File "/usr/lib/python3/site-packages/torch/nn.py", line 9, in y'
    assert cause((TRACEBACK[0], *own, imports, library, "ValueError: no"), RankEnd()).raised == "src/net.py:3"
    assert cause((TRACEBACK[0], library, "ValueError: no"), RankEnd()).raised == ""


def test_an_exception_that_follows_the_report_is_that_of_a_rank_that_lost_its_peer() -> None:
    report = f"batchtrain: rank 3 {PLACE} exited with code 1"
    lines = ("batchtrain: no mpi4py", *TRACEBACK, report, *TRACEBACK[:3], "ConnectionError: lost a peer")
    assert cause(lines, RANK_3).exception == "ZeroDivisionError: division by zero"


def test_without_a_traceback_the_error_that_the_program_wrote_is_the_exception() -> None:
    end = RankEnd("rank 3", 3, error=ProgramError("error.json", "OSError: no luck\nmore"))
    assert cause(("some words",), end).exception == "OSError: no luck"
    assert cause(TRACEBACK, end).exception == "ZeroDivisionError: division by zero"
    for length, text in ((LONGEST, "x" * LONGEST), (LONGEST + 1, "x" * (LONGEST - 1) + "…")):
        long = RankEnd("rank 3", 3, error=ProgramError(message="x" * length))
        assert cause((), long).exception == text


@pytest.mark.parametrize("prefix", ["[1:3] ", "[1:torchrun 1] [rank3]: ", "[rank3]: "])
def test_the_exception_is_that_of_the_rank_that_failed_first(prefix: str) -> None:
    others = [f"[0:1] {line}" for line in (*TRACEBACK[:3], "ConnectionError: lost a peer")]
    own = [prefix + line for line in TRACEBACK]
    assert cause((*own, *others), RANK_3).exception == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(("raising", "name"), [("3", ""), ("0", "rank 0")])
def test_the_failure_of_another_is_not_that_of_the_process_that_ended_first(raising: str, name: str) -> None:
    lines = [f"[rank{raising}]: {line}" for line in TRACEBACK]
    assert failure_of_another(lines, RANK_3)[0] == name


EARLY = RankEnd("rank 1", 1, "n1", exit_code=0, ending="exited with code 0 before the others", cause=ENDED_EARLY)
LOST = "ConnectionError: Connection reset by peer"


@pytest.mark.parametrize(
    ("lines", "rank", "exception"),
    [
        ((*TRACEBACK[:3], LOST), 1, ""),
        ((LOST,), 1, ""),
        (TRACEBACK, 3, TRACEBACK[-1]),
        (("bye",), 3, ""),
    ],
)
def test_the_first_to_exit_with_0_is_the_cause_only_if_another_one_misses_it(
    lines: tuple[str, ...], rank: int, exception: str
) -> None:
    reason = cause([f"[0:3] {line}" for line in lines], first_failure((RANK_3, EARLY)))
    assert (reason.end.rank, reason.exception, bool(reason.consequence)) == (rank, exception, rank == 1)


def test_what_the_first_to_exit_with_0_raised_is_the_cause_of_the_others_failure() -> None:
    lines = [*(f"[1:1] {line}" for line in TRACEBACK), *(f"[0:3] {line}" for line in (*TRACEBACK[:3], LOST))]
    reason = cause(lines, first_failure((RANK_3, EARLY)))
    assert (reason.end, reason.exception, reason.consequence) == (EARLY, TRACEBACK[-1], f"rank 3: {LOST}")


def test_the_failure_of_a_third_process_is_no_matter_of_the_first_to_exit_with_0() -> None:
    lines = [*(f"[1:2] {line}" for line in TRACEBACK), *(f"[0:3] {line}" for line in (*TRACEBACK[:3], LOST))]
    assert cause(lines, first_failure((RANK_3, EARLY))).end.rank == 3


@pytest.mark.parametrize(
    ("who", "text"),
    [
        (RankEnd("rank 3", 3), ["of its label", "of its number", "of PyTorch"]),
        (RankEnd("rank 0", 0), ["of another"]),
        (RankEnd("the launcher"), ["of the launcher"]),
        (RankEnd("scheduler 3"), ["of any process"]),
        (RankEnd(), ["of its label", "of its number", "of PyTorch", "of another", "of the launcher", "of any process"]),
    ],
)
def test_the_lines_of_one_process_have_no_prefix_and_no_report(who: RankEnd, text: list[str]) -> None:
    lines = [
        "[1:rank 3] of its label",
        "[1:3] of its number",
        "[rank3]: of PyTorch",
        "[0:rank 0] of another",
        "[0:the launcher] of the launcher",
        "of any process",
        "batchtrain: rank 3 on node n (10.0.0.4) exited with code 7",
    ]
    assert list(lines_of(lines, who)) == text


def test_lines_without_a_name_are_those_of_no_process_and_in_the_record_of_an_end_of_its_rank() -> None:
    lines = ["[1:rank 3] of rank 3", "[0:rank 0] of rank 0", "of any process"]
    assert lines_of_no_process(lines, RANK_3) == ("of any process",)
    end = RankEnd("rank 3", 3, lines=("[rank3]: of its rank", "[rank0]: of another", "of any rank"))
    assert lines_of((), end) == ("of its rank", "of any rank")


def test_source_that_a_traceback_quotes_and_what_a_shell_says_of_a_script_of_batchtrain_prove_nothing() -> None:
    frame, script = TRACEBACK[1], "/mnt/wd/.batchtrain/run.sh: line 3: 7 Killed"
    lines = (frame, "    raise Error('no GPU')", "    no GPU", script, "batchtrain: no GPU")
    assert list(admissible(lines)) == [frame, "    no GPU", "batchtrain: no GPU"]


@pytest.mark.parametrize(("first", "last", "is_consequence"), [
    ("ConnectionError: Connection reset by peer", "RuntimeError: training failed", True),
    ("RuntimeError: training failed", "ConnectionError: Connection reset by peer", False),
    ("ZeroDivisionError: division by zero", "RuntimeError: training failed", False),
])  # fmt: skip
def test_a_chain_is_a_consequence_if_it_began_with_one(first: str, last: str, is_consequence: bool) -> None:
    during = ("", "During handling of the above exception, another exception occurred:", "")
    lines = (TRACEBACK[0], first, *during, TRACEBACK[0], last, "bye")
    judged = cause(lines, RankEnd())
    assert (judged.exception, judged.is_consequence) == ("RuntimeError: training failed", is_consequence)


def test_a_syntax_error_of_the_script_has_its_file_and_line() -> None:
    """As Python 3.11 prints it: without a traceback's heading."""
    lines = [
        '  File "/mnt/batch/tasks/workitems/digits/job-1/train/wd/train.py", line 2',
        "    def f(:",
        "          ^",
        "SyntaxError: invalid syntax",
    ]
    found = cause(lines, RankEnd())
    assert (found.exception, found.raised) == ("SyntaxError: invalid syntax", "train.py:2")


def test_a_line_of_faulthandler_is_no_exception() -> None:
    """As Python 3.11 prints it."""
    lines = [
        "Fatal Python error: Segmentation fault",
        "",
        "Current thread 0x00007f1c5e1c9740 (most recent call first):",
        '  File "/mnt/batch/tasks/workitems/digits/job-1/train/wd/train.py", line 2 in <module>',
        "Extension modules: numpy (total: 1)",
    ]
    assert cause(lines, RankEnd()) == Cause()
