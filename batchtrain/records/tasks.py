"""Tasks, and files of tasks and nodes."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import Any, ClassVar

from batchtrain.records.failure import Failure
from batchtrain.records.record import Record, Time


class TaskRequest(Record, frozen=True):
    """What a task was added with."""

    command: str = ""
    instances: int | None = None
    """The nodes of a gang; None for an ordinary task."""
    slots: int = 1
    depends_on: tuple[str, ...] = ()
    wall_clock: float | None = None
    """Its limit of run time in seconds; None without one."""


class Task(Record, frozen=True):
    """A task with its last run. 14 fields take the memory of a tuple of 10, and there may be a million tasks."""

    title = "task"
    columns: ClassVar[tuple[str, ...]] = (
        "id", "state", "result", "exit_code", "node", "seconds", "failure", "retries", "requeues", "started",
    )  # fmt: skip

    id: str
    state: str
    result: str = ""
    exit_code: int | None = None
    node: str = ""
    seconds: float | None = None
    """The duration of its last run."""
    failure: Failure = Failure()
    retries: int = 0
    requeues: int = 0
    started: Time | None = None
    created: Time | None = None
    pool: str = ""
    parameters: dict[str, Any] | None = None
    """The named parameters that its factory gave it; None if they were not queried."""
    request: TaskRequest = TaskRequest()

    @property
    def failed(self) -> bool:
        """Whether its last run failed."""
        return self.result == "failure" or bool(self.exit_code)

    @property
    def ended(self) -> datetime | None:
        """The end of its last run; None if it has not run to an end, and for one after the year 9999."""
        if self.started is None or self.seconds is None:
            return None
        with contextlib.suppress(OverflowError):  # a service may claim any time
            return self.started + timedelta(seconds=self.seconds)
        return None


class TaskNode(Record, frozen=True):
    """A node that a task ran on, and the directory of the task there."""

    node: str
    pool: str = ""
    directory: str = ""


class File(Record, frozen=True):
    """A file of a task or a node."""

    path: str
    """The bytes of a name that is not UTF-8 are written as `%FF`."""
    size: int
    modified: datetime | None = None
    link: bool = False
    """Whether it was listed as a link, and not as the file to which it leads."""
    raw: bytes = b""
    """The path of the service, if the name is not UTF-8."""
