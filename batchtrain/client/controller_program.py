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

from batchtrain.client.node_watch import NodeWatch
from batchtrain.client.operations import Operations
from batchtrain.client.watching import until_ended
from batchtrain.config.types import Secret, span_of
from batchtrain.errors import BatchtrainError, NodesLost, NotFound
from batchtrain.life import placing
from batchtrain.life.decision_table import drive
from batchtrain.life.intents import CONTROL
from batchtrain.life.placing import SeenPlace
from batchtrain.plan import addition, wire_times
from batchtrain.plan.marks import Marks, marks_of, values_of
from batchtrain.plan.step import Action, Step
from batchtrain.plan.types import Plan
from batchtrain.records.events import Event, Waiting
from batchtrain.records.jobs import OVER
from batchtrain.runs.recording import now
from batchtrain.service import connect, deletion, job_actions, read, submit, watch
from batchtrain.service.meant_version import of_runs, update_job
from batchtrain.service.register import Register, Thing
from batchtrain.service.watch import Tell

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
        self._is_over = self._has_deleted = False

    def control(self) -> None:
        """Move the job until its tasks have ended, or until it is gone. Raises the errors of the service."""
        acts = {"withdraw": self._delete, "add": self._add, "follow": self._follow}
        drive(self._look, placing.decide, lambda act, _: acts[act]())

    def _look(self) -> SeenPlace:
        """Where the job of the run is, and whether that is where it is to be. The service makes its pool."""
        untried = len(self._requests.candidates)
        if self._is_over:
            return SeenPlace(untried, "ready", "over")
        number = _number_of(self._document)
        try:
            document = read.job_document(self._client.batch, self._requests.job)
        except NotFound:
            return SeenPlace(untried, "ready", "" if number or self._has_deleted else "over")
        if marks_of(document.get("metadata", ())).run != self._requests.marks.run:
            return SeenPlace(untried, "ready", "over")
        is_whole = job_actions.is_whole(document) and _number_of(document) == number
        return SeenPlace(untried, "ready" if is_whole else "lost", "added")

    def _follow(self) -> None:
        """Follow the job to its end. If it loses its nodes, the number of the next candidate is stored."""
        self._is_over = True
        if (error := self._loss()) is None:
            return
        number, names = _number_of(self._document) + 1, self._requests.candidates
        at, next_name = names[(number - 1) % len(names)], names[number % len(names)]
        self._say(f"{at} does not get its nodes ({error}); the job moves to {next_name}")
        if self._seconds_left() < LEAST_SECONDS:
            self._say("the wall clock ends the run before nodes start there")
            return
        body = {"metadata": with_number(self._document.get("metadata", ()), number)}
        update_job(self._client.batch, self._id, "update", body, of_runs({self._requests.marks.run}))
        self._is_over = False

    def _loss(self) -> NodesLost | None:
        """Wait until the tasks have ended, or until the job is gone. Returns the loss of its nodes."""
        client, job_id = self._client, self._requests.job
        deadline = watch.Deadline(self._seconds_left(), watch.tasks_of(job_id), self._tell)
        nodes = NodeWatch(client, "", self._tell, deadline.now, patience=self._requests.patience, job_id=job_id)
        try:
            until_ended(client, client.jobs.handle(job_id), CONTROL, deadline, nodes=nodes)
        except NodesLost as error:
            return error
        except NotFound:  # also a pool that ended with its job
            if self._client.jobs.state(job_id) not in ("", *OVER):
                raise
        return None

    def _delete(self) -> None:
        """Delete the job, and with it its pool, which needs its quota no more then."""
        job = read.job(self._client.batch, self._requests.job)
        thing = Thing("job", job.id)
        deletion.request(self._client.batch, thing, {self._requests.marks.run})
        deletion.gone(self._client.batch, thing, self._client.pace, self._tell)
        if job.pool:
            self._client.pools.gone(job.pool, tell=self._tell)
        self._has_deleted = True

    def _add(self) -> None:
        """Add the job at its candidate, for the rest of its time."""
        number = _number_of(self._document)
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
