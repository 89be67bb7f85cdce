"""What the job of a controller runs: it moves the job of a detached run to the next candidate of its pool.

Its state is the number of a candidate in the metadata of its own job, and in those of the job of the run. It may be
ended between any two requests: its next start continues.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from batchtrain.client.operations import Operations
from batchtrain.client.recovering import NodeWatch
from batchtrain.client.shown_progress import Tell
from batchtrain.config.types import Secret, span_of
from batchtrain.errors import BatchtrainError, NodesLost, NotFound
from batchtrain.plan import addition, wire_times
from batchtrain.plan.marks import Marks, marks_of, values_of
from batchtrain.plan.step import Action, Step
from batchtrain.plan.types import Plan
from batchtrain.records.events import Event, Waiting
from batchtrain.runs.recording import now
from batchtrain.service import connect, job_actions, read, submit, watch
from batchtrain.service.register import Register
from batchtrain.service.requests import ask, quoted
from batchtrain.service.tasks import Glance

FILE = "controller/requests.json"
"""The requests, in the control container of a run and in the working directory of its controller."""
CANDIDATE = "batchtrain:candidate"
"""Metadata: the number of moves. The job of a run has it for the place where it is, its controller for the next one."""
LEAST_SECONDS = 60.0
"""The least time left for a job that is added again."""

Request = tuple[Action, str, dict[str, Any]]
"""A step of a plan without placeholders."""


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller knows."""

    job: str
    marks: Marks
    patience: float
    candidates: tuple[str, ...]
    requests: tuple[tuple[Request, ...], ...]
    """The requests that add the job, at each candidate."""
    key: str = ""
    """The key of the emulator; a managed identity signs in to Azure."""


class Controller:
    """Follows the job of a run, and moves it. job_id: of the controller."""

    def __init__(self, client: Operations, requests: Requests, job_id: str, tell: Tell) -> None:
        self._client, self._requests, self._id, self._tell = client, requests, job_id, tell

    def control(self) -> None:
        """Move the job until its tasks have ended, or until it is gone. Raises the errors of the service."""
        number, names = self._prepared(), self._requests.candidates
        while number is not None and (error := self._follow()):
            at, number = names[number % len(names)], number + 1
            self._say(f"{at} does not get its nodes ({error}); the job moves to {names[number % len(names)]}")
            if self._seconds_left() < LEAST_SECONDS:
                self._say("the wall clock ends the run before nodes start there")
                return
            body = {"metadata": with_number(self._document.get("metadata", ()), number)}
            ask(self._client.batch, "PATCH", f"/jobs/{quoted(self._id)}", f"update job {self._id}", body)
            number = self._prepared()

    def _prepared(self) -> int | None:
        """The number of the candidate where the job of the run is, once it is there; None if it was deleted."""
        number = _number_of(self._document)
        try:
            document = read.job_document(self._client.batch, self._requests.job)
        except NotFound:
            if not number:
                return None
        else:
            if marks_of(document.get("metadata", ())).run != self._requests.marks.run:
                return None
            if job_actions.is_whole(document) and _number_of(document) == number:
                return number
            self._delete()
        self._add(number)
        return number

    def _follow(self) -> NodesLost | None:
        """Wait until the tasks have ended, or until the job is gone. Returns the loss of its nodes."""
        job_id, watches = self._requests.job, list[NodeWatch]()

        def look(_: Glance) -> int:
            if watches:
                return watches[0].look()
            if pool := read.job(self._client.batch, job_id).pool:  # the service makes it after the job
                watches.append(NodeWatch(self._client, pool, self._requests.patience, self._tell, deadline.now))
            return 1

        try:
            deadline = watch.Deadline(self._seconds_left(), watch.tasks_of(job_id), self._tell)
            watch.tasks_ended(self._client.batch, job_id, deadline, self._client.pace, look, moves=True)
        except NodesLost as error:
            return error
        except NotFound:  # also a pool that ended with its job
            if self._client.jobs.state(job_id) not in ("", "terminating", "completed"):
                raise
        return None

    def _delete(self) -> None:
        """Delete the job, and with it its pool, which needs its quota no more then."""
        job = read.job(self._client.batch, self._requests.job)
        handle = self._client.jobs.handle(job.id)
        if job.state == "deleting":
            handle.gone(tell=self._tell)
        else:
            handle.delete(tell=self._tell)
        if job.pool:
            self._client.pools.gone(job.pool, tell=self._tell)

    def _add(self, number: int) -> None:
        """Add the job at a candidate, for the rest of its time."""
        limit = wire_times.duration(span_of(max(self._seconds_left(), LEAST_SECONDS)))
        steps = []
        for action, subject, body in self._requests.requests[number % len(self._requests.requests)]:
            if "constraints" in body and action in ("job.add", "job.complete"):
                times = {**body["constraints"], "maxWallClockTime": limit}
                body = {**body, "constraints": addition.short(times) if action == "job.add" else times}
            if action == "job.add":
                body = {**body, "metadata": with_number(body.get("metadata", ()), number)}
            steps.append(Step(action, subject, body))
        plan, register = Plan(tuple(steps)), Register(self._requests.marks)
        for event in submit.submit(self._client.batch, plan, str, lambda path, data: False, register=register):
            self._tell(event)

    @property
    def _document(self) -> dict[str, Any]:
        return read.job_document(self._client.batch, self._id)

    def _seconds_left(self) -> float:
        """The rest of the wall clock, which this job has from the run."""
        job = read.job(self._client.batch, self._id, read.EXAMINED_JOB)
        assert job.created is not None and job.wall_clock is not None
        return max(job.wall_clock - (now() - job.created).total_seconds(), 0.0)

    def _say(self, text: str) -> None:
        self._tell(Waiting(self._requests.job, text))


def _number_of(job_document: Mapping[str, Any]) -> int:
    return int(values_of(job_document.get("metadata", ())).get(CANDIDATE, 0))


def with_number(items: Iterable[Mapping[str, Any]], number: int) -> list[Mapping[str, Any]]:
    """The metadata of a job with the number of its candidate."""
    return [*(item for item in items if item["name"] != CANDIDATE), {"name": CANDIDATE, "value": str(number)}]


def _print(event: Event) -> None:
    if event.text:
        print(event.text, flush=True)


def main() -> None:
    requests = msgspec.json.decode(Path(FILE).read_bytes(), type=Requests)
    key, environment = Secret(requests.key) if requests.key else None, os.environ
    account = connect.account(environment["AZ_BATCH_ACCOUNT_URL"], environment["AZ_BATCH_ACCOUNT_NAME"], key)
    try:
        Controller(Operations(account), requests, environment["AZ_BATCH_JOB_ID"], _print).control()
    except BatchtrainError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
