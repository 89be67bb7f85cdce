"""How a client's request or a schedule creates a job: its specification, its pool and its job manager task; pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from batchtrain.catalog import meaning
from batchtrain.emulator import documents, pools, tasks, tokens, wire
from batchtrain.emulator.checks import check_command, check_id, check_retries, passwords
from batchtrain.emulator.faults import Fault, invalid_property
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
LONGEST_RELEASE = meaning.LONGEST_RELEASE_SECONDS * wire.SECOND
PREFIX = re.compile(r"[A-Za-z0-9_-]{0,20}")
SECRET = "*"
SPECIAL_TASKS = ("jobPreparationTask", "jobReleaseTask", "jobManagerTask")


def logins(document: Document) -> dict[str, str] | None:
    """Registry passwords of a job's special tasks, taken before `specification` removes them."""
    settings = [document.get(name, {}).get("containerSettings", {}) for name in SPECIAL_TASKS]
    return passwords([container["registry"] for container in settings if "registry" in container]) or None


def specification(world: World, document: Document, *, by_schedule: bool = False) -> Document:
    """A job's document (of a request or a schedule) with the service's defaults, checked. Raises Fault."""
    spec = {**DEFAULTS, **checked({name: value for name, value in document.items() if name != "id"})}
    spec["constraints"] = {**CONSTRAINTS, **spec.get("constraints", {})}
    check_meaning(meaning.job(spec))
    _check_pool(world, spec["poolInfo"], by_schedule=by_schedule)
    if preparation := spec.get("jobPreparationTask"):
        check_command(preparation, "jobPreparationTask/")
        constraints = {**CONSTRAINTS, "retentionTime": tasks.RETENTION, **preparation.get("constraints", {})}
        check_retries(constraints["maxTaskRetryCount"], "jobPreparationTask/constraints/maxTaskRetryCount")
        spec["jobPreparationTask"] = {**PREPARATION, **preparation, "constraints": constraints}
    if "jobReleaseTask" in spec:
        spec["jobReleaseTask"] = _release(spec)
    if manager := spec.get("jobManagerTask"):  # its number of retries can be the job's
        spec["jobManagerTask"] = {**MANAGER, **manager, **tasks.checked(world, spec, _task_of(manager))}
    _check_ids(spec)
    return spec


def checked(sent: Document) -> Document:
    """The limits of what a request sends of the properties that can also be changed later. Raises Fault 400."""
    spec = {**DEFAULTS, **sent}
    if not -1000 <= spec["priority"] <= 1000:
        raise invalid_property("priority", spec["priority"], "The value must be between -1000 and 1000.")
    if spec["maxParallelTasks"] != -1 and spec["maxParallelTasks"] < 1:
        reason = "The value must be -1, for no limit, or at least 1."
        raise invalid_property("maxParallelTasks", spec["maxParallelTasks"], reason)
    check_retries(spec.get("constraints", CONSTRAINTS).get("maxTaskRetryCount", 0))
    return sent


def _release(spec: Document) -> Document:
    document = spec["jobReleaseTask"]
    if "jobPreparationTask" not in spec:
        reason = "A job release task needs a job preparation task."
        raise Fault("MissingRequiredProperty", PropertyName="jobPreparationTask", Reason=reason)
    check_command(document, "jobReleaseTask/")
    completed = {**RELEASE, **document}
    if not 0 < wire.parse_duration(completed["maxWallClockTime"]) <= LONGEST_RELEASE:
        path = "jobReleaseTask/maxWallClockTime"
        raise invalid_property(path, completed["maxWallClockTime"], "A job release task runs for at most 15 minutes.")
    return completed


def _task_of(manager: Document) -> Document:
    """The properties that a job manager task has in common with other tasks."""
    return {name: value for name, value in manager.items() if name not in MANAGER}


def _check_ids(spec: Document) -> None:
    ids: set[str] = set()
    for name in SPECIAL_TASKS:
        if name not in spec:
            continue
        task_id = check_id(spec[name], f"{name}/id").lower()
        if task_id in ids:
            raise invalid_property(f"{name}/id", spec[name]["id"], "Another special task of the job has this id.")
        ids.add(task_id)


def _check_pool(world: World, info: Document, *, by_schedule: bool) -> None:
    """Check that the job names a pool or has an auto pool. It is not checked whether the named pool exists."""
    auto = info.get("autoPoolSpecification")
    if info.get("poolId") and auto is not None:
        raise invalid_property("poolInfo", info["poolId"], "Either poolId or autoPoolSpecification is given.")
    if auto is None:
        if not info.get("poolId"):
            raise Fault("MissingRequiredProperty", PropertyName="poolInfo/poolId")
        return
    path = "poolInfo/autoPoolSpecification"
    if "pool" not in auto:
        raise Fault("MissingRequiredProperty", PropertyName=f"{path}/pool")
    if auto["poolLifetimeOption"] == "jobschedule" and not by_schedule:
        reason = "A job that no schedule made cannot share its pool with others of a schedule."
        raise invalid_property(f"{path}/poolLifetimeOption", auto["poolLifetimeOption"], reason)
    if not PREFIX.fullmatch(auto.get("autoPoolIdPrefix", "")):
        reason = "A prefix has up to 20 of the characters A-Z, a-z, 0-9, _ and -."
        raise invalid_property(f"{path}/autoPoolIdPrefix", auto["autoPoolIdPrefix"], reason)
    pools.check(world, auto["pool"])
    if "hardwareProfile" in auto["pool"]["virtualMachineConfiguration"]:
        profile_path = f"{path}/pool/virtualMachineConfiguration/hardwareProfile"
        raise invalid_property(profile_path, "", "A pool that is made for a job cannot have it.")
    auto.setdefault("keepAlive", False)
    _mask(auto["pool"])


def _mask(document: Document) -> None:
    """Mask an auto pool's secrets, except registry passwords: only their presence matters to the new pool."""
    for name, value in document.items():
        if name in documents.SECRETS:
            document[name] = SECRET
        elif name not in ("containerRegistries", "registry"):
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, dict):
                    _mask(item)


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
