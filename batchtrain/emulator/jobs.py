"""Operations on jobs; pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

from batchtrain.catalog import meaning
from batchtrain.emulator import documents, endings, launching, models, quotas, schedules, states, statistics
from batchtrain.emulator.checks import check_id
from batchtrain.emulator.faults import Fault, invalid_property
from batchtrain.emulator.faults import check as check_meaning
from batchtrain.emulator.indexes import JobEntry
from batchtrain.emulator.query import Row, by_id, listing, number, one
from batchtrain.emulator.records import Document
from batchtrain.emulator.reply import Call, Reply, accepted, created, element
from batchtrain.emulator.world import Deadline, World, job_wall_clock


def create_job(world: World, call: Call) -> Reply:
    document = call.read("BatchJobCreateOptions")
    job_id = check_id(document)
    if existing := world.jobs.get(job_id.lower()):
        raise Fault("JobBeingDeleted" if existing.record.state == "deleting" else "JobExists")
    if job_id.lower() in world.schedules:
        raise Fault("JobScheduleWithSameIdExists")
    quotas.check_active_job(world, schedules.active(world))
    logins = launching.logins(document)
    entry = launching.make(world, job_id, launching.specification(world, document), call.now, logins=logins)
    return created(entry.record, f"{call.base}/jobs/job-1")


def list_jobs(world: World, call: Call) -> Reply:
    return listed(call, world.jobs.values())


def list_jobs_from_schedule(world: World, call: Call) -> Reply:
    return listed(call, world.schedule(call.path[0]).jobs.values(), "jobsofschedule")


def listed(call: Call, entries: Iterable[JobEntry], filters: str = "jobs") -> Reply:
    """One page of jobs."""
    return listing(call, "jobs", by_id(entries, lambda entry: _document(entry, call)), filters=filters)


def _document(entry: JobEntry, call: Call) -> Document:
    document = documents.job_document(entry, call.base)
    return {**document, "stats": statistics.of_job(entry, call.base, call.now)} if statistics.asked(call) else document


def get_job(world: World, call: Call) -> Reply:
    entry = world.job(call.path[0])
    call.check(entry.record, reading=True)
    return one(call, "jobs", _document(entry, call), entry.record)


def update_job(world: World, call: Call) -> Reply:
    """PATCH: change the given properties, keep the others."""
    document = call.read("BatchJobUpdateOptions")
    entry = _changeable(world, call)
    return _respecified(world, call, entry, {**entry.record.spec, **document}, document)


RESET = ("priority", "maxParallelTasks", "allowTaskPreemption", "onAllTasksComplete")
"""The properties that a PUT resets to their defaults."""


def replace_job(world: World, call: Call) -> Reply:
    """PUT: properties that are not given get their defaults."""
    document = call.read("BatchJobReplaceOptions")
    entry = _changeable(world, call)
    unchanging = {name: value for name, value in entry.record.spec.items() if name not in ("constraints", "metadata")}
    reset = {name: launching.DEFAULTS[name] for name in RESET}
    return _respecified(world, call, entry, {**unchanging, **reset, **document}, document)


def _respecified(world: World, call: Call, entry: JobEntry, spec: Document, changes: Document) -> Reply:
    before = entry.record.spec
    if before["onAllTasksComplete"] == "terminatejob" and spec["onAllTasksComplete"] == "noaction":
        reason = "A job that ends with its tasks (terminatejob) cannot be changed to noaction."
        raise invalid_property("onAllTasksComplete", "noaction", reason)
    spec["poolInfo"] = _pool_info(entry, before["poolInfo"], spec["poolInfo"])
    check_meaning(meaning.job_limits(changes))
    spec["constraints"] = {**launching.CONSTRAINTS, **spec.get("constraints", {})}
    world.move_job(entry, spec)
    if "constraints" in changes and (wall := job_wall_clock(entry.record)):
        world.add_deadline(Deadline(entry.record.created + wall, entry.record.seq, "job", entry.key))
    return _changed(world, call, entry, 200)


def _pool_info(entry: JobEntry, before: Document, pool_info: Document) -> Document:
    """Move a job to another pool, which needs a disabled job. Of an auto pool only keepAlive can change."""
    auto = before.get("autoPoolSpecification")
    if auto is not None:
        auto_pool, own = (
            models.hide("BatchAutoPoolSpecification", copy.deepcopy(pool))
            for pool in (pool_info.get("autoPoolSpecification", {}), auto)
        )
        path = "poolInfo/autoPoolSpecification"
        for name in auto_pool.keys() - {"keepAlive"}:  # secrets are ignored, because answers never contain them
            if auto_pool[name] != own.get(name):
                raise invalid_property(f"{path}/{name}", auto_pool[name], "Only keepAlive can be changed.")
        keep = auto_pool.get("keepAlive", auto["keepAlive"])
        if keep != auto["keepAlive"] and auto["poolLifetimeOption"] != "job":
            raise invalid_property(f"{path}/keepAlive", keep, "The pool is its schedule's, not the job's.")
        if pool_info.get("poolId"):
            raise invalid_property("poolInfo/poolId", pool_info["poolId"], "The job's pool was made for it.")
        return {"autoPoolSpecification": {**auto, "keepAlive": keep}}
    if not pool_info.get("poolId"):
        raise Fault("MissingRequiredProperty", PropertyName="poolInfo/poolId")
    if "autoPoolSpecification" in pool_info:
        raise invalid_property("poolInfo", pool_info["poolId"], "A job with a pool cannot ask for one to be made.")
    if pool_info != before and entry.record.state != "disabled":
        raise Fault("OperationInvalidForCurrentState", PropertyName="poolInfo", Reason="The job is not disabled.")
    return pool_info


def delete_job(world: World, call: Call) -> Reply:
    entry = _existing(world, call)
    force = call.flag("force")
    if entry.record.state == "deleting" and not force:
        raise Fault("JobBeingDeleted")
    entry.record.forced = force
    if entry.record.state != "deleting":
        endings.delete(world, entry, call.now)
    _changed(world, call, entry)
    return Reply(202)


def disable_job(world: World, call: Call) -> Reply:
    """Disable a job. A disabled job is not changed, but a job that waits for its tasks can get another option."""
    options = call.read("BatchJobDisableOptions")
    entry = _changeable(world, call)
    endings.disable(world, entry, options["disableTasks"], call.now)
    return _changed(world, call, entry)


def enable_job(world: World, call: Call) -> Reply:
    entry = _changeable(world, call)
    if not states.allows(states.JOB, entry.record.state, "enable"):
        raise Fault("OperationInvalidForCurrentState", JobState=entry.record.state)
    world.move(entry.record, states.JOB, "enable", call.now)
    return _changed(world, call, entry)


def terminate_job(world: World, call: Call) -> Reply:
    """Terminate a job. `force` ends it without waiting for its nodes, even if it is terminating already."""
    options = call.read("BatchJobTerminateOptions")
    force = call.flag("force")
    entry = _existing(world, call)
    state = entry.record.state
    if (code := states.JOB_OVER.get(state)) and not (force and state == "terminating"):
        raise Fault(code)
    entry.record.forced = force
    if state != "terminating":
        endings.terminate(world, entry, options.get("terminateReason", "UserTerminate"), call.now)
    return _changed(world, call, entry)


def task_counts(world: World, call: Call) -> Reply:
    entry = world.job(call.path[0])
    kind = "taskcounts" if call.revision < SLOT_COUNTS else "taskcountsresult"
    return element(kind, call.base, {"taskCounts": entry.counts, "taskSlotCounts": entry.slot_counts})


SLOT_COUNTS = 12
"""The first revision that counts slots, too."""


def list_preparation_and_release(world: World, call: Call) -> Reply:
    """The state of the job's preparation and release tasks on each of its nodes."""
    entry = world.job(call.path[0])
    if "jobPreparationTask" not in entry.record.spec:  # a release task needs one
        raise Fault("JobPreparationTaskOrReleaseTaskNotSpecified")

    def rows(token: str) -> Iterator[Row]:
        after = number(token)
        for job_node in sorted(entry.nodes.values(), key=lambda job_node: job_node.seq):
            if job_node.seq > after and job_node.preparation.start:
                yield Row(str(job_node.seq), documents.job_node_document(entry, job_node, call.base))

    return listing(call, "jobpreparationandreleasetaskstatuslist", rows)


def _existing(world: World, call: Call) -> JobEntry:
    entry = world.job(call.path[0])
    call.check(entry.record)
    return entry


def _changeable(world: World, call: Call) -> JobEntry:
    entry = _existing(world, call)
    if code := states.JOB_OVER.get(entry.record.state):
        raise Fault(code)
    return entry


def _changed(world: World, call: Call, entry: JobEntry, status: int = 202) -> Reply:
    world.stamp(entry.record, call.now)
    world.save_job(entry)
    return accepted(call, entry.record, status)
