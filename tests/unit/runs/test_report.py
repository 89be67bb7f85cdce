"""report.html: one file, whatever the names are, with the curves of the metrics."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from batchtrain.errors import Finding
from batchtrain.records import Metric, Task
from batchtrain.records.pools import PoolAttempt
from batchtrain.runs import directory, report
from batchtrain.runs.curves import continued
from batchtrain.runs.directory import FileRecord, RunDirectory, RunFailure

from .batch_server import START
from .made import made

HOSTILE = "<script>alert(1)</script>"
FOUND = Finding("disk-full", "task train", "a disk is full", HOSTILE, "free space")


def failed(tmp_path: Path, metrics: str) -> RunDirectory:
    run = made(tmp_path, state="failed", failure=RunFailure(HOSTILE, finding=FOUND._asdict()))
    run.write_tasks([Task("train", "completed", exit_code=7)])
    run.write_files([FileRecord(task="train", path=f"wd/output/{HOSTILE}", size=3, reason="the disk is full")])
    directory.replace(run.metrics_file("train"), metrics.encode())
    return run


def test_nothing_of_a_task_is_read_as_html_and_nothing_needs_a_network(tmp_path: Path) -> None:
    page = report.html(failed(tmp_path, f'{{"step":1,"{HOSTILE}":1}}\n{{"step":2,"{HOSTILE}":2}}\n'))
    assert HOSTILE not in page and page.count("<script") == 3
    assert "src=" not in page and "default-src 'none'" in page and "unsafe-inline'; img" in page
    assert "the disk is full" in page


def test_the_charts_have_the_curves_of_the_failed_and_then_the_best_tasks_and_say_of_how_many(tmp_path: Path) -> None:
    run = failed(tmp_path, "")
    run.metrics_file("train").unlink()
    summary = {f"t{number}/loss": Metric(1 / (number + 1), 1) for number in range(30)}
    run.write(msgspec.structs.replace(run.record(), summary=summary, is_by_task=True))
    tasks = [Task(f"t{number}", "completed", result="failure" if number > 27 else "success") for number in range(30)]
    run.write_tasks(tasks)
    for task in tasks:
        directory.replace(run.metrics_file(task.id), b'{"step":1,"loss":2}\n{"step":2,"loss":1}\n')
    page = report.html(run)
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert list(data["loss"])[:3] == ["t29", "t28", "t27"] and len(data["loss"]) == 16
    assert data["loss"]["t28"]["value"] == [2.0, 1.0]
    assert "16 of 30 tasks, the failed first, then the best" in page


def test_a_metric_is_a_curve_over_its_steps_and_no_line_breaks_it(tmp_path: Path) -> None:
    lines = ['{"step":10,"rank":0,"loss":2}', "no json", '{"step":20,"rank":0,"loss":NaN}', '{"step":20,"loss":null}']
    lines += ['{"step":30,"rank":0,"loss":0.5}', '{"step":10,"rank":1,"loss":9}', '{"step":20,"rank":1,"loss":9}']
    run = failed(tmp_path, "\n".join(lines))
    assert report.points(run, "train") == {"loss": [(10.0, 2.0), (30.0, 0.5)]}


def test_an_attempt_that_goes_on_in_a_later_epoch_replaces_only_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    first = [{"epoch": epoch, "step": step, "loss": 1.0} for epoch in range(3) for step in range(4)]
    second = [{"epoch": epoch, "step": step, "attempt": 2, "loss": 2.0} for epoch in (2, 3) for step in range(4)]
    run = failed(tmp_path, "\n".join(map(json.dumps, first + second)))
    curve = [(float(place), 1.0 if place < 8 else 2.0) for place in range(16)]
    assert report.points(run, "train") == {"loss": curve}


def test_the_cause_of_a_failure_is_on_the_page_with_the_next_step(tmp_path: Path) -> None:
    run = failed(tmp_path, "")
    failure = run.record().failure
    assert failure is not None and failure.found == FOUND
    page = report.html(run)
    assert "cause  a disk is full [disk-full]" in page and "next   free space" in page


def test_the_page_says_where_nodes_were_looked_for(tmp_path: Path) -> None:
    run = failed(tmp_path, "")
    places = (("2 spot STANDARD_D4S_V5", "AllocationFailed"), ("2 spot STANDARD_D8S_V5", ""))
    attempts = tuple(
        PoolAttempt(candidate=name, account="a", vm_size="", began=START, ended=START, code=code)
        for name, code in places
    )
    run.write(msgspec.structs.replace(run.record(), candidates=attempts))
    part = report.sections(run, run.record())["Candidates"]
    assert part.index("D4S_V5") < part.index("AllocationFailed") < part.index("D8S_V5") < part.index("it had the nodes")


def test_a_curve_has_the_lowest_rank_of_each_attempt(tmp_path: Path) -> None:
    run = made(tmp_path)
    rows = [
        {"step": 1, "loss": 3.0},
        {"step": 2, "rank": 1, "attempt": 2, "loss": 9.0},
        {"step": 2, "rank": 0, "attempt": 2, "loss": 2.0},
    ]
    directory.replace_lines(run.metrics_file("train"), map(directory.line_of, rows))
    assert report.points(run, "train") == {"loss": [(1.0, 3.0), (2.0, 2.0)]}


def test_a_program_may_count_any_number_of_attempts() -> None:
    """Attempt by attempt would take minutes."""
    values = [(number, float(step), (number, step)) for number in range(100_000) for step in (number, number + 1)]
    assert continued(values) == [(number, number) for number in range(100_000)] + [(99_999, 100_000)]
