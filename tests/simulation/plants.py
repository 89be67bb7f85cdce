"""Bugs that are planted to see whether the simulation finds them.

Each is an effect at one of its doors, and is named by what the product does then. So it stays the same bug when the
product is written in another way.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from batchtrain.config.types import MASK
from batchtrain.emulator.records import Job, Task
from batchtrain.emulator.world import Change
from tests.simulation.doors import COLLECTION, Plant, Sent
from tests.simulation.service import TOKEN
from tests.simulation.storage import Answer

THING = r"/(pools|jobs)/[^/]+"
RUN = "batchtrain:run"


def rewritten(answer: Answer, change: Callable[[Any], None]) -> Answer:
    """The same answer with another document."""
    if answer.status >= 300:
        return answer
    document = json.loads(answer.content)
    before = json.dumps(document)
    change(document)
    if json.dumps(document) == before:
        return answer
    headers = {name: value for name, value in answer.headers.items() if name.lower() != "content-length"}
    return Answer(answer.status, headers, json.dumps(document).encode())


def altered(changes: list[Change], kind: type[Task] | type[Job], alter: Callable[[Any], Any]) -> list[Change]:
    """The same changes with other records of a kind."""
    return [
        change._replace(record=alter(change.record)) if isinstance(change.record, kind) else change
        for change in changes
    ]


# --- requests and answers -------------------------------------------------------------------------------------------


class LastTaskOfACollectionIsLost(Plant):
    """And is answered as added."""

    def sent(self, process: str, sent: Sent) -> Sequence[Sent]:
        tasks = json.loads(sent.body)["value"] if self._is_collection(sent) else []
        return (sent._replace(body=json.dumps({"value": tasks[:-1]}).encode()) if len(tasks) > 1 else sent,)

    def answered(self, process: str, sent: Sent, answer: Answer) -> Answer:
        def change(document: Any) -> None:
            answered = {result["taskId"] for result in document["value"]}
            lost = [task["id"] for task in json.loads(sent.body)["value"] if task["id"] not in answered]
            document["value"] += ({"status": "success", "taskId": task_id} for task_id in lost)

        return rewritten(answer, change) if self._is_collection(sent) else answer

    @staticmethod
    def _is_collection(sent: Sent) -> bool:
        return sent.at("POST", COLLECTION)


class ExistingJobIsAnsweredAsNew(Plant):
    def answered(self, process: str, sent: Sent, answer: Answer) -> Answer:
        return Answer(201, {}, b"") if sent.at("POST", "/(pools|jobs)") and answer.status == 409 else answer


class ThingOfAnotherRunHasOurMark(Plant):
    """Of the run whose request this process sent last."""

    def __init__(self) -> None:
        self._runs: dict[str, str] = {}

    def sent(self, process: str, sent: Sent) -> Sequence[Sent]:
        if sent.at("POST", "/(pools|jobs)"):
            for item in json.loads(sent.body).get("metadata", ()):
                if item["name"] == RUN:
                    self._runs[process] = item["value"]
        return (sent,)

    def answered(self, process: str, sent: Sent, answer: Answer) -> Answer:
        def change(document: Any) -> None:
            for item in document.get("metadata", ()):
                if item["name"] == RUN:
                    item["value"] = self._runs[process]

        return rewritten(answer, change) if process in self._runs and sent.at("GET", THING) else answer


class DeletedThingIsAnsweredAsGone(Plant):
    """The deletion itself is not sent."""

    def __init__(self) -> None:
        self._gone: set[tuple[str, str]] = set()

    def sent(self, process: str, sent: Sent) -> Sequence[Sent]:
        if not sent.at("DELETE", THING):
            return (sent,)
        self._gone.add((process, sent.path))
        return ()

    def answered(self, process: str, sent: Sent, answer: Answer) -> Answer:
        return Answer(404, {}, b"") if sent.verb == "GET" and (process, sent.path) in self._gone else answer


class FailedTaskIsAnsweredAsSuccess(Plant):
    def answered(self, process: str, sent: Sent, answer: Answer) -> Answer:
        def change(document: Any) -> None:
            for task in document.get("value", [document]):
                if info := task.get("executionInfo"):
                    info |= {"exitCode": 0, "result": "success"} if info.get("exitCode") else {}
                    info.pop("failureInfo", None)

        return rewritten(answer, change) if sent.at("GET", r"/jobs/[^/]+/tasks(/[^/]+)?") else answer


class LastTaskIsMissingInAList(Plant):
    def answered(self, process: str, sent: Sent, answer: Answer) -> Answer:
        def change(document: Any) -> None:
            if len(document["value"]) > 1:
                document["value"].pop()

        return rewritten(answer, change) if sent.at("GET", r"/jobs/[^/]+/tasks") else answer


class TaskHasNoFilesInAList(Plant):
    def answered(self, process: str, sent: Sent, answer: Answer) -> Answer:
        def change(document: Any) -> None:
            document["value"] = []

        return rewritten(answer, change) if sent.at("GET", r"/jobs/[^/]+/tasks/[^/]+/files") else answer


class FileComesWithOtherBytes(Plant):
    def answered(self, process: str, sent: Sent, answer: Answer) -> Answer:
        is_file = sent.at("GET", r"/jobs/[^/]+/tasks/[^/]+/files/.*result\.txt") and answer.status < 300
        return answer._replace(content=bytes(len(answer.content))) if is_file else answer


class WallClockIsNotSent(Plant):
    def sent(self, process: str, sent: Sent) -> Sequence[Sent]:
        if not sent.at("POST PATCH", r"/jobs(/[^/]+)?") or b"maxWallClockTime" not in sent.body:
            return (sent,)
        document = json.loads(sent.body)
        document["constraints"].pop("maxWallClockTime", None)
        return (sent._replace(body=json.dumps(document).encode()),)


class JobDoesNotEndWithItsTasks(Plant):
    def sent(self, process: str, sent: Sent) -> Sequence[Sent]:
        is_of_job = sent.at("POST PATCH", r"/jobs(/[^/]+)?")
        return (sent._replace(body=sent.body.replace(b'"terminatejob"', b'"noaction"')),) if is_of_job else (sent,)


class BlobIsAnsweredAsStored(Plant):
    """And is not sent."""

    def sent(self, process: str, sent: Sent) -> Sequence[Sent]:
        return () if sent.at("PUT", r"/data-[^/]+/.*") and "comp=" not in sent.target else (sent,)


# --- the store of the service ---------------------------------------------------------------------------------------


class RetryIsNotRecorded(Plant):
    def stored(self, changes: list[Change]) -> list[Change]:
        return altered(changes, Task, lambda task: replace(task, retries=0) if task.retries else task)


class DeletedJobLeavesItsTasks(Plant):
    """In the store."""

    def stored(self, changes: list[Change]) -> list[Change]:
        return [change for change in changes if change.kind != "tasks" or change.record is not None]


class CommitIsOneTooLate(Plant):
    def __init__(self) -> None:
        self._waiting: list[Change] = []

    def stored(self, changes: list[Change]) -> list[Change]:
        before, self._waiting = self._waiting, changes
        return before


class GangHasOneNodeLess(Plant):
    def stored(self, changes: list[Change]) -> list[Change]:
        def alter(task: Task) -> Task:
            return replace(task, instances=task.instances[:-1]) if len(task.instances) > 1 else task

        return altered(changes, Task, alter)


class StartForgetsDependencies(Plant):
    def loaded(self, changes: list[Change]) -> list[Change]:
        def alter(job: Job) -> Job:
            has_some = job.spec.get("usesTaskDependencies")
            return replace(job, spec={**job.spec, "usesTaskDependencies": False}) if has_some else job

        return altered(changes, Job, alter)


class StartFindsNoEndedTasks(Plant):
    def loaded(self, changes: list[Change]) -> list[Change]:
        return [change for change in changes if change.kind != "task" or change.record.state != "completed"]  # type: ignore[union-attr]


# --- what clients write ---------------------------------------------------------------------------------------------


class FailedRunIsRecordedAsCompleted(Plant):
    def written(self, process: str, name: str, content: bytes) -> bytes:
        return content.replace(b'"state": "failed"', b'"state": "completed"') if name == "run.json" else content


class InterruptedDetachIsRecordedAsDetached(Plant):
    def written(self, process: str, name: str, content: bytes) -> bytes:
        is_of_detach = name == "run.json" and "detach" in process
        return content.replace(b'"state": "failed"', b'"state": "detached"') if is_of_detach else content


class AttemptsAreCountedTwice(Plant):
    def written(self, process: str, name: str, content: bytes) -> bytes:
        attempts = [json.loads(line) for line in content.splitlines()] if name == "attempts.jsonl" else []
        counts = Counter(attempt["task"] for attempt in attempts)
        again = ({**attempt, "number": attempt["number"] + counts[attempt["task"]]} for attempt in attempts)
        return content + b"".join(json.dumps(attempt).encode() + b"\n" for attempt in again)


class SecretsAreRecorded(Plant):
    """The message of a failure has what a server answered."""

    def written(self, process: str, name: str, content: bytes) -> bytes:
        return content.replace(MASK.encode(), TOKEN.encode()) if name == "run.json" else content


class RecordOfFilesIsCut(Plant):
    """What is fetched is recorded with other sizes."""

    def written(self, process: str, name: str, content: bytes) -> bytes:
        return content.replace(b'"size":', b'"size":1') if name == "files.jsonl" else content


PLANTS: Mapping[str, Callable[[], Plant]] = {
    "the last task of a collection is lost": LastTaskOfACollectionIsLost,
    "a job or a pool of another command counts as added": ExistingJobIsAnsweredAsNew,
    "a thing of another run counts as ours": ThingOfAnotherRunHasOurMark,
    "a thing that was not deleted counts as gone": DeletedThingIsAnsweredAsGone,
    "a failed task counts as successful": FailedTaskIsAnsweredAsSuccess,
    "the last task of a list is lost": LastTaskIsMissingInAList,
    "results on nodes are not seen": TaskHasNoFilesInAList,
    "a file is fetched with other bytes": FileComesWithOtherBytes,
    "the wall clock of a job is not sent": WallClockIsNotSent,
    "a job does not end with its tasks": JobDoesNotEndWithItsTasks,
    "a blob that was not uploaded counts as uploaded": BlobIsAnsweredAsStored,
    "a retry is not recorded": RetryIsNotRecorded,
    "a deleted job leaves its tasks in the store": DeletedJobLeavesItsTasks,
    "the service acts before it stores": CommitIsOneTooLate,
    "a gang starts on fewer nodes": GangHasOneNodeLess,
    "a start of the service forgets dependencies": StartForgetsDependencies,
    "a start of the service forgets what has ended": StartFindsNoEndedTasks,
    "a failed run is recorded as completed": FailedRunIsRecordedAsCompleted,
    "a detach that was interrupted is recorded as detached": InterruptedDetachIsRecordedAsDetached,
    "attempts are counted twice": AttemptsAreCountedTwice,
    "a failure is recorded with a secret": SecretsAreRecorded,
    "the record of the files is wrong": RecordOfFilesIsCut,
}
"""Each plant by what the product does with it."""
