"""What a client may do to jobs; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from batchtrain.emulator import documents, endings, models, states, wire
from batchtrain.emulator.checks import check_id, refuse_unimplemented
from batchtrain.emulator.faults import Fault, invalid_property
from batchtrain.emulator.query import Row, listing, number, selected
from batchtrain.emulator.records import Job
from batchtrain.emulator.reply import Call, Reply, accepted, created, element, stamped
from batchtrain.emulator.world import Deadline, JobBook, World, job_wall_clock

Document = dict[str, Any]

DEFAULTS: Mapping[str, Any] = {
    "priority": 0,
    "allowTaskPreemption": False,
    "maxParallelTasks": -1,
    "usesTaskDependencies": False,
    "onAllTasksComplete": "noaction",
    "onTaskFailure": "noaction",
}
CONSTRAINTS: Mapping[str, Any] = {"maxWallClockTime": wire.INFINITE, "maxTaskRetryCount": 0}
NOT_IMPLEMENTED: Mapping[str, str] = {
    "jobManagerTask": "job manager tasks",
    "jobPreparationTask": "job preparation tasks",
    "jobReleaseTask": "job release tasks",
}
ENDED: Mapping[str, str] = {
    "completed": "JobCompleted",
    "terminating": "JobBeingTerminated",
    "deleting": "JobBeingDeleted",
}
"""The refusal of a change to a job that is over."""


def create_job(world: World, call: Call) -> Reply:
    document = models.read("BatchJobCreateOptions", models.decode(call.body))
    job_id = check_id(document)
    if existing := world.jobs.get(job_id.lower()):
        raise Fault("JobBeingDeleted" if existing.record.state == "deleting" else "JobExists")
    refuse_unimplemented(document, NOT_IMPLEMENTED)
    spec = _canonical({**DEFAULTS, **document})
    spec.pop("id")
    job = Job(
        id=job_id,
        seq=world.new_seq(),
        state="active",
        state_time=call.now,
        created=call.now,
        started=call.now,
        spec=spec,
    )
    world.stamp(job, call.now)
    world.add_job(job)
    return created(job, f"{call.base}/jobs/job-1")


def _canonical(spec: Document) -> Document:
    spec["constraints"] = {**CONSTRAINTS, **spec.get("constraints", {})}
    if not -1000 <= spec["priority"] <= 1000:
        raise invalid_property("priority", spec["priority"], "The value must be between -1000 and 1000.")
    refuse_unimplemented(spec["poolInfo"], {"autoPoolSpecification": "auto pools"})
    if not spec["poolInfo"].get("poolId"):
        raise Fault("MissingRequiredProperty", PropertyName="poolInfo/poolId")
    return spec


def list_jobs(world: World, call: Call) -> Reply:
    def rows(token: str) -> Iterator[Row]:
        after = number(token)
        for book in sorted(world.jobs.values(), key=lambda book: book.record.seq):
            if book.record.seq > after:
                yield Row(str(book.record.seq), documents.job_document(book, call.base))

    return listing(call, "jobs", rows)


def get_job(world: World, call: Call) -> Reply:
    book = world.job(call.path[0])
    call.check(book.record, reading=True)
    document = selected(documents.job_document(book, call.base), call.query.get("$select", ""))
    return element("jobs", call.base, document, stamped(book.record))


def update_job(world: World, call: Call) -> Reply:
    """PATCH: what is given changes, the rest stays."""
    document = models.read("BatchJobUpdateOptions", models.decode(call.body))
    book = _changeable(world, call)
    return _respecified(world, call, book, {**book.record.spec, **document}, document)


def replace_job(world: World, call: Call) -> Reply:
    """PUT: what is not given falls back to its default."""
    document = models.read("BatchJobUpdateOptions", models.decode(call.body))
    if "poolInfo" not in document:
        raise Fault("MissingRequiredProperty", PropertyName="poolInfo")
    book = _changeable(world, call)
    replaced = ("priority", "maxParallelTasks", "allowTaskPreemption", "onAllTasksComplete")
    kept = {name: value for name, value in book.record.spec.items() if name not in ("constraints", "metadata")}
    reset = {name: DEFAULTS[name] for name in replaced}
    return _respecified(world, call, book, {**kept, **reset, **document}, document)


def _respecified(world: World, call: Call, book: JobBook, spec: Document, given: Document) -> Reply:
    spec = _canonical(spec)
    moved = spec["poolInfo"] != book.record.spec["poolInfo"]
    if moved and book.record.state != "disabled":
        raise Fault("OperationInvalidForCurrentState", PropertyName="poolInfo", Reason="The job is not disabled.")
    world.move_job(book, spec)
    if "constraints" in given and (wall := job_wall_clock(book.record)):
        world.add_deadline(Deadline(book.record.created + wall, book.record.seq, "job", book.key))
    return _changed(world, call, book, 200)


def delete_job(world: World, call: Call) -> Reply:
    book = _existing(world, call)
    if book.record.state == "deleting":
        raise Fault("JobBeingDeleted")
    world.move(book.record, states.JOB, "delete", call.now)
    endings.condemn_all(world, book, "terminate", call.now)
    return _changed(world, call, book)


def disable_job(world: World, call: Call) -> Reply:
    options = models.read("BatchJobDisableOptions", models.decode(call.body))
    book = _changeable(world, call)
    if not states.allows(states.JOB, book.record.state, "disable"):
        raise Fault("JobNotActive")
    endings.disable(world, book, options["disableTasks"], call.now)
    return _changed(world, call, book)


def enable_job(world: World, call: Call) -> Reply:
    book = _changeable(world, call)
    if not states.allows(states.JOB, book.record.state, "enable"):
        raise Fault("OperationInvalidForCurrentState", JobState=book.record.state)
    world.move(book.record, states.JOB, "enable", call.now)
    return _changed(world, call, book)


def terminate_job(world: World, call: Call) -> Reply:
    options = models.read("BatchJobTerminateOptions", models.decode(call.body))
    book = _changeable(world, call)
    endings.terminate(world, book, options.get("terminateReason", "UserTerminate"), call.now)
    return _changed(world, call, book)


def task_counts(world: World, call: Call) -> Reply:
    book = world.job(call.path[0])
    return element("taskcountsresult", call.base, {"taskCounts": book.counts, "taskSlotCounts": book.slot_counts})


def _existing(world: World, call: Call) -> JobBook:
    book = world.job(call.path[0])
    call.check(book.record)
    return book


def _changeable(world: World, call: Call) -> JobBook:
    book = _existing(world, call)
    if code := ENDED.get(book.record.state):
        raise Fault(code)
    return book


def _changed(world: World, call: Call, book: JobBook, status: int = 202) -> Reply:
    world.stamp(book.record, call.now)
    world.save_job(book)
    return accepted(book.record, documents.job_url(call.base, book.record), status)
