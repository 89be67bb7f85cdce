"""How a command ends, whatever ended its work. Pure: the tables `CAUSES` and `END_RULES`.

Nothing is deleted before its results are safe, and what is not deleted is named. `client/ending.py` looks, does what
the first rule that applies says, and looks again, until no rule applies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from batchtrain.errors import (
    BatchtrainError,
    CannotRun,
    JobStopped,
    LimitReached,
    NotAllowed,
    NotFound,
    ReplacementFailed,
    TerminalClosed,
    Terminated,
    TimedOut,
    Unreachable,
    WaitOver,
)
from batchtrain.life.decision_table import Row, first

GONE = frozenset({"PoolNotFound", "JobNotFound", "TaskNotFound"})
"""The service's codes for deleted work; any other 404 is about something else."""
Keeps = Literal["nothing", "once a task was added", "once all tasks were added", "everything"]


class Cause(NamedTuple):
    """Why the work of a command ended: a row of the table."""

    name: str
    when: str
    applies: Callable[[BaseException | None], bool]
    keeps: Keeps
    """When everything stays: a running training is worth more than the cost of its nodes."""
    state: str
    """Of the record of a run whose tasks had not ended."""
    fetches: bool = True
    """Whether the results can be fetched now."""
    waits: bool = False
    """Whether it is unrelated to the work, so that waiting again may succeed."""


def _is(*errors: type[BaseException]) -> Callable[[BaseException | None], bool]:
    return lambda error: isinstance(error, errors)


def cause_of(error: BaseException | None) -> Cause:
    """The first row that applies to what ended the work; None if all tasks have ended."""
    return next(cause for cause in CAUSES if cause.applies(error))


SUBMITTED: Keeps = "once all tasks were added"
# fmt: off
TERMINAL = Cause("terminal-closed", "the terminal of the command was closed", _is(TerminalClosed),
    "nothing", "interrupted")
INTERRUPTED = Cause("interrupted", "Ctrl-C", _is(KeyboardInterrupt), "nothing", "interrupted")
CAUSES: tuple[Cause, ...] = (
    Cause("done", "all tasks have ended", lambda error: error is None, "nothing", "completed"),
    TERMINAL,
    Cause("terminated", "a program ended the command by SIGTERM", _is(Terminated), "nothing", "interrupted"),
    INTERRUPTED,
    Cause("limit", "a limit of the price, of the duration or of the job", _is(LimitReached), "nothing", "interrupted"),
    Cause("stopped", "a user terminated the job, by `runs stop` or `jobs term`", _is(JobStopped),
        "nothing", "interrupted"),
    Cause("futile", "the tasks never start, or a faulty node was not replaced",
        _is(ReplacementFailed, CannotRun, WaitOver), "nothing", "failed"),
    Cause("outage", "the deadline is over, or the service cannot be reached", _is(TimedOut, Unreachable),
        "everything", "failed", fetches=False, waits=True),
    Cause("gone", "the pool, the job or a task was deleted",
        lambda error: isinstance(error, NotFound) and error.code in GONE, "nothing", "failed"),
    Cause("not-allowed", "the account refuses the user", _is(NotAllowed), SUBMITTED, "failed", fetches=False),
    Cause("refused", "any other error with a reason", _is(BatchtrainError), SUBMITTED, "failed"),
    Cause("bug", "a fault of batchtrain or of this machine", lambda error: True,
        "once a task was added", "failed", waits=True),
)
# fmt: on
"""In the order in which they apply."""


Act = Literal["leave", "ask", "settle", "skip", "stop", "fetch", "empty", "delete", "await", "name", "write"]
ONCE: frozenset[Act] = frozenset({"leave", "ask", "settle", "empty", "name", "write"})
"""What is done at most once."""


class SeenThing(NamedTuple):
    """A pool, a job or a job schedule that the command created or uses."""

    thing: tuple[str, str]
    """Its kind and its id."""
    state: str
    """As in `service/register.py`, or `going` once its deletion was requested."""

    @property
    def kind(self) -> str:
        return self.thing[0]


Results = Literal["here", "wanted", "in storage", "on a node"]


class SeenJob(NamedTuple):
    """A job whose results the command wants."""

    id: str
    runs: bool = False
    """Whether its tasks have not ended, and were not stopped."""
    results: Results = "here"
    """`wanted`: it is unknown whether there are some. `here`: also those that are lost, or that the user gave up."""


class SeenEnd(NamedTuple):
    """What there is once the work of a command has ended, and what its ending has done so far."""

    cause: Cause
    things: tuple[SeenThing, ...] = ()
    """In the order in which they are deleted."""
    jobs: tuple[SeenJob, ...] = ()
    keeps: frozenset[str] = frozenset()
    """The kinds of things that the command does not delete."""
    is_expendable: bool = False
    """Whether everything is deleted, also after an outage, and although results are on a node."""
    has_tasks: bool = False
    """Whether a task was added."""
    is_submitted: bool = False
    """Whether all were."""
    is_stored: bool = False
    """Whether every task keeps what it makes outside its node."""
    signals: int = 0
    """How often the user interrupted the ending."""
    done: frozenset[Act] = frozenset()
    """What was done of `ONCE`."""
    continues: bool = False
    """The answer of the user: the run continues without its command."""
    is_left: bool = False
    """Whether the run was handed over to the service."""

    @property
    def stays(self) -> bool:
        """Whether nothing is deleted, whatever becomes of the results."""
        kept = {"nothing": False, "once a task was added": self.has_tasks, SUBMITTED: self.is_submitted}
        return self.is_left or (kept.get(self.cause.keeps, True) and not self.is_expendable)

    @property
    def may_continue(self) -> bool:
        """Whether the tasks continue by themselves, and the command would end them."""
        is_running = self.is_submitted and any(job.runs for job in self.jobs)
        return is_running and "job" not in self.keeps and "leave" not in self.done

    @property
    def wanted(self) -> tuple[SeenJob, ...]:
        """The jobs whose results are to be fetched."""
        if self.is_left or not self.has_tasks or not self.cause.fetches:
            return ()
        return tuple(job for job in self.jobs if job.results == "wanted")

    @property
    def running(self) -> tuple[SeenJob, ...]:
        """The jobs whose tasks are ended first: otherwise they would run while their results are fetched."""
        return () if self.stays or "job" in self.keeps else tuple(job for job in self.wanted if job.runs)

    @property
    def unsafe(self) -> tuple[SeenJob, ...]:
        """The jobs with results that are not here and could still be fetched, so that their only home is kept."""
        if self.is_expendable or self.is_left:
            return ()
        out_of_reach = self.has_tasks and not self.cause.fetches
        return tuple(job for job in self.jobs if job.results != "here" and (job.results != "wanted" or out_of_reach))

    @property
    def are_on_nodes(self) -> bool:
        """Whether a node is the only home of some results."""
        return any(job.results != "in storage" for job in self.unsafe)

    @property
    def kept(self) -> frozenset[str]:
        """The kinds that stay; a job stays until its results were fetched from storage."""
        return self.keeps | {"job"} if self.unsafe else self.keeps

    @property
    def deletable(self) -> tuple[SeenThing, ...]:
        """What is deleted next; the pool, which costs money, is first once the user hurries."""
        if self.stays or self.are_on_nodes:
            return ()
        things = [item for item in self.things if item.state in ("ours", "pending") and item.kind not in self.kept]
        things += [item for item in self.things if item.state == "shared" and "job" not in self.kept]
        return tuple(things[::-1] if self.signals else things)

    @property
    def going(self) -> tuple[SeenThing, ...]:
        """What is being deleted."""
        return tuple(item for item in self.things if item.state == "going")


EndRule = Row[SeenEnd, Act]


def decide(seen: SeenEnd) -> EndRule | None:
    """The first rule that applies; None if the command has ended."""
    return first(END_RULES, seen)


# fmt: off
END_RULES: tuple[EndRule, ...] = (
    EndRule("run-continues",
        "the user wants it, or the terminal was closed and every task keeps its results in storage",
        lambda seen: seen.may_continue and (seen.continues or (seen.cause is TERMINAL and seen.is_stored)),
        "leave", "hands the run over to the service: its jobs end at the limits, and its pool goes to 0 nodes"),
    EndRule("may-continue", "Ctrl-C while tasks run that were all added",
        lambda seen: seen.may_continue and seen.cause is INTERRUPTED and "ask" not in seen.done,
        "ask", "asks whether the run continues, where a user is at the terminal"),
    EndRule("unsure", "a request that creates something had no answer",
        lambda seen: "settle" not in seen.done and any(item.state == "pending" for item in seen.things),
        "settle", "looks whether it exists, and whether this command created it"),
    EndRule("interrupted-again", "the user interrupts the ending, and results are not here yet",
        lambda seen: seen.signals and seen.wanted, "skip", "gives up the results"),
    EndRule("tasks-run", "tasks run of a job that is to be deleted", lambda seen: seen.running,
        "stop", "ends the tasks"),
    EndRule("results-wanted", "the results of a job that was not followed to its end", lambda seen: seen.wanted,
        "fetch", "fetches them"),
    EndRule("results-on-nodes", "a node is the only home of some results",
        lambda seen: seen.are_on_nodes and not seen.stays and "empty" not in seen.done,
        "empty", "keeps everything, and lets the nodes leave half an hour after the last task"),
    EndRule("deletable", "something of this command is there, and no result needs it", lambda seen: seen.deletable,
        "delete", "requests its deletion; a pool that others use is left to the last of them"),
    EndRule("being-deleted", "a deletion was requested", lambda seen: seen.going,
        "await", "waits until it is gone"),
    EndRule("standing", "something stays", lambda seen: seen.things and "name" not in seen.done,
        "name", "names it, with its cost and the next commands"),
    EndRule("unwritten", "the records of the runs have no end", lambda seen: "write" not in seen.done,
        "write", "writes it, or leaves it to a later command if the run continues"),
)
# fmt: on
"""In the order in which they apply."""
