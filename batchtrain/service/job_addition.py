"""Adds a job with its tasks, or continues a job whose addition was interrupted: what is missing is added."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from azure.batch import BatchClient

from batchtrain.errors import (
    AlreadyExists,
    BatchtrainError,
    Differs,
    QuotaReached,
    Refused,
    ServiceError,
    TasksRefused,
    TimedOut,
    counted,
)
from batchtrain.plan import addition, diff, wire
from batchtrain.plan.canonical import digest
from batchtrain.plan.marks import COMPLETE, DIGEST, values_of
from batchtrain.plan.step import Step
from batchtrain.plan.task_stream import TaskDocument, TaskStream
from batchtrain.plan.types import Plan
from batchtrain.records import events
from batchtrain.service import read, retry
from batchtrain.service.meant_version import NOW, of_runs, of_time, update_job
from batchtrain.service.register import Register, Thing
from batchtrain.service.requests import Body, add, creation
from batchtrain.service.standing import Comparison, Standing, listed, looked_up
from batchtrain.service.submission import Submission

QUOTA = "ActiveJobAndScheduleQuotaReached"
EXTENSION_SECONDS = addition.SECONDS / 3
"""Between two extensions of a short wall clock."""
NAMED = 20
"""Tasks that a message names."""


class AddOptions(NamedTuple):
    """How jobs are added."""

    resume: bool = False
    """Continue a job that exists already with the same plan."""
    fail_fast: bool = False
    """The first refused task stops the addition of tasks."""
    quota_seconds: float = 0.0
    """How long to wait while the account has as many active jobs as it may have."""


ONCE = AddOptions()
"""Jobs that must not exist yet."""


class JobAddition:
    """The addition of one job of a plan."""

    def __init__(
        self, client: BatchClient, plan: Plan, job_id: str, fill: wire.Fill, options: AddOptions, register: Register
    ) -> None:
        self._client, self._plan, self._job_id, self._fill, self._options = client, plan, job_id, fill, options
        self._register, self._thing = register, Thing("job", job_id)
        self._standing: Standing | None = None
        """The tasks of a job that is continued."""
        self._complete = 0
        """The number of tasks of a job that is known to have all of them."""
        self._metadata: list[dict[str, str]] = []
        self._retries = 0
        self._spawns = False
        """Whether tasks of the job may add tasks, so that the plan does not know all of them."""
        self._extended = retry.CLOCK.now()
        """When the job got the time that its tasks have to be added."""
        self._is_meant = NOW
        self._etag: str | None = None
        """Of the job as this command added it; None once it was changed."""
        self._seconds: float | None = None
        """The job was added in so many seconds."""

    def carry_out(self, steps: Sequence[Step]) -> Iterator[events.Event]:
        """Carry out steps of one action: add the job, add its tasks, or let it end with them."""
        step, is_continued = steps[0], self._standing is not None or self._complete > 0
        if step.action == "task.add":
            self._register.tasks_added = True  # or they may be, if the request is interrupted
            yield from self._tasks(steps) if step.collects or is_continued else self._only_task(step)
            return
        body = wire.filled(step.body, self._fill)
        if step.action == "job.complete":
            self._update("complete", body)
            yield events.JobCompletes(self._job_id, f"job {self._job_id} ends when its tasks have ended")
            return
        yield events.JobAdding(self._job_id, f"adding {self._job_id}")
        self._register.tasks_added |= "jobManagerTask" in body
        yield from self._job(body)

    # --- the job ----------------------------------------------------------------------------------------------------

    def _job(self, body: dict[str, Any]) -> Iterator[events.Event]:
        """Add the job, or read the tasks of the existing one. Raises AlreadyExists for a job that cannot be
        continued, Differs for one with another plan, and TimedOut if the quota of active jobs stays reached."""
        self._retries = body.get("constraints", {}).get("maxTaskRetryCount", 0)
        self._spawns = "jobManagerTask" in body
        mark = digest(self._plan, self._job_id)
        self._metadata = [*body.get("metadata", ()), _item(DIGEST, mark)]
        try:
            yield from self._added({**body, "metadata": self._metadata})
        except AlreadyExists as error:
            if not self._options.resume:
                raise
            event = self._continued(body, mark, error)
            self._register.note(self._thing, "existing")
            yield event
        else:
            marks = self._register.marks(self._thing)
            self._metadata += marks.metadata  # a later change replaces all of it
            self._is_meant = of_runs({marks.run})
            yield events.JobAdded(self._job_id, f"added job {self._job_id}")

    def _added(self, body: dict[str, Any]) -> Iterator[events.Event]:
        def create() -> None:
            began = time.monotonic()
            self._etag = self._register.create(self._client, self._thing, body)
            self._seconds = time.monotonic() - began

        try:
            create()
        except QuotaReached as error:
            seconds = self._options.quota_seconds
            if error.code != QUOTA or not seconds:
                raise
            limit = retry.span(seconds)
            yield events.QuotaWaits(
                self._job_id,
                f"job {self._job_id} waits up to {limit}: the account has as many active jobs as its quota allows;"
                " `batchtrain jobs list` shows them",
            )
            try:
                patience = retry.Patience(1.0, 30.0, seconds, 0.0, 0.0, 0.0)
                retry.repeated(create, lambda outcome: isinstance(outcome, QuotaReached), patience)
            except QuotaReached as last_error:
                raise TimedOut(
                    f"job {self._job_id} was not added within {limit}: {last_error};"
                    " end a job with `batchtrain jobs term ID`, or ask Azure for a higher quota"
                ) from last_error

    # --- an existing job --------------------------------------------------------------------------------------------

    def _continued(self, body: dict[str, Any], mark: str, error: AlreadyExists) -> events.JobReused:
        """Read the tasks of the job. Raises AlreadyExists and Differs."""
        job, document = read.job_with_document(self._client, self._job_id)
        metadata = values_of(document.get("metadata", ()))
        if DIGEST not in metadata:
            raise error
        if document.get("state") not in ("active", "disabled", "disabling", "enabling"):
            raise AlreadyExists(
                f"job {self._job_id} is {document.get('state')}, and takes no more tasks; replace it with"
                f" `batchtrain jobs add --recreate`, or use another id",
                operation=f"add job {self._job_id}",
                code=error.code,
            )
        self._metadata = [item for item in document["metadata"] if item["name"] != COMPLETE]
        self._is_meant = of_time(job.created)
        if metadata[DIGEST] == mark and metadata.get(COMPLETE) == str(read.counts(self._client, self._job_id).total):
            self._complete = int(metadata[COMPLETE])
            all_tasks = f"all of its {self._complete:,} tasks" if self._complete != 1 else "its only task"
            return events.JobReused(self._job_id, f"job {self._job_id} exists with {all_tasks}")
        self._standing = listed(self._client, self._job_id)
        if metadata[DIGEST] != mark:
            self._refuse_other(body, document)
        count = len(self._standing)
        tasks = counted(count, "task")
        return events.JobReused(self._job_id, f"job {self._job_id} exists with {tasks}; adding what is missing")

    def _refuse_other(self, body: dict[str, Any], document: dict[str, Any]) -> None:
        """Raise Differs, before anything is added, if the job or one of its tasks differs from a changed plan."""
        assert self._standing is not None
        end = {"onAllTasksComplete": document.get("onAllTasksComplete", "")}
        job = Plan((Step("job.add", self._job_id, {**end, **body}),))
        (comparison,) = diff.compare(job, diff.Living(jobs={self._job_id: document}))
        steps = [step for step in self._plan.steps if (step.action, step.subject) == ("task.add", self._job_id)]
        tasks = Comparison(self._standing, self._retries)
        for _ in tasks.missing(self._documents(steps)):
            pass
        if comparison.state == "differs":
            raise Differs(f"{diff.as_text([comparison])}\n{self._next_step('exists, and its plan has changed')}")
        self._refuse_differing(tasks)

    def _refuse_differing(self, tasks: Comparison) -> None:
        """Raise Differs for tasks that differ, and for tasks that are not in the plan."""
        if tasks.differing:
            count = f"{len(tasks.differing):,} of its tasks differ from the plan: {_named(tasks.differing)}"
            raise Differs(self._next_step(count), tasks=tuple(tasks.differing))
        if tasks.others and not self._spawns:
            raise Differs(self._next_step(f"{tasks.others:,} of its tasks are not in the plan"))

    def _next_step(self, why: str) -> str:
        return (
            f"job {self._job_id}: {why}; `batchtrain config plan --diff` shows the differences,"
            " `batchtrain jobs add --recreate` deletes the job and adds it again"
        )

    # --- its tasks --------------------------------------------------------------------------------------------------

    def _only_task(self, step: Step) -> Iterator[events.Event]:
        body = wire.filled(step.body, self._fill)
        name = f"{self._job_id}/{body['id']}"
        add(self._client, f"add task {name}", f"{self._thing.path}/tasks", body)
        yield events.TasksAdded(name, f"added task {body['id']}")

    def _tasks(self, steps: Sequence[Step]) -> Iterator[events.Event]:
        """Add the tasks of the steps that are missing.

        Raises TasksRefused after all were sent, Differs if tasks with the same ids differ from the plan, and the error
        that ended the connection.
        """
        if self._complete:
            yield events.TasksAdded(self._job_id, f"added 0 tasks; {self._complete:,} existed already")
            return
        counts = [_count(step.body) for step in steps]
        total = None if None in counts else sum(count or 0 for count in counts)
        comparison = Comparison(self._standing or Standing(()), self._retries)
        fail_fast = self._options.fail_fast
        submission = Submission(self._client, self._job_id, self._seconds, retries=self._retries, fail_fast=fail_fast)
        failure: BatchtrainError | None = None
        documents = self._documents(steps)
        if self._standing is not None:
            documents = comparison.missing(documents)
        try:
            for progress in submission.add(documents):
                self._extend()
                text = progress._replace(equal=comparison.equal).text(total)
                yield events.TaskProgress(self._job_id, text, progress.added_tasks + comparison.equal, total)
        except (BatchtrainError, KeyboardInterrupt) as error:
            if isinstance(error, (ServiceError, KeyboardInterrupt)):
                stand = submission.added + comparison.equal
                again = "; `batchtrain jobs add` again adds the others" if self._options.resume else ""
                yield events.TasksLeft(
                    self._job_id, f"job {self._job_id} has at least {stand:,}{_of(total)} tasks{again}"
                )
                raise
            failure = error
        existing = self._existing(submission)
        count = submission.added + existing.equal
        comparison.differing += existing.differing
        self._refuse(submission, comparison, count, total, failure)
        self._refuse_differing(comparison)
        self._note_complete(steps, count + comparison.equal)
        before = f"; {comparison.equal:,} existed already" if comparison.equal else ""
        yield events.TasksAdded(self._job_id, f"added {counted(count, 'task')}{before}")

    def _extend(self) -> None:
        """Give a job with a short wall clock more time for its tasks, long before it ends."""
        if retry.CLOCK.now() - self._extended < EXTENSION_SECONDS:
            return
        self._extended = retry.CLOCK.now()
        if constraints := addition.planned_constraints(self._plan, self._job_id):
            age = creation(self._client, self._thing.path).age or 0.0
            body = {"constraints": addition.short(constraints, age)}
            self._update("extend", body)

    def _note_complete(self, steps: Sequence[Step], count: int) -> None:
        """Write into the job that all tasks stand, so that they are not listed the next time. A job whose tasks fit on
        one page of a list, or that its digest does not determine, is listed."""
        if count <= read.PAGE or not all(isinstance(step.body, TaskStream) and step.body.ruled for step in steps):
            return
        with contextlib.suppress(ServiceError):  # the tasks stand, such as those of a job that has completed meanwhile
            self._update("update", {"metadata": [*self._metadata, _item(COMPLETE, str(count))]})

    def _update(self, verb: str, body: Body) -> None:
        etag, self._etag = self._etag, None
        update_job(self._client, self._job_id, verb, body, self._is_meant, etag)

    def _documents(self, steps: Iterable[Step]) -> Iterator[TaskDocument]:
        """Every task of the steps as it is sent; here the secrets enter it."""
        for step in steps:
            if isinstance(step.body, TaskStream):
                for task in step.body.documents():
                    yield TaskDocument(task.id, task.filled(self._fill)) if task.open else task
                continue
            body = wire.filled(step.body, self._fill)
            for document in body.get("value", (body,)):
                yield TaskDocument(document["id"], msgspec.json.encode(document))

    def _existing(self, submission: Submission) -> Comparison:
        comparison = Comparison(looked_up(self._client, self._job_id, [name for name, _ in submission.existing]))
        for name, mark in submission.existing:
            comparison.has(name, mark)
        return comparison

    def _refuse(
        self,
        submission: Submission,
        comparison: Comparison,
        count: int,
        total: int | None,
        failure: BatchtrainError | None,
    ) -> None:
        """Raise TasksRefused if not every task could be added. failure: what ended the making of tasks."""
        refusals, stand = tuple(submission.refused), count + comparison.equal
        if not refusals and failure is None:
            return
        differ = f", {len(comparison.differing):,} differ" if comparison.differing else ""
        were = "was" if len(refusals) == 1 else "were"
        counts = f"{stand:,}{_of(total)} tasks stand, {len(refusals):,} {were} refused{differ}"
        again = ", and `batchtrain jobs add` again adds what is missing" if self._options.resume else ""
        raise TasksRefused(
            f"{self._first(refusals, failure)}. {counts}; correct the tasks{again}",
            refused=refusals,
            added=stand,
            total=total,
            operation=f"add tasks to {self._job_id}",
        )

    def _first(self, refusals: Sequence[Refused], failure: BatchtrainError | None) -> str:
        """The first refused task with its reason and the names of others, and what ended the making of tasks."""
        if not refusals:
            return f"add tasks to {self._job_id}: {failure}"
        (task, code, reason), *others = refusals
        also = f"; also refused: {_named([other.task for other in others])}" if others else ""
        then = f"; then {failure}" if failure else ""
        return f"add task {self._job_id}/{task}: {reason} ({code}){also}{then}"


def _count(body: Any) -> int | None:
    """The number of tasks of a step; None if it is not known."""
    if isinstance(body, TaskStream):
        return body.count
    if isinstance(body, wire.TaskCollection):
        return len(body.value)
    return len(body["value"]) if isinstance(body, dict) and "value" in body else 1


def _item(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


def _of(total: int | None) -> str:
    return f" of {total:,}" if total is not None else ""


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED:,} more" if len(names) > NAMED else "")
