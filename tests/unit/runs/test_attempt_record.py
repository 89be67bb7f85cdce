"""What a run directory keeps of the attempts of its tasks."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from batchtrain.metrics.stream import decoded
from batchtrain.records import Attempt, AttemptEvent, Node, Task
from batchtrain.runs import directory, report
from batchtrain.runs.attempt_record import AttemptRecord
from batchtrain.runs.curves import continued
from batchtrain.runs.directory import RunDirectory, line_of, open_private
from batchtrain.runs.numbers import MetricsFile, Recorded

NOW = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)
LATER = NOW + timedelta(seconds=60)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return directory.make(tmp_path, "j", NOW)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of this machine, which a test moves."""
    clock = [LATER.timestamp()]
    monkeypatch.setattr("time.time", lambda: clock[0])
    return clock


def ended(**more: int) -> Task:
    return Task("t", "completed", "success", 0, "n1", 5.0, started=LATER, **more)  # type: ignore[arg-type]


def fetched(run: RunDirectory, name: str, text: str) -> None:
    with open_private(run.logs("t") / name, "wb") as file:
        file.write(text.encode())


def test_the_output_of_an_attempt_stays_when_the_next_one_begins(run: RunDirectory) -> None:
    record = AttemptRecord(run)
    record.see(Attempt("t", 1, ("n0",), NOW))
    record.keep("t", "stdout", ["step 1", "step 2"])
    record.see(Attempt("t", 1, ("n0",), NOW, LATER, "preempted", "n0"))
    record.see(Attempt("t", 2, ("n1",), LATER))
    record.keep("t", "stdout", ["step 3"])
    record.prepare([ended(requeues=1)])
    fetched(run, "stdout.txt", "step 3\nstep 4\n")
    record.conclude([ended(requeues=1)], {})
    record.write()
    assert (run.logs("t", 1) / "stdout.txt").read_text() == "step 1\nstep 2\n"
    assert [(output.attempt, output.start) for output in record.outputs("t", "stdout")] == [(1, 0), (2, 0)]
    assert [(attempt.number, attempt.reason) for attempt in run.attempts()] == [(1, "preempted"), (2, "completed")]


def test_the_output_of_the_last_attempt_is_not_moved_when_it_ends(run: RunDirectory) -> None:
    record = AttemptRecord(run)
    record.see(Attempt("t", 1, ("n0",), NOW))
    record.keep("t", "stdout", ["step 1"])
    record.see(Attempt("t", 1, ("n0",), NOW, LATER, "exit code"))
    assert (run.logs("t") / "stdout.txt").read_text() == "step 1\n"
    assert record.shift("t") == 0


def test_the_record_of_fetched_output_goes_before_the_output_is_moved(run: RunDirectory) -> None:
    there: list[bool] = []
    record = AttemptRecord(run, lambda task_id: there.append((run.logs(task_id) / "stdout.txt").exists()))
    record.see(Attempt("t", 1, ("n0",), NOW))
    record.keep("t", "stdout", ["step 1"])
    record.see(Attempt("t", 2, ("n1",), LATER))
    assert there == [True]


def test_a_client_that_follows_later_keeps_what_an_earlier_one_saw(run: RunDirectory) -> None:
    first = AttemptRecord(run)
    first.see(Attempt("t", 1, ("n0",), NOW))
    first.keep("t", "stdout", ["step 1"])
    later = AttemptRecord(run)
    later.prepare([ended(requeues=1)])
    fetched(run, "stdout.txt", "step 2\n")
    later.conclude([ended(requeues=1)], {})
    assert (run.logs("t", 1) / "stdout.txt").read_text() == "step 1\n"
    assert [(attempt.nodes, attempt.started) for attempt in later.attempts["t"]] == [(("n0",), NOW), (("n1",), LATER)]


def test_the_output_of_retries_in_one_file_is_parted_by_attempt(run: RunDirectory) -> None:
    begins = (AttemptEvent("began", number, NOW, node="n1", stdout=7 * (number - 1)) for number in (1, 2, 3))
    fetched(run, "ranks/attempts.jsonl", b"".join(map(line_of, begins)).decode())
    fetched(run, "stdout.txt", "step 1\nstep 2\nstep 3\n")
    fetched(run, "times.jsonl", "positions from the beginning of the last attempt on")
    record = AttemptRecord(run)
    record.conclude([ended(retries=2)], {})
    assert not (run.logs("t") / "times.jsonl").exists()
    assert (run.logs("t", 1) / "stdout.txt").read_text() == "step 1\n"
    assert (run.logs("t", 2) / "stdout.txt").read_text() == "step 2\n"
    assert [(output.attempt, output.start) for output in record.outputs("t", "stdout")] == [(1, 0), (2, 0), (3, 14)]


@pytest.mark.parametrize(("node", "ended_after", "outputs"), [("n1", 30, [(1, 0), (2, 7)]), ("n0", None, [(2, 0)])])
def test_an_attempt_that_fails_before_its_launch_text_takes_nothing_of_the_one_before(
    run: RunDirectory, node: str, ended_after: int | None, outputs: list[tuple[int, int]]
) -> None:
    events = [AttemptEvent("began", 1, NOW, node=node, checkpoint="step-30")]
    if ended_after:
        events.append(AttemptEvent("ended", 1, NOW + timedelta(seconds=ended_after), exit_code=7))
    fetched(run, "ranks/attempts.jsonl", b"".join(map(line_of, events)).decode())
    fetched(run, "stdout.txt", "step 1\n")
    record = AttemptRecord(run)
    record.conclude([ended(retries=1)], {})
    first, second = record.attempts["t"]
    assert (first.nodes, first.exit_code, first.checkpoint) == ((node,), 7 if ended_after else None, "step-30")
    assert (second.nodes, second.started, second.checkpoint) == (("n1",), LATER, "")
    assert [(output.attempt, output.start) for output in record.outputs("t", "stdout")] == outputs


@pytest.mark.parametrize(("size", "start"), [(-5, 0), (10**15, 7)])
def test_a_program_that_overwrites_the_records_does_not_stop_the_run(run: RunDirectory, size: int, start: int) -> None:
    begins = [AttemptEvent("began", number, NOW, node="n1", stdout=size) for number in (1, 2, 300_000)]
    fetched(run, "ranks/attempts.jsonl", b"".join(map(line_of, begins)).decode())
    fetched(run, "stdout.txt", "step 1\n")
    record = AttemptRecord(run)
    record.conclude([ended(retries=1)], {})
    assert [(output.attempt, output.start) for output in record.outputs("t", "stdout")] == [(2, start)]
    assert len(record.attempts["t"]) == 2


def test_the_nodes_of_the_pool_tell_why_an_attempt_ended_that_no_client_saw(run: RunDirectory) -> None:
    begins = (AttemptEvent("began", number, NOW, node=f"n{number - 1}") for number in (1, 2))
    fetched(run, "ranks/attempts.jsonl", b"".join(map(line_of, begins)).decode())
    record = AttemptRecord(run)
    record.conclude([ended(requeues=1)], {}, [Node("n0", "idle", booted=LATER), Node("n1", "idle")])
    ends = [(attempt.reason, attempt.lost) for attempt in record.attempts["t"]]
    assert ends == [("node lost", "n0"), ("completed", "")]


def test_a_run_without_a_second_attempt_has_no_file_of_attempts(run: RunDirectory) -> None:
    record = AttemptRecord(run)
    record.see(Attempt("t", 1, ("n0",), NOW))
    record.conclude([ended()], {})
    record.write()
    assert not (run.path / "attempts.jsonl").exists()


def test_metrics_have_their_attempt_and_are_one_curve(run: RunDirectory) -> None:
    numbers = Recorded(run, lambda _: (), lambda: 7.0)
    numbers.lines("t", "stdout", [f"step {step}/9 loss {10 - step}" for step in range(1, 6)])
    numbers.lines("t", "stdout", [f"step {step}/9 loss {20 - step}" for step in range(4, 8)], 2)
    numbers.end({})
    lines = [msgspec.json.decode(line) for line in run.metrics_file("t").read_bytes().splitlines()]
    assert [line.get("attempt", 1) for line in lines] == [1] * 5 + [2] * 4
    assert report.points(run, "t")["loss"] == [(1, 9), (2, 8), (3, 7), (4, 16), (5, 15), (6, 14), (7, 13)]
    assert run.metrics().attempt == [1] * 5 + [2] * 4
    record = AttemptRecord(run)
    record.conclude([ended(requeues=1)], {})
    record.write()
    assert [attempt.step for attempt in run.attempts()] == [5, 7]


def test_a_programs_own_metrics_replace_those_of_their_attempt_only(run: RunDirectory, tmp_path: Path) -> None:
    own = tmp_path / "0.jsonl"
    own.write_text('{"step": 2, "loss": 5}\n')
    numbers = Recorded(run, lambda _: (), lambda: 7.0)
    numbers.lines("t", "stdout", ["step 1/2 loss 9"])
    numbers.lines("t", "stdout", ["step 2/2 loss 8"], 2)
    numbers.end({"t": (MetricsFile(2, own),)})
    assert [(point.attempt, point.step, point.values) for _, point in run.points()] == [
        (1, 1, {"loss": 9}), (2, 2, {"loss": 5}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "curve"),
    [
        ([(1, 1.0, "a"), (1, 2.0, "b"), (2, 1.0, "c")], "c"),  # it began again
        ([(1, 1.0, "a"), (1, 2.0, "b"), (2, 2.0, "c")], "ac"),
        ([(2, 2.0, "c"), (1, 1.0, "a"), (1, 3.0, "b")], "ac"),
        ([(1, 1.0, "a"), (2, 3.0, "b"), (3, 2.0, "c")], "ac"),
        ([(1, None, "a"), (2, None, "b")], "ab"),
        ([(1, 5.0, "a"), (1, 1.0, "b")], "ab"),
    ],
)
def test_a_later_attempt_replaces_what_it_trained_again(values: list[tuple[int, float, str]], curve: str) -> None:
    assert "".join(continued(values)) == curve


def positions(run: RunDirectory, attempt: int | None = None) -> list[int | None]:
    return [record.at for record in decoded((run.logs("t", attempt) / "times.jsonl").read_text().splitlines())]


def test_the_time_of_the_output_is_noted_once_a_second(run: RunDirectory, clock: list[float]) -> None:
    record = AttemptRecord(run)
    record.see(Attempt("t", 1, ("n0",), LATER))
    for second in (0.0, 0.4, 1.0):
        clock[0] += second
        record.keep("t", "stdout", ["step 1"])
    assert positions(run) == [0, 14]
    record.see(Attempt("t", 2, ("n1",), LATER))
    record.keep("t", "stdout", ["step 1"])
    assert (positions(run, 1), positions(run)) == ([0, 14], [0])


def test_the_time_of_the_output_is_noted_more_rarely_the_longer_the_task_runs(
    run: RunDirectory, clock: list[float]
) -> None:
    record = AttemptRecord(run)
    record.see(Attempt("t", 1, ("n0",), LATER))
    for seconds in (0, 9998, 1, 1, 1.5):  # 10,000 s after the first time, it is noted every two seconds
        clock[0] += seconds
        record.keep("t", "stdout", ["step 1"])
    assert positions(run) == [0, 7, 21]


def test_what_a_client_that_follows_late_reads_first_has_no_time(run: RunDirectory, clock: list[float]) -> None:
    record = AttemptRecord(run)
    record.see(Attempt("t", 1, ("n0",), NOW - timedelta(hours=1)))
    for second in (0.0, 5.0):
        clock[0] += second
        record.keep("t", "stdout", ["step 1"])
    assert positions(run) == [7]


def test_the_attempts_of_a_job_that_is_added_again_count_on(run: RunDirectory) -> None:
    record = AttemptRecord(run)
    record.see(Attempt("t", 1, ("n0",), NOW))
    record.keep("t", "stdout", ["step 1"])
    record.restart()
    record.see(Attempt("t", 1, ("n1",), LATER))
    record.keep("t", "stdout", ["step 2"])
    record.prepare([ended()])
    record.conclude([ended()], {})
    record.write()
    assert (run.logs("t", 1) / "stdout.txt").read_text() == "step 1\n"
    assert [(attempt.number, attempt.nodes) for attempt in run.attempts()] == [(1, ("n0",)), (2, ("n1",))]
