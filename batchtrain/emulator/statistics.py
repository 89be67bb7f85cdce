"""The result of `$expand=stats` for jobs, job schedules and tasks, computed on request from the existing records; pure.

Processor time and I/O are not measured: they are 0. Integers of 64 bits are strings on the wire, as in the service.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from batchtrain.emulator import documents, wire
from batchtrain.emulator.indexes import JobEntry, ScheduleEntry
from batchtrain.emulator.records import Document, Job, Task
from batchtrain.emulator.reply import Call, Reply, element
from batchtrain.emulator.world import World


def asked(call: Call) -> bool:
    """Whether a request asks for statistics."""
    return "stats" in (name.strip() for name in call.query.get("$expand", "").split(","))


def of_job(entry: JobEntry, base: str, now: int) -> Document:
    return _of_jobs([entry], f"{documents.job_url(base, entry.record)}/lifetimestats", entry.record.created, now)


def of_account(world: World, call: Call) -> Reply:
    """The answer of older service versions about all jobs that still exist."""
    entries = list(world.jobs.values())
    start = min((entry.record.created for entry in entries), default=call.now)
    return element("jobstats", call.base, _of_jobs(entries, f"{call.base}/lifetimejobstats", start, call.now))


def of_schedule(entry: ScheduleEntry, base: str, now: int) -> Document:
    """The statistics of the existing jobs."""
    url = f"{documents.schedule_url(base, entry.record)}/lifetimestats"
    return _of_jobs(entry.jobs.values(), url, entry.record.created, now)


def of_task(job: Job, task: Task, base: str, now: int) -> Document:
    url = f"{documents.task_url(base, job, task)}/lifetimestats"
    return _usage([_Times(task.created, task.start, task.end, task.retries)], url, task.created, now)


def _of_jobs(entries: Iterable[JobEntry], url: str, created: int, now: int) -> Document:
    entries = list(entries)
    tasks = [times for entry in entries for times in _times(entry)]
    return {
        **_usage(tasks, url, created, now),
        "numSucceededTasks": str(sum(entry.counts["succeeded"] for entry in entries)),
        "numFailedTasks": str(sum(entry.counts["failed"] for entry in entries)),
        "numTaskRetries": str(sum(task.retries for task in tasks)),
    }


class _Times(NamedTuple):
    """The times of a task; 0 for what has not happened."""

    created: int
    start: int
    end: int
    retries: int


def _times(entry: JobEntry) -> Iterator[_Times]:
    columns = entry.tasks.columns
    for block in columns.after(0, None):
        for at in block:
            start, end = max(columns.start[at], 0), max(columns.end[at], 0)
            yield _Times(columns.created[at], start, end, columns.retries[at])


def _usage(tasks: Iterable[_Times], url: str, created: int, now: int) -> Document:
    """`waitTime` is from a task's creation to its last start."""
    wall = wait = 0
    for task in tasks:
        if task.start:
            wall += (task.end or now) - task.start
            wait += task.start - task.created
    return {
        "url": url,
        "startTime": wire.timestamp(created),
        "lastUpdateTime": wire.timestamp(now),
        "userCPUTime": "PT0S",
        "kernelCPUTime": "PT0S",
        "wallClockTime": wire.duration(wall),
        "readIOps": "0",
        "writeIOps": "0",
        "readIOGiB": 0.0,
        "writeIOGiB": 0.0,
        "waitTime": wire.duration(wait),
    }
