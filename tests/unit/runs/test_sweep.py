"""The tasks of a sweep, best first: from the run directory, else from the end of each task's output."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchtrain.errors import NotFound
from batchtrain.metrics.stream import OWN, RECORDS
from batchtrain.records import Task
from batchtrain.records.events import Event
from batchtrain.runs import directory, sweep
from batchtrain.runs.directory import RunDirectory
from batchtrain.runs.sweep import SweepRow, flat

from .batch_server import BatchServer, task
from .made import made


def point(name: str, rate: float, output: str = "", **fields: Any) -> dict[str, Any]:
    """The document of a task with a parameter; `output` is kept apart by `of_service`."""
    document: dict[str, Any] = task(name, BATCHTRAIN_PARAMETERS=json.dumps({"lr": rate}), **fields)
    return document | {"output": output}


def of_service(service: BatchServer, *documents: dict[str, Any]) -> None:
    """A job of these tasks, whose outputs are still on their nodes."""
    service.job(*documents)
    for document in documents:
        if output := document.pop("output", ""):
            service.files[f"/jobs/j/tasks/{document['id']}"]["stdout.txt"] = output.encode()


def of_run(service: BatchServer, *tasks: Task) -> RunDirectory:
    """The run of the job."""
    run = made(service.root, account="acct", endpoint=service.account.endpoint)
    run.write_tasks(tasks)
    return run


def swept(service: BatchServer, metric: str = "loss", **options: Any) -> list[Any]:
    events: list[Event] = options.pop("events", [])
    return list(sweep.sweep(service.client, service.account, service.root, "j", metric, events.append, **options))


def test_the_best_task_is_first_and_one_without_a_value_last(service: BatchServer) -> None:
    of_service(
        service,
        point("t0", 0.1, "loss=0.5"),
        point("t1", 0.2, "nothing"),
        point("t2", 0.3, "loss: 0.25\n", exit_code=3),
        point("t3", 0.4, "loss=0.75\n"),
        point("t4", 0.5, "step 1 loss 0.1\nstep 2 loss nan\n"),
    )
    assert swept(service) == [
        SweepRow("t2", "failed", {"lr": 0.3}, 0.25),
        SweepRow("t0", "succeeded", {"lr": 0.1}, 0.5),
        SweepRow("t3", "succeeded", {"lr": 0.4}, 0.75),
        SweepRow("t1", "succeeded", {"lr": 0.2}, None),
        SweepRow("t4", "succeeded, diverged", {"lr": 0.5}, None),
    ]


@pytest.mark.parametrize(
    ("metric", "highest", "order"),
    [
        ("loss", None, ["low", "high"]),
        ("loss", True, ["high", "low"]),
        ("accuracy", None, ["high", "low"]),
        ("accuracy", False, ["low", "high"]),
    ],
)
def test_the_name_of_a_metric_decides_which_value_is_best_unless_the_user_does(
    service: BatchServer, metric: str, highest: bool | None, order: list[str]
) -> None:
    of_service(service, point("high", 0.1, f"{metric}=2"), point("low", 0.2, f"{metric}=1"))
    assert [row.task for row in swept(service, metric, highest=highest)] == order


def test_tasks_without_parameters_are_no_part_of_a_sweep_unless_all_have_none(service: BatchServer) -> None:
    service.job(merge := task("merge"), point("t0", 0.1))
    service.files["/jobs/j/tasks/t0"]["stdout.txt"] = b"loss=1"
    assert [row.task for row in swept(service)] == ["t0"]
    service.job(merge, task("other"))
    service.files["/jobs/j/tasks/other"]["stdout.txt"] = b"loss=1"
    assert [row.task for row in swept(service)] == ["other", "merge"]


@pytest.mark.parametrize(("state", "row_is_read"), [("active", False), ("preparing", False), ("running", True)])
def test_the_output_of_tasks_that_have_not_started_is_not_read(
    service: BatchServer, state: str, row_is_read: bool
) -> None:
    of_service(service, point("done", 0.1, "loss=1"), point("t1", 0.2, "loss=2", state=state))
    rows = swept(service)
    assert [row.value for row in rows] == [1.0, 2.0 if row_is_read else None]
    assert ("GET /jobs/j/tasks/t1/files/stdout.txt" in service.asked) is row_is_read


def test_of_a_gang_the_records_of_its_ranks_are_read_and_not_its_merged_output(service: BatchServer) -> None:
    of_service(service, point("t0", 0.1, "loss=9"), point("t1", 0.2, "loss=2"))
    service.files["/jobs/j/tasks/t0"][RECORDS] = (
        b'cut": 1}\n{"rank": 0, "file": "stdout", "line": "loss=0.5"}\n'
        b'{"rank": 1, "file": "metrics", "line": "{\\"loss\\": 0.25}"}\n'
    )
    service.files["/jobs/j/tasks/t1"][OWN] = b'{"loss": 3}\n'
    assert [(row.task, row.value) for row in swept(service)] == [("t0", 0.25), ("t1", 3.0)]
    assert "GET /jobs/j/tasks/t0/files/stdout.txt" not in service.asked
    assert sum(asked.endswith("/jobs/j/tasks") for asked in service.asked) == 3  # the states, parameters and patterns


def test_the_values_of_a_run_directory_are_used_first(service: BatchServer) -> None:
    of_service(service, point("t0", 0.1, "loss=9"), point("t1", 0.2, "loss=2"))
    run = of_run(service)
    directory.replace(run.metrics_file("t0"), b'{"step": 1, "loss": 0.5}\n')
    assert [(row.task, row.value) for row in swept(service)] == [("t0", 0.5), ("t1", 2.0)]
    assert not [asked for asked in service.asked if "/tasks/t0/files" in asked]


def test_a_job_that_is_gone_is_read_from_its_run_directory(service: BatchServer) -> None:
    tasks = [
        Task("t0", "completed", "success", 0, parameters={"lr": 0.1}),
        Task("t1", "completed", "failure", 0, parameters={"lr": 0.2}),
        Task("t2", "completed", "", 3, parameters={"lr": 0.3}),
    ]
    run = of_run(service, *tasks)
    directory.replace(run.metrics_file("t0"), b'{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.75}\n')
    directory.replace(run.logs("t1") / "stdout.txt", b"loss = 0.25\n")
    directory.replace(run.logs("t2") / "stdout.txt", b"nothing\n")
    assert swept(service) == [
        SweepRow("t1", "failed", {"lr": 0.2}, 0.25),
        SweepRow("t0", "succeeded", {"lr": 0.1}, 0.75),
        SweepRow("t2", "failed", {"lr": 0.3}, None),
    ]


def test_of_a_long_log_of_a_run_directory_the_end_is_read(
    service: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "END", 12)
    run = of_run(service, Task("t0", "completed"))
    directory.replace(run.logs("t0") / "stdout.txt", b"accuracy=1\n" + b"loss=2\nxyz\n")
    assert swept(service)[0].value == 2.0
    with pytest.raises(NotFound, match="job j has no metric accuracy; its metrics are loss"):
        swept(service, "accuracy")


def test_a_metric_that_no_task_has_names_those_that_exist(service: BatchServer) -> None:
    of_service(service, point("t0", 0.1, "test accuracy 0.5\nepoch 1 loss 2\n"), point("t1", 0.2))
    with pytest.raises(NotFound, match=r"job j has no metric speed; its metrics are loss, test_accuracy$"):
        swept(service, "speed")
    with pytest.raises(NotFound, match=r"name a metric of job j; its metrics are loss, test_accuracy$"):
        swept(service, "")


def test_a_number_with_a_name_on_a_line_of_its_own_can_be_asked_for(service: BatchServer) -> None:
    of_service(service, point("t0", 0.1, "Silhouette: 0.5\n"), point("t1", 0.2, "Silhouette: 0.75\n"))
    with pytest.raises(NotFound, match=r"name a metric of job j; its metrics are silhouette$"):
        swept(service, "")
    assert [row.task for row in swept(service, "silhouette")] == ["t1", "t0"]


def test_a_metric_may_be_named_as_the_program_prints_it(service: BatchServer) -> None:
    of_service(service, point("t0", 0.1, "Test AUC: 0.5\n"), point("t1", 0.2, "Test AUC: 0.75\n"))
    assert [row.value for row in swept(service, "Test AUC")] == [0.75, 0.5]


def test_a_job_that_never_was_is_not_found(service: BatchServer) -> None:
    with pytest.raises(NotFound, match="there is no job j and no run of it here") as raised:
        swept(service)
    assert (raised.value.operation, raised.value.code) == ("look at job j", "JobNotFound")


@pytest.mark.parametrize(("count", "cut"), [(2, 0), (3, 1)])
def test_the_output_of_very_many_tasks_is_not_read_and_it_is_reported(
    service: BatchServer, monkeypatch: pytest.MonkeyPatch, count: int, cut: int
) -> None:
    monkeypatch.setattr(sweep, "MOST_READ", 2)
    of_service(service, *(point(f"t{number}", number, f"loss={number}") for number in range(count)))
    events: list[Event] = []
    rows = swept(service, events=events)
    assert [row.value for row in rows] == [0.0, 1.0, None][:count]
    text = f"the output of {cut} tasks was not read; `batchtrain jobs fetch j` does"
    assert [(event.kind, event.subject, event.text) for event in events] == [("sweep.cut", "j", text)] * bool(cut)


@pytest.mark.parametrize(
    ("output", "value"),
    [
        (b"loss=1.5", 1.5),
        (b"loss: 2", 2.0),
        (b'{"loss": 3}', 3.0),
        (b"loss -4e-1", -0.4),
        (b"val_loss=1", None),
        (b"a/loss=1 a.loss=1 my-loss=1", None),
        (b"loss=low", None),
        (b"train loss 1, val loss 2", None),
        (b"step 250: train loss 1.5, val loss 2.5", None),
        (b"step 250: train loss 1.5, val loss 2.5\niter 260: loss 1.75, time 41.20ms, mfu 3.15%", 1.75),
        (b"Loss: 1.5", 1.5),
        (b"loss=1\nloss=2\n\xff", 2.0),
    ],
)
def test_a_metric_is_found_in_the_forms_that_programs_print(output: bytes, value: float | None) -> None:
    metric = sweep._measured({"stdout.txt": output}, (), "loss").get("loss")
    assert (metric and metric.last) == value


def test_the_progress_of_a_task_is_its_step_and_its_last_line(service: BatchServer) -> None:
    of_service(service, point("t0", 1, "step 7 loss 0.5\n" + "10%\rthe end\n \n"), point("t1", 2))
    texts = [sweep.progress(service.client, "j", Task(name, "completed"), 0.0) for name in ("t0", "t1")]
    assert texts == ["t0: step 7, loss 0.5, it printed `the end`", ""]


def test_the_flat_form_has_a_column_for_each_parameter() -> None:
    rows = [SweepRow("t0", "succeeded", {"lr": 0.1}, 0.5), SweepRow("t1", "failed", {"batch": 8}, None)]
    assert flat(rows, "loss") == [
        {"task": "t0", "loss": 0.5, "lr": 0.1, "batch": None, "state": "succeeded"},
        {"task": "t1", "loss": None, "lr": None, "batch": 8, "state": "failed"},
    ]
