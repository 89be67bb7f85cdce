"""What a task prints and measures is one stream of points, with the state of each rank."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from batchtrain.metrics.extract import LONGEST_LINE, Pattern
from batchtrain.metrics.stream import Batch, MetricStream
from batchtrain.records import Point, TrainingProgress

NOW = 1_000.0
NOTHING = Batch(())


def record(rank: int | None, line: str, **more: Any) -> str:
    """A line of the records of a gang."""
    fields = {"time": NOW, "rank": rank, "node": "n0", "attempt": 1, "file": "stdout", "line": line, **more}
    return json.dumps({name: value for name, value in fields.items() if value is not None})


def measured(rank: int, **values: Any) -> str:
    return record(rank, json.dumps(values), file="metrics")


def values(batch: Batch) -> list[tuple[int | None, int | None, Mapping[str, float | None]]]:
    return [(point.rank, point.step, point.values) for point in batch.points]


# --- the records of a gang --------------------------------------------------------------------------------------------


def test_the_records_of_ranks_are_points_in_their_order_with_attempt_rank_step_and_time() -> None:
    lines = [
        record(1, "step 7 loss 0.5", time=990.25, node="n1"),
        record(0, "hello"),
        record(0, "step 7: train loss 0.25, val loss 0.75", time=991.5, attempt=2),
        record(1, '{"step": 8, "t": 5.5, "accuracy": 1}', file="metrics", time=992),
    ]
    batch = MetricStream().records(lines, NOW)
    assert batch.points == (
        Point({"loss": 0.5}, rank=1, step=7, t=990.25, global_step=7),
        Point({"train_loss": 0.25, "val_loss": 0.75}, rank=0, step=7, t=991.5, attempt=2, global_step=7),
        Point({"accuracy": 1}, rank=1, step=8, t=5.5, global_step=8),
    )
    assert not batch.again


def test_each_rank_and_each_of_its_streams_has_its_own_place_in_a_table() -> None:
    header = "# OSU MPI Latency Test v7.5"
    batch = MetricStream().records(
        [record(0, header), record(1, "8  9.0"), record(0, "8  9.0", file="stderr"), record(0, "8  1.5")], NOW
    )
    assert [(rank, step) for rank, step, _ in values(batch)] == [(0, 8)]


def test_the_patterns_of_the_user_are_searched_for_in_records_and_in_output() -> None:
    patterns = [Pattern("score", r"score is (?P<value>\S+)")]
    assert values(MetricStream(patterns).records([record(3, "the score is 9")], NOW)) == [(3, None, {"score": 9.0})]
    assert values(MetricStream(patterns).output(["[0:3] the score is 9"], NOW)) == [(3, None, {"score": 9.0})]


def test_the_merged_output_of_a_gang_with_records_gives_nothing_even_if_its_lines_are_glued() -> None:
    stream = MetricStream()
    stream.records([record(rank, f"step 1 loss {rank}") for rank in range(2)], NOW)
    assert stream.output(["[0:1] step 1 loss 5[0:0] step 1 secstep 147"], NOW) == NOTHING
    assert {rank.number: rank.lines for rank in stream.seen()} == {0: 1, 1: 1}


@pytest.mark.parametrize(("key", "name"), [("unfit", "unfit"), ("warning", "warnings")])
def test_nodes_that_join_have_a_fault_or_warn_are_told_once_and_do_not_silence_the_merged_output(
    key: str, name: str
) -> None:
    stream = MetricStream(())
    joined = ['{"node": "n0", "nodes": 2}', '{"node": "n1", "nodes": 2}']
    batch = stream.records([*joined, json.dumps({key: "10.0.0.5"})], 1.0)
    assert getattr(stream.event("j", "t", batch), name) == ("10.0.0.5",)
    assert getattr(stream.event("j", "t"), name) == ()
    assert getattr(stream.records([json.dumps({key: "10.0.0.6"})], 1.0), name) == ("10.0.0.6",)
    assert values(stream.output(["step 7/20 loss 2.5"], 2.0)) == [(None, 7, {"loss": 2.5})]


def test_records_replace_what_the_merged_output_gave_before() -> None:
    stream = MetricStream()
    assert values(stream.output(["[0:7] step 1/9 loss 5"], NOW)) == [(7, 1, {"loss": 5.0})]
    batch = stream.records([record(0, "step 1 loss 4")], NOW)
    assert (batch.again, values(batch)) == (True, [(0, 1, {"loss": 4.0})])
    assert ([rank.number for rank in stream.seen()], stream.progress) == ([0], None)
    assert not stream.records([record(0, "step 2 loss 3")], NOW).again


def test_records_replace_nothing_if_nothing_was_found_before() -> None:
    stream = MetricStream()
    stream.output(["[0:0] hello"], NOW)
    assert stream.records([], NOW) == NOTHING and not stream.has_records
    assert not stream.records([record(0, "step 1 loss 4")], NOW).again


def test_a_line_that_is_broken_or_of_a_later_version_loses_no_other() -> None:
    batch = MetricStream().records(
        ['{"rank": 1, "li', "[]", "", "\ufffd", "[" * 100_000, record(0, "step 1 loss 2", later={"a": 1})], NOW
    )
    assert values(batch) == [(0, 1, {"loss": 2.0})]


def test_a_line_of_more_than_64_kib_has_no_metric_and_one_of_64_kib_has() -> None:
    line = "step 1 loss 2 " + "x" * LONGEST_LINE
    stream = MetricStream()
    assert stream.records([record(0, line)], NOW) == NOTHING
    assert values(stream.records([record(0, line[:LONGEST_LINE])], NOW)) == [(0, 1, {"loss": 2.0})]


# --- what a program measures itself -----------------------------------------------------------------------------------


def test_a_value_that_a_program_measures_hides_the_printed_one_of_the_same_name() -> None:
    stream = MetricStream()
    first = stream.records([measured(0, step=1, loss=0.5), record(0, "step 1 loss 0.501 accuracy 1")], NOW)
    assert values(first) == [(0, 1, {"loss": 0.5}), (0, 1, {"accuracy": 1.0})]
    assert stream.records([record(1, "step 2 loss 0.4")], NOW) == NOTHING


def test_printed_values_that_came_before_the_first_measured_one_are_to_be_forgotten() -> None:
    stream = MetricStream()
    assert values(stream.records([record(0, "step 1 loss 1 accuracy 1")], NOW)) == [(0, 1, {"loss": 1, "accuracy": 1})]
    batch = stream.records([record(0, "step 2 loss 2 accuracy 2"), measured(0, step=2, loss=3, lr=4)], NOW)
    assert batch.hidden == {"loss"}
    assert values(batch) == [(0, 2, {"accuracy": 2}), (0, 2, {"loss": 3, "lr": 4})]
    assert stream.records([measured(0, step=3, loss=3)], NOW).hidden == frozenset()


def test_the_file_of_a_task_without_a_gang_has_the_rank_0_unless_it_names_one() -> None:
    lines = ['{"step": 1, "loss": 2}', '{"rank": 4, "loss": 3}', ""]
    assert values(MetricStream().own(lines, NOW)) == [(0, 1, {"loss": 2}), (4, None, {"loss": 3})]
    assert values(MetricStream().own(['{"node": "n1", "cpu_percent": 5}'], NOW)) == [(None, None, {"cpu_percent": 5})]


# --- ranks ------------------------------------------------------------------------------------------------------------


def test_a_rank_has_its_node_its_last_line_its_step_and_its_rate() -> None:
    stream = MetricStream()
    last = record(3, "\x1b[31mdone\x1b[0m " + "x" * 400, node="n1", time=NOW - 5)
    first, launcher = record(3, "step 5 images_per_second 120", node="n1"), record(None, "the launcher says 1")
    stream.records([first, last, launcher], NOW)
    (rank,) = stream.seen()
    assert (rank.number, rank.node, rank.lines, rank.step, rank.rate) == (3, "n1", 2, 5, 120.0)
    assert rank.last.startswith("done x") and len(rank.last) == 300


def test_a_rank_that_only_measures_is_alive_too() -> None:
    stream = MetricStream()
    stream.records([measured(2, step=4, loss=1)], NOW)
    (rank,) = stream.seen()
    assert (rank.number, rank.lines, rank.last, rank.heard, rank.step) == (2, 0, "", NOW, 4)


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
def test_a_rank_is_quiet_since_its_last_line_however_the_clock_of_its_node_goes(ahead: float) -> None:
    stream = MetricStream()
    beat = [json.dumps({"time": NOW + ahead, "node": "n1"}), json.dumps({"time": NOW, "node": "n0"})]
    stream.records([record(1, "1", node="n1", time=NOW + ahead - 40), record(0, "1", time=NOW - 20), *beat], NOW)
    assert {rank.number: NOW - rank.heard for rank in stream.seen()} == {0: 20.0, 1: 40.0}


def test_signs_of_life_without_a_node_tell_the_clock_of_all_nodes() -> None:
    stream = MetricStream()
    lines = [record(1, "1", node="n1", time=NOW - 90), record(0, "1", time=NOW - 70), json.dumps({"time": NOW - 50})]
    stream.records(lines, NOW)
    assert {rank.number: NOW - rank.heard for rank in stream.seen()} == {0: 20.0, 1: 40.0}


def test_reading_late_does_not_make_a_rank_look_quiet_or_alive() -> None:
    stream = MetricStream()
    stream.records([record(0, "1", time=NOW - 100), json.dumps({"time": NOW, "node": "n0"})], NOW)
    stream.records([json.dumps({"time": NOW + 10, "node": "n0"})], NOW + 25)  # it came 15 s late
    assert [rank.heard for rank in stream.seen()] == [NOW - 100]


def test_there_are_at_most_so_many_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchtrain.metrics.stream.MOST_RANKS", 2)
    stream = MetricStream()
    batch = stream.records([record(rank, "step 1 loss 2") for rank in (5, 4, 3, 5)], NOW)
    assert len(batch.points) == 4
    assert [(rank.number, rank.lines) for rank in stream.seen()] == [(4, 1), (5, 2)]


def test_a_second_attempt_goes_on_in_the_same_stream_and_its_ranks_begin_anew() -> None:
    stream = MetricStream()
    stream.records([record(0, "step 9 loss 1 images_per_second 5")], NOW)
    batch = stream.records([record(0, "1 again", attempt=2), record(0, "step 8 loss 2", attempt=2)], NOW)
    assert [(point.attempt, point.step, point.values) for point in batch.points] == [(2, 8, {"loss": 2.0})]
    (rank,) = stream.seen()
    assert (rank.attempt, rank.step, batch.again) == (2, 8, False)


def test_an_attempt_that_has_no_step_yet_does_not_show_that_of_the_attempt_before() -> None:
    stream = MetricStream()
    stream.records([record(0, "step 9 loss 1"), record(0, "again 1", attempt=2)], NOW)
    assert [rank.step for rank in stream.seen()] == [None]


def test_the_progress_is_that_of_the_last_line_that_tells_it() -> None:
    stream = MetricStream()
    stream.records(
        [record(0, "step 3/10 loss 1"), record(1, "epoch 2 of 5"), record(0, "step 12/10"), record(0, "1")], NOW
    )
    assert stream.progress == TrainingProgress("epoch", 2, 5)


# --- what is told -----------------------------------------------------------------------------------------------------


def test_an_event_has_what_came_and_at_the_end_what_was_not_read() -> None:
    stream = MetricStream()
    ignored = (record(0, line, file="metrics") for line in ("no json", '{"a": "text"}'))
    batch = stream.records([record(0, "step 1/2 loss 1"), record(0, "", skipped=1200), *ignored], NOW)
    event = stream.event("job", "train", batch)
    assert (event.job, event.subject, event.points, event.has_records) == ("job", "train", batch.points, True)
    assert (event.ended, event.notes, event.progress) == (False, (), TrainingProgress("step", 1, 2))
    assert stream.event("job", "train", ended=True).notes == (
        "1,200 lines came too fast and were not searched for metrics",
        "2 lines of BATCHTRAIN_METRICS were ignored (Expecting value: line 1 column 1 (char 0))",
    )


def test_there_is_news_when_a_rank_printed_since_the_last_event() -> None:
    stream = MetricStream()
    assert not stream.has_news
    stream.records([record(0, "1 hello")], NOW)
    assert stream.has_news
    stream.event("job", "train")
    assert not stream.has_news


# --- the merged output ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "rank", "node"),
    [("[1:3] step 1 loss 2", 3, "n1"), ("[1,3]<stdout>: step 1 loss 2", 3, ""), ("[rank3]: step 1 loss 2", 3, "")],
)
def test_a_line_of_the_merged_output_has_the_rank_of_its_prefix(line: str, rank: int, node: str) -> None:
    stream = MetricStream()
    assert values(stream.output([line], NOW)) == [(rank, 1, {"loss": 2.0})]
    assert [(one.number, one.node, one.heard) for one in stream.seen()] == [(rank, node, NOW)]


@pytest.mark.parametrize(
    ("begin", "text", "end"),
    [("", "9", ""), ("step 1 loss ", "9", "x"), ("step 1 ", "a", ""), ("step 1 ", "1,", "/s"), ("", "9", "%|")],
)
def test_the_time_that_a_long_line_takes_grows_with_its_length_and_not_with_the_square(
    begin: str, text: str, end: str
) -> None:
    def seconds(length: int, times: int) -> float:
        line, start = begin + text * (length // len(text)) + end, time.process_time()
        for _ in range(times):
            MetricStream().output([line], NOW)
        return time.process_time() - start

    assert seconds(64_000, 2) < 20 * seconds(2_000, 64)  # the same number of characters: the square takes 32 times


def test_a_line_of_a_launcher_may_name_the_rank_of_its_worker() -> None:
    line = {"time": 1.0, "node": "n0", "file": "stdout", "line": "[rank3]: step 7 loss 0.5"}
    (point,) = MetricStream().records([json.dumps(line)], 1.0).points
    assert (point.rank, point.step, point.values) == (3, 7, {"loss": 0.5})


def test_a_printed_attempt_is_no_metric_and_no_attempt() -> None:
    batch = MetricStream().output(["step 3/20 loss 97 attempt 2"], 1.0)
    assert [(point.values, point.attempt) for point in batch.points] == [({"loss": 97.0}, 1)]
    assert Point({"attempt": 2.0, "loss": 1.0}).line(5.0) == {"t": 5.0, "loss": 1.0}


def test_lines_that_are_no_records_leave_the_output_to_be_read() -> None:
    stream = MetricStream()
    assert not stream.records(['{"node": ""n0"}'], 1.0).points
    assert stream.output(["step 1 loss 2"], 1.0).points


def test_a_program_may_measure_something_that_it_calls_attempt() -> None:
    (point,) = MetricStream().own(['{"step": 1, "attempt": 7, "loss": 2}'], 1.0).points
    assert (point.attempt, point.line(0.0)) == (1, {"t": 0.0, "rank": 0, "step": 1, "loss": 2.0})


@pytest.mark.parametrize(
    ("lines", "places"),
    [
        (["epoch 0 step 0/3 loss 4", "epoch 0 step 2/3 loss 3", "epoch 1 step 0/3 loss 2"], [0, 2, 4]),
        ([f"Epoch: [{e}][{n}/20] loss 1" for e in (0, 1) for n in (0, 10)], [0, 10, 20, 30]),
        (
            [f"Epoch: [{e}][ {n}/20]\tTime  0.1 ( 0.1)\tLoss 2.3 (2.4)" for e in (0, 1) for n in (0, 10)],
            [0, 10, 20, 30],
        ),
        ([f"Train Epoch: {e} [{n}/20 (5%)]\tLoss: 2.3" for e in (1, 2) for n in (0, 10)], [0, 10, 20, 30]),
        ([f"Epoch [{e}/5], Step [{n}/20], Loss: 2.3" for e in (1, 2) for n in (10, 20)], [10, 20, 30, 40]),
        ([f"[epoch {e}, iter {n}] loss: 2" for e in (1, 2) for n in (1, 2)], [1, 2, 3, 4]),
        ([f"epoch {e} step {n} loss 1" for e, n in ((0, 1), (0, 2), (1, 3), (1, 4))], [1, 2, 3, 4]),
        ([f"step {n} loss 1" for n in (1, 2, 3, 1, 2, 3, 1)], [1, 2, 3, 4, 5, 6, 7]),
        ([f"step {n} loss 1" for n in (1, 2, 3, 2, 3)], [1, 2, 3, 2, 3]),
        ([f"step {n} loss 1" for n in (1, 2, 3, 1, 2, 3, 1, 2, 1)], [1, 2, 3, 4, 5, 6, 7, 8, 7]),
        ([f"epoch {e} loss 1" for e in (1, 2, 3)], [1, 2, 3]),
        (["step 5 loss 1", "val_loss=3 accuracy=4 {'eval_loss': 2.0}", "{'eval_loss': 2.0}"], [5, 5]),
        (["{'loss': 2.0}"], [None]),
    ],
)
def test_epoch_and_step_are_one_place_that_never_runs_back_in_a_training(
    lines: list[str], places: list[float | None]
) -> None:
    assert [point.global_step for point in MetricStream().output(lines, 1.0).points] == places
