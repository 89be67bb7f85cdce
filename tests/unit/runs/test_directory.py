"""The run directory: made exclusively, written by rename, read again."""

from __future__ import annotations

import contextlib
import os
import tracemalloc
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import msgspec
import pytest

from batchtrain.errors import DamagedState, NotFound, UsageError
from batchtrain.records import Attempt, Detail, Failure, Metric, Task
from batchtrain.runs import directory, lease
from batchtrain.runs.attempt_record import AttemptRecord
from batchtrain.runs.directory import EventRecord, FileRecord, RunDirectory, RunNode, RunRecord
from batchtrain.runs.numbers import Recorded

from .made import made

NOW = datetime(2026, 11, 22, 11, 15, 2, tzinfo=timezone.utc)


def _record(run: directory.RunDirectory, state: str = "completed") -> RunRecord:
    return RunRecord(id=run.name, state=state, started=NOW, job="digits", summary={"loss": Metric(0.2, 0.1, 30)})


def test_only_the_user_can_read_a_new_runs_directory_but_its_new_parents_are_as_any_other(tmp_path: Path) -> None:
    root, other = tmp_path / "new" / "runs", tmp_path / "other"
    other.mkdir()
    directory.check(root)
    assert root.stat().st_mode & 0o777 == 0o700
    assert root.parent.stat().st_mode == other.stat().st_mode
    assert (root / ".gitignore").read_bytes() == b"*\n"


def test_a_run_is_named_by_time_and_job_and_is_the_latest(tmp_path: Path) -> None:
    run = directory.make(tmp_path / "runs", "digits", NOW)
    assert run.name.startswith("20261122T111502Z-digits-") and len(run.name) == 28
    assert str((tmp_path / "runs" / "latest").readlink()) == run.name
    assert (tmp_path / "runs" / ".gitignore").read_text() == "*\n"


def test_a_task_of_a_lost_run_that_had_not_ended_is_lost(tmp_path: Path) -> None:
    run = directory.make(tmp_path, "digits", NOW)
    run.write(msgspec.structs.replace(_record(run), state="running"))  # without the lease of a process
    run.write_tasks([Task("a", "running"), Task("b", "completed", exit_code=0)])
    assert [task.outcome for task in run.tasks()] == ["lost", "succeeded"]


def test_only_the_user_can_read_a_run_whatever_the_umask(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        run = directory.make(tmp_path / "runs", "digits", NOW)
        run.write(_record(run))
        run.add_event(EventRecord(NOW, "pool.add", "p", "added pool p"))
        directory.replace(run.logs("t") / "ranks" / "0.stdout.txt", b"")
    finally:
        os.umask(umask)
    modes = {path.relative_to(run.path).as_posix(): path.stat().st_mode & 0o777 for path in run.path.rglob("*")}
    assert modes == {
        "run.json": 0o600, "events.jsonl": 0o600, "logs": 0o700, "logs/t": 0o700, "logs/t/ranks": 0o700,
        "logs/t/ranks/0.stdout.txt": 0o600,
    }  # fmt: skip


def test_two_runs_of_one_second_have_two_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = iter(["aaaa", "0" * 8, "aaaa", "bbbb", "1" * 8])
    monkeypatch.setattr(directory.secrets, "token_hex", lambda _: next(tokens))
    first, second = (directory.make(tmp_path, "digits", NOW) for _ in range(2))
    assert (first.name[-4:], second.name[-4:]) == ("aaaa", "bbbb")


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    run = directory.make(tmp_path, "digits", NOW)
    event = EventRecord(NOW, "pool.add", "p", "added pool p")
    failure = Failure("DiskFull", "No space.", (Detail("Path", "/mnt"),))
    node, task = RunNode("n0", "tvm-1", ranks={"train": (0, 1)}), Task("train", "completed", "failure", failure=failure)
    file = FileRecord(task="train", path="wd/output/m", size=3, fetched="outputs/train/m")
    run.write(_record(run))
    run.add_event(event)
    run.write_nodes([node])
    run.write_tasks([task])
    run.write_files([file])
    assert run.record() == _record(run)
    assert (run.events(), run.nodes(), run.tasks(), run.files()) == ((event,), (node,), (task,), (file,))


def test_a_line_that_a_kill_cut_off_is_skipped(tmp_path: Path) -> None:
    run = directory.make(tmp_path, "digits", NOW)
    run.add_event(EventRecord(NOW, "a", "b", "c"))
    with (run.path / "events.jsonl").open("ab") as file:
        file.write(b'{"t":"2026-11-22T11')
    assert len(run.events()) == 1


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = directory.make(tmp_path, "digits", NOW)
    run.write(_record(run))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        run.write(RunRecord(id="x", state="failed", started=NOW, job="j"))
    assert run.record().state == "completed"
    assert [path.name for path in run.path.iterdir()] == ["run.json"]


def test_a_run_runs_as_long_as_a_process_has_its_lease_and_is_lost_afterwards(tmp_path: Path) -> None:
    run = directory.make(tmp_path, "digits", NOW)
    run.write(_record(run, "running"))
    states = [run.record().state]
    held = lease.take(run.path)
    assert held is not None
    states.append(run.record().state)
    held.release()
    states.append(run.record().state)
    run.write(msgspec.structs.replace(run.record(), state="running", left_by="user"))
    states.append(run.record().state)
    assert states == ["lost", "running", "lost", "left"]


@pytest.mark.parametrize("state", ["completed", "failed", "interrupted", "fetched"])
def test_a_run_that_has_ended_is_not_lost_without_a_process(tmp_path: Path, state: str) -> None:
    run = directory.make(tmp_path, "digits", NOW)
    run.write(_record(run, state))
    assert run.record() == _record(run, state)


def test_a_run_that_ends_while_it_is_read_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = directory.make(tmp_path, "digits", NOW)
    run.write(_record(run, "running"))

    def end(_: Path) -> str:
        run.write(_record(run))
        return "lost"

    monkeypatch.setattr(lease, "holder", end)
    assert run.record().state == "completed"


def test_the_lines_of_many_tasks_are_not_held_at_once(tmp_path: Path) -> None:
    run = directory.make(tmp_path, "digits", NOW)
    tracemalloc.start()
    try:
        run.write_tasks(Task(id=f"t{number}", state="completed") for number in range(10_000))
        assert sum(1 for _ in run.each_task()) == 10_000
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_a_run_is_found_by_name_part_and_latest(tmp_path: Path) -> None:
    run = made(tmp_path)
    for name in (run.name, run.name[-4:], "20261122", "latest", str(run.path)):
        assert directory.find(tmp_path, name).record().id == run.name
    with pytest.raises(NotFound, match="runs list"):
        directory.find(tmp_path, "other")


def test_a_root_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file" / "runs"):
        words = "`--runs-dir DIR`, in Python `runs_dir`, or BATCHTRAIN_RUNS_DIR"
        with pytest.raises(UsageError, match=f"results cannot be written to .*{words}"):
            directory.check(root)


def test_the_root_is_the_option_else_the_variable_else_runs() -> None:
    assert directory.root_of("a", {"BATCHTRAIN_RUNS_DIR": "b"}) == Path("a")
    assert directory.root_of(None, {"BATCHTRAIN_RUNS_DIR": "b"}) == Path("b")
    assert directory.root_of(None, {}) == Path("runs")


def test_metrics_are_columns_of_one_length(tmp_path: Path) -> None:
    run = directory.make(tmp_path, "j", NOW)
    file = run.metrics_file("größe")
    file.parent.mkdir()
    file.write_text(
        '{"t": 1, "rank": 0, "step": 5, "loss": 2}\n{"t": 2, "node": "n", "cpu": 9}\n{"t": 3, "loss": null}\n{"t'
    )
    columns = run.metrics()
    assert columns.table() == {
        "task": ["größe"] * 3, "t": [1, 2, 3], "rank": [0, None, None], "node": ["", "n", ""], "step": [5, None, None],
        "epoch": [None] * 3, "attempt": [1] * 3, "loss": [2, None, None], "cpu": [None, 9, None],
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        '{"step": 2, "loss": 0.5}',
        '{"step": 2, "loss": 7}',
        '{"step": 2.0, "loss": 0.5}',
        '{"step": "two", "loss": 0.5}',
        '{"step": 2, "loss": NaN, "lr": Infinity}',
        '{"step": 2, "loss": true, "lr": 0.1}',
        '{"step": 2, "loss": "0.5", "lr": 0.1}',
        '{"global_step": 2, "epoch": 1, "loss": 0.5}',
        '{"t": 1.5, "rank": 1}',
        '{"rank": null, "loss": null}',
        "[1]",
        "",
    ],
)
def test_metrics_read_as_columns_are_those_of_the_points(tmp_path: Path, line: str) -> None:
    run = directory.make(tmp_path, "j", NOW)
    run.metrics_file("train").parent.mkdir()
    run.metrics_file("train").write_text(f'{{"step": 1, "loss": 1.5}}\n{line}\n{{"step": 3, "val": 0.5}}\n')
    columns, points = run.metrics(), [point for _, point in run.points()]
    assert [type(value) for value in columns.step] == [type(point.step) for point in points]
    rows = zip(*(columns.values[name] for name in columns.values), strict=True)
    assert [dict(zip(columns.values, row, strict=True)) for row in rows] == [
        {name: point.values.get(name) for name in columns.values} for point in points
    ]
    for name in ("t", "rank", "node", "step", "epoch"):
        assert getattr(columns, name) == [getattr(point, name) for point in points]


def test_runs_are_listed_by_age_without_the_link_to_the_latest(tmp_path: Path) -> None:
    later, earlier = (made(tmp_path, started=NOW.replace(second=second)) for second in (3, 1))
    directory.make(tmp_path, "j", NOW.replace(second=2))
    assert [run.name for run in directory.runs(tmp_path)] == [earlier.name, later.name]
    assert list(directory.runs(tmp_path / "none")) == []


def test_tags_are_words_and_each_counts_once() -> None:
    longest = "x" * directory.MOST_TAG
    assert directory.checked_tags([" a ", longest, "a", "b c"]) == ("a", longest, "b c")
    for tag in ("", " ", "a,b", "a\nb", longest + "x"):
        with pytest.raises(UsageError, match="is no tag; write a word without a comma"):
            directory.checked_tags(["a", tag])


def test_the_runs_of_a_job_are_listed_without_those_that_cannot_be_read(tmp_path: Path) -> None:
    first, _, second = (made(tmp_path, job) for job in ("j", "other", "j"))
    (made(tmp_path, "x").path / "run.json").write_text("{")
    assert {run.name for run in directory.of_job(tmp_path, "j")} == {first.name, second.name}


def test_without_links_the_latest_run_is_the_newest(tmp_path: Path) -> None:
    _, second = (made(tmp_path, started=NOW.replace(second=second)) for second in (1, 2))
    (tmp_path / "latest").unlink()
    assert directory.find(tmp_path, "latest") == second


def test_a_directory_called_latest_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "latest" / "mine").mkdir(parents=True)
    run = directory.make(tmp_path, "j", NOW)
    assert sorted(path.name for path in tmp_path.iterdir()) == [run.name, "latest"]
    assert (tmp_path / "latest" / "mine").exists()


def test_a_run_directory_without_its_record_or_with_a_broken_one_is_an_error(tmp_path: Path) -> None:
    run = directory.make(tmp_path, "j", NOW)
    with pytest.raises(NotFound, match=r"is not a run directory: it has no run\.json"):
        run.record()
    (run.path / "run.json").write_text("{")
    with pytest.raises(UsageError, match=r"run\.json cannot be read: "):
        run.record()
    assert (run.nodes(), run.tasks(), run.files(), run.events()) == ((), (), (), ())


def test_a_directory_of_an_earlier_version_whose_failures_are_texts_opens() -> None:
    run = directory.RunDirectory(Path(__file__).parent / "earlier_run")
    train, broken = run.tasks()
    ended = datetime(2026, 11, 23, 10, 16, 10, tzinfo=timezone.utc)
    assert (train.parameters, train.ended, str(train.failure)) == ({"lr": 0.1}, ended, "")
    text = "FailureExitCode: The task exited with an exit code representing a failure"
    assert (str(broken.failure), broken.failed, broken.retries) == (text, True, 1)
    assert run.nodes() == (RunNode("n0", "tvm-1", "p", "10.0.0.4", "standard_d2s_v5", {"train": (0, 1)}),)
    assert run.record().state == "failed"


WRITERS: dict[str, Callable[[RunDirectory], object]] = {
    "run.json": lambda run: run.write(_record(run)),
    "nodes.json": lambda run: run.write_nodes([RunNode("n0", "tvm-1")]),
    "tasks.jsonl": lambda run: run.write_tasks([Task("t", "completed")]),
    "files.jsonl": lambda run: run.write_files([FileRecord(task="t", path="a", size=1)]),
    "events.jsonl": lambda run: run.add_event(EventRecord(NOW, "pool.add", "p", "x")),
    "attempts.jsonl": lambda run: run.add_attempt(Attempt("t", 1)),
    "lease.json": lambda run: lease.take(run.path),
    "output": lambda run: AttemptRecord(run).keep("t", "stdout", ["x"]),
    "output of an attempt": lambda run: run.move(run.path / "mine", run.logs("t", 1) / "stdout.txt"),
    "metrics": lambda run: Recorded(run, lambda _: ()).lines("t", "stdout", ["step=1 loss=0.5"]),
    "config": lambda run: run.replace(run.config / "effective.yaml", b"x"),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
def test_no_writer_of_a_run_follows_a_link_in_its_directory(
    write: Callable[[RunDirectory], object], tmp_path: Path
) -> None:
    run, outside = directory.make(tmp_path / "runs", "digits", NOW), tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"safe")
    (run.path / "mine").write_bytes(b"mine")
    for name in ("logs", "metrics", "config"):
        (run.path / name).symlink_to(outside)
    for name in WRITERS:
        if "." in name:
            (run.path / name).symlink_to(outside / "file")
    with contextlib.suppress(OSError, DamagedState):
        write(run)
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"file": b"safe"}


@pytest.mark.parametrize("name", ["../../x", "/etc", "..", "a/b"])
def test_the_name_of_a_run_from_metadata_is_one_below_the_root(name: str, tmp_path: Path) -> None:
    assert directory.named(tmp_path, name).path.resolve().parent == tmp_path
    assert directory.make(tmp_path, name, NOW).path.parent == tmp_path


def test_the_files_of_a_run_lie_in_it_also_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = directory.make(Path("runs"), "digits", NOW)
    for write in WRITERS.values():
        (run.path / "mine").write_bytes(b"mine")
        write(run)
    assert {path.name for path in run.path.iterdir()} == {name for name in WRITERS if "." in name} | {
        "config", "logs", "metrics", "mine",
    }  # fmt: skip
