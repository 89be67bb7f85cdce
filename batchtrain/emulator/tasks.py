"""What a client may do to tasks, and how a task's run ends; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from batchtrain.emulator import documents, jobs, models, states, wire
from batchtrain.emulator.faults import Fault, invalid_property
from batchtrain.emulator.pools import (
    ID,
    check_id,
    check_resource_files,
    refuse_unimplemented,
    scrub_registry,
)
from batchtrain.emulator.query import Row, listing, selected
from batchtrain.emulator.records import Task
from batchtrain.emulator.reply import Call, Reply, accepted, created, element, stamped
from batchtrain.emulator.world import JobBook, World, task_document

Document = dict[str, Any]

COLLECTION_LIMIT = 100
DEPENDENCY_CHARACTERS = 64_000
RETENTION = "P7D"
IDENTITY: Mapping[str, Any] = {"autoUser": {"scope": "pool", "elevationLevel": "nonadmin"}}
NOT_IMPLEMENTED: Mapping[str, str] = {
    "outputFiles": "output files",
    "applicationPackageReferences": "application packages",
}
RECENT_TASKS = 10

# Creating ------------------------------------------------------------------------------------------------------------


def create_task(world: World, call: Call) -> Reply:
    book = _open_job(world, call.path[0])
    task = _add(world, book, models.decode(call.body), call.now)
    return created(task, documents.task_url(call.base, book.record, task))


def create_task_collection(world: World, call: Call) -> Reply:
    """Up to 100 tasks; each succeeds or fails by itself."""
    book = _open_job(world, call.path[0])
    entries = models.decode(call.body).get("value")
    if not isinstance(entries, list):
        raise Fault("MissingRequiredProperty", PropertyName="value")
    if len(entries) > COLLECTION_LIMIT:
        raise invalid_property("value", len(entries), f"At most {COLLECTION_LIMIT} tasks can be added at once.")
    results = [_add_one(world, book, entry, call) for entry in entries]
    return Reply(200, {"odata.metadata": f"{call.base}/$metadata#taskaddresult", "value": results})


def _add_one(world: World, book: JobBook, entry: object, call: Call) -> Document:
    try:
        task = _add(world, book, entry, call.now)
    except Fault as fault:
        task_id = entry.get("id") if isinstance(entry, dict) else None
        error = wire.error_document(fault, call.base, "", call.now)
        error.pop("odata.metadata")
        return {"status": "clienterror", "taskId": str(task_id or ""), "error": error}
    return {
        "status": "Success",
        "taskId": task.id,
        "eTag": task.etag,
        "lastModified": wire.timestamp(task.modified),
        "location": documents.task_url(call.base, book.record, task),
    }


def _open_job(world: World, job_id: str) -> JobBook:
    book = world.job(job_id)
    if code := jobs.ENDED.get(book.record.state):
        raise Fault(code)
    return book


def _add(world: World, book: JobBook, entry: object, now: int) -> Task:
    document = models.read("BatchTaskCreateOptions", entry)
    task_id = check_id(document)
    if task_id.lower() in book.tasks:
        raise Fault("TaskExists")
    spec = _canonical(book, document)
    gang = spec.get("multiInstanceSettings")
    constraints = spec["constraints"]
    task = Task(
        id=task_id,
        seq=world.new_seq(),
        job=book.record.seq,
        state="active",
        state_time=now,
        created=now,
        spec=msgspec.json.encode(spec),
        slots=spec["requiredSlots"],
        gang=gang["numberOfInstances"] if gang else 0,
        container="containerSettings" in spec,
        max_retries=constraints["maxTaskRetryCount"],
        wall_clock=_limit(constraints["maxWallClockTime"]),
    )
    world.stamp(task, now)
    world.add_task(book, task)
    enqueue(book, task, spec)
    world.touch_job(book.key)
    return task


def _limit(duration: str) -> int:
    return 0 if duration == wire.INFINITE else wire.parse_duration(duration)


def _canonical(book: JobBook, document: Document) -> Document:
    """The document with the service's defaults, checked."""
    spec = {key: value for key, value in document.items() if key != "id"}
    if not spec["commandLine"].strip() and "containerSettings" not in spec:
        raise invalid_property("commandLine", "", "The command line cannot be empty.")
    refuse_unimplemented(spec, NOT_IMPLEMENTED)
    check_resource_files(spec.get("resourceFiles", []), "resourceFiles")
    scrub_registry(spec)
    spec.setdefault("userIdentity", IDENTITY)
    spec["constraints"] = task_constraints(book, spec.get("constraints"))
    if spec.setdefault("requiredSlots", 1) < 1:
        raise invalid_property("requiredSlots", spec["requiredSlots"], "The value must be at least 1.")
    if "multiInstanceSettings" in spec:
        _check_gang(spec)
    if "dependsOn" in spec:
        _check_dependencies(book, spec["dependsOn"])
    if "exitConditions" in spec:
        _check_exit_conditions(book, spec["exitConditions"])
    return spec


def task_constraints(book: JobBook, given: Document | None) -> Document:
    """A task without constraints takes its retries from the job."""
    retries = book.record.spec["constraints"]["maxTaskRetryCount"] if given is None else 0
    constraints = {
        "maxWallClockTime": wire.INFINITE,
        "retentionTime": RETENTION,
        "maxTaskRetryCount": retries,
        **(given or {}),
    }
    if constraints["maxTaskRetryCount"] < -1:
        count = constraints["maxTaskRetryCount"]
        raise invalid_property("constraints/maxTaskRetryCount", count, "The least value is -1, for no limit.")
    return constraints


def _check_gang(spec: Document) -> None:
    settings = spec["multiInstanceSettings"]
    if settings.setdefault("numberOfInstances", 1) < 1:
        count = settings["numberOfInstances"]
        raise invalid_property("multiInstanceSettings/numberOfInstances", count, "The value must be at least 1.")
    if not settings["coordinationCommandLine"].strip():
        raise invalid_property("multiInstanceSettings/coordinationCommandLine", "", "The command cannot be empty.")
    if spec["requiredSlots"] != 1:
        reason = "A multi-instance task takes one slot of each node."
        raise invalid_property("requiredSlots", spec["requiredSlots"], reason)
    place = "multiInstanceSettings/commonResourceFiles"
    check_resource_files(settings.get("commonResourceFiles", []), place)


def _check_dependencies(book: JobBook, depends: Document) -> None:
    if not book.record.spec["usesTaskDependencies"]:
        raise Fault("TaskDependenciesNotSpecifiedOnJob")
    ids = depends.get("taskIds", [])
    if sum(map(len, ids)) > DEPENDENCY_CHARACTERS:
        raise Fault("TaskDependencyListTooLong", MaxLimit=str(DEPENDENCY_CHARACTERS))
    for task_id in ids:
        if not ID.fullmatch(task_id):
            raise invalid_property("dependsOn/taskIds", task_id, "This is no task id.")
    for span in depends.get("taskIdRanges", []):
        if not 0 <= span["start"] <= span["end"]:
            raise invalid_property("dependsOn/taskIdRanges", span, "start must not be after end.")


def _check_exit_conditions(book: JobBook, conditions: Document) -> None:
    """A job action means nothing, and is refused, where the job does not act on failures."""
    if book.record.spec["onTaskFailure"] == "performexitoptionsjobaction":
        return
    for options in _all_options(conditions):
        if "jobAction" in options:
            reason = "The job's onTaskFailure is noaction, so a job action cannot be given."
            raise invalid_property("exitConditions/jobAction", options["jobAction"], reason)


def _all_options(conditions: Document) -> Iterator[Document]:
    for name in ("default", "preProcessingError", "fileUploadError"):
        yield conditions.get(name, {})
    for mapping in (*conditions.get("exitCodes", []), *conditions.get("exitCodeRanges", [])):
        yield mapping["exitOptions"]


# Waiting for other tasks ---------------------------------------------------------------------------------------------


def enqueue(book: JobBook, task: Task, spec: Document, *, first: bool = False) -> None:
    """Put an active task in line, or on its list of things to wait for."""
    depends = spec.get("dependsOn")
    unmet = _register(book, task, depends) if depends else 0
    if unmet:
        book.unmet[task.seq] = unmet
        return
    line_up(book, task, first=first)


def line_up(book: JobBook, task: Task, *, first: bool = False) -> None:
    """At the end of the job's line; what lost its node goes to the front again."""
    book.ready[task.seq] = task
    book.ready.move_to_end(task.seq, last=not first)


def _register(book: JobBook, task: Task, depends: Document) -> int:
    unmet = 0
    for key in {dependency_key(one) for one in depends.get("taskIds", [])}:
        if key not in book.satisfied:
            book.dependants.setdefault(key, []).append(task)
            unmet += 1
    for span in depends.get("taskIdRanges", []):
        start, end = span["start"], span["end"]
        met = sum(start <= int(key) <= end for key in book.satisfied if key.isdigit())
        missing = end - start + 1 - met
        if missing:
            book.range_dependants.append((start, end, task))
            unmet += missing
    return unmet


def dependency_key(task_id: str) -> str:
    """Ids are case-insensitive, and `01` is the number 1."""
    return str(int(task_id)) if task_id.isascii() and task_id.isdigit() else task_id.lower()


def satisfy(book: JobBook, task: Task) -> None:
    """A task lets its dependants start: those with nothing else to wait for get in line."""
    key = dependency_key(task.id)
    if key in book.satisfied:
        return
    book.satisfied.add(key)
    waiting = book.dependants.pop(key, [])
    if key.isdigit():
        waiting += [one for start, end, one in book.range_dependants if start <= int(key) <= end]
    for one in waiting:
        if one.seq not in book.unmet:
            continue
        book.unmet[one.seq] -= 1
        if not book.unmet[one.seq]:
            del book.unmet[one.seq]
            line_up(book, one)
    if book.range_dependants:
        book.range_dependants = [entry for entry in book.range_dependants if entry[2].seq in book.unmet]


# Reading and changing ------------------------------------------------------------------------------------------------


def list_tasks(world: World, call: Call) -> Reply:
    book = world.job(call.path[0])

    def rows(token: str) -> Iterator[Row]:
        for task in book.live_tasks(int(token or 0)):
            yield Row(str(task.seq), documents.task_document_of(book, task, call.base))

    return listing(call, "tasks", rows)


def get_task(world: World, call: Call) -> Reply:
    book, task = world.task(*call.path[:2])
    call.check(task, reading=True)
    document = selected(documents.task_document_of(book, task, call.base), call.query.get("$select", ""))
    return element("tasks", call.base, document, stamped(task))


def replace_task(world: World, call: Call) -> Reply:
    """PUT replaces the constraints; one that is not given falls back to its default."""
    body = models.decode(call.body)
    given = models.read("BatchTaskConstraints", body.get("constraints") or {})
    book, task = _existing(world, call)
    if task.state == "completed":
        raise Fault("TaskCompleted")
    constraints = task_constraints(book, given or None)
    task.spec = msgspec.json.encode({**task_document(task), "constraints": constraints})
    task.max_retries = constraints["maxTaskRetryCount"]
    task.wall_clock = _limit(constraints["maxWallClockTime"])
    world.stamp(task, call.now)
    world.save_task(task)
    return accepted(task, documents.task_url(call.base, book.record, task), 200)


def delete_task(world: World, call: Call) -> Reply:
    book, task = _existing(world, call)
    condemn(world, task, "terminate", call.now)
    world.drop_task(book, task)
    discard_files(world, book, task)
    return Reply(200)


def discard_files(world: World, book: JobBook, task: Task) -> None:
    """A deleted task's directories go, once nothing writes there any more."""
    if task.seq in book.running:
        return
    directory = documents.task_directory(book.record, task)
    for instance in task.instances:
        pool = world.pool_of_node.get(instance.node)
        if pool is not None and pool.nodes[instance.node].root:
            world.rubbish.append((pool.nodes[instance.node].root, directory))


def terminate_task(world: World, call: Call) -> Reply:
    book, task = _existing(world, call)
    if task.state == "completed":
        raise Fault("TaskCompleted")
    if task.state == "running":
        condemn(world, task, "terminate", call.now)
    else:
        complete(world, book, task, call.now, failure=task_ended())
    world.stamp(task, call.now)
    world.save_task(task)
    return accepted(task, documents.task_url(call.base, book.record, task), 204)


def reactivate_task(world: World, call: Call) -> Reply:
    """Only a task that failed, in a job that goes on."""
    book, task = _existing(world, call)
    _open_job(world, call.path[0])
    if task.state != "completed":
        raise Fault("TaskNotCompleted")
    if task.result == "success":
        raise Fault("TaskSucceeded")
    world.set_task_state(book, task, "reactivate", call.now)
    _forget_run(task)
    task.retries = task.last_retry = 0
    line_up(book, task)
    world.stamp(task, call.now)
    world.save_task(task)
    world.touch_job(book.key)
    return accepted(task, documents.task_url(call.base, book.record, task), 204)


def list_subtasks(world: World, call: Call) -> Reply:
    book, task = world.task(*call.path[:2])
    value = documents.subtask_documents(book, task, call.base)
    select = call.query.get("$select", "")
    document = {"odata.metadata": f"{call.base}/$metadata#subtasks", "value": [selected(one, select) for one in value]}
    return Reply(200, document)


def _existing(world: World, call: Call) -> tuple[JobBook, Task]:
    book, task = world.task(*call.path[:2])
    call.check(task)
    return book, task


# How a run ends ------------------------------------------------------------------------------------------------------


def task_ended(message: str = "The task was ended by user request.") -> Document:
    """The failure of a task that was stopped from outside."""
    return {"category": "UserError", "code": "TaskEnded", "message": message, "details": []}


def failed_to_run(code: str, message: str, category: str = "UserError") -> Document:
    """The failure of a task whose command never ran (or could not be followed)."""
    return {
        "category": category,
        "code": code,
        "message": message,
        "details": [{"name": "Message", "value": message}],
    }


def exited_with(code: int) -> Document:
    """The failure of a command that exited with a code other than 0."""
    return {
        "category": "UserError",
        "code": "FailureExitCode",
        "message": "The task exited with an exit code representing a failure",
        "details": [
            {"name": "Message", "value": "The task process exited with an unexpected exit code"},
            {"name": "AdditionalErrorCode", "value": "FailureExitCode"},
        ],
    }


def condemn(world: World, task: Task, verdict: str, now: int, failure: Document | None = None) -> None:
    """Decide how the current run is to end; the first decision stands. Its processes still have to be ended."""
    if task.state != "running" or task.verdict:
        return
    task.verdict = verdict
    if verdict == "terminate":
        task.failure = failure or task_ended()
        task.end = now
    world.save_task(task)
    world.touch_task(task)


def condemn_all(world: World, book: JobBook, verdict: str, now: int) -> None:
    """End every running task of a job."""
    for task in tuple(book.running.values()):
        condemn(world, task, verdict, now)


def conclude(world: World, book: JobBook, task: Task, now: int) -> None:
    """Nothing of the run is left on any node: free the nodes, then retry, requeue or complete the task."""
    release(world, book, task, now)
    verdict, task.verdict = task.verdict, ""
    if book.tasks.get(task.id.lower()) is not task:
        discard_files(world, book, task)
    elif verdict == "requeue":
        _again(world, book, task, now, first=True)
        task.requeues += 1
        task.last_requeue = now
    elif verdict == "retry":
        _again(world, book, task, now, first=False)
        task.retries += 1
        task.last_retry = now
    else:
        complete(world, book, task, now, failure=task.failure, exit_code=task.exit_code)
    world.save_task(task)
    world.touch_job(book.key)


def _again(world: World, book: JobBook, task: Task, now: int, *, first: bool) -> None:
    world.set_task_state(book, task, "return", now)
    _forget_run(task)
    line_up(book, task, first=first)


def _forget_run(task: Task) -> None:
    task.start = task.end = 0
    task.exit_code = task.failure = None
    task.instances = []


def release(world: World, book: JobBook, task: Task, now: int) -> None:
    """Give a run's slots back."""
    book.running.pop(task.seq, None)
    for number, instance in enumerate(task.instances):
        pool = world.pool_of_node.get(instance.node)
        if pool is None or pool.running[instance.node].pop(task.seq, None) is None:
            continue
        node = pool.nodes[instance.node]
        node.total_run += 1
        node.total_succeeded += task.verdict == "exit" and task.exit_code == 0 and task.failure is None
        entry = (book.record.id, task.id, number)
        node.recent = [*(one for one in node.recent if one != entry), entry][-RECENT_TASKS:]
        if node.state == "running" and not pool.running[node.id]:
            world.move(node, states.NODE, "free" if node.scheduling else "offline", now)
        world.save_node(node)


def complete(
    world: World,
    book: JobBook,
    task: Task,
    now: int,
    *,
    failure: Document | None = None,
    exit_code: int | None = None,
) -> None:
    """A task is over; its dependants and its job take notice."""
    result = "success" if failure is None and exit_code == 0 else "failure"
    task.end = task.end or now
    task.failure, task.exit_code = failure, exit_code
    book.ready.pop(task.seq, None)
    book.unmet.pop(task.seq, None)
    world.hints.pop(task.seq, None)
    world.set_task_state(book, task, "end", now, result)
    options = exit_options(task_document(task).get("exitConditions", {}), exit_code, failure)
    task.satisfies = options["dependencyAction"] == "satisfy"
    if task.satisfies:
        satisfy(book, task)
    world.save_task(task)
    world.touch_job(book.key)
    if result == "failure" and book.record.spec["onTaskFailure"] == "performexitoptionsjobaction":
        _act_on_job(world, book, options["jobAction"], now)


def exit_options(conditions: Document, exit_code: int | None, failure: Document | None) -> Document:
    """What follows from an outcome: the task's own rule for it, else the service's."""
    succeeded = exit_code == 0 and failure is None
    standard = (
        {"jobAction": "none", "dependencyAction": "satisfy"}
        if succeeded
        else {"jobAction": "terminate", "dependencyAction": "block"}
    )
    return {**standard, **_rule(conditions, exit_code)}


def _rule(conditions: Document, exit_code: int | None) -> Document:
    default: Document = conditions.get("default", {})
    if exit_code is None:
        return dict(conditions.get("preProcessingError", default))
    for mapping in conditions.get("exitCodes", []):
        if mapping["code"] == exit_code:
            return dict(mapping["exitOptions"])
    for mapping in conditions.get("exitCodeRanges", []):
        if mapping["start"] <= exit_code <= mapping["end"]:
            return dict(mapping["exitOptions"])
    return {} if exit_code == 0 else default


def _act_on_job(world: World, book: JobBook, action: str, now: int) -> None:
    if action == "terminate":
        jobs.terminate(world, book, "TaskFailed", now)
    elif action == "disable" and states.allows(states.JOB, book.record.state, "disable"):
        jobs.disable(world, book, "requeue", now)
