"""Operations on job schedules, and how these create their jobs; pure."""

from __future__ import annotations

from batchtrain.catalog import meaning
from batchtrain.emulator import documents, endings, launching, quotas, recurrence, states, statistics, wire
from batchtrain.emulator.checks import check_id
from batchtrain.emulator.faults import Fault, invalid_property
from batchtrain.emulator.faults import check as check_meaning
from batchtrain.emulator.indexes import ScheduleEntry
from batchtrain.emulator.query import by_id, listing, one
from batchtrain.emulator.records import Document, JobSchedule
from batchtrain.emulator.reply import Call, Reply, accepted, created
from batchtrain.emulator.world import Deadline, World


def create_schedule(world: World, call: Call) -> Reply:
    document = call.read("BatchJobScheduleCreateOptions")
    schedule_id = check_id(document)
    if existing := world.schedules.get(schedule_id.lower()):
        raise Fault("JobScheduleBeingDeleted" if existing.record.state == "deleting" else "JobScheduleExists")
    if schedule_id.lower() in world.jobs:
        raise Fault("JobWithSameIdExists")
    _check_times(document["schedule"], call.now)
    logins = launching.logins(document["jobSpecification"])
    check_meaning(meaning.display_name(document))
    spec = _specification(world, {name: value for name, value in document.items() if name != "id"})
    quotas.check_active_job(world, active(world))
    schedule = JobSchedule(
        id=schedule_id,
        seq=world.new_seq(),
        state="active",
        state_time=call.now,
        created=call.now,
        spec=spec,
        logins=logins,
    )
    schedule.next_run = recurrence.first_run(schedule)
    world.stamp(schedule, call.now)
    remind(world, world.add_schedule(schedule), call.now)
    return created(schedule, documents.schedule_url(call.base, schedule))


def active(world: World) -> int:
    """The number of schedules that count towards the account's quota of active jobs and schedules."""
    return sum(entry.record.state != "completed" for entry in world.schedules.values())


def _specification(world: World, spec: Document) -> Document:
    job = launching.specification(world, spec["jobSpecification"], by_schedule=True)
    return {**spec, "jobSpecification": job}


def _check_times(times: Document, now: int) -> None:
    check_meaning(meaning.times(times))
    if "doNotRunAfter" in times:
        last = wire.parse_timestamp(times["doNotRunAfter"])
        if last <= max(wire.parse_timestamp(times["doNotRunUntil"]) if "doNotRunUntil" in times else 0, now):
            reason = "The time must be in the future, and after doNotRunUntil."
            raise invalid_property("schedule/doNotRunAfter", times["doNotRunAfter"], reason)


def list_schedules(world: World, call: Call) -> Reply:
    return listing(call, "jobschedules", by_id(world.schedules.values(), lambda entry: _document(entry, call)))


def _document(entry: ScheduleEntry, call: Call) -> Document:
    document = documents.schedule_document(entry, call.base, recurrence.following(entry.record, call.now))
    if statistics.asked(call):
        document["stats"] = statistics.of_schedule(entry, call.base, call.now)
    return document


def get_schedule(world: World, call: Call) -> Reply:
    entry = world.schedule(call.path[0])
    call.check(entry.record, reading=True)
    return one(call, "jobschedules", _document(entry, call), entry.record)


def schedule_exists(world: World, call: Call) -> Reply:
    return get_schedule(world, call)._replace(document=None)


def update_schedule(world: World, call: Call) -> Reply:
    """PATCH: change the given properties, keep the others. Existing jobs are not changed."""
    document = call.read("BatchJobScheduleUpdateOptions")
    entry = _changeable(world, call)
    return _respecified(world, call, entry, {**entry.record.spec, **document}, document)


def replace_schedule(world: World, call: Call) -> Reply:
    """PUT: a schedule or metadata that are not given are removed."""
    document = call.read("BatchJobScheduleReplaceOptions")
    entry = _changeable(world, call)
    unchanging = {name: value for name, value in entry.record.spec.items() if name == "displayName"}
    return _respecified(world, call, entry, {**unchanging, **document}, document)


def _respecified(world: World, call: Call, entry: ScheduleEntry, spec: Document, changes: Document) -> Reply:
    _check_times(changes.get("schedule", {}), call.now)
    schedule = entry.record
    logins = launching.logins(changes.get("jobSpecification", {}))
    schedule.spec = _specification(world, spec) if "jobSpecification" in changes else spec
    schedule.logins = {**(schedule.logins or {}), **(logins or {})} or None
    schedule.next_run = recurrence.first_run(schedule)
    remind(world, entry, call.now)
    return _changed(world, call, entry, 200)


def disable_schedule(world: World, call: Call) -> Reply:
    """Disable: no more jobs are created; the running job continues."""
    entry = _changeable(world, call)
    world.move(entry.record, states.SCHEDULE, "disable", call.now)
    return _changed(world, call, entry, 204)


def enable_schedule(world: World, call: Call) -> Reply:
    entry = _changeable(world, call)
    world.move(entry.record, states.SCHEDULE, "enable", call.now)
    remind(world, entry, call.now)
    return _changed(world, call, entry, 204)


def terminate_schedule(world: World, call: Call) -> Reply:
    entry = _existing(world, call)
    force, state = call.flag("force"), entry.record.state
    if (code := states.SCHEDULE_OVER.get(state)) and not (force and state == "terminating"):
        raise Fault(code)
    entry.record.forced = force
    if state != "terminating":
        world.move(entry.record, states.SCHEDULE, "terminate", call.now)
    if job := entry.active_job:
        job.record.forced = job.record.forced or force
        endings.terminate(world, job, "TerminateJobSchedule", call.now)
        world.save_job(job)
    return _changed(world, call, entry)


def delete_schedule(world: World, call: Call) -> Reply:
    """Delete it with all its jobs."""
    entry = _existing(world, call)
    force = call.flag("force")
    if entry.record.state == "deleting" and not force:
        raise Fault("JobScheduleBeingDeleted")
    entry.record.forced = force
    if entry.record.state != "deleting":
        world.move(entry.record, states.SCHEDULE, "delete", call.now)
    for job in tuple(entry.jobs.values()):
        job.record.forced = job.record.forced or force
        if job.record.state != "deleting":
            endings.delete(world, job, call.now)
        world.save_job(job)
    _changed(world, call, entry)
    return Reply(202)


def _existing(world: World, call: Call) -> ScheduleEntry:
    entry = world.schedule(call.path[0])
    call.check(entry.record)
    return entry


def _changeable(world: World, call: Call) -> ScheduleEntry:
    entry = _existing(world, call)
    if code := states.SCHEDULE_OVER.get(entry.record.state):
        raise Fault(code)
    return entry


def _changed(world: World, call: Call, entry: ScheduleEntry, status: int = 202) -> Reply:
    world.stamp(entry.record, call.now)
    world.save_schedule(entry)
    return accepted(call, entry.record, status)


def remind(world: World, entry: ScheduleEntry, now: int) -> None:
    """Check a schedule again when its next job is due, or its end is reached."""
    if at := recurrence.deadline(entry.record, now):
        world.add_deadline(Deadline(at, entry.record.seq, "schedule", entry.key))


def time_up(world: World, deadline: Deadline, now: int) -> None:
    """Checks an active schedule again, because a job may be due."""
    entry = world.schedules.get(deadline.key)
    if entry is not None and entry.record.seq == deadline.seq and entry.record.state == "active":
        world.touch_schedule(entry.key)
        remind(world, entry, now)


def make_job(world: World, entry: ScheduleEntry, now: int) -> None:
    """Create the job that is due now."""
    schedule = entry.record
    slot = recurrence.opportunity(schedule, now)
    schedule.made += 1
    schedule.last_run, schedule.next_run = slot, recurrence.after(schedule, slot)
    launching.make(world, f"{schedule.id}:job-{schedule.made}", dict(schedule.spec["jobSpecification"]), now, entry)
    world.save_schedule(entry)
    remind(world, entry, now)


def end(world: World, entry: ScheduleEntry, now: int) -> None:
    """Complete the schedule."""
    world.move(entry.record, states.SCHEDULE, "terminate", now)
    world.save_schedule(entry)


def settle(world: World, entry: ScheduleEntry, now: int) -> None:
    """Ends the shared pool of a schedule whose last job is completed, or whose jobs are all deleted."""
    launching.end_shared_pool(world, entry, now)
    if entry.record.state == "deleting":
        for pool in world.pools.values():
            world.rubbish += [(node.root, f"workitems/{entry.record.id}") for node in pool.nodes.values() if node.root]
        world.drop_schedule(entry)
        return
    previous = entry.record.previous, entry.record.previous_time
    world.move(entry.record, states.SCHEDULE, "settle", now)
    entry.record.previous, entry.record.previous_time = previous
    entry.record.ended = now
    world.save_schedule(entry)
