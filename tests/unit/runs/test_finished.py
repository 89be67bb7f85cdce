"""Runs as objects: metrics, curves, logs and files of a run directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from batchtrain.dashboard import recorded
from batchtrain.errors import NotFound, UsageError
from batchtrain.records import Failure, Metric, Table, Task
from batchtrain.records.failure import EXIT_CODE
from batchtrain.runs import directory, finished
from batchtrain.runs.directory import FileRecord
from batchtrain.runs.finished import Result, Run, Runs

from .made import made

HOSTILE = "<script>alert(1)</script>"


def finished_run(root: Path, loss: float = 0.5, job: str = "digits") -> Run:
    run = made(root, job, summary={"loss": Metric(loss, loss)})
    run.write_tasks([Task("train", "completed", exit_code=0)])
    run.write_files([FileRecord(task="train", path="wd/output/m.npz", size=3, fetched="outputs/train/m.npz")])
    lines = (f'{{"t":{step},"step":{step},"rank":0,"loss":{loss * step}}}' for step in (1, 2, 3))
    directory.replace(run.metrics_file("train"), "\n".join(lines).encode())
    directory.replace(run.logs("train") / "stdout.txt", f"first\n{HOSTILE}\n".encode())
    directory.replace(run.logs("train") / "ranks/1.stdout.txt", b"of rank 1\n")
    return Run(run)


def test_metrics_are_columns_and_display_as_a_table(tmp_path: Path) -> None:
    metrics = finished_run(tmp_path).metrics
    assert metrics["loss"] == [0.5, 1.0, 1.5]
    assert str(metrics).splitlines()[0].split() == ["task", "rank", "step", "loss"]
    assert metrics._repr_html_().count("<tr>") == 4


def test_a_plot_is_svg_in_a_notebook_and_a_curve_in_text(tmp_path: Path) -> None:
    plot = finished_run(tmp_path).plot("loss")
    assert plot._repr_html_().count("<polyline") == 1
    assert str(plot) == "loss: ▁▅█ 1.5"


def test_a_curve_that_does_not_exist_names_those_that_do(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no curve of los; the metrics with curves are loss$"):
        finished_run(tmp_path).plot("los")


def test_logs_are_lines_of_all_ranks_or_of_one_and_never_markup(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    assert run.logs() == ("first", HOSTILE)
    assert run.logs(rank=1) == ("of rank 1",)
    assert "<script" not in run.logs()._repr_html_() + run._repr_html_()
    with pytest.raises(NotFound, match=r"ranks/7\.stdout\.txt does not exist"):
        run.logs(rank=7)


def test_the_output_of_rank_0_is_that_of_a_task_without_ranks(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    (run.directory.logs("train") / "ranks/1.stdout.txt").unlink()
    assert run.logs(rank=0) == run.logs()
    with pytest.raises(NotFound, match=r"ranks/1\.stdout\.txt does not exist"):
        run.logs(rank=1)


def test_a_log_of_any_size_is_its_last_lines_and_what_is_before_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished_run(tmp_path)
    path = run.directory.logs("train") / "stdout.txt"
    with path.open("ab") as file:
        file.truncate(10**13)
        file.seek(0, os.SEEK_END)
        file.write(b"\nend\n")
    monkeypatch.setattr(finished, "MOST_LOG", 10)
    assert run.logs() == (f"… {10**13 - 5:,} bytes before, in {path}", "\0" * 5, "end")


def test_files_and_output_lead_to_what_was_fetched(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    assert [row.path for row in run.files] == ["outputs/train/m.npz"]
    assert run.output == run.path / "outputs/train"


def test_a_result_of_one_job_is_its_run(tmp_path: Path) -> None:
    result = Result(Table([Task("train", "completed")]), [finished_run(tmp_path).directory])
    assert result.logs(rank=1) == ("of rank 1",)
    assert (result.id, result.state) == (result.path.name, "completed")
    assert str(result).startswith(f"Result({result.id}, succeeded")
    assert result._repr_html_() == result.runs[0]._repr_html_()


def test_a_result_of_two_jobs_asks_which(tmp_path: Path) -> None:
    result = Result(Table(), [finished_run(tmp_path, job="a").directory, finished_run(tmp_path, job="b").directory])
    with pytest.raises(UsageError, match=r"2 jobs; use result.runs\[0\]"):
        _ = result.metrics
    assert [run.record.job for run in result.runs] == ["a", "b"]


def test_runs_are_compared_by_their_differences_and_curves(tmp_path: Path) -> None:
    first, second = finished_run(tmp_path, 0.5), finished_run(tmp_path, 0.7)
    compared = Runs(tmp_path).compare(first.path.name, second)
    assert [row["name"] for row in compared.rows] == ["loss"]
    assert compared._repr_html_().count("<polyline") == 2
    with pytest.raises(UsageError, match="at least two"):
        Runs(tmp_path).compare(first)
    rows = Runs(tmp_path).list()
    assert repr(Runs(tmp_path).compare(*rows)) == repr(Runs(tmp_path).compare(*(row.id for row in rows)))
    with pytest.raises(UsageError, match="this is a int"):
        Runs(tmp_path).get(3)  # type: ignore[arg-type]  # the mistake


def test_a_run_that_cannot_be_read_hides_no_other_one(tmp_path: Path) -> None:
    finished_run(tmp_path)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("{")
    assert [row.state for row in Runs(tmp_path).list()] == ["succeeded"]


def test_printed_logs_cannot_control_a_terminal(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    directory.replace(run.directory.logs("train") / "stdout.txt", b"\x1b]52;c;aGk=\x07done\n")
    assert "\x1b" not in str(run.logs()) and "done" in repr(run.logs())
    assert "\x1b" in run.logs()[0]


def test_the_tasks_and_the_summary_of_a_run_are_tables(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    assert run.tasks == (Task("train", "completed", exit_code=0),)
    assert [tuple(row) for row in run.summary] == [("loss", "0.5", "0.5", None, "")]
    assert str(run) == f"Run({run.id}, succeeded, loss 0.5)"


def test_a_run_without_tasks_has_no_first_one(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    run.directory.write_tasks([])
    with pytest.raises(NotFound, match="has no tasks"):
        _ = run.output


def test_a_result_of_two_jobs_prints_and_displays_both(tmp_path: Path) -> None:
    result = Result(Table(), [finished_run(tmp_path, job="a").directory, finished_run(tmp_path, job="b").directory])
    assert str(result) == "\n".join(str(run) for run in result.runs)
    assert result._repr_html_() == "".join(run._repr_html_() for run in result.runs)


def test_a_file_that_was_not_fetched_has_its_remote_path_and_the_reason(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    run.directory.write_files([FileRecord(task="train", path="wd/output/m", size=3, reason="gone")])
    assert [tuple(row) for row in run.files] == [("wd/output/m", "train", 3, "gone")]


def test_the_errors_of_a_task_are_lines_too(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    directory.replace(run.directory.logs("train") / "stderr.txt", b"bad\n")
    assert run.logs("train", file="stderr") == ("bad",)


def test_the_tasks_of_a_run_are_shown_with_the_causes_in_its_logs_and_stored_with_the_services_words(
    tmp_path: Path,
) -> None:
    run = finished_run(tmp_path)
    exited = Task("train", "completed", "failure", exit_code=1, failure=Failure(EXIT_CODE, "The task exited with"))
    run.directory.write_tasks([exited])
    directory.replace(run.directory.logs("train") / "stderr.txt", b"loading\nno data here\n")
    for tasks in (run.tasks, Result(Table([exited]), [run.directory]).tasks):
        assert tasks == (exited,)
        assert "no data here" in tasks._repr_html_()
        assert "The task exited" not in str(tasks)
    assert [row["failure"] for row in recorded.shown(tmp_path, run.id)["tasks"]] == ["no data here"]
