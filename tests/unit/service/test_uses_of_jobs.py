"""A look at a job: what it reads, and whether a run still uses the job."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from batchtrain.life.seen import Seen
from batchtrain.records import Counts, Job
from batchtrain.service import observe
from batchtrain.service.tasks import FEW
from tests.unit.service.test_retry import EMPTY, Service, refusal

OPEN, ENDED = (200, {"value": [{"id": "t", "state": "active"}]}), (200, EMPTY)


def job(state: str) -> tuple[int, Any]:
    return 200, {"id": "j", "state": state, "poolInfo": {}}


@pytest.mark.parametrize(
    ("run_state", "answers", "is_used"),
    [
        ("running", [], True),
        ("detached", [job("active")], True),
        ("detached", [job("terminating")], False),
        ("lost", [job("deleting")], False),
        ("lost", [job("active"), ENDED], False),
        ("", [job("active"), ENDED], False),
        ("lost", [refusal("JobNotFound", 404)], False),
        ("lost", [job("active"), OPEN, job("active"), (200, {"taskCounts": {"running": 1}}), job("active")], True),
        ("lost", [job("disabled"), OPEN, job("disabled"), (200, {"taskCounts": {"active": 1}}), OPEN], True),
    ],
)
def test_a_job_is_used_while_its_run_or_a_task_of_it_may_go_on(
    run_state: str, answers: list[Any], is_used: bool
) -> None:
    assert observe.is_used(Service(*answers).client, "j", run_state) is is_used


JOB = Job("j", "active", pool="p")
POOL, NODES = (200, {"id": "p", "state": "active"}), (200, {"value": [{"id": "n", "state": "idle"}]})
NO_QUOTA = (200, {"id": "p", "targetDedicatedNodes": 2, "resizeErrors": [{"code": "AccountCoreQuotaReached"}]})
PREPARATIONS = (200, {"value": [{"nodeId": "n", "jobPreparationTaskExecutionInfo": {"state": "completed"}}]})
NO_POOL, COMPLETED = refusal("PoolNotFound", 404), (200, {"id": "j", "state": "completed", "poolInfo": {"poolId": "p"}})


def page(*names: str, next_page: str = "") -> tuple[int, Any]:
    link = f"https://x/jobs/j/tasks?$skiptoken={next_page}" if next_page else ""
    return 200, {"value": [{"id": name, "state": "active"} for name in names], "odata.nextLink": link}


@pytest.mark.parametrize(
    ("known", "counts", "answers", "tasks", "more"),
    [
        (JOB, Counts(running=1, active=1), [POOL], None, ""),
        (JOB, Counts(succeeded=1), [POOL], None, ""),
        (replace(JOB, pool=""), Counts(running=1), [], None, ""),
        (None, Counts(running=1), [job("active")], None, ""),
        (JOB, Counts(active=1), [NO_POOL, COMPLETED, page("a")], ["a"], ""),
        (replace(JOB, state="terminating"), Counts(active=1), [POOL], None, ""),
        (JOB, Counts(active=FEW), [POOL, NODES, page("a", "b")], ["a", "b"], ""),
        (JOB, Counts(active=1), [NO_QUOTA, NODES, (200, {"value": []}), page("a")], ["a"], ""),
        (replace(JOB, must_prepare=True), Counts(active=1), [POOL, NODES, PREPARATIONS, page("a")], ["a"], ""),
        (JOB, Counts(active=FEW), [POOL, refusal("PoolNotFound", 404), page("a")], ["a"], ""),
        (JOB, Counts(active=FEW + 1), [POOL, NODES, page("f"), page("a")], ["f", "a"], ""),
        (JOB, Counts(active=FEW + 1), [POOL, NODES, page("f"), page("a", next_page="2")], ["f", "a"], "2"),
    ],
)
def test_a_look_reads_no_more_than_the_rules_need_and_counts_its_requests(
    known: Job | None, counts: Counts, answers: list[Any], tasks: list[str] | None, more: str
) -> None:
    service = Service(*answers)
    seen, requests = observe.look(service.client, "j", counts, known)
    assert requests == len(service.asked) == len(answers)
    assert (seen.tasks and [task.id for task in seen.tasks], seen.next_page) == (tasks, more)


def test_further_looks_read_the_rest_of_the_open_tasks_a_few_pages_at_a_time() -> None:
    names = [f"t{number}" for number in range(observe.MORE_PAGES + 2)]
    service = Service(*(page(name, next_page=name) for name in names[:-1]), page(names[-1]))
    seen, requests = observe.more(service.client, Seen(JOB), 1)
    for _ in range(2):
        seen, more = observe.more(service.client, seen)
        requests += more
    assert requests == len(service.asked) == len(names)
    assert [query.get("$skiptoken", "") for query in service.queries] == ["", *names[:-1]]
    assert ([task.id for task in seen.tasks or ()], seen.next_page) == (names, "")
