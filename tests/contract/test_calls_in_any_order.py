"""A client that calls what it likes in any order, beside a model of what the service has to make of it.

Each step is a call through the SDK; then everything comes to rest, and what the service shows is what the rules say.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from azure.batch import BatchClient, models
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests import examples
from tests.contract.conftest import pool, task
from tests.contract.ways import ACCOUNT, ENDPOINT, KEY, Inside, Transport

POOLS = st.sampled_from(("p1", "p2"))
JOBS = st.sampled_from(("j1", "j2"))
TASKS = st.sampled_from(("t1", "t2", "t3"))
FAST = {"polling_interval": 0.001}
PATIENCE = 180.0


class Task:
    """What a task was asked to do, and what has to have become of it."""

    def __init__(self, exit_code: int, retries: int) -> None:
        self.exit_code, self.retries = exit_code, retries
        self.state = "active"
        self.ran = False
        """Whether it ended by itself."""


class Job:
    def __init__(self, pool_id: str) -> None:
        self.pool_id = pool_id
        self.state = "active"
        self.tasks: dict[str, Task] = {}


class Calls(RuleBasedStateMachine):
    """Two pools, two jobs and their tasks, a schedule."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        place = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.inside = self.stack.enter_context(Inside(place / "data"))
        credential = AzureNamedKeyCredential(ACCOUNT, KEY)
        transport = Transport(self.inside)
        self.client = self.stack.enter_context(BatchClient(ENDPOINT, credential, retry_total=0, transport=transport))
        self.pools: dict[str, int] = {}
        self.jobs: dict[str, Job] = {}
        self.schedule = ""

    def teardown(self) -> None:
        self.stack.close()

    def call(self, operation: Callable[[], Any], refusal: str | None = None) -> None:
        """A call that is refused with this code, or not at all; then everything comes to rest, here and there."""
        try:
            outcome = operation()
            if hasattr(outcome, "wait"):
                outcome.wait()
            assert refusal is None, f"it should have been refused: {refusal}"
        except HttpResponseError as error:
            assert error.error is not None and error.error.code == refusal, (error.error, refusal)
        self.rest()

    def rest(self) -> None:
        self.inside.run(self.inside._application.driver.quiet(PATIENCE))
        for one in self.jobs.values():
            if one.state == "active" and self.pools.get(one.pool_id):
                for each in one.tasks.values():
                    each.ran = each.ran or each.state == "active"
                    each.state = "completed"

    # Pools

    @rule(pool_id=POOLS, nodes=st.integers(0, 2))
    def create_pool(self, pool_id: str, nodes: int) -> None:
        refusal = "PoolExists" if pool_id in self.pools else None
        self.pools.setdefault(pool_id, nodes)
        self.call(lambda: self.client.create_pool(pool(pool_id, nodes)), refusal)

    @rule(pool_id=POOLS, nodes=st.integers(0, 2))
    def resize_pool(self, pool_id: str, nodes: int) -> None:
        refusal = None if pool_id in self.pools else "PoolNotFound"
        if pool_id in self.pools:
            self.pools[pool_id] = nodes
        options = models.BatchPoolResizeOptions(target_dedicated_nodes=nodes)
        self.call(lambda: self.client.begin_resize_pool(pool_id, options, **FAST), refusal)

    @rule(pool_id=POOLS)
    def delete_pool(self, pool_id: str) -> None:
        refusal = None if self.pools.pop(pool_id, None) is not None else "PoolNotFound"
        self.call(lambda: self.client.begin_delete_pool(pool_id, **FAST), refusal)

    # Jobs

    @rule(job_id=JOBS, pool_id=POOLS)
    def create_job(self, job_id: str, pool_id: str) -> None:
        refusal = "JobExists" if job_id in self.jobs else None
        self.jobs.setdefault(job_id, Job(pool_id))
        body = models.BatchJobCreateOptions(id=job_id, pool_info=models.BatchPoolInfo(pool_id=pool_id))
        self.call(lambda: self.client.create_job(body), refusal)

    def over(self, job_id: str) -> str | None:
        """The refusal of a call about a job that has to go on for it."""
        if job_id not in self.jobs:
            return "JobNotFound"
        return "JobCompleted" if self.jobs[job_id].state == "completed" else None

    @rule(job_id=JOBS, tasks=st.sampled_from(("requeue", "terminate", "wait")))
    def disable_job(self, job_id: str, tasks: str) -> None:
        refusal = self.over(job_id)
        if refusal is None:
            self.jobs[job_id].state = "disabled"
        options = models.BatchJobDisableOptions(disable_tasks=tasks)
        self.call(lambda: self.client.begin_disable_job(job_id, options, **FAST), refusal)

    @rule(job_id=JOBS)
    def enable_job(self, job_id: str) -> None:
        refusal = self.over(job_id)
        if refusal is None and self.jobs[job_id].state == "active":
            refusal = "OperationInvalidForCurrentState"
        if refusal is None:
            self.jobs[job_id].state = "active"
        self.call(lambda: self.client.begin_enable_job(job_id, **FAST), refusal)

    @rule(job_id=JOBS)
    def terminate_job(self, job_id: str) -> None:
        refusal = self.over(job_id)
        if refusal is None:
            self.jobs[job_id].state = "completed"  # what was active stays so for ever
        self.call(lambda: self.client.begin_terminate_job(job_id, {"terminateReason": "enough"}, **FAST), refusal)

    @rule(job_id=JOBS)
    def delete_job(self, job_id: str) -> None:
        refusal = None if self.jobs.pop(job_id, None) is not None else "JobNotFound"
        self.call(lambda: self.client.begin_delete_job(job_id, **FAST), refusal)

    # Tasks

    @rule(job_id=JOBS, task_id=TASKS, exit_code=st.sampled_from((0, 0, 3)), retries=st.integers(0, 2))
    def create_task(self, job_id: str, task_id: str, exit_code: int, retries: int) -> None:
        refusal = self.over(job_id)
        if refusal is None and task_id in self.jobs[job_id].tasks:
            refusal = "TaskExists"
        if refusal is None:
            self.jobs[job_id].tasks[task_id] = Task(exit_code, retries)
        limits = models.BatchTaskConstraints(max_task_retry_count=retries)
        body = task(task_id, f"exit {exit_code}", constraints=limits)
        self.call(lambda: self.client.create_task(job_id, body), refusal)

    def missing(self, job_id: str, task_id: str) -> str | None:
        if job_id not in self.jobs:
            return "JobNotFound"
        return None if task_id in self.jobs[job_id].tasks else "TaskNotFound"

    @rule(job_id=JOBS, task_id=TASKS)
    def terminate_task(self, job_id: str, task_id: str) -> None:
        refusal = self.missing(job_id, task_id)
        if refusal is None and self.jobs[job_id].tasks[task_id].state == "completed":
            refusal = "TaskCompleted"
        if refusal is None:
            self.jobs[job_id].tasks[task_id].state = "completed"
        self.call(lambda: self.client.terminate_task(job_id, task_id), refusal)

    @rule(job_id=JOBS, task_id=TASKS)
    def reactivate_task(self, job_id: str, task_id: str) -> None:
        refusal = self.missing(job_id, task_id) or self.over(job_id)
        if refusal is None:
            found = self.jobs[job_id].tasks[task_id]
            if found.state != "completed":
                refusal = "TaskNotCompleted"
            elif found.ran and not found.exit_code:
                refusal = "TaskSucceeded"
            else:
                found.state, found.ran = "active", False
        self.call(lambda: self.client.reactivate_task(job_id, task_id), refusal)

    @rule(job_id=JOBS, task_id=TASKS)
    def delete_task(self, job_id: str, task_id: str) -> None:
        refusal = self.missing(job_id, task_id)
        if refusal is None:
            del self.jobs[job_id].tasks[task_id]
        self.call(lambda: self.client.delete_task(job_id, task_id), refusal)

    # A schedule, which makes its one job when its time comes: that is not in these tests

    @precondition(lambda self: not self.schedule)
    @rule()
    def create_schedule(self) -> None:
        later = models.BatchJobScheduleConfiguration(do_not_run_until=datetime(2126, 1, 1, tzinfo=timezone.utc))
        work = models.BatchJobSpecification(pool_info=models.BatchPoolInfo(pool_id="p1"))
        body = models.BatchJobScheduleCreateOptions(id="schedule", schedule=later, job_specification=work)
        self.call(lambda: self.client.create_job_schedule(body))
        self.schedule = "active"

    @precondition(lambda self: bool(self.schedule))
    @rule(change=st.sampled_from(("disable", "enable", "terminate", "delete")))
    def change_schedule(self, change: str) -> None:
        over = "JobScheduleCompleted" if self.schedule == "completed" and change != "delete" else None
        operations: dict[str, tuple[str, Callable[[], Any]]] = {
            "disable": ("disabled", lambda: self.client.disable_job_schedule("schedule")),
            "enable": ("active", lambda: self.client.enable_job_schedule("schedule")),
            "terminate": ("completed", lambda: self.client.begin_terminate_job_schedule("schedule", **FAST)),
            "delete": ("", lambda: self.client.begin_delete_job_schedule("schedule", **FAST)),
        }
        becomes, operation = operations[change]
        self.call(operation, over)
        self.schedule = self.schedule if over else becomes

    # What has to be so

    @invariant()
    def what_is_there_is_what_was_made(self) -> None:
        assert {one.id: one.current_dedicated_nodes for one in self.client.list_pools()} == self.pools
        assert {one.id: one.state for one in self.client.list_jobs()} == {
            job_id: one.state for job_id, one in self.jobs.items()
        }
        assert [one.state for one in self.client.list_job_schedules()] == ([self.schedule] if self.schedule else [])

    @invariant()
    def every_task_is_where_the_rules_put_it(self) -> None:
        for job_id, wanted in self.jobs.items():
            found = {one.id: one for one in self.client.list_tasks(job_id)}
            states = {task_id: one.state for task_id, one in found.items()}
            assert states == {task_id: one.state for task_id, one in wanted.tasks.items()}
            counts = self.client.get_job_task_counts(job_id).task_counts
            assert {"active": counts.active, "completed": counts.completed, "running": counts.running} == {
                "active": 0, "completed": 0, "running": 0, **Counter(one.state for one in wanted.tasks.values()),
            }  # fmt: skip
            for task_id, one in wanted.tasks.items():
                info = found[task_id].execution_info
                if one.ran and one.state == "completed":
                    retried = one.retries if one.exit_code else 0
                    assert (info.exit_code, info.retry_count, info.requeue_count) == (one.exit_code, retried, 0)
                elif one.state == "completed":
                    assert (info.result, info.exit_code) == ("failure", None)

    @invariant()
    def every_node_is_idle(self) -> None:
        for pool_id in self.pools:
            assert all(node.state == "idle" for node in self.client.list_nodes(pool_id))


TestCallsInAnyOrder = Calls.TestCase
pytest.mark.property(TestCallsInAnyOrder)
TestCallsInAnyOrder.settings = settings(examples.of(24, phases=(Phase.generate,)), stateful_step_count=30)
