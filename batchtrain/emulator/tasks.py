"""Operations on tasks; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import tee
from typing import Any

import msgspec

from batchtrain.catalog import meaning
from batchtrain.emulator import applications, checks, documents, endings, lines, models, states, statistics, wire
from batchtrain.emulator.faults import Fault, invalid_property
from batchtrain.emulator.faults import check as check_meaning
from batchtrain.emulator.indexes import JobEntry
from batchtrain.emulator.query import FILTERS, Row, listing, one, parse_filter, selected, selection
from batchtrain.emulator.records import Document, Task
from batchtrain.emulator.reply import Call, Reply, accepted, created
from batchtrain.emulator.world import Deadline, World, task_document

COLLECTION_LIMIT = 100
RETENTION = "P7D"
SPECIAL: Mapping[str, str] = {
    "jobPreparationTask": "TaskIdSameAsJobPreparationTask",
    "jobReleaseTask": "TaskIdSameAsJobReleaseTask",
}
"""Refused ids of tasks."""
IDENTITY: Mapping[str, Any] = {"autoUser": {"scope": "pool", "elevationLevel": "nonadmin"}}


def create_task(world: World, call: Call) -> Reply:
    entry = _open_job(world, call.path[0])
    task = add(world, entry, call.read("BatchTaskCreateOptions"), call.now)
    world.touch_job(entry.key)
    return created(task, documents.task_url(call.base, entry.record, task))


def create_task_collection(world: World, call: Call) -> Reply:
    """Add up to 100 tasks. Each succeeds or fails by itself, if the whole body is syntactically valid."""
    entry = _open_job(world, call.path[0])
    items = _items(call)
    read = [_read_one(item, index, call) for index, item in enumerate(items)]
    results = [_add_one(world, entry, *pair, call) for pair in zip(items, read, strict=True)]
    if any("eTag" in result for result in results):
        world.touch_job(entry.key)
    return Reply(200, {"odata.metadata": f"{call.base}/$metadata#taskaddresult", "value": results})


def _items(call: Call) -> list[Any]:
    body = models.decode(call.body)
    items: Any = body.pop("value", None)
    group = {**body, "value": [] if isinstance(items, list) else items}  # the tasks are read one by one
    models.read("BatchTaskGroup", group, revision=call.revision)
    if len(items) > COLLECTION_LIMIT:
        raise invalid_property("value", len(items), f"At most {COLLECTION_LIMIT} tasks can be added at once.")
    return list(items)


def _read_one(item: object, index: int, call: Call) -> Document | Fault:
    """A task of a collection, or why it cannot be added. Raises Fault if the whole body is refused."""
    try:
        return models.read("BatchTaskCreateOptions", item, revision=call.revision)
    except Fault as fault:
        if fault.code != "InvalidRequestBody":
            return fault
        models.read("BatchTaskCreateOptions", item, f"value[{index}]", call.revision)  # refused with its position
        raise


def _add_one(world: World, entry: JobEntry, item: Document, read: Document | Fault, call: Call) -> Document:
    try:
        if isinstance(read, Fault):
            raise read
        task = add(world, entry, read, call.now)
    except Fault as fault:
        error = wire.error_document(fault, call.base, call.request_id, call.now)
        error.pop("odata.metadata")
        return {"status": "clienterror", "taskId": str(item.get("id") or ""), "error": error}
    return {
        "status": "Success",
        "taskId": task.id,
        "eTag": task.etag,
        "lastModified": wire.timestamp(task.modified),
        "location": documents.task_url(call.base, entry.record, task),
    }


def _open_job(world: World, job_id: str) -> JobEntry:
    entry = world.job(job_id)
    if code := states.JOB_OVER.get(entry.record.state):
        raise Fault(code)
    return entry


def add(world: World, entry: JobEntry, document: Document, now: int) -> Task:
    """A new task from a document in canonical form. Raises Fault."""
    task_id = checks.check_id(document)
    if task_id.lower() in entry.tasks:
        raise Fault("TaskExists")
    for name, code in SPECIAL.items():
        if name in entry.record.spec and entry.record.spec[name]["id"].lower() == task_id.lower():
            raise Fault(code)
    registry = document.get("containerSettings", {}).get("registry")
    logins = checks.passwords([registry]) if registry else {}
    spec = checked(world, entry.record.spec, document)
    gang = spec.get("multiInstanceSettings")
    constraints = spec["constraints"]
    task = Task(
        id=task_id,
        seq=world.new_seq(),
        job=entry.record.seq,
        state="active",
        state_time=now,
        created=now,
        spec=msgspec.json.encode(spec),
        slots=spec["requiredSlots"],
        gang=gang["numberOfInstances"] if gang else 0,
        container="containerSettings" in spec,
        max_retries=constraints["maxTaskRetryCount"],
        wall_clock=wire.limit(constraints["maxWallClockTime"]),
        affinity=spec.get("affinityInfo", {}).get("affinityId", "").removeprefix(AFFINITY).lower(),
        logins=logins or None,
    )
    world.stamp(task, now)
    world.add_task(entry, task)
    lines.enqueue(entry, task, spec)
    return task


AFFINITY = "TVM:"


def checked(world: World, job_spec: Document, document: Document) -> Document:
    """A task's document with the service's defaults; raises Fault."""
    spec = {key: value for key, value in document.items() if key != "id"}
    check_meaning(meaning.task(document, job_spec))
    spec.get("containerSettings", {}).get("registry", {}).pop("password", None)
    spec.setdefault("userIdentity", IDENTITY)
    spec["constraints"] = constraints_of(job_spec, spec.get("constraints"))
    spec.setdefault("requiredSlots", 1)
    if "multiInstanceSettings" in spec:
        spec["multiInstanceSettings"].setdefault("numberOfInstances", 1)
    if references := spec.get("applicationPackageReferences"):
        applications.check_references(world, references, of_task=True)
    return spec


def constraints_of(job_spec: Document, task_constraints: Document | None) -> Document:
    """A task without constraints takes its number of retries from the job."""
    retries = job_spec["constraints"]["maxTaskRetryCount"] if task_constraints is None else 0
    return {
        "maxWallClockTime": wire.INFINITE,
        "retentionTime": RETENTION,
        "maxTaskRetryCount": retries,
        **(task_constraints or {}),
    }


def list_tasks(world: World, call: Call) -> Reply:
    entry = world.job(call.path[0])
    condition = parse_filter(call.query["$filter"], FILTERS["tasks"]) if call.query.get("$filter") else None
    names = selection(call.query.get("$select", ""))

    def rows(token: str) -> Iterator[Row]:
        matches = entry.tasks.listed(token, condition)
        if names and names <= documents.TASK_PARTS.keys():
            for position, _, row in matches:
                yield Row(position, {name: documents.TASK_PARTS[name](entry, row, call.base) for name in names})
            return
        matches, again = tee(matches)
        read = entry.tasks.only(seq for _, seq, _ in again)
        is_part = names and names <= documents.TASK_PARTS.keys() | documents.RECORD_PARTS.keys()
        for (position, _, _), task in zip(matches, read, strict=True):
            part = documents.task_part(entry, task, call.base, names) if is_part else _document(entry, task, call)
            yield Row(position, part)

    return listing(call, "tasks", rows, is_filtered=True)


def _document(entry: JobEntry, task: Task, call: Call) -> Document:
    document = documents.task_document_of(entry, task, call.base)
    if statistics.asked(call):
        document["stats"] = statistics.of_task(entry.record, task, call.base, call.now)
    return document


def get_task(world: World, call: Call) -> Reply:
    entry, task = world.task(*call.path)
    call.check(task, reading=True)
    return one(call, "tasks", _document(entry, task, call), task)


def replace_task(world: World, call: Call) -> Reply:
    """PUT replaces the constraints; constraints that are not given get their defaults."""
    new_constraints = call.read("BatchTaskReplaceOptions").get("constraints")
    entry, task = _existing(world, call)
    if task.state == "completed":
        raise Fault("TaskCompleted")
    constraints = constraints_of(entry.record.spec, new_constraints or None)
    check_meaning(meaning.retries(constraints))
    task.spec = msgspec.json.encode({**task_document(task), "constraints": constraints})
    task.max_retries = constraints["maxTaskRetryCount"]
    task.wall_clock = wire.limit(constraints["maxWallClockTime"])
    if task.state == "running" and task.start and task.wall_clock:
        at = task.start + task.wall_clock
        world.add_deadline(Deadline(at, task.seq, "task", entry.key, task.id.lower(), task.run))
    world.stamp(task, call.now)
    world.save_task(task)
    return accepted(call, task, 200)


def delete_task(world: World, call: Call) -> Reply:
    entry, task = _existing(world, call)
    endings.condemn(world, task, "terminate", call.now)
    world.drop_task(entry, task)
    endings.discard_files(world, entry, task)
    return Reply(200)


def terminate_task(world: World, call: Call) -> Reply:
    """Answers when the run has ended: Azure documents the operation as synchronous."""
    entry, task = _existing(world, call)
    if task.state == "completed":
        raise Fault("TaskCompleted")
    if task.state in states.UNDER_WAY:
        endings.condemn(world, task, "terminate", call.now)
    else:
        endings.complete(world, entry, task, call.now, failure=endings.task_ended())
    world.stamp(task, call.now)
    world.save_task(task)
    return accepted(call, task, 204)._replace(is_reached=lambda: not task.verdict)


def reactivate_task(world: World, call: Call) -> Reply:
    """Only a failed task in a job that continues can be reactivated."""
    entry, task = _existing(world, call)
    _open_job(world, call.path[0])
    if task.state != "completed":
        raise Fault("TaskNotCompleted")
    if task.result == "success":
        raise Fault("TaskSucceeded")
    world.set_task_state(entry, task, "reactivate", call.now)
    endings.forget_run(task)
    task.retries = task.last_retry = 0
    lines.enqueue_again(entry, task, task_document(task))
    world.stamp(task, call.now)
    world.save_task(task)
    world.touch_job(entry.key)
    return accepted(call, task, 204)


def list_subtasks(world: World, call: Call) -> Reply:
    entry, task = world.task(*call.path)
    select = call.query.get("$select", "")
    value = [selected(subtask, select) for subtask in documents.subtask_documents(entry, task, call.base)]
    return Reply(200, {"odata.metadata": f"{call.base}/$metadata#subtaskinfo", "value": value})


def _existing(world: World, call: Call) -> tuple[JobEntry, Task]:
    entry, task = world.task(*call.path)
    call.check(task)
    return entry, task
