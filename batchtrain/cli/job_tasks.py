"""`batchtrain jobs tasks`: the tasks of a job, all or those of a state."""

from __future__ import annotations

import itertools
import sys

from batchtrain.cli import shipyard
from batchtrain.cli.connecting import connect
from batchtrain.cli.job_files import named
from batchtrain.cli.messages import say
from batchtrain.cli.options import settings
from batchtrain.cli.output import show_rows
from batchtrain.client.job import Job
from batchtrain.errors import NotFound, UsageError
from batchtrain.records import Task

STATES = ("active", "running", "completed", "succeeded", "failed")
MOST_SHOWN = 100
"""`jobs show` and `jobs wait` show every task of a job that has no more."""
PARTS = (("failed", 20), ("running", 20), ("active", 20), ("succeeded", 20))
"""Of a larger job, how many tasks of the first two states that it has are shown."""
SCREEN = 1000
"""The default number of tasks on a terminal."""


def tasks(job_id: str | None, state: str | None, tail: int | None, limit: int | None) -> None:
    """List a job's tasks. `jobs task` terminates, deletes and reactivates them."""
    if tail and limit:
        raise UsageError("give one of --tail and --limit")
    name, config = named(job_id)
    try:
        _show(connect(config).jobs.handle(name), state, tail, limit)
    except NotFound:
        if answer := shipyard.answer(("jobs", "tasks"), (name,)):  # `jobs tasks list`, and no job has this id
            raise UsageError(answer) from None
        raise


def _show(job: Job, state: str | None, tail: int | None, limit: int | None) -> None:
    empty = f"no {state} tasks" if state else "no tasks"
    in_words = job.explained if settings().output == "table" else iter
    if tail:
        show_rows(in_words(job.last_tasks(tail, state or "")), empty=empty)
        return
    on_screen = limit is None and settings().output == "table" and sys.stdout is not None and sys.stdout.isatty()
    if on_screen:
        limit = SCREEN + 1
    rows = in_words(job.iter_tasks(state or "", limit=limit))
    show_rows(itertools.islice(rows, SCREEN) if on_screen else rows, empty=empty)
    if on_screen and next(rows, None) is not None:
        say(f"only the first {SCREEN:,} tasks are listed; --limit N lists more, --tail N the last ones")


def some_of(job: Job) -> tuple[list[Task], str]:
    """The tasks of a job; of a large job those that matter most, and a sentence about the others."""
    glance = job.glance(MOST_SHOWN)
    if glance.whole:
        return list(glance.first), ""
    counts = glance.counts._asdict()
    parts = [(state, most) for state, most in PARTS if counts[state]][:2]
    rows = list(itertools.chain.from_iterable(job.iter_tasks(state, limit=most) for state, most in parts))
    text = f"{len(rows)} of {glance.counts.total:,} tasks are shown ({glance.counts})"
    return rows, f"{text}; `batchtrain jobs tasks {job.id}` lists all"
