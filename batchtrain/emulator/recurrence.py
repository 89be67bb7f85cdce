"""When a job schedule creates its jobs; pure.

A job is due at `doNotRunUntil` (at once if it is not given) and then at every `recurrenceInterval`. An occurrence is
skipped if its `startWindow` has passed: the previous job still runs, the schedule was disabled, or it was added later.
"""

from __future__ import annotations

from batchtrain.emulator import wire
from batchtrain.emulator.records import JobSchedule


def first_run(schedule: JobSchedule) -> int:
    """When the first job is due, or the next one after a change."""
    begin = _moment(schedule, "doNotRunUntil") or schedule.created
    if not schedule.made:
        return begin
    every = _span(schedule, "recurrenceInterval")
    return max(schedule.last_run + every, begin) if every else 0


def next_step(schedule: JobSchedule, now: int) -> str:
    """The next step while no job is active: `make` a job, `end` the schedule, or `wait`."""
    last = _moment(schedule, "doNotRunAfter") or wire.FOREVER
    slot = opportunity(schedule, now)
    if not slot or now > last:
        return "end"
    return "wait" if slot > now else "make"


def opportunity(schedule: JobSchedule, now: int) -> int:
    """When the current or otherwise the next job is due; 0 if no more jobs are due."""
    every, slot = _span(schedule, "recurrenceInterval"), schedule.next_run
    if not slot or slot > now:
        return slot
    if every:
        slot += (now - slot) // every * every
    if now - slot <= (_span(schedule, "startWindow") or wire.FOREVER):
        return slot
    return slot + every if every else 0


def after(schedule: JobSchedule, slot: int) -> int:
    """The next occurrence after this one; 0 without a recurrence."""
    every = _span(schedule, "recurrenceInterval")
    return slot + every if every else 0


def following(schedule: JobSchedule, now: int) -> int:
    """The next time after now at which a job may be due; 0 if there is none."""
    slot = opportunity(schedule, now)
    slot = slot if not slot or slot > now else after(schedule, slot)
    last = _moment(schedule, "doNotRunAfter")
    return 0 if last and slot > last else slot


def deadline(schedule: JobSchedule, now: int) -> int:
    """When to check the schedule again; 0 if only the end of its job matters."""
    last = _moment(schedule, "doNotRunAfter")
    coming = [at for at in (following(schedule, now), last + 1 if last else 0) if at > now]
    return min(coming, default=0)


def _moment(schedule: JobSchedule, name: str) -> int:
    text = schedule.spec.get("schedule", {}).get(name)
    return wire.parse_timestamp(text) if text else 0


def _span(schedule: JobSchedule, name: str) -> int:
    text = schedule.spec.get("schedule", {}).get(name)
    return wire.parse_duration(text) if text else 0
