"""Which lines of a task `jobs logs` shows, and how they look."""

from __future__ import annotations

import re
from datetime import datetime, timezone

import pytest

from batchtrain.cli.log_lines import EVERYTHING, Selection, Wanted, folded, numbers, of_event, read, spans
from batchtrain.errors import UsageError
from batchtrain.records import Task
from batchtrain.records.events import Stdout

LINES = (
    "[0:0] step 1 loss 2.0", "[0:1] step 1 loss 2.1", "[1:2] step 1 loss 2.2", "[1:worker 3] step 1 loss 2.3",
    "batchtrain: a line of the launcher",
)  # fmt: skip


def chosen(wanted: Wanted, lines: tuple[str, ...] = LINES) -> list[str]:
    selection = Selection(wanted)
    return [line for line in lines if selection.takes(read(line))]


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        (EVERYTHING, [0, 1, 2, 3, 4]),
        (Wanted(ranks=frozenset({0, 3})), [0, 3]),
        (Wanted(nodes=frozenset({1})), [2, 3]),
        (Wanted(pattern=re.compile(r"loss 2\.[12]")), [1, 2]),
        (Wanted(ranks=frozenset({2}), pattern=re.compile("launcher")), []),
    ],
)
def test_lines_are_chosen_by_rank_node_and_text_and_by_default_all(wanted: Wanted, shown: list[int]) -> None:
    assert chosen(wanted) == [LINES[number] for number in shown]


def test_a_line_without_a_time_is_as_old_as_the_one_before_it_of_its_rank() -> None:
    since = datetime(2026, 11, 23, 15, 0, tzinfo=timezone.utc)
    lines = (
        "[0:0] no time yet", "[0:0] 2026-11-23 14:59:59 old", "[0:1] 2026-11-23T16:00:00+01:00 new",
        "[0:0] as old as its rank's last", "[0:1] as new", "[0:0] 2026-11-23 15:00:01,250 new", "[0:0] as new",
    )  # fmt: skip
    assert chosen(Wanted(since=since), lines) == [lines[number] for number in (2, 4, 5, 6)]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Wanted(ranks=frozenset({0})), "no line of stdout.txt names a rank: task j/t is no gang"),
        (Wanted(since=datetime(2026, 1, 1, tzinfo=timezone.utc)), "no line of stdout.txt has a time"),
    ],
)
def test_what_no_line_has_cannot_choose_lines(wanted: Wanted, said: str) -> None:
    selection = Selection(wanted)
    selection.takes(read("hello"))
    with pytest.raises(UsageError, match=said):
        selection.check("stdout.txt", "j", lambda: Task("t", "completed"))


def test_a_prefix_has_the_colour_of_its_rank_and_the_text_cannot_move_the_cursor() -> None:
    line = read("[1:2] loss\x1b[2J 1.0")
    assert line.on_terminal(color=True) == "\x1b[35m[1:2]\x1b[0m loss 1.0"
    assert line.on_terminal(color=False) == "[1:2] loss 1.0"
    assert line.document == {"line": "loss\x1b[2J 1.0", "rank": 2, "node": "n1"}


def test_open_mpi_s_own_tags_name_the_rank() -> None:
    assert read("[1,7]<stdout>: hello").document == {"line": "hello", "rank": 7, "node": None}


@pytest.mark.parametrize(("text", "found"), [("0,3", {0, 3}), ("n1", {1}), ("0-2,5", {0, 1, 2, 5})])
def test_numbers_are_lists_and_ranges(text: str, found: set[int]) -> None:
    assert numbers(text) == found


@pytest.mark.parametrize("text", ["", "a", "1,,2", "5-3", "0-999999999"])
def test_what_is_no_list_of_numbers_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        numbers(text)


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (["[0:0] step 1", "[1:2] step 1", "[0:1] step 1", "[1:3] step 2"], ["[0-1:0-2] step 1", "[1:3] step 2"]),
        (["[0:0] a", "[0:0] b", "[0:1] b", "[0:1] a"], ["[0:0] a", "[0:0-1] b", "[0:1] a"]),  # in each rank's order
        (["[0:0] a", "[0:0] a", "[0:1] a"], ["[0:0] a", "[0:0-1] a"]),
        (["[1,0]<stdout>: a", "[1,1]<stdout>: a", "[1,1]<stdout>: b"], ["[0-1] a", "[1] b"]),
        (["a", "a", "[0:1] a"], ["a", "a", "[0:1] a"]),  # without a rank
    ],
)
def test_equal_lines_of_several_ranks_are_one_line(lines: list[str], shown: list[str]) -> None:
    assert list(folded(map(read, lines), color=False)) == shown


def test_lines_of_several_tasks_are_folded_by_task() -> None:
    events = [Stdout(task, f"{task}: [0:{rank}] a") for task in ("t1", "t2") for rank in (0, 1)]
    assert list(folded(map(of_event, events), color=False)) == ["t1: [0:0-1] a", "t2: [0:0-1] a"]


def test_spans_are_the_shortest_text_of_numbers() -> None:
    assert spans([5, 0, 1, 2, 7]) == "0-2,5,7"
