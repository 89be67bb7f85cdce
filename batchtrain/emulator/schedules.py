"""Operations on job schedules, and how these create their jobs; pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from batchtrain.emulator import documents, endings, launching, quotas, recurrence, states, statistics, wire
from batchtrain.emulator.books import ScheduleBook
from batchtrain.emulator.checks import check_id
from batchtrain.emulator.faults import Fault, invalid_property
from batchtrain.emulator.query import Row, listing, number, selected
from batchtrain.emulator.records import JobSchedule
from batchtrain.emulator.reply import Call, Reply, accepted, created, element, stamped
from batchtrain.emulator.world import Deadline, World

Document = dict[str, Any]

LEAST = 60 * wire.SECOND
"""The shortest recurrence, and the shortest start window."""


# Clients -------------------------------------------------------------------------------------------------------------


def create_schedule(world: World, call: Call) -> Reply:
    document = call.read("BatchJobScheduleCreateOptions")
    schedule_id = check_id(document)
    if existing := world.schedules.get(schedule_id.lower()):
        raise Fault("JobScheduleBeingDeleted" if existing.record.state == "deleting" else "JobScheduleExists")
    if schedule_id.lower() in world.jobs:
        raise Fault("JobWithSameIdExists")
    _check_times(document["schedule"], call.now)
    logins = launching.logins(document["jobSpecification"])
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
    return sum(book.record.state != "completed" for book in world.schedules.values())


def _specification(world: World, spec: Document) -> Document:
    launching.check_name(spec)
    job = launching.specification(world, spec["jobSpecification"], by_schedule=True)
    return {**spec, "jobSpecification": job}


def _check_times(times: Document, now: int) -> None:
    for name in ("recurrenceInterval", "startWindow"):
        if name in times and wire.parse_duration(times[name]) < LEAST:
            raise invalid_property(f"schedule/{name}", times[name], "The least value is one minute.")
    if "doNotRunAfter" in times:
        last = wire.parse_timestamp(times["doNotRunAfter"])
        if last <= max(wire.parse_timestamp(times["doNotRunUntil"]) if "doNotRunUntil" in times else 0, now):
            reason = "The time must be in the future, and after doNotRunUntil."
            raise invalid_property("schedule/doNotRunAfter", times["doNotRunAfter"], reason)


def list_schedules(world: World, call: Call) -> Reply:
    def rows(token: str) -> Iterator[Row]:
        after = number(token)
        for book in sorted(world.schedules.values(), key=lambda book: book.record.seq):
            if book.record.seq > after:
                yield Row(str(book.record.seq), _document(book, call))

    return listing(call, "jobschedules", rows)


def _document(book: ScheduleBook, call: Call) -> Document:
    document = documents.schedule_document(book, call.base, recurrence.following(book.record, call.now))
    if not statistics.asked(call):
        return document
    return {**document, "stats": statistics.of_schedule(book, call.base, call.now)}


def get_schedule(world: World, call: Call) -> Reply:
    book = world.schedule(call.path[0])
    call.check(book.record, reading=True)
    document = selected(_document(book, call), call.query.get("$select", ""))
    return element("jobschedules", call.base, document, stamped(book.record))


def schedule_exists(world: World, call: Call) -> Reply:
    book = world.schedule(call.path[0])
    call.check(book.record, reading=True)
    return Reply(200, headers=stamped(book.record))


def update_schedule(world: World, call: Call) -> Reply:
    """PATCH: change the given properties, keep the others. Existing jobs are not changed."""
    document = call.read("BatchJobScheduleUpdateOptions")
    book = _changeable(world, call)
    return _respecified(world, call, book, {**book.record.spec, **document}, document)


def replace_schedule(world: World, call: Call) -> Reply:
    """PUT: a schedule or metadata that are not given are removed."""
    document = call.read("BatchJobScheduleReplaceOptions")
    book = _changeable(world, call)
    unchanging = {name: value for name, value in book.record.spec.items() if name == "displayName"}
    return _respecified(world, call, book, {**unchanging, **document}, document)


def _respecified(world: World, call: Call, book: ScheduleBook, spec: Document, changes: Document) -> Reply:
    _check_times(changes.get("schedule", {}), call.now)
    schedule = book.record
    logins = launching.logins(changes.get("jobSpecification", {}))
    schedule.spec = _specification(world, spec) if "jobSpecification" in changes else spec
    schedule.logins = {**(schedule.logins or {}), **(logins or {})} or None
    schedule.next_run = recurrence.first_run(schedule)
    remind(world, book, call.now)
    return _changed(world, call, book, 200)


def disable_schedule(world: World, call: Call) -> Reply:
    """Disable: no more jobs are created; the running job continues."""
    book = _changeable(world, call)
    world.move(book.record, states.SCHEDULE, "disable", call.now)
    return _changed(world, call, book, 204)


def enable_schedule(world: World, call: Call) -> Reply:
    book = _changeable(world, call)
    world.move(book.record, states.SCHEDULE, "enable", call.now)
    remind(world, book, call.now)
    return _changed(world, call, book, 204)


def terminate_schedule(world: World, call: Call) -> Reply:
    book = _existing(world, call)
    force, state = call.flag("force"), book.record.state
    if (code := states.SCHEDULE_OVER.get(state)) and not (force and state == "terminating"):
        raise Fault(code)
    book.record.forced = force
    if state != "terminating":
        world.move(book.record, states.SCHEDULE, "terminate", call.now)
    job = book.active_job
    if job is not None:
        job.record.forced = job.record.forced or force
        endings.terminate(world, job, "TerminateJobSchedule", call.now)
        world.save_job(job)
    return _changed(world, call, book)


def delete_schedule(world: World, call: Call) -> Reply:
    """Delete it with all its jobs."""
    book = _existing(world, call)
    force = call.flag("force")
    if book.record.state == "deleting" and not force:
        raise Fault("JobScheduleBeingDeleted")
    book.record.forced = force
    if book.record.state != "deleting":
        world.move(book.record, states.SCHEDULE, "delete", call.now)
    for job in tuple(book.jobs.values()):
        job.record.forced = job.record.forced or force
        if job.record.state != "deleting":
            endings.delete(world, job, call.now)
        world.save_job(job)
    return _changed(world, call, book)


def _existing(world: World, call: Call) -> ScheduleBook:
    book = world.schedule(call.path[0])
    call.check(book.record)
    return book


def _changeable(world: World, call: Call) -> ScheduleBook:
    book = _existing(world, call)
    if code := states.SCHEDULE_OVER.get(book.record.state):
        raise Fault(code)
    return book


def _changed(world: World, call: Call, book: ScheduleBook, status: int = 202) -> Reply:
    world.stamp(book.record, call.now)
    world.save_schedule(book)
    return accepted(book.record, documents.schedule_url(call.base, book.record), status)


# Time ----------------------------------------------------------------------------------------------------------------


def remind(world: World, book: ScheduleBook, now: int) -> None:
    """Check a schedule again when its next job is due, or its end is reached."""
    if at := recurrence.deadline(book.record, now):
        world.add_deadline(Deadline(at, book.record.seq, "schedule", book.key))


def time_up(world: World, deadline: Deadline, now: int) -> None:
    """A job may be due."""
    book = world.schedules.get(deadline.key)
    if book is not None and book.record.seq == deadline.seq and book.record.state == "active":
        world.touch_schedule(book.key)
        remind(world, book, now)


def make_job(world: World, book: ScheduleBook, now: int) -> None:
    """Create the job that is due now."""
    schedule = book.record
    slot = recurrence.opportunity(schedule, now)
    schedule.made += 1
    schedule.last_run, schedule.next_run = slot, recurrence.after(schedule, slot)
    launching.make(world, f"{schedule.id}:job-{schedule.made}", dict(schedule.spec["jobSpecification"]), now, book)
    world.save_schedule(book)
    remind(world, book, now)


def end(world: World, book: ScheduleBook, now: int) -> None:
    """Complete the schedule."""
    world.move(book.record, states.SCHEDULE, "terminate", now)
    world.save_schedule(book)


def settle(world: World, book: ScheduleBook, now: int) -> None:
    """Its last job is completed, or all its jobs are deleted."""
    launching.end_shared_pool(world, book, now)
    if book.record.state == "deleting":
        for pool in world.pools.values():
            world.rubbish += [(node.root, f"workitems/{book.record.id}") for node in pool.nodes.values() if node.root]
        world.drop_schedule(book)
        return
    previous = book.record.previous, book.record.previous_time
    world.move(book.record, states.SCHEDULE, "settle", now)
    book.record.previous, book.record.previous_time = previous
    book.record.ended = now
    world.save_schedule(book)
