"""From the output of a task and its files to metrics/TASK.jsonl and the summary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchtrain.config.types import MetricPattern
from batchtrain.metrics.extract import RATE
from batchtrain.metrics.stream import MetricStream
from batchtrain.metrics.summary import Summary, after_warm_up
from batchtrain.records import Metric, Point
from batchtrain.records.events import MetricsSeen
from batchtrain.runs.directory import RunDirectory
from batchtrain.runs.numbers import MetricsFile, Recorded

from .made import made


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return made(tmp_path)


def recorded(run: RunDirectory, *patterns: MetricPattern) -> Recorded:
    return Recorded(run, lambda task: patterns, clock=lambda: 7.0)


def lines(run: RunDirectory, task: str = "train") -> list[dict[str, object]]:
    return [json.loads(line) for line in run.metrics_file(task).read_text().splitlines()]


def write(run: RunDirectory, name: str, text: str) -> Path:
    path = run.path / "metrics/train" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_output_of_a_task_becomes_its_metrics_and_a_summary(run: RunDirectory) -> None:
    numbers = recorded(run)
    for text in ("[0:1] epoch 1 loss 9", "[0:0] epoch 1 loss 0.2", "[0:0] epoch 2 loss 0.3", "hello"):
        numbers.lines("train", "stdout", (text,))
    assert numbers.end({}) == {"train": {"loss": Metric(0.3, 0.2)}}
    assert lines(run)[1] == {"t": 7.0, "rank": 0, "epoch": 1, "loss": 0.2}
    assert numbers.notes == ()


def test_a_programs_own_metrics_replace_those_of_its_output(run: RunDirectory) -> None:
    numbers = recorded(run)
    numbers.lines("train", "stdout", ("epoch 1 loss 0.5 accuracy 0.9",))
    path = write(run, "3.jsonl", '{"step": 1, "loss": 0.4, "t": 1}\n\n{"step": 2, "loss": 0.3, "rank": 8, "t": 2}\n')
    summary = numbers.end({"train": (MetricsFile(1, path),)})["train"]
    assert summary == {"accuracy": Metric(0.9, 0.9), "loss": Metric(0.4, 0.4, 1)}
    assert [line.get("rank") for line in lines(run)] == [None, 3, 8]


def test_a_wrong_line_is_ignored_and_noted_once(run: RunDirectory) -> None:
    numbers = recorded(run)
    path = write(run, "0.jsonl", 'hello\n{"loss": NaN, "step": 4}\n{"loss": 1, "step": 5}\n{"lo')
    assert numbers.end({"train": (MetricsFile(1, path),)}) == {"train": {"loss": Metric(1.0, 1.0, 5)}}
    first, second = numbers.notes
    assert first.startswith("train: metrics of 0: 2 lines were ignored (line 1: ")
    assert second == "train: loss was NaN or infinite, first at step 4, rank 0"
    assert lines(run)[0] == {"t": 7.0, "rank": 0, "step": 4, "loss": None}


def test_of_very_many_lines_some_are_read_and_it_is_said(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchtrain.runs.numbers.MOST_BYTES", 1000)
    monkeypatch.setattr("batchtrain.metrics.extract.FILE_RATE", 100)
    numbers = recorded(run)
    path = write(run, "0.jsonl", '{"step": 1, "loss": 0.5}\n' * 50)
    assert numbers.end({"train": (MetricsFile(1, path),)}) == {"train": {"loss": Metric(0.5, 0.5, 1)}}
    assert "every 2. line was read" in numbers.notes[0]
    flood = recorded(run)
    flood.lines("train", "stdout", ["hello"] * 300)
    assert flood.end({}) == {}
    (note,) = flood.notes
    assert "lines are too many and were not searched for metrics" in note


def test_a_file_is_read_long_after_it_was_printed_and_loses_no_line(run: RunDirectory) -> None:
    numbers = recorded(run)
    for start in range(0, 2 * RATE, 1000):
        numbers.lines("train", "stdout", [f"step {n} loss 1" for n in range(start, start + 1000)])
    assert numbers.end({})["train"]["loss"].step == 2 * RATE - 1
    assert len(lines(run)) == 2 * RATE
    assert numbers.notes == ()


def test_samples_of_nodes_are_kept_and_are_no_result(run: RunDirectory) -> None:
    path = write(run, "node.jsonl", '{"t": 1, "node": "n", "cpu_percent": 50.0}\n')
    assert recorded(run).end({"train": (MetricsFile(1, path),)}) == {}
    assert lines(run) == [{"t": 1, "node": "n", "cpu_percent": 50.0}]


def test_several_tasks_are_told_apart(run: RunDirectory) -> None:
    numbers = recorded(run)
    numbers.lines("a", "stdout", ("test accuracy 0.5",))
    numbers.lines("b", "stdout", ("test accuracy 0.6",))
    numbers.lines("c", "stdout", ("nothing",))
    assert set(numbers.end({})) == {"a", "b"}


def test_metrics_of_a_task_add_a_pattern_with_its_unit(run: RunDirectory) -> None:
    pattern = MetricPattern(name="speed", pattern=r"speed (\S+)", unit="km/h")
    numbers = recorded(run, pattern)
    numbers.lines("train", "stdout", ("speed 12",))
    assert numbers.end({}) == {"train": {"speed": Metric(12.0, 12.0, unit="km/h")}}


def test_throughput_is_that_of_all_ranks_without_the_first_value() -> None:
    summary = Summary()
    for rank in (0, 1):
        for value in (1.0, 100.0, 300.0):
            summary.add(Point({"samples_per_second": value}, rank=rank))
    assert summary.metrics()["throughput"] == Metric(300.0, 300.0, unit="samples/s")
    summary.add(Point({"total_images_per_second": 40.0}, rank=1))
    assert summary.metrics()["throughput"] == Metric(40.0, 40.0, unit="images/s")


def test_the_ranks_of_the_last_attempt_follow_an_attempt_without_ranks() -> None:
    summary = Summary()
    for rank, attempt, loss, rate in ((None, 1, 0.1, 900), (0, 2, 0.5, 100), (1, 2, 0.7, 200)):
        summary.add(Point({"loss": loss, "images_per_second": rate}, rank=rank, step=attempt, attempt=attempt))
    metrics = summary.metrics()
    assert metrics["loss"] == Metric(0.5, 0.1, 2)
    assert metrics["throughput"] == Metric(300, 300, unit="images/s")


def test_a_rate_of_zero_does_not_end_the_mean() -> None:
    assert after_warm_up([5.0, 0.0, 4.0]) == 2.0


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999"])
def test_a_printed_value_that_is_not_finite_is_null_and_reported(number: str, run: RunDirectory) -> None:
    numbers = recorded(run)
    numbers.lines("train", "stdout", (f"epoch 1 loss {number} accuracy 0.5",))
    numbers.lines("train", "stdout", ('{"step": 2, "loss": Infinity}',))
    found = numbers.end({})["train"]
    assert (found["accuracy"].last, found["loss"].last, found["loss"].text()) == (0.5, None, "NaN since epoch 1")
    assert [line.get("loss") for line in lines(run)][-1] is None


def test_binary_output_gives_no_metric_and_ends_nothing(run: RunDirectory) -> None:
    numbers = recorded(run)
    for chunk in (bytes(range(256)) * 8, b"\xff\xfe{\x00", b"\x1b[" * 1000, b"[0:0] \x00\x00"):
        for text in chunk.decode("utf-8", "replace").split("\n"):
            numbers.lines("train", "stdout", (text,))
    path = write(run, "0.jsonl", "")
    path.write_bytes(bytes(range(256)) * 8 + b'\n{"loss": 1, "step": 1}\n\xff\xfe\n')
    assert numbers.end({"train": (MetricsFile(1, path),)}) == {"train": {"loss": Metric(1.0, 1.0, 1)}}
    assert "lines were ignored" in numbers.notes[0]


def test_names_of_metrics_and_tasks_may_be_any_text(run: RunDirectory) -> None:
    numbers = recorded(run)
    name = "Größe/Verlust ✓\t☃"
    path = write(run, "0.jsonl", json.dumps({"step": 1, name: 2}) + "\n")
    assert numbers.end({"zug ✓": (MetricsFile(1, path),)}) == {"zug ✓": {name: Metric(2.0, 2.0, 1)}}
    assert run.metrics().values == {name: [2.0]}


def streamed(*lines: dict[str, object], ended: bool = False) -> MetricsSeen:
    stream = MetricStream()
    batch = stream.records([json.dumps({"time": 7.0, "file": "stdout", **line}) for line in lines], 7.0)
    return stream.event("j", "train", batch, ended=ended)


def test_what_a_lost_node_did_not_send_comes_from_its_files_and_nothing_twice(run: RunDirectory) -> None:
    numbers = recorded(run)
    own = '{"step": %d, "loss": %d}'
    numbers.see(streamed(*({"rank": 0, "file": "metrics", "line": own % (step, 9)} for step in (1, 2))))
    first = MetricsFile(1, write(run, "0.jsonl", f"{own % (1, 9)}\n{own % (2, 9)}\n"))
    lost = MetricsFile(1, write(run, "4.jsonl", f"{own % (1, 5)}\n"))
    numbers.end({"train": (first, lost)})
    assert [(line["rank"], line["step"], line["loss"]) for line in lines(run)] == [(0, 1, 9), (0, 2, 9), (4, 1, 5)]


def test_a_later_attempt_takes_nothing_from_those_before(run: RunDirectory) -> None:
    numbers = recorded(run)
    numbers.see(streamed({"rank": 0, "line": "step 1 loss 9"}))
    numbers.end({})
    second = recorded(run)
    stream = MetricStream()
    second.see(stream.event("j", "train", stream.output(["step 2 loss 8"], 7.0)), 2)
    second.see(stream.event("j", "train", stream.own(['{"step": 2, "loss": 7}'], 7.0)), 2)
    second.see(MetricsSeen("train", again=True, has_records=True), 2)
    second.end({})
    assert [(line.get("attempt"), line["step"], line["loss"]) for line in lines(run)] == [(None, 1, 9.0)]


def test_a_file_of_metrics_that_has_all_is_not_written_again(run: RunDirectory) -> None:
    numbers = recorded(run)
    own = [json.dumps({"step": step, "loss": 9}) for step in (1, 2)]
    numbers.see(streamed(*({"rank": 0, "file": "metrics", "line": line} for line in own)))
    written = run.metrics_file("train").stat().st_ino
    numbers.end({"train": (MetricsFile(1, write(run, "0.jsonl", "\n".join(own) + "\n")),)})
    assert (run.metrics_file("train").stat().st_ino, len(lines(run))) == (written, 2)
