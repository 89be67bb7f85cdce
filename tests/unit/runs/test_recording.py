"""The run directory of a job: what is recorded at its start, while it runs, and at its end."""

from __future__ import annotations

import itertools
import json
import os
import platform
import subprocess
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from batchtrain.catalog.offer import Catalog
from batchtrain.catalog.prices import Prices
from batchtrain.config.task_results import MOST_TASKS
from batchtrain.config.types import Job as JobSettings
from batchtrain.config.types import Recipe, Secret, convert
from batchtrain.errors import Finding, NotFound, TaskFailed, Terminated, UsageError
from batchtrain.metrics.stream import RECORDS, MetricStream
from batchtrain.plan import Plan, plan_jobs
from batchtrain.records import Attempt, AttemptEvent, Failure, Job, Metric, Node, Rank, Task
from batchtrain.records.attempt import ATTEMPTS
from batchtrain.records.events import (
    AttemptEnded,
    AttemptSeen,
    CandidateTried,
    MetricsSeen,
    NodeReady,
    NodesSeen,
    PoolAdded,
    PoolReused,
    Stdout,
    TasksAdded,
    TasksWait,
)  # fmt: skip
from batchtrain.records.pools import PoolAttempt
from batchtrain.runs import directory, lease, recording
from batchtrain.runs.beginnings import commit_of
from batchtrain.runs.directory import (
    Commit,
    Cost,
    EventRecord,
    Labels,
    RunDirectory,
    RunFailure,
    RunNode,
    RunRecord,
    line_of,
)
from batchtrain.runs.recording import Origin, Progress, Recording, adopt, begin, is_of_account, recorded_job
from batchtrain.service.connect import Account
from batchtrain.version import __version__
from tests.unit.plan.jobs import recipe

from .batch_server import START, BatchServer, node, task
from .made import made

KEY = "c2VjcmV0c2VjcmV0"
VERSIONS = {"batchtrain": __version__, "python": platform.python_version()}


@pytest.fixture
def service(service: BatchServer) -> BatchServer:
    service.job(task("train"))
    service.pool(node("tvm-1"))
    return service


def job_of(*tasks: dict[str, Any]) -> JobSettings:
    job: JobSettings = convert(
        {"id": "j", "tasks": [{"command": "x", **fields} for fields in tasks or ({},)]}, JobSettings
    )
    return job


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def started(
    service: BatchServer, *, job: JobSettings | None = None, ended: Any = None, secrets: tuple[Secret, ...] = (),
    **fields: Any,
) -> Recording:  # fmt: skip
    """The recording of a job that began at START."""
    run = directory.make(service.root, "j", START)
    known = {"id": run.name, "job": "j", "started": START, "endpoint": service.account.endpoint, "state": "running"}
    record = RunRecord(**known | fields)
    return Recording(service.client, service.account, run, record, job or job_of(), secrets=secrets, job_ended=ended)


def ran(name: str = "train", exit_code: int = 0, node_id: str = "tvm-1") -> Task:
    result = "failure" if exit_code else "success"
    return Task(name, "completed", result, exit_code, node_id, 40.0, started=after(10))


def fetched(service: BatchServer, *tasks: Task, **fields: Any) -> Recording:
    """The same after these tasks were fetched, by default the one that ran."""
    recorded = started(service, **fields)
    recorded.fetch(tasks or [ran()])
    return recorded


def completed(service: BatchServer, *tasks: Task, **fields: Any) -> Recording:
    """The same after the run has completed."""
    recorded = fetched(service, *tasks, **fields)
    recorded.end("completed")
    return recorded


def test_while_one_run_fetches_all_runs_of_this_process_count_as_alive(
    service: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.files["/jobs/j/tasks/train"] = {"wd/output/model.pt": b"weights"}
    first, second = (started(service) for _ in range(2))
    monkeypatch.setattr(lease, "EVERY_SECONDS", 0.0)
    leases = [recording.run.path / lease.FILE for recording in (first, second)]
    alive = []

    def begin_to_fetch(files: int, size: int) -> None:
        for path in leases:
            os.utime(path, (0, 0))

    def moved(size: int) -> None:
        alive.append([path.stat().st_mtime > 0 for path in leases])

    first.fetch([ran()], progress=Progress(begin_to_fetch, moved))
    assert alive == [[True, True]]


# --- the start ------------------------------------------------------------------------------------------------------


def begun(service: BatchServer, recipe: Recipe, **origin: Any) -> Recording:
    return begin(
        service.client, service.account, recipe, recipe.jobs[0], plan_jobs(recipe), Origin(service.root, **origin)
    )


def test_the_start_of_a_run_names_its_account_pool_and_nodes(service: BatchServer) -> None:
    pool = {"vm_count": {"dedicated": 2, "low_priority": 3}}
    record = begun(service, recipe(pool=pool)).run.record()
    assert (record.state, record.account, record.endpoint) == ("running", "acct", service.account.endpoint)
    assert (record.pool, record.job, record.vm_size, record.nodes) == ("p", "j", "STANDARD_D4S_V5", 5)
    assert (record.cost, record.commit, record.versions) == (None, None, VERSIONS)


def test_the_planned_cost_of_a_run_is_that_of_all_nodes(service: BatchServer) -> None:
    prices = Prices("westeurope", "EUR", {"Standard_D4s_v5": 0.2}, {"Standard_D4s_v5": 0.05})
    service.account = service.account._replace(endpoint="https://acct.westeurope.batch.azure.com")
    whole = recipe(pool={"vm_count": {"dedicated": 2, "low_priority": 4}})
    run = begun(service, msgspec.structs.replace(whole, catalog=Catalog(prices=(prices,)))).run
    hour = pytest.approx(0.6)
    assert run.record().cost == Cost(currency="EUR", region="westeurope", dedicated=0.2, spot=0.05, hour=hour)
    unpriced = msgspec.structs.replace(whole, catalog=Catalog(prices=(Prices("eastus", "EUR", {}, {}),)))
    assert begun(service, unpriced).run.record().cost is None


def test_the_labels_of_a_run_are_recorded_at_its_start(service: BatchServer) -> None:
    labels = Labels(("baseline",), "the first one")
    assert begun(service, recipe(), labels=labels).run.labels() == labels


def test_a_job_without_a_pool_in_its_recipe_names_none(service: BatchServer) -> None:
    whole = msgspec.structs.replace(recipe(), pool=None)
    origin = Origin(service.root)
    record = begin(service.client, service.account, whole, whole.jobs[0], Plan(steps=()), origin).run.record()
    assert (record.pool, record.vm_size, record.nodes) == ("", "", 0)


def test_the_run_of_a_job_with_its_own_pool_names_no_pool(service: BatchServer) -> None:
    assert begun(service, recipe({"auto_pool": {}})).run.record().pool == ""


def test_secrets_are_masked_in_everything_that_a_run_records(service: BatchServer) -> None:
    storage = {"credentials": {"storage": {"data": {"account": "acct", "account_key": KEY}}}}
    settings = {"credentials.batch.account_key": "S3CR3T", "pool_specification.id": "p"}
    whole = recipe(task={"environment_variables": {"TOKEN_OF_TESTS": KEY}}, **storage)
    command = ("run", "--set", "credentials.batch.account_key=S3CR3T")
    sent = {"conf/jobs.yaml": f"a: 1 # {KEY}\nb: 2\n".encode(), "conf/credentials.yaml": b"x"}
    run = begun(service, whole, command=command, settings=settings, files=sent).run
    record = run.record()
    assert record.command[:2] == ("run", "--set")
    assert (record.settings["pool_specification.id"], len(record.settings)) == ("p", 2)
    files = sorted(path.name for path in run.config.iterdir())
    assert files == ["effective.yaml", "jobs.yaml", "plan.json"]
    assert (run.config / "jobs.yaml").read_text().splitlines()[1] == "b: 2"
    every = [path.read_text() for path in run.path.rglob("*") if path.is_file()]
    assert not [text for text in every if KEY in text or "S3CR3T" in text]


def test_the_effective_configuration_has_the_sections_of_the_files_in_their_order(service: BatchServer) -> None:
    text = (begun(service, recipe()).run.config / "effective.yaml").read_text()
    sections = [line for line in text.splitlines() if line[0].isalpha()]
    assert [line.partition(":")[0] for line in sections][-2:] == ["pool_specification", "job_specifications"]
    assert "command: echo hello" in text and "credentials" not in text


def test_a_run_directory_that_cannot_be_written_is_one_message(service: BatchServer) -> None:
    with pytest.raises(UsageError, match=r"cannot be written: File name too long"):
        begun(service, recipe(), files={"n" * 300: b"x"})


# --- while it runs --------------------------------------------------------------------------------------------------


def test_events_with_a_text_are_recorded_and_output_is_not(service: BatchServer) -> None:
    recorded = started(service)
    for event in (PoolAdded("p", "added"), Stdout("train", "hello"), NodeReady("n", "")):
        recorded.tell(event)
    assert [(event.kind, event.subject, event.text) for event in recorded.run.events()] == [("pool.add", "p", "added")]


def test_a_warning_of_the_launch_is_in_the_record_while_the_run_continues_and_is_said_at_its_end(
    service: BatchServer,
) -> None:
    recorded = started(service)
    for texts in (("node n1 is hot",), (), ("node n1 is hot", "node n2 is slow")):
        recorded.tell(MetricsSeen("train", job="j", warnings=texts))
    assert recorded.run.record().warnings == ("node n1 is hot", "node n2 is slow")
    recorded.end("completed")
    assert recorded.run.record().warnings == ("node n1 is hot", "node n2 is slow")
    assert recorded.conclusion().splitlines()[1:] == ["  warning: node n1 is hot", "  warning: node n2 is slow"]


def test_a_warning_of_a_gang_that_was_not_followed_comes_with_its_records(service: BatchServer) -> None:
    service.files["/jobs/j/tasks/train"] = {"wd/ranks/stream.jsonl": b'{"warning": "node n1 is hot"}\n'}
    recorded = completed(service)
    assert recorded.run.record().warnings == ("node n1 is hot",)


def test_the_parts_of_a_run_are_measured_by_its_events(service: BatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    service.pool(node("tvm-1", allocated=5, prepared=20), node("tvm-2", allocated=0, prepared=30))
    clock = itertools.chain([after(100), after(100), after(110), after(200)], itertools.repeat(after(207)))
    monkeypatch.setattr(recording, "now", lambda: next(clock))
    recorded = started(service)
    recorded.tell(PoolReused("p", "ready"))
    recorded.tell(TasksAdded("j", "added"))
    recorded.fetch([replace(ran(), created=after(-40))])
    recorded.end("completed")
    assert recorded.run.record().phases == {
        "pool": 70.0, "preparation": 30.0, "start": 50.0, "training": 40.0, "fetch": 7.0,
    }  # fmt: skip


def test_the_start_tasks_of_nodes_that_were_there_before_are_no_part_of_a_run(service: BatchServer) -> None:
    service.pool(node("tvm-1", allocated=-1, prepared=99), node("tvm-2", prepared=30), node("tvm-3", prepared=20))
    recorded = completed(service)
    assert recorded.run.record().phases["preparation"] == 30.0


# --- fetching -------------------------------------------------------------------------------------------------------


def test_logs_results_and_metrics_come_to_their_places(service: BatchServer) -> None:
    service.files["/jobs/j/tasks/train"] = {
        "stdout.txt": b"epoch 1 loss 0.5\n", "wd/output/model.pt": b"model", "wd/ranks/rank-0.metrics.jsonl":
        b'{"step": 1, "accuracy": 0.75}\n', "wd/__pycache__/a.pyc": b"not wanted",
    }  # fmt: skip
    begun_files: list[tuple[int, int]] = []
    moved: list[int] = []
    recorded = started(service)
    recorded.fetch([ran()], progress=Progress(lambda files, size: begun_files.append((files, size)), moved.append))
    recorded.end("completed")
    run = recorded.run
    assert (run.outputs("train") / "model.pt").read_bytes() == b"model"
    assert sorted(record.fetched for record in run.files()) == [
        "logs/train/stdout.txt", "metrics/train/0.jsonl", "outputs/train/model.pt",
    ]  # fmt: skip
    assert begun_files == [(3, 17 + 5 + 30)] and sum(moved) == 52
    assert [record.id for record in run.tasks()] == ["train"]
    assert run.record().summary == {"loss": Metric(0.5, 0.5), "accuracy": Metric(0.75, 0.75, 1)}
    assert recorded.conclusion() == f"results: {run.path}: 1 file, 5 bytes in outputs/"
    assert recorded.unsaved == ()


@pytest.mark.parametrize(
    ("tasks", "results", "names"),
    [
        (MOST_TASKS, None, ["model.pt", "x"]),
        (MOST_TASKS + 1, None, ["x"]),
        (MOST_TASKS + 1, {"include": ["*.pt"]}, ["model.pt"]),
    ],
)
def test_of_a_job_with_too_many_tasks_only_the_named_results_come_and_a_line_says_so(
    service: BatchServer, tasks: int, results: Any, names: list[str]
) -> None:
    service.files["/jobs/j/tasks/train"] = {"wd/model.pt": b"model", "wd/output/x": b"x"}
    recorded = started(service, job=job_of({"results": results}))
    recorded.fetch([ran(), *(replace(ran(), id=f"t{number}", node="") for number in range(1, tasks))])
    fetched = [Path(record.fetched).name for record in recorded.run.files()]
    assert sorted(name for name in fetched if name != "stdout.txt") == names
    assert ("so only `output` was fetched" in recorded.conclusion()) is (tasks > MOST_TASKS and results is None)


@pytest.mark.parametrize(
    ("results", "line"),
    [
        (None, ""),
        ({"include": []}, ""),
        ({"include": ["output/**"]}, "wd/model.pt was not fetched: `results.include` names other files"),
        ({"include": ["output/**"], "exclude": ["*.pt"]}, ""),
    ],
)
def test_a_created_file_that_the_settings_do_not_name_is_said(service: BatchServer, results: Any, line: str) -> None:
    service.files["/jobs/j/tasks/train"] = {"wd/model.pt": b"model", "wd/output/x": b"x", "wd/ranks/a": b"", "y": b""}
    recorded = fetched(service, job=job_of({"results": results}))
    assert (recorded.conclusion().partition("\n  ")[2], recorded.unsaved, recorded.missing) == (line, (), None)


def test_a_file_that_may_be_an_input_is_said_with_the_setting_that_makes_it_a_result(service: BatchServer) -> None:
    service.files["/jobs/j/tasks/train"] = {"wd/run.log": b"log", "wd/ranks/a": b""}
    files = [{"auto_storage_container_name": "inputs"}]
    recorded = fetched(service, job=job_of({"resource_files": files}))
    why = "the names of the task's inputs are not known before it runs; `results: {include: [...]}` names results"
    assert recorded.conclusion().partition("\n  ")[2] == f"wd/run.log was not fetched: {why}"


STORED = {"storage_account_settings": "s", "remote_path": "models"}


@pytest.mark.parametrize(
    ("output", "path", "is_alone"),
    [
        (None, "wd/model", True),
        (STORED, "wd/model", False),
        (STORED, "wd/.state/model", True),
        (STORED | {"condition": "taskfailure"}, "wd/model", True),
        (STORED | {"condition": "taskcompletion", "local_path": "wd", "include": ["*"]}, "wd/model", False),
        (STORED | {"local_path": "output"}, "wd/model", True),
        (STORED | {"local_path": "$AZ_BATCH_TASK_WORKING_DIR"}, "wd/model", False),
        (STORED | {"local_path": "wd/sub"}, "wd/sub/a/model", False),
        (STORED | {"is_file_share": True}, "wd/model", True),
    ],
)
def test_a_file_that_an_output_of_its_task_sent_to_storage_is_not_on_its_node_alone(
    service: BatchServer, output: Any, path: str, is_alone: bool
) -> None:
    service.files["/jobs/j/tasks/train"] = {path: b"model"}
    data = {"output_data": {"azure_storage": [output]}} if output else {}
    job = job_of({"results": {"max_created_size": "0", "max_size": "0"}, **data})
    recorded = fetched(service, job=job)
    assert (recorded.exceeds_limit, recorded.is_on_nodes_alone) == (True, is_alone)


def test_nodes_are_numbered_as_the_tasks_name_them_and_have_their_ranks(service: BatchServer) -> None:
    service.job(task("a", "tvm-2"), task("b", "tvm-1"))
    service.pool(node("tvm-1", address="10.0.0.5"))
    ranks = {f"wd/ranks/rank-{rank}.stdout.txt": b"x" for rank in (10, 9)}
    service.files["/jobs/j/tasks/a"] = {**ranks, "stdout.txt": b"y", "wd/ranks/rank-3.stderr.txt": b"z"}
    recorded = fetched(service, ran("a", node_id="tvm-2"), ran("b"), vm_size="D4")
    assert recorded.run.nodes() == (
        RunNode("n0", "tvm-2", "p", "", "D4", {"a": (9, 10)}),
        RunNode("n1", "tvm-1", "p", "10.0.0.5", "D4"),
    )


def test_the_nodes_of_a_pool_that_is_gone_have_no_address(service: BatchServer) -> None:
    del service.documents["/pools/p/nodes"]
    recorded = fetched(service)
    assert recorded.run.nodes() == (RunNode("n0", "tvm-1", "p"),)


def test_a_task_that_never_ran_has_no_node_and_nothing_is_fetched_of_it(service: BatchServer) -> None:
    recorded = fetched(service, Task("train", "completed", "failure"))
    assert (recorded.run.nodes(), recorded.run.files()) == ((), ())
    assert not (recorded.run.path / "nodes.json").exists()
    assert service.asked == []


def many(service: BatchServer, count: int, **variables: str) -> None:
    """Tasks of one node, each with a log and a result."""
    names = [f"t{number}" for number in range(count)]
    service.job(*(task(name, **variables) for name in names))
    files = {"stdout.txt": b"x", "wd/output/a": b"y"}
    service.files |= {f"/jobs/j/tasks/{name}": files for name in names}
    service.files["/pools/p/nodes/tvm-1"] = {
        f"workitems/j/job-1/{name}/{path}": content for name in names for path, content in files.items()
    }


def count_below(recorded: Recording, folder: str) -> int:
    return sum(record.fetched.startswith(folder) for record in recorded.run.files())


@pytest.mark.parametrize(
    ("count", "failed", "all_tasks", "logs"),
    [(20, 0, False, 20), (21, 2, False, 2), (22, 21, False, 21), (21, 0, False, 0), (21, 0, True, 21)],
)
def test_of_many_tasks_all_results_are_fetched_and_the_logs_of_those_that_failed(
    service: BatchServer, count: int, failed: int, all_tasks: bool, logs: int
) -> None:
    many(service, count)
    recorded = started(service)
    recorded.fetch([ran(f"t{number}", int(number < failed)) for number in range(count)], all_tasks=all_tasks)
    assert (count_below(recorded, "outputs/"), count_below(recorded, "logs/")) == (count, logs)
    left = {0: "", 1: "1 task that"}.get(count - logs, f"{count - logs} tasks that")
    assert (f"the logs of {left} succeeded were not fetched; a task with" in recorded.conclusion()) is bool(left)
    assert (recorded.unsaved, recorded.lost, recorded.missing) == ((), (), None)
    assert [record.name for record in recorded.run.nodes()] == ["n0"]


@pytest.mark.parametrize(("count", "logs"), [(200, 200), (201, 0)])
def test_the_logs_of_a_sweep_are_fetched_up_to_a_higher_number_of_tasks(
    service: BatchServer, count: int, logs: int
) -> None:
    service.job(task("t0", BATCHTRAIN_PARAMETERS='{"lr": 0.1}'))
    recorded = started(service, job=job_of({"task_factory": {"repeat": 300}}))
    known = tuple(ran(f"t{number}") for number in range(count))
    assert len(recorded._with_logs(known, all_tasks=False)) == logs


def test_of_many_tasks_those_with_results_keep_their_logs(service: BatchServer) -> None:
    recorded = started(service, job=job_of({"id": "keep", "results": {}}, {"id": "other"}))
    known = (*(ran(f"t{number}") for number in range(21)), ran("keep"))
    assert list(recorded._with_logs(known, all_tasks=False)) == ["keep"]


def test_a_fetch_that_was_interrupted_leaves_results_that_are_not_safe(service: BatchServer) -> None:
    def interrupt(files: int, size: int) -> None:
        raise KeyboardInterrupt

    many(service, 2)
    recorded = started(service)
    with pytest.raises(KeyboardInterrupt):
        recorded.fetch([ran("t0"), ran("t1")], progress=Progress(interrupt))
    assert recorded.unsaved == ("the fetching was interrupted",)
    recorded.fetch([ran("t0"), ran("t1")])
    assert recorded.missing is None


def test_the_results_of_a_job_that_was_deleted_are_not_waited_for(service: BatchServer) -> None:
    recorded = started(service)
    service.documents.clear()
    with pytest.raises(NotFound):
        recorded.fetch([ran(f"t{number}") for number in range(21)])
    assert recorded.unsaved == ()


def test_results_that_do_not_fit_on_the_disk_are_not_safe(service: BatchServer) -> None:
    many(service, 21)
    recorded = started(service)
    recorded.fetch([ran(f"t{number}") for number in range(21)], free=lambda directory: 0)
    (reason,) = recorded.unsaved
    assert "has 0 bytes free, and the files of task t0 need 1 bytes: free some space" in reason
    assert str(recorded.missing) == f"files of job j were not fetched: {reason}"
    assert not (recorded.run.path / "outputs").exists()


def test_a_result_that_cannot_be_fetched_again_is_still_recorded_with_the_reason(service: BatchServer) -> None:
    service.files["/jobs/j/tasks/train"] = {"wd/output/a": b"x" * 10}
    recorded = fetched(service)
    [before] = recorded.run.files()
    service.files["/jobs/j/tasks/train"] = {"wd/output/a": b"y" * 20}
    recorded.fetch([ran()], free=lambda directory: 0)
    [reason] = recorded.unsaved
    assert before.fetched == "outputs/train/a"
    assert recorded.run.files() == (replace(before, reason=reason),)
    assert f"wd/output/a was not fetched: {reason}" in recorded.conclusion()


def test_the_parameters_of_a_sweep_are_recorded_with_its_tasks(service: BatchServer) -> None:
    service.job(task("t0", BATCHTRAIN_PARAMETERS='{"lr": 0.1}'), task("t1", BATCHTRAIN_PARAMETERS="not ours"))
    recorded = completed(service, ran("t0"), ran("t1"), job=job_of({"task_factory": {"repeat": 2}}))
    assert [record.parameters for record in recorded.run.tasks()] == [{"lr": 0.1}, None]
    assert recorded.run.record().parameters == ("lr",)


def test_secrets_in_the_parameters_and_the_failure_of_a_task_are_masked(service: BatchServer) -> None:
    service.job(task("t0", BATCHTRAIN_PARAMETERS=f'{{"token": "{KEY}"}}'))
    failed = replace(ran("t0", exit_code=1), failure=Failure("BlobAccessDenied", f"no access with {KEY}"))
    recorded = fetched(service, failed, job=job_of({"task_factory": {"repeat": 1}}), secrets=(Secret(KEY),))
    (kept,) = recorded.run.tasks()
    assert kept.failure.code == "BlobAccessDenied" and kept.failure.message.startswith("no access with ")
    assert KEY not in str((kept.parameters, kept.failure))


def test_secrets_in_all_that_a_run_meets_are_masked(service: BatchServer) -> None:
    recorded = started(service, secrets=(Secret(KEY),), ended=after(60))
    run = recorded.run
    recorded.tell(PoolAdded("p", f"the registry of p has {KEY}"))
    attempt = PoolAttempt(
        candidate="c", account="a", vm_size="v", began=START, ended=START, code="X", reason=f"no login with {KEY}"
    )
    recorded.tell(CandidateTried("p", f"not with {KEY}", attempt))
    recorded.tell(AttemptSeen("train", f"began with {KEY}", Attempt("train", 2)))
    failure = TaskFailed(f"task train failed: {KEY}", task="train", cause=f"KeyError: {KEY}")
    failure.finding = Finding("unknown", "task train", f"it has {KEY}", f"line with {KEY}", f"look for {KEY}")
    recorded.fetch([ran(exit_code=1)])
    recorded.end("failed", failure)
    record = run.record()
    assert record.failure and record.failure.cause.startswith("KeyError: ")
    assert record.candidates[0].reason.startswith("no login with ")
    assert len(tuple(run.events())) >= 3
    files = [path for path in run.path.rglob("*") if path.is_file()]
    assert [path.name for path in files if KEY in path.read_text()] == []


def test_a_job_without_factories_is_not_asked_for_parameters(service: BatchServer) -> None:
    fetched(service)
    assert "GET /jobs/j/tasks" not in service.asked


RESULTS = {"include": ["*.pt"]}


@pytest.mark.parametrize(
    ("tasks", "include"),
    [
        ([{"id": "other"}, {"id": "train", "results": RESULTS}], ("*.pt",)),
        ([{"id": "other"}, {"results": RESULTS}], ("*.pt",)),
        ([{"results": RESULTS}, {"id": "train"}], None),
        ([{"id": "other"}, {"id": "many", "task_factory": {"repeat": 2}, "results": RESULTS}], ("*.pt",)),
        ([{"id": "other", "results": RESULTS}], None),
    ],
)
def test_a_task_has_the_results_of_its_own_settings_or_of_its_template(
    service: BatchServer, tasks: list[dict[str, Any]], include: Any
) -> None:
    results = started(service, job=job_of(*tasks))._settings("train").results
    assert (results and results.include) == include


def test_the_settings_of_a_job_of_another_command_are_those_of_its_tasks(service: BatchServer) -> None:
    settings = '{"results": {"include": ["*.pt"]}, "metrics": [{"name": "speed", "pattern": "speed (.+)"}]}'
    service.job(task("train", BATCHTRAIN_FETCH=settings), task("other", BATCHTRAIN_FETCH="{"))
    service.files["/jobs/j/tasks/train"] = {"stdout.txt": b"speed 12\n", "wd/a.pt": b"1", "wd/output/b": b"2"}
    recorded = adopt(service.client, service.account, "j", Origin(service.root))
    recorded.fetch([ran(), ran("other")])
    recorded.end("completed")
    assert (recorded.run.outputs("train") / "a.pt").exists()
    assert not (recorded.run.outputs("train") / "b").exists()
    assert recorded.metrics == {"train": {"speed": Metric(12.0, 12.0)}}


def test_files_beyond_the_maximum_size_are_named_until_they_are_fetched(service: BatchServer) -> None:
    service.files["/jobs/j/tasks/train"] = {"wd/output/a": b"x" * 2000, "wd/output/b": b"x" * 1500}
    recorded = fetched(service, job=job_of({"results": {"max_size": "1k"}}))
    why = "`results.max_size` is 1k; `batchtrain jobs fetch j --all` fetches it"
    assert recorded.unsaved == (why,)
    lost = "wd/output/a (2.0 KiB) and wd/output/b (1.5 KiB)"
    assert recorded.conclusion() == f"results: {recorded.run.path}\n  {lost} were not fetched: {why}"
    again = started(service, job=job_of({"results": {"max_size": "1k"}}))
    again.fetch([ran()], everything=True)
    assert again.conclusion() == f"results: {again.run.path}: 2 files, 3.4 KiB in outputs/"


def test_of_several_files_that_were_not_fetched_some_are_named(service: BatchServer) -> None:
    service.files["/jobs/j/tasks/train"] = {f"wd/output/{name}": b"x" * 2000 for name in "abcde"}
    recorded = fetched(service, job=job_of({"results": {"max_size": "1k"}}))
    names = ", ".join(f"wd/output/{name} (2.0 KiB)" for name in "abc")
    assert f"\n  {names} and 2 other files were not fetched: " in recorded.conclusion()


def test_a_node_that_is_gone_is_one_line_and_one_file_is_named(service: BatchServer) -> None:
    del service.files["/jobs/j/tasks/train"]
    recorded = fetched(service)
    (record,) = recorded.run.files()
    assert (record.task, record.path, record.node, record.size) == ("train", "", "tvm-1", 0)
    second = recorded.conclusion().splitlines()[1]
    assert second.startswith("  the files of 1 task were not fetched: list the files of task j/train")
    assert (recorded.unsaved, recorded.lost) == ((), (record.reason,))


def test_a_single_file_that_was_not_fetched_is_named_and_remarks_follow(service: BatchServer) -> None:
    service.files["/jobs/j/tasks/train"] = {"wd/output/a\x1b": b"x" * 2000, "stdout.txt": b"epoch 1 loss nan\n"}
    recorded = completed(service, job=job_of({"results": {"max_size": "1k"}}))
    _, missing = recorded.conclusion().split("\n  ")
    assert missing.startswith("wd/output/a") and " was not fetched: `results.max_size` is 1k;" in missing
    assert "\x1b" not in missing
    results = recorded.outcome()
    assert results.text.splitlines()[1] == "  loss  NaN since epoch 1"
    assert results.state == "succeeded, diverged"


# --- the end --------------------------------------------------------------------------------------------------------


def follow(recorded: Recording, task_id: str, line: str) -> None:
    """The task is followed while it prints a line, and to its end."""
    stream = MetricStream()
    recorded.tell(stream.event("j", task_id, stream.output([line], 0.0)))
    recorded.tell(stream.event("j", task_id, ended=True))


def test_the_summary_of_several_tasks_names_them(service: BatchServer) -> None:
    recorded = started(service)
    follow(recorded, "a", "test accuracy 0.5")
    follow(recorded, "b", "test accuracy 0.75")
    recorded.end("completed")
    assert recorded.run.record().summary == {"a/test_accuracy": Metric(0.5, 0.5), "b/test_accuracy": Metric(0.75, 0.75)}


def test_the_output_of_a_task_that_was_followed_is_not_read_again(service: BatchServer) -> None:
    service.job(task("train"), task("other"))
    service.files["/jobs/j/tasks/train"] = {"stdout.txt": b"test accuracy 0.25\n"}
    service.files["/jobs/j/tasks/other"] = {"stderr.txt": b"test accuracy 0.75\n", "stdout.txt": b""}
    recorded = started(service)
    follow(recorded, "train", "test accuracy 0.5")
    recorded.fetch([ran(), ran("other")])
    recorded.end("completed")
    assert {name: values["test_accuracy"].last for name, values in recorded.metrics.items()} == {
        "train": 0.5, "other": 0.75,
    }  # fmt: skip


def records_of(*losses: tuple[int, int]) -> list[str]:
    """Lines of the records of a gang: attempts by the count of its node, and losses."""
    return [json.dumps({"rank": 0, "attempt": attempt, "line": f"epoch 1 loss {loss}"}) for attempt, loss in losses]


def curve(recorded: Recording) -> list[tuple[int, float | None]]:
    return [(point.attempt, point.values["loss"]) for _, point in recorded.run.points()]


def test_a_node_that_counts_attempts_anew_does_not_repeat_their_numbers(service: BatchServer) -> None:
    recorded, stream = started(service), MetricStream()

    def runs(number: int, node: str, *losses: tuple[int, int]) -> None:
        recorded.tell(AttemptSeen("train", attempt=Attempt("train", number, (node,), START)))
        recorded.tell(stream.event("j", "train", stream.records(records_of(*losses), 0.0)))

    runs(1, "n1", (1, 9))
    runs(2, "n2", (1, 8))
    runs(3, "n2", (1, 7))  # the last line before its retry
    recorded.tell(stream.event("j", "train", stream.records(records_of((2, 6)), 0.0)))
    lost = Attempt("train", 3, ("n2",), START, START, "node lost", "n2")
    recorded.tell(AttemptEnded("train", "it is over", attempt=lost))
    runs(4, "n2", (1, 5))  # a new machine with the same id
    recorded.tell(stream.event("j", "train", ended=True))
    recorded.end("completed")
    assert curve(recorded) == [(1, 9), (2, 8), (2, 7), (3, 6), (4, 5)]


def test_files_of_the_last_node_are_of_the_last_attempts(service: BatchServer) -> None:
    begins = [AttemptEvent("began", number, START, node="tvm-1") for number in (1, 2)]
    service.files["/jobs/j/tasks/train"] = {
        ATTEMPTS: b"".join(map(line_of, begins)),
        RECORDS: "".join(f"{line}\n" for line in records_of((1, 8), (2, 7))).encode(),
        "wd/ranks/attempt-1/gpu.metrics.jsonl": b'{"loss": 6}\n',
    }
    recorded = completed(service, replace(ran(), requeues=1, retries=1))
    assert curve(recorded) == [(3, 7), (2, 6)]


def test_the_nodes_of_an_attempt_have_their_ids_although_they_are_gone_at_the_end(service: BatchServer) -> None:
    begins = [AttemptEvent("began", number, START, node="tvm-1", hosts=("10.0.0.7",)) for number in (1, 2)]
    service.files["/jobs/j/tasks/train"] = {ATTEMPTS: b"".join(map(line_of, begins))}
    recorded = started(service)
    recorded.tell(NodesSeen("p", nodes=(Node("tvm-2", "idle", address="10.0.0.7"),)))
    recorded.fetch([replace(ran(), requeues=1)])
    recorded.end("completed")
    assert [attempt.nodes for attempt in recorded.run.attempts()] == [("tvm-1", "tvm-2")] * 2


def test_the_attempts_of_a_job_that_is_added_again_elsewhere_follow_those_before(service: BatchServer) -> None:
    recorded = begun(service, recipe())
    recorded.tell(AttemptSeen("train", attempt=Attempt("train", 2, ("n1",), START)))
    recorded.restart()
    other = recipe(pool={"vm_size": "STANDARD_D8S_V5"})
    (recorded.run.config / "plan.json").unlink()
    recorded.move(service.client, service.account, other, plan_jobs(other))
    recorded.tell(AttemptSeen("train", attempt=Attempt("train", 1, ("n2",), START)))
    assert [(attempt.number, attempt.nodes) for attempt in recorded.run.attempts()] == [(2, ("n1",)), (3, ("n2",))]
    assert recorded.run.record().vm_size == "STANDARD_D8S_V5"
    assert (recorded.run.config / "plan.json").exists()


@pytest.mark.parametrize("leaver", ["user", "terminal"])
def test_a_run_that_is_left_is_no_lost_one(service: BatchServer, leaver: str) -> None:
    recorded = started(service)
    recorded.leave(leaver)
    assert (recorded.run.record().state, recorded.run.record().left_by) == ("left", leaver)
    assert lease.holder(recorded.run.path) in ("lost", "none")


def test_a_run_that_the_service_ends_is_detached(service: BatchServer) -> None:
    recorded = started(service)
    recorded.detach()
    assert recorded.run.record().state == "detached"


def test_the_output_that_was_followed_is_kept_by_stream(service: BatchServer) -> None:
    recorded = started(service)
    recorded.lines("train", "stdout", ["a", "b"])
    recorded.lines("train", "stderr", ["c"])
    recorded.lines("train", "stdout", ["d"])
    logs = recorded.run.logs("train")
    assert [(logs / f"{stream}.txt").read_text() for stream in ("stdout", "stderr")] == ["a\nb\nd\n", "c\n"]


def test_a_long_output_is_read_in_parts(service: BatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "AT_ONCE", 2)
    monkeypatch.setattr(recording, "LONGEST", 1000)
    lines = "x" * 10_000 + "\n" + "".join(f"epoch {number} loss {number}\n" for number in range(1, 6))
    service.files["/jobs/j/tasks/train"] = {"stdout.txt": lines.encode()}
    recorded = completed(service)
    assert recorded.metrics["train"]["loss"] == Metric(5.0, 1.0)
    groups = recording._line_groups(recorded.run.logs("train") / "stdout.txt")
    assert max(len(line) for group in groups for line in group) == 1000


def test_the_output_of_an_attempt_is_read_from_where_it_begins(tmp_path: Path) -> None:
    output = tmp_path / "stdout.txt"
    output.write_bytes(b"first\nsecond\n")
    assert [*recording._line_groups(output, len(b"first\n"))] == [["second"]]


PRICES = Cost(currency="USD", region="r", dedicated=2.0, spot=1.0, hour=6.0)


def test_a_run_costs_the_hours_of_its_nodes_until_its_job_ended(service: BatchServer) -> None:
    service.pool(node("tvm-1", allocated=-3600), node("tvm-2", allocated=1800, isDedicated=False))
    recorded = completed(service, ended=after(3600), cost=PRICES, vm_size="D4")
    record = recorded.run.record()
    assert (record.state, record.ended, record.node_hours) == ("completed", after(3600), 1.5)
    assert record.cost == msgspec.structs.replace(PRICES, run=2.5)
    assert recorded.outcome().text.splitlines()[1] == "  cost  2.50 USD, 1.50 node hours"


def test_a_run_that_ended_before_its_nodes_costs_them_until_now(
    service: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "now", lambda: after(3600))
    service.pool(node("tvm-1", allocated=0))
    recorded = fetched(service)
    recorded.end("completed", ended=after(60))
    record = recorded.run.record()
    assert (record.ended, record.node_hours) == (after(60), 1.0)


def test_a_run_whose_job_goes_on_has_no_end_and_no_cost(service: BatchServer) -> None:
    recorded = fetched(service, cost=PRICES)
    recorded.end("fetched")
    record = recorded.run.record()
    assert (record.state, record.ended, record.node_hours, record.cost) == ("fetched", None, None, PRICES)
    assert recorded.run.report.read_text().startswith("<!doctype html>")


def test_a_run_ends_now_if_the_end_of_its_job_is_unknown(service: BatchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "now", lambda: after(77))
    recorded = started(service)
    recorded.end("interrupted")
    assert (recorded.run.record().ended, recorded.run.record().node_hours) == (after(77), 0.0)


def test_a_run_that_another_process_still_records_is_left_to_it(service: BatchServer) -> None:
    first = started(service)
    record = RunRecord(id=first.run.name, job="j", started=START, state="running")
    first.run.write(record)
    Recording(service.client, service.account, first.run, record, job_of()).end("completed")
    assert first.run.record().state == "running"
    first.end("failed")
    assert first.run.record().state == "failed"


def test_a_lost_run_is_ended_by_the_next_process_that_records_it(service: BatchServer) -> None:
    run = made(service.root, state="running")
    Recording(service.client, service.account, run, run.record(), job_of()).end("completed")
    assert run.record().state == "completed"


def test_a_full_disk_ends_no_run_and_is_reported_at_its_end(
    service: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    recorded = started(service)
    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "add_event", full)
        recorded.tell(PoolAdded("p", "added pool p"))
    with pytest.raises(OSError, match="No space left on device"):
        recorded.end("completed")
    assert recorded.run.record().state == "completed"
    assert "the record of this run is incomplete: No space left on device" in recorded.conclusion()


FINDING = Finding("disk-full", "task train", "a disk is full", "x", "free space")


def stopped(why: str, next_step: str = "run it again") -> RunFailure:
    return RunFailure(why, cause=why, finding=Finding("stopped", "the run", why, "", next_step)._asdict())


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (TaskFailed("it failed", task="train", rank=3, node="tvm-1", code=7, cause="KeyError"),
         RunFailure("it failed", "train", 3, "tvm-1", 7, "KeyError")),
        (UsageError("wrong"), RunFailure("wrong")),
        (KeyboardInterrupt(), stopped("stopped by the user")),
        (Terminated(), stopped("stopped by SIGTERM")),
        (None, None),
    ],
)  # fmt: skip
def test_why_a_run_failed_is_recorded(
    service: BatchServer, error: BaseException | None, failure: RunFailure | None
) -> None:
    recorded = started(service)
    recorded.end("failed", error)
    assert recorded.run.record().failure == failure


def test_a_hang_that_the_user_stops_names_the_rank_that_stood_still(service: BatchServer) -> None:
    recorded, now = started(service), time.time()
    ranks = Rank(0, step=9, heard=now - 80), Rank(1, step=7, heard=now - 84), Rank(2, step=9, heard=now - 79)
    recorded.tell(MetricsSeen("train", job="j", ranks=ranks))
    recorded.end("interrupted", KeyboardInterrupt())
    why = "stopped by the user while rank 1 stood still for 84 s"
    assert recorded.run.record().failure == stopped(why, "read the output of that rank")


def test_a_wait_that_the_user_stops_has_its_next_step(service: BatchServer) -> None:
    recorded = started(service)
    recorded.tell(TasksWait("j", finding=Finding("job-disabled", "task t", "the job is disabled", "", "enable it")))
    recorded.end("interrupted", KeyboardInterrupt())
    assert recorded.run.record().failure == stopped("stopped by the user while the job is disabled", "enable it")


@pytest.mark.parametrize(("state", "advises"), [("failed", True), ("interrupted", True), ("completed", False)])
def test_a_run_with_checkpoints_that_did_not_succeed_has_the_command_that_continues_it(
    service: BatchServer, state: str, advises: bool
) -> None:
    recorded = started(service)
    record = json.dumps({"run": recorded.run.name, "training": "/m/p/j/t", "line": 1})
    directory.replace(recorded.run.logs("t") / "lineage.json", record.encode())
    recorded.end(state, None)
    advice = f"\n  continue from its checkpoints: batchtrain run --resume {recorded.run.name}"
    assert (advice in recorded.conclusion()) is advises


def test_the_finding_of_a_failure_is_recorded(service: BatchServer) -> None:
    error = TaskFailed("it failed")
    error.finding = FINDING
    recorded = started(service)
    recorded.end("failed", error)
    failure = recorded.run.record().failure
    assert failure is not None and failure.found == FINDING


def ended_run(service: BatchServer) -> RunDirectory:
    """The run of an ended job of two tasks, of which only `train` was fetched."""
    service.job(task("train"), task("late"))
    service.files["/jobs/j/tasks/train"] = {"stdout.txt": b"test accuracy 0.5\n"}
    service.files["/jobs/j/tasks/late"] = {"stdout.txt": b"test accuracy 0.75\n"}
    recorded = started(service, ended=after(300), account="acct")
    follow(recorded, "train", "test accuracy 0.5")
    recorded.fetch([ran(), ran("late", node_id="")])
    recorded.end("failed", UsageError("wrong"))
    return recorded.run


def test_a_later_fetch_adds_to_a_run_that_had_ended_and_keeps_its_end(service: BatchServer) -> None:
    before = ended_run(service).record()
    recorded = adopt(service.client, service.account, "j", Origin(service.root))
    recorded.run.write_tasks(recorded._records([ran(), ran("late")]))
    recorded.fetch([ran(), ran("late")])
    recorded.end("completed")
    later = recorded.run.record()
    assert (later.id, later.state, later.failure, later.ended) == (before.id, "failed", before.failure, before.ended)
    assert later.summary == {"test_accuracy": Metric(0.5, 0.5), "late/test_accuracy": Metric(0.75, 0.75)}


def test_a_run_whose_tasks_ran_again_gets_a_new_end(service: BatchServer) -> None:
    ended_run(service)
    recorded = adopt(service.client, service.account, "j", Origin(service.root))
    recorded.fetch([ran(), ran("late")])
    recorded.end("completed")
    record = recorded.run.record()
    assert (record.state, record.failure, sorted(record.summary)) == (
        "completed", None, ["late/test_accuracy", "train/test_accuracy"],
    )  # fmt: skip


# --- the run of a job -----------------------------------------------------------------------------------------------


def test_a_job_of_another_command_gets_a_run_directory_with_what_the_service_knows(service: BatchServer) -> None:
    settings = {"credentials.batch.account_key": "S3CR3T"}
    recorded = adopt(service.client, service.account, "j", Origin(service.root, ("fetch", "j", "key=S3CR3T"), settings))
    record = recorded.run.record()
    assert (record.job, record.state, record.started, record.pool) == ("j", "running", START, "p")
    assert (record.vm_size, record.nodes, record.account) == ("standard_d4s_v5", 3, "acct")
    assert record.versions == VERSIONS
    assert record.command[:2] == ("fetch", "j") and "S3CR3T" not in record.command[2]
    recorded.end("completed")
    assert recorded.run.record().ended == after(300)


def test_a_job_whose_pool_is_gone_still_gets_a_run_directory(service: BatchServer) -> None:
    del service.documents["/pools/p"]
    record = adopt(service.client, service.account, "j", Origin(service.root)).run.record()
    assert (record.pool, record.vm_size, record.nodes) == ("p", "", 0)


def test_a_job_that_does_not_exist_gets_no_run_directory(service: BatchServer) -> None:
    with pytest.raises(NotFound):
        adopt(service.client, service.account, "none", Origin(service.root))
    assert list(service.root.iterdir()) == []


def written(service: BatchServer, number: int, **fields: Any) -> RunDirectory:
    known = {"ended": after(300), "account": "acct", "endpoint": service.account.endpoint}
    return made(service.root, **{"started": after(number), **known, **fields})


def test_the_newest_run_of_a_job_is_continued_and_one_that_cannot_be_read_is_skipped(service: BatchServer) -> None:
    _, second, third = (written(service, number) for number in range(3))
    (third.path / "run.json").write_text("{")
    assert adopt(service.client, service.account, "j", Origin(service.root)).run == second


CREATED = Job("j", "active", "p", created=after(10))


@pytest.mark.parametrize(
    ("fields", "job", "fits"),
    [
        ({}, CREATED, True),
        ({"ended": after(10)}, CREATED, True),
        ({"ended": after(9)}, CREATED, False),
        ({"ended": None}, CREATED, True),
        ({"ended": None}, replace(CREATED, metadata=({"name": "batchtrain:run", "value": "another"},)), False),
        ({"ended": after(9)}, replace(CREATED, created=None), True),
        ({"state": "fetched", "ended": None, "started": after(10)}, CREATED, True),
        ({"state": "fetched", "ended": None, "started": after(11)}, CREATED, False),
        ({"state": "fetched", "ended": None}, replace(CREATED, created=None), True),
        ({"job": "k"}, CREATED, False),
        ({"account": "other"}, CREATED, False),
        ({"endpoint": "https://other"}, CREATED, False),
        ({"endpoint": "https://other", "ended": after(9)}, None, True),
        ({"account": "other"}, None, False),
        ({"job": "k"}, None, False),
    ],
)
def test_a_run_belongs_to_a_job_and_not_to_an_earlier_one_of_its_name(
    tmp_path: Path, fields: dict[str, Any], job: Job | None, fits: bool
) -> None:
    service = BatchServer()
    service.root = tmp_path
    run = written(service, 0, **fields)
    assert recorded_job(tmp_path, service.account, "j", job) == (run if fits else None)


def test_the_commit_of_a_recipe_says_whether_files_differ_from_it(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e@x", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert commit_of(tmp_path / "none") is None
    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-qm", "first")
    commit = git("rev-parse", "HEAD")
    assert commit_of(tmp_path) == Commit(commit, dirty=False)
    (tmp_path / "a").write_text("2")
    assert commit_of(tmp_path) == Commit(commit, dirty=True)


def test_the_run_of_a_job_that_is_gone_is_closed_with_what_its_directory_has(service: BatchServer) -> None:
    service.documents.clear()
    run = made(service.root, state="running")
    run.add_event(EventRecord(after(60), "job.add", "j", "added job j"))
    directory.replace(run.metrics_file("t"), b'{"t": 1, "step": 1, "of_a_pattern": 0.5}\n')
    Recording(service.client, service.account, run, run.record()).close("interrupted")
    record = run.record()
    assert (record.state, record.ended, record.summary["of_a_pattern"].last) == ("interrupted", after(60), 0.5)


def test_a_run_on_an_emulator_is_found_again_whatever_port_it_has_now() -> None:
    record = RunRecord(id="r", job="j", started=START, state="running", account="x", endpoint="http://127.0.0.1:7")
    emulator, azure = (Account("http://127.0.0.1:8", "x", Secret("a2V5"), emulated=here) for here in (True, False))
    assert (is_of_account(record, emulator), is_of_account(record, azure)) == (True, False)
