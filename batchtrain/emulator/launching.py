"""How a client's request or a schedule creates a job: its specification, its pool and its job manager task; pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from batchtrain.catalog import meaning
from batchtrain.emulator import models, pools, tasks, tokens, wire
from batchtrain.emulator.checks import passwords
from batchtrain.emulator.faults import Fault
from batchtrain.emulator.faults import check as check_meaning
from batchtrain.emulator.indexes import JobEntry, ScheduleEntry
from batchtrain.emulator.records import Document, Job
from batchtrain.emulator.world import World

DEFAULTS: Mapping[str, Any] = {
    "priority": 0,
    "allowTaskPreemption": False,
    "maxParallelTasks": -1,
    "usesTaskDependencies": False,
    "onAllTasksComplete": "noaction",
    "onTaskFailure": "noaction",
}
CONSTRAINTS: Mapping[str, Any] = {"maxWallClockTime": wire.INFINITE, "maxTaskRetryCount": 0}
PREPARATION: Mapping[str, Any] = {
    "id": "jobpreparation",
    "userIdentity": tasks.IDENTITY,
    "waitForSuccess": True,
    "rerunOnNodeRebootAfterSuccess": True,
}
RELEASE: Mapping[str, Any] = {
    "id": "jobrelease",
    "userIdentity": tasks.IDENTITY,
    "maxWallClockTime": "PT15M",
    "retentionTime": tasks.RETENTION,
}
MANAGER: Mapping[str, Any] = {"killJobOnCompletion": True, "runExclusive": True, "allowLowPriorityNode": True}
"""Properties with defaults of the service."""


def logins(document: Document) -> dict[str, str] | None:
    """Registry passwords of a job's special tasks, taken before `specification` removes them."""
    settings = [document.get(name, {}).get("containerSettings", {}) for name in meaning.SPECIAL_TASKS]
    return passwords([container["registry"] for container in settings if "registry" in container]) or None


def specification(world: World, document: Document, *, by_schedule: bool = False) -> Document:
    """A job's document (of a request or a schedule) with the service's defaults, checked. Raises Fault."""
    spec = {**DEFAULTS, **{name: value for name, value in document.items() if name != "id"}}
    spec["constraints"] = {**CONSTRAINTS, **spec.get("constraints", {})}
    check_meaning(meaning.job(spec, by_schedule=by_schedule))
    _check_pool(world, spec["poolInfo"])
    models.hide("BatchJobSpecification", spec, spared="BatchPoolInfo")
    if preparation := spec.get("jobPreparationTask"):
        constraints = {**CONSTRAINTS, "retentionTime": tasks.RETENTION, **preparation.get("constraints", {})}
        spec["jobPreparationTask"] = {**PREPARATION, **preparation, "constraints": constraints}
    if release := spec.get("jobReleaseTask"):
        spec["jobReleaseTask"] = {**RELEASE, **release}
    if manager := spec.get("jobManagerTask"):  # its number of retries can be the job's
        spec["jobManagerTask"] = {**MANAGER, **manager, **tasks.checked(world, spec, _task_of(manager))}
    return spec


def _task_of(manager: Document) -> Document:
    """The properties that a job manager task has in common with other tasks."""
    return {name: value for name, value in manager.items() if name not in MANAGER}


def _check_pool(world: World, info: Document) -> None:
    """Check whether the job's auto pool can be created. It is not checked whether a named pool exists."""
    if auto := info.get("autoPoolSpecification"):
        pools.specification(world, copy.deepcopy(auto["pool"]))
        auto.setdefault("keepAlive", False)
        # Only the presence of the other secrets matters to the new pool.
        models.hide("BatchPoolSpecification", auto["pool"], mask="*", spared="ContainerRegistryReference")


def _auto_pool(spec: Document) -> Document:
    auto: Document = spec["poolInfo"].get("autoPoolSpecification", {})
    return auto


def _make_pool(world: World, job: Job, schedule: ScheduleEntry | None, now: int) -> None:
    """The auto pool of a job. If it cannot be created, the reason is the job's scheduling error."""
    auto = _auto_pool(job.spec)
    if not auto:
        return
    sharing = schedule if auto["poolLifetimeOption"] == "jobschedule" else None
    if sharing and sharing.record.auto_pool.lower() in world.pools:
        job.auto_pool = sharing.record.auto_pool
        return
    pool_id = auto.get("autoPoolIdPrefix", "") + tokens.guid(f"{world.seed}/pool/{world.new_seq()}").upper()
    try:
        pools.make(world, pool_id, copy.deepcopy(auto["pool"]), now)
    except Fault as fault:
        if schedule is None:
            raise
        job.error = _scheduling_error(fault)
        return
    job.auto_pool = pool_id
    if sharing:
        sharing.record.auto_pool = pool_id


def _scheduling_error(fault: Fault) -> Document:
    details = [{"name": name, "value": value} for name, value in fault.details.items()]
    return {"category": "UserError", "code": fault.code, "message": fault.text, "details": details}


def end_pool(world: World, entry: JobEntry, now: int) -> None:
    """Delete a job's auto pool, unless it is kept alive or belongs to the schedule."""
    auto = _auto_pool(entry.record.spec)
    if auto.get("poolLifetimeOption") == "job" and not auto["keepAlive"]:
        _end(world, entry.record.auto_pool, now)


def end_shared_pool(world: World, entry: ScheduleEntry, now: int) -> None:
    """Delete the auto pool of a schedule's jobs, unless it is kept alive."""
    if not _auto_pool(entry.record.spec["jobSpecification"]).get("keepAlive"):
        _end(world, entry.record.auto_pool, now)


def _end(world: World, pool_id: str, now: int) -> None:
    pool = world.pools.get(pool_id.lower())
    if pool is not None and pool.record.state == "active":
        pools.end(world, pool, now)


def make(
    world: World,
    job_id: str,
    spec: Document,
    now: int,
    schedule: ScheduleEntry | None = None,
    logins: dict[str, str] | None = None,
) -> JobEntry:
    """A new job with its pool and its job manager task, by a checked specification. Raises Fault."""
    job = Job(
        id=job_id,
        seq=world.new_seq(),
        state="active",
        state_time=now,
        created=now,
        started=now,
        spec=spec,
        schedule=schedule.record.seq if schedule else 0,
        logins=schedule.record.logins if schedule else logins,
    )
    _make_pool(world, job, schedule, now)
    world.stamp(job, now)
    entry = world.add_job(job)
    if manager := spec.get("jobManagerTask"):
        try:
            task = tasks.add(world, entry, copy.deepcopy(_task_of(manager)), now)
        except Fault as fault:  # the specification of a schedule may have become invalid since it was added
            job.error = _scheduling_error(fault)
        else:
            task.manager, task.exclusive = True, manager["runExclusive"]
            world.save_task(task)
    return entry
