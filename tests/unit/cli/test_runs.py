"""Runs beside one another on a terminal."""

from __future__ import annotations

import pytest

from batchtrain.cli.runs import around, beside

COMMAND = (
    "python -u $AZ_BATCH_TASK_SHARED_DIR/train.py --epochs {} --batch 64 --output $AZ_BATCH_TASK_WORKING_DIR/output"
)


def test_a_long_value_shows_the_words_that_differ() -> None:
    assert around([COMMAND.format(10), COMMAND.format(3)]) == ["… --epochs 10 …", "… --epochs 3 …"]


def test_a_word_that_only_one_of_three_lacks_is_shown() -> None:
    values = [COMMAND.format("10 --fast"), COMMAND.format("10"), COMMAND.format("10 --fast")]
    assert [("--fast" in value) for value in around(values)] == [True, False, True]


def test_three_runs_have_one_line_for_each_property() -> None:
    rows = [("job_specifications[0].tasks[0].command", [f"python train.py --rate {n} --more words" for n in range(3)])]
    lines = list(beside(["A", "B", "C"], rows, 80))
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80
    assert lines[1].split()[0].endswith(".tasks[0].command")
    assert [line.strip() for line in beside(["A", "B", "C"], rows, 40)].count("A  python train.py --rate 0 --more") == 1


@pytest.mark.parametrize("room", [80, 40])
def test_no_word_of_a_comparison_is_broken(room: int) -> None:
    name = "job_specifications[0].tasks[0].multi_instance.mpi.processes_per_node"
    values = ["a few words " * 6, "others"]
    lines = list(beside(["A", "B"], [(name, values)], room))
    assert max(map(len, lines)) <= room
    assert {word for line in lines for word in line.split()} >= {"few", "words", "others", "A", "B"}
    assert name in "".join(lines)


def test_long_values_are_compared() -> None:
    """Pair by pair would take minutes."""
    long = "a " * 8000
    assert around([f"{long}--rate 1 {long}", f"{long}--rate 2 --fast {long}"]) == [
        "… --rate 1 …",
        "… --rate 2 --fast …",
    ]
