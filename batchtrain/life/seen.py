"""What is there of a job whose tasks are awaited: the input of every rule. `service/observe.py` reads it."""

from __future__ import annotations

from typing import NamedTuple

from batchtrain.records import Job, Node, Pool, Task
from batchtrain.records.jobs import Preparation

BROKEN = frozenset({"starttaskfailed", "unusable", "offline", "unknown"})
"""States of nodes that take no tasks until somebody mends them."""
NEVER_READY = frozenset({"starttaskfailed", "unusable"})
"""States of nodes that only a reboot can change."""
LOST = frozenset({"preempted", "unusable", "starttaskfailed", "leavingpool", "deallocated", "deallocating"})
"""States of nodes that run no tasks, and that leave or have to be mended."""
READY = frozenset({"idle", "running"})


class Seen(NamedTuple):
    """A job, its pool and its tasks at one time. What was not read is None."""

    job: Job
    pool: Pool | None = None
    """None if it does not exist."""
    nodes: tuple[Node, ...] | None = None
    tasks: tuple[Task, ...] | None = None
    """The tasks that have not ended, and those that failed, each with its request; None while a task runs."""
    preparations: tuple[Preparation, ...] = ()
    """The job preparation task on each node where it started, if nodes wait for its success."""
    holders: tuple[Pool, ...] = ()
    """The other pools of the account that have nodes, if a quota of cores refused the nodes of this one."""
    is_whole: bool = False
    """Whether `tasks` has the tasks that succeeded, too."""
    next_page: str = ""
    """The token of the open tasks that were not read yet; empty if all were."""

    @property
    def open(self) -> tuple[Task, ...]:
        """The tasks that have not ended."""
        return tuple(task for task in self.tasks or () if task.state != "completed")
