"""Jobs and job schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from batchtrain.records.failure import Failure
from batchtrain.records.record import Int32, Record, Time
from batchtrain.records.tasks import Task

OVER = frozenset({"completed", "terminating", "deleting"})
"""The states of a job none of whose tasks starts any more."""
ENDED_BY_TASKS = ("AllTasksComplete", "JMComplete", "TaskFailed")
"""Why a job of Azure Batch ends whose tasks were all added and have ended."""
EXPIRED = "MaxWallClockTimeExpiry"
"""Why a job ends that reached its limit of run time."""


class Job(Record, frozen=True):
    """A job. The counts of its tasks are None if they were not queried."""

    title = "job"
    columns: ClassVar[tuple[str, ...]] = (
        "id", "state", "pool", "done", "rate", "created", "ended", "reason", "active", "running", "succeeded", "failed",
    )  # fmt: skip

    id: str
    state: str = ""
    pool: str = ""
    """The pool that it names, or the one that the service made for it; empty as long as an auto pool does not exist."""
    created: Time | None = None
    ended: Time | None = None
    reason: str = ""
    """Why it ended, such as `UserTerminate`."""
    active: Int32 | None = None
    running: Int32 | None = None
    succeeded: Int32 | None = None
    failed: Int32 | None = None
    rate: float | None = None
    """Tasks that ended in a second, from its creation to its end or to now."""
    failure: Failure = Failure()
    """Why the service could not schedule it."""
    wall_clock: float | None = None
    """Its limit of run time in seconds; None without one."""
    metadata: tuple[dict[str, str], ...] = ()
    must_prepare: bool = False
    """Whether a node takes its tasks only after its job preparation task has succeeded there."""

    @property
    def is_ended_early(self) -> bool:
        """Whether its limit of run time ended it, or a user, who may give any reason."""
        return self.reason not in ("", *ENDED_BY_TASKS)

    @property
    def is_over(self) -> bool:
        """Whether none of its tasks starts any more."""
        return self.state in OVER

    @property
    def is_ending(self) -> bool:
        """Whether it is about to end or to be gone."""
        return self.is_over and self.state != "completed"

    @property
    def counts(self) -> Counts:
        """The counts of its tasks; 0 if they were not queried."""
        return Counts(self.active or 0, self.running or 0, self.succeeded or 0, self.failed or 0)

    @property
    def done(self) -> str:
        """The tasks that have ended, of all."""
        is_counted = None not in (self.active, self.running, self.succeeded, self.failed)
        return f"{self.counts.ended}/{self.counts.total}" if is_counted else ""


class Preparation(Record, frozen=True):
    """The job preparation task of a job on one node."""

    node: str
    state: str = ""
    result: str = ""
    failure: Failure = Failure()
    directory: str = ""
    """Of its files on the node."""


class JobSchedule(Record, frozen=True):
    """A job schedule; `job` is the last one that it created."""

    title = "job schedule"
    columns: ClassVar[tuple[str, ...]] = ("id", "state", "next_run", "ended", "job")

    id: str
    state: str = ""
    next_run: Time | None = None
    ended: Time | None = None
    job: str = ""
    created: Time | None = None
    metadata: tuple[dict[str, str], ...] = ()


class FailedBy(NamedTuple):
    """The tasks that failed for the same cause."""

    cause: str
    tasks: int
    example: str
    message: str = ""
    """The failure of the example."""


class Counts(NamedTuple):
    """The numbers of tasks by state; the service updates them some seconds late."""

    active: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0

    @classmethod
    def of(cls, tasks: Iterable[Task]) -> Counts:
        """The numbers of these tasks."""
        return cls(**Counter(task.counts_as for task in tasks))

    @property
    def ended(self) -> int:
        """The tasks that have ended."""
        return self.succeeded + self.failed

    @property
    def begun(self) -> int:
        """The tasks that run or have ended."""
        return self.running + self.ended

    @property
    def open(self) -> int:
        """The tasks that have not ended."""
        return self.active + self.running

    @property
    def total(self) -> int:
        return sum(self)

    def __str__(self) -> str:
        named = ((number, name) for name, number in self._asdict().items() if number)
        return ", ".join(f"{number:,} {name}" for number, name in named)
