"""Tasks, and files of tasks and nodes."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import Any, ClassVar

from batchtrain.records.failure import TASK_ENDED, Failure
from batchtrain.records.record import Int32, Record, Time


class ExitOptions(Record, frozen=True, rename="camel"):
    """What an end of a task does to its job, and to the tasks that depend on it; empty for the default."""

    job_action: str = ""
    dependency_action: str = ""


class ExitCodes(Record, frozen=True, rename="camel"):
    """The effect of one exit code, or of all from `start` to `end`."""

    code: Int32 | None = None
    start: Int32 = 0
    end: Int32 = -1
    exit_options: ExitOptions = ExitOptions()

    def has(self, exit_code: int | None) -> bool:
        """Whether it is about an exit code."""
        return exit_code is not None and (exit_code == self.code or self.start <= exit_code <= self.end)


class ExitConditions(Record, frozen=True, rename="camel"):
    """The effects of the ends of a task."""

    exit_codes: tuple[ExitCodes, ...] = ()
    exit_code_ranges: tuple[ExitCodes, ...] = ()
    pre_processing_error: ExitOptions | None = None
    file_upload_error: ExitOptions | None = None
    default: ExitOptions = ExitOptions()

    def of(self, exit_code: int | None, failure: Failure) -> ExitOptions:
        """The effects of one end."""
        for codes in (*self.exit_codes, *self.exit_code_ranges):
            if codes.has(exit_code):
                return codes.exit_options
        if failure.code.startswith("FileUpload"):
            return self.default if self.file_upload_error is None else self.file_upload_error
        if exit_code is None and failure and failure.code != TASK_ENDED:
            return self.default if self.pre_processing_error is None else self.pre_processing_error
        return ExitOptions() if exit_code == 0 else self.default


class TaskRequest(Record, frozen=True):
    """What a task was added with."""

    command: str = ""
    instances: int | None = None
    """The nodes of a gang; None for an ordinary task."""
    slots: int = 1
    depends_on: tuple[str, ...] = ()
    depends_on_ranges: tuple[tuple[int, int], ...] = ()
    """The first and the last number of the ids of other tasks that it depends on."""
    exits: ExitConditions = ExitConditions()
    wall_clock: float | None = None
    """Its limit of run time in seconds; None without one."""
    volumes: tuple[tuple[str, str], ...] = ()
    """The volumes that its container sees: the alias or the directory of the node, and the path inside."""
    starts_in_task_directory: bool = False
    """Whether its container starts in the directory of the task, not in that of the image."""


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
    def is_cut_short(self) -> bool:
        """Whether it did not end by itself, once its job is over."""
        return self.state != "completed" or self.failure.code == TASK_ENDED

    @property
    def outcome(self) -> str:
        """Its state; of one that has ended, whether it succeeded."""
        return self.state if self.state != "completed" else "failed" if self.failed else "succeeded"

    @property
    def counts_as(self) -> str:
        """The number of `Counts` that the service adds it to."""
        return self.outcome if self.outcome in ("active", "succeeded", "failed") else "running"

    @property
    def blocks(self) -> bool:
        """Whether it has ended so that the tasks which depend on it never start; needs the conditions of its exits."""
        action = self.request.exits.of(self.exit_code, self.failure).dependency_action
        return self.state == "completed" and (action or ("block" if self.failed else "satisfy")) == "block"

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
