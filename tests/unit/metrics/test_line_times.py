"""When an output was printed."""

from __future__ import annotations

import json

import pytest

from batchtrain.metrics import line_times
from batchtrain.metrics.line_times import LineTimes, OutputName, output_name

NOW = 1795383928.0


def record(at: object, time: object, rank: int | None = 3, file: str = "stdout") -> str:
    return json.dumps({"rank": rank, "file": file, "at": at, "time": time, "line": "step 1"})


def times_of(*lines: str, rank: int | None = 3) -> LineTimes:
    times = LineTimes(OutputName("", rank, "stdout"))
    times.take(lines)
    return times


@pytest.mark.parametrize(
    ("path", "output"),
    [
        ("stdout.txt", OutputName("", None, "stdout")),
        ("attempt-2/stderr.txt", OutputName("attempt-2/", None, "stderr")),
        ("ranks/12.stdout.txt", OutputName("", 12, "stdout")),
        ("wd/ranks/rank-0.stderr.txt", OutputName("", 0, "stderr")),
        ("wd/model.txt", None),
    ],
)
def test_the_path_of_an_output_names_its_rank_and_stream(path: str, output: OutputName | None) -> None:
    assert output_name(path) == output


def test_a_part_begins_with_the_last_time_before_it() -> None:
    times = times_of(record(0, NOW), record(100, NOW + 5), record(200, NOW + 9))
    assert times.between(150, 200) == {"at": [100], "time": [NOW + 5]}
    assert times.between(100, 201) == {"at": [100, 200], "time": [NOW + 5, NOW + 9]}


def test_records_of_other_outputs_and_records_without_a_position_are_no_times() -> None:
    lines = [record(0, NOW, rank=4), record(0, NOW, file="stderr"), record(None, NOW), "{", '{"time": 1795383928}']
    assert not times_of(*lines)


def test_the_merged_output_has_records_without_a_rank() -> None:
    assert times_of(record(7, NOW, rank=None), rank=None).between(0, 9) == {"at": [7], "time": [NOW]}


def test_of_the_records_of_a_second_the_first_counts() -> None:
    times = times_of(record(0, NOW), record(10, NOW + 0.5), record(20, NOW + 1))
    assert times.between(0, 99)["at"] == [0, 20]


def test_an_output_that_is_written_anew_has_its_new_times() -> None:
    times = times_of(record(0, NOW), record(100, NOW + 5), record(0, NOW + 60), record(50, NOW + 70))
    assert times.between(0, 999) == {"at": [0, 50], "time": [NOW + 60, NOW + 70]}


@pytest.mark.parametrize(("at", "time"), [(-1, NOW), (0, -5), (0, 1e300), (1 << 70, NOW), ("0", NOW)])
def test_values_that_are_no_times_are_ignored(at: object, time: object) -> None:
    assert not times_of(record(at, time))


def test_the_memory_and_an_answer_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_times, "MOST", 100)
    monkeypatch.setattr(line_times, "ANSWERED", 20)
    times = times_of(*(record(number, NOW + number) for number in range(1000)))
    answer = times.between(0, 1000)["at"]
    assert len(answer) <= 20
    assert answer[0] == 0
    assert answer[-1] > 900
