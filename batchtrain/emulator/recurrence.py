"""When a job schedule makes its jobs: the moments, and what it does at one of them; pure.

A job is due at `doNotRunUntil` (at once without one) and then at every `recurrenceInterval`. An opportunity that
passes, because the previous job still runs for longer than `startWindow` or because the schedule was disabled, is lost.
"""

from __future__ import annotations

from typing import Any

from batchtrain.emulator import wire
from batchtrain.emulator.records import JobSchedule

Document = dict[str, Any]


def first_run(schedule: JobSchedule) -> int:
    """The moment at which the first job (or, after a change, the next) is due."""
    times = schedule.spec.get("schedule", {})
    begin = max(_moment(times, "doNotRunUntil"), schedule.created)
    if not schedule.made:
        return begin
    every = _span(times, "recurrenceInterval")
    return max(schedule.last_run + every, begin) if every else 0


def next_step(schedule: JobSchedule, now: int) -> str:
    """With no job of it active: `make` one, `end` the schedule, or `wait`."""
    times = schedule.spec.get("schedule", {})
    last = _moment(times, "doNotRunAfter") or wire.FOREVER
    slot = opportunity(schedule, now)
    if not slot or now > last:
        return "end"
    return "wait" if slot > now else "make"


def opportunity(schedule: JobSchedule, now: int) -> int:
    """The moment of the job that is due now, or else of the next one; 0 when there is none any more."""
    times = schedule.spec.get("schedule", {})
    every, slot = _span(times, "recurrenceInterval"), schedule.next_run
    if not slot or slot > now:
        return slot
    if every:
        slot += (now - slot) // every * every
    if now - slot <= (_span(times, "startWindow") or wire.FOREVER):
        return slot
    return slot + every if every else 0


def after(schedule: JobSchedule, slot: int) -> int:
    """The moment that follows one; 0 without a recurrence."""
    every = _span(schedule.spec.get("schedule", {}), "recurrenceInterval")
    return slot + every if every else 0


def following(schedule: JobSchedule, now: int) -> int:
    """The next moment after now at which a job may be due; 0 when there is none."""
    slot = opportunity(schedule, now)
    slot = slot if not slot or slot > now else after(schedule, slot)
    last = _moment(schedule.spec.get("schedule", {}), "doNotRunAfter")
    return 0 if last and slot > last else slot


def deadline(schedule: JobSchedule, now: int) -> int:
    """When to look at it again; 0 when only its job's end is worth a look."""
    last = _moment(schedule.spec.get("schedule", {}), "doNotRunAfter")
    coming = [at for at in (following(schedule, now), last + 1 if last else 0) if at > now]
    return min(coming, default=0)


def _moment(times: Document, name: str) -> int:
    return wire.parse_timestamp(times[name]) if name in times else 0


def _span(times: Document, name: str) -> int:
    return wire.parse_duration(times[name]) if name in times else 0
