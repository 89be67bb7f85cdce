"""What was read about a job or a pool: the input of every rule."""

from __future__ import annotations

from typing import NamedTuple

from batchtrain.config.travel import LeftOut
from batchtrain.errors import Finding
from batchtrain.records import Attempt, Job, Node, Pool, Task
from batchtrain.records.rank_end import RankEnd
from batchtrain.service.causes import Cause


class ExaminedNode(NamedTuple):
    """A node, and the end of its start task's output if that failed."""

    node: Node
    start_lines: tuple[str, ...] = ()


class ExaminedTask(NamedTuple):
    """A task that failed, waits or runs, and the end of its output."""

    task: Task
    cause: Cause = Cause()
    """What its stderr tells: the rank that failed first, and its exception."""
    stderr: tuple[str, ...] = ()
    stdout: tuple[str, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    """All of its attempts, if it ran more than once."""
    warnings: tuple[str, ...] = ()
    """What the launch of its gang warned about."""
    ends: tuple[RankEnd, ...] = ()
    """How the ranks of its gang failed, the cause first."""


class Evidence(NamedTuple):
    """Everything that was read."""

    job: Job | None = None
    """None for the diagnosis of a pool."""
    pool: Pool | None = None
    """None if it does not exist."""
    tasks: tuple[ExaminedTask, ...] = ()
    """The first failed tasks in the order of their end, otherwise some that wait or run."""
    nodes: tuple[ExaminedNode, ...] = ()
    """The nodes of the pool."""
    logs: str = ""
    """The directory of this machine that keeps the output of the tasks; empty without one."""
    waits: tuple[Finding, ...] = ()
    """Why active tasks wait, by the rules of `batchtrain/life`."""
    hints: tuple[str, ...] = ()
    """Why tasks wait, as the emulator tells it; Azure tells nothing."""
    progress: tuple[str, ...] = ()
    """How far running tasks are, and which of their ranks stand still."""
    unread: tuple[str, ...] = ()
    """What could not be read, with the reason."""
    left_out: tuple[LeftOut, ...] = ()
    """The files of the sources that were not sent."""
