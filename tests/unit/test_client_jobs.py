"""What the client says of jobs before it asks the service for anything."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from batchtrain import records
from batchtrain.cli.jobs import _either
from batchtrain.cli.run import NAMED, failed_tasks
from batchtrain.client import job
from batchtrain.client.job import Job
from batchtrain.client.jobs import MOST_COUNTED, Jobs
from batchtrain.client.pools import Pools
from batchtrain.errors import NotFound, PlanError, ServiceError, Unreachable, UsageError
from batchtrain.life import rules
from batchtrain.records import Failure, Task
from batchtrain.records.failure import EXIT_CODE, TASK_ENDED
from batchtrain.records.rank_end import RankEnd
from batchtrain.service import files, read
from batchtrain.service.failed import EXPLAINED_TASKS, failed
from tests.unit.plan.jobs import recipe

OFFLINE: Any = SimpleNamespace(recipe_here=lambda recipe, *_, **__: recipe)


def test_neither_a_schedule_is_added_as_a_job_nor_a_pool_beside_jobs_that_bring_it_themselves() -> None:
    nightly = recipe({"recurrence": {"schedule": {"recurrence_interval": "01:00:00"}}})
    with pytest.raises(UsageError, match=r"use jobs\.add_all"):
        Jobs(OFFLINE).add(nightly)
    with pytest.raises(PlanError, match="creates its own pool"):
        Pools(OFFLINE).add(recipe({"auto_pool": {}}))


def test_the_run_of_a_job_without_tasks_is_not_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Mock(unsaved=(), lost=())
    monkeypatch.setattr(job, "adopt", lambda *_: recording)
    monkeypatch.setattr(Job, "tasks", ())
    Job(Mock(), "job").fetch(Mock())
    recording.end.assert_called_once_with("fetched", None)


def refuse(error: ServiceError) -> Any:
    def ask() -> None:
        raise error

    return ask


@pytest.mark.parametrize(
    ("error", "said"), [(NotFound("no schedule"), "no job"), (Unreachable("no answer"), "no answer")]
)
def test_a_name_that_is_no_job_may_be_a_schedule_and_one_that_is_neither_is_said_of_the_job(
    error: ServiceError, said: str
) -> None:
    assert _either(refuse(NotFound("no job")), lambda: "a schedule") == "a schedule"
    with pytest.raises(ServiceError, match=said):
        _either(refuse(NotFound("no job")), refuse(error))


@pytest.mark.parametrize(
    ("code", "lines", "rank", "end"),
    [
        (127, (), RankEnd("rank 0", 0, "n", exit_code=127), "exited with code 127 (a command was not found)"),
        (137, (), RankEnd("rank 1", 1, "n", signal=9), "(for example by the kernel if memory runs out)"),
        (127, (), RankEnd(), "exit code 127 (a command was not found)"),
        (127, ("batchtrain: there is no mpirun on PATH",), RankEnd(), "there is no mpirun on PATH"),
        (3, (), RankEnd("rank 0", 0, "n", exit_code=3), "rank 0 on node n exited with code 3"),
        (3, (), RankEnd("rank 0", 0, exit_code=3), "rank 0 on an unknown node exited with code 3"),
        (3, (), RankEnd("rank 0", 0, "n", exit_code=3, ending="exited through MPI_Abort"), "exited through MPI_Abort"),
        (1, ("batchtrain: bye",), RankEnd(exit_code=1, ending="node b was lost"), "exit code 1: node b was lost"),
    ],
)
def test_what_a_shell_means_by_a_code_is_said_where_nothing_else_says_it(
    monkeypatch: pytest.MonkeyPatch, code: int, lines: tuple[str, ...], rank: RankEnd, end: str
) -> None:
    monkeypatch.setattr(files, "stderr_end", lambda *_: lines)
    monkeypatch.setattr(files, "first_end", lambda *_: rank)
    task = Task("train", "completed", "failure", exit_code=code, node="n")
    assert str(Job(Mock(), "job").failure_of(task)).endswith(end)


def test_of_many_failed_tasks_the_first_are_named_and_the_others_counted() -> None:
    *named, rest = failed_tasks([Task(f"t{n}", "completed", "failure", exit_code=3) for n in range(NAMED + 2)])
    assert named == [f"task t{n} ended with exit code 3" for n in range(NAMED)]
    assert rest == "2 more of 22 tasks that did not succeed"
    never_ran = [Task("train", "completed", "failure"), Task("good", "completed", "success", exit_code=0)]
    assert list(failed_tasks(never_ran)) == ["task train ended without an exit code"]


@pytest.mark.parametrize(("code", "verb"), [(TASK_ENDED, "was terminated"), (EXIT_CODE, "failed")])
def test_a_task_that_something_else_ended_is_not_said_to_have_failed(code: str, verb: str) -> None:
    task = Task("train", "completed", "failure", exit_code=143, node="n", failure=Failure(code, "why"))
    message = str(failed("j", task, (), RankEnd("rank 0", 0, "n", signal=15)))
    assert message.startswith(f"task j/train {verb}: rank 0 on node n was killed by signal 15")


@pytest.mark.parametrize(
    ("code", "lines", "reason"),
    [
        (
            1, ("Traceback (most recent call last):", '  File "x.py", line 1, in <module>', "ValueError: 3"),
            "ValueError: 3"),
        (1, ("batchtrain: there is no mpirun on PATH",), "there is no mpirun on PATH"),
        (3, ("loading", "no data here", ""), "no data here"),
        (137, ("step 3",), "exit code 137 (for example by the kernel if memory runs out)"),
        (
            139, ("batchtrain: rank 0 on node n was killed by signal 11", "batchtrain:     start"),
            "rank 0 on node n was killed by signal 11 (a segmentation fault: it accessed memory that is not its own)"),
        (127, (), "a command was not found"),
        (4, (), "exit code 4"),
    ],
)  # fmt: skip
def test_a_list_of_tasks_names_the_cause_in_place_of_the_services_sentence(
    monkeypatch: pytest.MonkeyPatch, code: int, lines: tuple[str, ...], reason: str
) -> None:
    monkeypatch.setattr(files, "stderr_end", lambda *_: lines)
    monkeypatch.setattr(files, "first_end", lambda *_: RankEnd())
    exited = Task("train", "completed", "failure", exit_code=code, failure=Failure(EXIT_CODE, "The task exited with"))
    job = Job(Mock(), "job")
    monkeypatch.setattr(job, "iter_tasks", lambda **_: iter([exited]))
    (explained,) = job.explained([exited])
    assert str(explained.failure) == reason
    for text in (job.tasks._repr_html_(), str(job.tasks)):
        assert reason in text
        assert "The task exited" not in text
    assert job.tasks == (exited,)


def test_only_the_first_failures_of_a_list_cost_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = list[str]()
    monkeypatch.setattr(files, "stderr_end", lambda _client, _job, task_id: reads.append(task_id) or ("bad",))
    monkeypatch.setattr(files, "first_end", lambda *_: RankEnd())
    exited = Task("train", "completed", "failure", exit_code=1, failure=Failure(EXIT_CODE, "The task exited with"))
    refused = Task("lost", "completed", "failure", failure=Failure("BlobNotFound", "gone"))
    rows = list(Job(Mock(), "job").explained([refused, *[exited] * (EXPLAINED_TASKS + 5)]))
    assert rows[0] == refused
    assert [str(row.failure) for row in rows[1:]] == ["bad"] * EXPLAINED_TASKS + ["exit code 1"] * 5
    assert len(reads) == EXPLAINED_TASKS


def test_a_list_of_jobs_counts_the_tasks_of_the_newest_and_their_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    began = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)
    rows = [
        records.Job(
            f"j{number}",
            "completed",
            created=began + timedelta(days=number),
            ended=began + timedelta(days=number, seconds=8),
        )
        for number in range(MOST_COUNTED + 1)
    ]
    gone = rows[-1].id

    def counts(_: Any, job_id: str) -> records.Counts:
        if job_id == gone:
            raise NotFound("deleted since it was listed")
        return records.Counts(active=2, succeeded=3, failed=1)

    monkeypatch.setattr(read, "jobs", lambda _: rows)
    monkeypatch.setattr(read, "counts", counts)
    oldest, *counted, last = Jobs(Mock()).list(counted=True)
    assert (oldest, last) == (rows[0], rows[-1])
    assert {(job.active, job.succeeded, job.failed, job.rate) for job in counted} == {(2, 3, 1, 0.5)}
    assert Jobs(Mock()).list() == tuple(rows)
    rows[:] = [records.Job("j", "active")]
    assert [job.rate for job in Jobs(Mock()).list(counted=True)] == [None]


@pytest.mark.parametrize(("state", "asked"), [("active", 1), ("running", 0)])
def test_a_task_that_never_started_has_failed_for_what_keeps_it_waiting(
    state: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[str]()

    def reason_to_wait(job: Job) -> Any:
        waits.append(job.id)
        return Mock(rule=Mock(exit_code=rules.FAILED), reason=Mock(text="no node has room for it"))

    monkeypatch.setattr(Job, "reason_to_wait", reason_to_wait)
    monkeypatch.setattr(Job, "_examined", lambda *_, **__: Mock(first=None))
    monkeypatch.setattr(read, "job", lambda *_: records.Job("job", "active"))
    error = Job(Mock(), "job").first_failure([Task("done", "completed", "success", exit_code=0), Task("t", state)])
    assert error is not None
    assert (len(waits), str(error).endswith("; no node has room for it")) == (asked, bool(asked))
    assert Job(Mock(), "job").first_failure([Task("done", "completed", "success", exit_code=0)]) is None
