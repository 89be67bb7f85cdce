"""The world in which the table of endings is proven: what there may be when the work of a command has ended, what may
happen at each step, and what is wrong with a step. The simulation holds each step of a real ending against it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from batchtrain.errors import (
    CannotRun,
    JobStopped,
    LimitReached,
    NotAllowed,
    NotFound,
    ServiceError,
    TerminalClosed,
    Terminated,
    TimedOut,
)
from batchtrain.life import endings
from batchtrain.life.endings import (
    INTERRUPTED,
    ONCE,
    TERMINAL,
    Results,
    SeenEnd,
    SeenJob,
    SeenThing,
    cause_of,
)
from batchtrain.life.intents import ALL
from batchtrain.service.register import Thing

POOL, JOBS = Thing("pool", "p"), (Thing("job", "a"), Thing("job", "b"))
RESULTS: tuple[Results, ...] = ("wanted", "here", "in storage", "on a node")
ERRORS: tuple[BaseException | None, ...] = (
    None, TerminalClosed(), Terminated(), KeyboardInterrupt(), LimitReached(), JobStopped("x"), CannotRun("x"),
    TimedOut("x"), NotFound("x", code="JobNotFound"), NotAllowed("x"), ServiceError("x"), ZeroDivisionError(),
)  # fmt: skip
KEEPS = ((), ("pool",), ALL)
ADDED = ((True, True), (True, False), (False, False))
"""Whether some tasks were added, and whether all were."""
PAIRS = tuple(itertools.combinations_with_replacement(RESULTS, 2))


def beginnings() -> Iterator[SeenEnd]:
    """What there may be when the work of a command has ended."""
    pools = ("ours", "pending", "shared", "existing")
    for error, keeps, results, pool in itertools.product(ERRORS, KEEPS, PAIRS, pools):
        for (has_tasks, is_submitted), is_expendable in itertools.product(ADDED, (False, True)[: 1 if keeps else 2]):
            jobs = tuple(SeenJob(job.id, result == "wanted", result) for job, result in zip(JOBS, results, strict=True))
            things = (*(SeenThing(job, "ours") for job in JOBS if has_tasks), SeenThing(POOL, pool))
            is_done_early = error is None and (not is_submitted or "wanted" in results)
            has_results = {*results} != {"here"}
            if is_done_early or (has_results and not has_tasks) or (is_submitted and pool == "pending"):
                continue
            yield SeenEnd(
                cause_of(error), things, jobs, frozenset(keeps), is_expendable, has_tasks, is_submitted,
                is_stored="in storage" in results,
            )  # fmt: skip


def after(seen: SeenEnd, act: str) -> Iterator[SeenEnd]:
    """What there may be after a step."""
    return (later._replace(done=seen.done | (ONCE & {act})) for later in AFTER[act](seen))


def _with_job(seen: SeenEnd, job: SeenJob) -> SeenEnd:
    return seen._replace(jobs=tuple(job if item.id == job.id else item for item in seen.jobs))


def _with_thing(seen: SeenEnd, thing: SeenThing, state: str | None) -> SeenEnd:
    rest = tuple(item for item in seen.things if item.thing != thing.thing)
    if state is None or state == "going":
        lost = (
            job._replace(results="here") if (job.id, job.results) == (thing.thing[1], "wanted") else job
            for job in seen.jobs
        )
        seen = seen._replace(jobs=tuple(lost))
        return seen._replace(things=(*rest, SeenThing(thing.thing, "going")) if state else rest)
    return seen._replace(things=tuple(item._replace(state=state) if item == thing else item for item in seen.things))


def _interrupted(seen: SeenEnd) -> SeenEnd:
    return seen._replace(signals=min(seen.signals + 1, 2))


def _settled(seen: SeenEnd) -> Iterator[SeenEnd]:
    pending = [item for item in seen.things if item.state == "pending"]
    for states in itertools.product(("pending", "ours", None), repeat=len(pending)):
        later = seen
        for thing, state in zip(pending, states, strict=True):
            later = _with_thing(later, thing, state)
        yield later
    yield _interrupted(seen)


def _stopped(seen: SeenEnd) -> Iterator[SeenEnd]:
    stopped = _with_job(seen, seen.running[0]._replace(runs=False))
    yield from (stopped, _interrupted(stopped))
    lost = (job._replace(results="on a node") if job in stopped.wanted else job for job in stopped.jobs)
    yield stopped._replace(jobs=tuple(lost))


def _fetched(seen: SeenEnd) -> Iterator[SeenEnd]:
    yield from (_with_job(seen, seen.wanted[0]._replace(results=result)) for result in RESULTS[1:])
    yield _interrupted(seen)


def _deleted(seen: SeenEnd) -> Iterator[SeenEnd]:
    thing = seen.deletable[0]
    if seen.signals < 2:
        yield _with_thing(seen, thing, "going")
        yield _interrupted(_with_thing(seen, thing, None) if seen.signals else seen)
    yield _with_thing(seen, thing, None)  # gone, of another run, or reported as not deleted


def _awaited(seen: SeenEnd) -> Iterator[SeenEnd]:
    rest = seen._replace(things=tuple(item for item in seen.things if item != seen.going[0]))
    yield rest
    if not seen.signals:
        yield _interrupted(rest)


AFTER: Mapping[str, Callable[[SeenEnd], Iterator[SeenEnd]]] = {
    "leave": lambda seen: iter((seen, seen._replace(is_left=True), _interrupted(seen))),
    "ask": lambda seen: iter((seen, seen._replace(continues=True))),
    "settle": _settled,
    "skip": lambda seen: iter((seen._replace(jobs=tuple(job._replace(results="here") for job in seen.jobs)),)),
    "stop": _stopped,
    "fetch": _fetched,
    "empty": lambda seen: iter((seen, _interrupted(seen))),
    "delete": _deleted,
    "await": _awaited,
    "name": lambda seen: iter((seen,)),
    "write": lambda seen: iter((seen,)),
}


def faults(seen: SeenEnd, act: str) -> Iterator[str]:
    """What is wrong with a step; an empty one is the end."""
    is_wanted = seen.has_tasks and seen.cause.fetches and not seen.is_left
    wanted = [job for job in seen.jobs if job.results == "wanted"] if is_wanted else []
    unsafe = [job for job in seen.jobs if job.results not in ("here", "in storage") and seen.has_tasks]
    must_stay = seen.is_left or (not seen.is_expendable and _must_stay(seen))
    ends_jobs = not must_stay and "job" not in seen.keeps
    goes_on = seen.is_submitted and any(job.runs for job in seen.jobs) and "job" not in seen.keeps
    is_unasked = goes_on and seen.cause is INTERRUPTED and "ask" not in seen.done
    is_unleft = goes_on and (seen.continues or (seen.cause is TERMINAL and seen.is_stored)) and "leave" not in seen.done
    if act in ("stop", "fetch", "delete") and (is_unasked or is_unleft):
        yield "a run that may continue is ended"
    if act in ("stop", "fetch") and seen.signals and wanted:
        yield "an interrupt is ignored"
    if act == "fetch" and ends_jobs and wanted[0].runs:
        yield "results are fetched while the tasks write them"
    if act == "stop" and not ends_jobs:
        yield "tasks are stopped that may go on"
    if act == "delete":
        thing = seen.deletable[0]
        in_storage = any(job.results == "in storage" for job in seen.jobs) and not seen.is_expendable
        is_kept = thing.kind in seen.keeps and thing.state != "shared"
        if must_stay or is_kept or thing.state in ("existing", "going"):
            yield "something is deleted that stays"
        if (unsafe and not seen.is_expendable) or wanted or (in_storage and thing.kind == "job"):
            yield "something is deleted before its results are safe"
        ours = [item for item in seen.things if item.state == "ours" and item.kind not in seen.keeps]
        if seen.signals and thing.kind != "pool" and any(item.kind == "pool" for item in ours):
            yield "the pool, which costs money, is not first in a hurry"
    if not act:
        yield from _faults_at_the_end(seen, wanted, unsafe, must_stay=must_stay)


def _must_stay(seen: SeenEnd) -> bool:
    name = seen.cause.name
    if name in ("refused", "not-allowed"):
        return seen.is_submitted
    return name == "outage" or (name == "bug" and seen.has_tasks)


def _faults_at_the_end(
    seen: SeenEnd, wanted: list[SeenJob], unsafe: list[SeenJob], *, must_stay: bool
) -> Iterator[str]:
    if wanted:
        yield "results that can be had are not fetched"
    if seen.things and "name" not in seen.done:
        yield "something is left without a word"
    if any(item.state == "pending" for item in seen.things) and "settle" not in seen.done and not seen.is_left:
        yield "it is not known whether it exists"
    if "write" not in seen.done:
        yield "a record has no end"
    if seen.going:
        yield "a deletion is not awaited"
    is_needed = must_stay or (not seen.is_expendable and any(job.results != "here" for job in seen.jobs))
    if not is_needed and any(item.state in ("ours", "pending") and item.kind not in seen.keeps for item in seen.things):
        yield "something is left that nothing needs"
    if unsafe and not must_stay and not seen.is_expendable and "empty" not in seen.done:
        yield "nodes with results stay for ever"


@functools.cache
def explored() -> dict[SeenEnd, frozenset[SeenEnd]]:
    """Every state that can be reached, with those that may follow."""
    states, queue = dict[SeenEnd, frozenset[SeenEnd]](), [*beginnings()]
    while queue:
        if (seen := queue.pop()) not in states:
            rule = endings.decide(seen)
            states[seen] = frozenset(after(seen, rule.act)) if rule else frozenset()
            queue += states[seen]
    return states


def unexpected(looks: Sequence[SeenEnd]) -> Iterator[str]:
    """What the model does not allow in the looks of a real ending. A signal may come at any time."""
    for before, now in itertools.pairwise(looks):
        rule = endings.decide(before)
        expected = [*after(before, rule.act)] if rule else []
        yield from (f"{fault}: {before}" for fault in faults(before, rule.act if rule else ""))
        if now.signals < before.signals or now not in {later._replace(signals=now.signals) for later in expected}:
            yield f"{rule.name if rule else 'the end'} led from {before} to {now}"
