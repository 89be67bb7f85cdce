"""What was read about a job or a pool: the input of every rule."""

from __future__ import annotations

from typing import NamedTuple

from batchtrain.service.causes import Cause


class Failure(NamedTuple):
    """Why the service says that a task, a start task or a job failed."""

    code: str
    """The service's code, such as `BlobAccessDenied`."""
    message: str
    details: tuple[str, ...] = ()


class NodeRecord(NamedTuple):
    """A node, and the end of its start task's output if that failed."""

    id: str
    state: str
    spot: bool = False
    errors: tuple[Failure, ...] = ()
    start_exit_code: int | None = None
    start_failure: Failure | None = None
    start_lines: tuple[str, ...] = ()


class PoolRecord(NamedTuple):
    """A pool and its nodes."""

    id: str
    state: str = "active"
    allocation: str = "steady"
    vm_size: str = ""
    dedicated: int = 0
    target_dedicated: int = 0
    spot: int = 0
    target_spot: int = 0
    inter_node: bool = False
    slots: int = 1
    autoscale: bool = False
    autoscale_error: str = ""
    resize_errors: tuple[Failure, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()


class TaskRecord(NamedTuple):
    """A task that failed, waits or runs, and the end of its output."""

    id: str
    state: str
    exit_code: int | None = None
    failed: bool = False
    node: str = ""
    failure: Failure | None = None
    retries: int = 0
    requeues: int = 0
    instances: int = 1
    slots: int = 1
    depends_on: tuple[str, ...] = ()
    seconds: float | None = None
    """How long its last run took."""
    wall_clock: float | None = None
    """Its limit of run time in seconds; None without one."""
    cause: Cause = Cause()
    """The end of the rank that failed first, and its exception."""
    stderr: tuple[str, ...] = ()
    stdout: tuple[str, ...] = ()


class JobRecord(NamedTuple):
    """A job and the tasks that matter."""

    id: str
    state: str
    pool: str = ""
    reason: str = ""
    """Why it ended, such as `MaxWallClockTimeExpiry`."""
    failure: Failure | None = None
    wall_clock: float | None = None
    """Its limit of run time in seconds; None without one."""
    max_parallel_tasks: int = -1
    active: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    tasks: tuple[TaskRecord, ...] = ()
    """The first failed tasks in the order of their end, otherwise some that wait or run."""
    logs: str = ""
    """The directory of this machine that keeps the output of its tasks; empty without one."""


class Record(NamedTuple):
    """Everything that was read. job: None for the diagnosis of a pool. pool: None if it does not exist."""

    job: JobRecord | None
    pool: PoolRecord | None
    hints: tuple[str, ...] = ()
    """Why tasks wait, as the emulator tells it; Azure tells nothing."""
    unread: tuple[str, ...] = ()
    """What could not be read, with the reason."""
