"""The indexes of the world: a pool, a job and a job schedule, each with the records that belong to it; pure."""

from __future__ import annotations

from collections import OrderedDict

from batchtrain.emulator.autoscale_samples import History
from batchtrain.emulator.interface import SIMULATED
from batchtrain.emulator.records import Job, JobNode, JobSchedule, Node, Pool, Task, TaskFacts
from batchtrain.emulator.task_table import Shelf, TaskTable

EVERY_SLOT = 1 << 16
"""The slots of a node that a task needs for itself."""


class PoolEntry:
    """A pool, its nodes, and the tasks on each."""

    __slots__ = ("history", "key", "nodes", "record", "running")

    def __init__(self, record: Pool) -> None:
        self.record, self.key = record, record.id.lower()
        self.history: History | None = History() if record.spec.get("enableAutoScale") else None
        """What its formula reads; None without autoscale."""
        self.nodes: dict[str, Node] = {}
        self.running: dict[str, dict[int, Task]] = {}

    @property
    def simulated(self) -> bool:
        """Whether its nodes run no commands: set by the pool's metadata, which every client can write."""
        return {"name": SIMULATED, "value": "simulated"} in self.record.spec.get("metadata", [])

    @property
    def windows(self) -> bool:
        """Whether its image is a Windows one."""
        return "windows" in self.record.spec["virtualMachineConfiguration"]["nodeAgentSKUId"].lower()

    def used(self, node_id: str) -> int:
        """Slots in use on a node."""
        return sum(task.slots for task in self.running[node_id].values())

    def claimed(self, node_id: str) -> int:
        """The reserved slots of a node: more than it has if a task needs the node for itself."""
        return sum(EVERY_SLOT if task.exclusive else task.slots for task in self.running[node_id].values())

    def current(self, *, dedicated: bool) -> int:
        """Nodes of a kind that are not leaving."""
        return sum(node.dedicated == dedicated and node.state != "leavingpool" for node in self.nodes.values())


class JobEntry:
    """A job, its tasks in order, its queue, and the number of tasks in each state."""

    __slots__ = (
        "counts", "dependants", "gangs", "key", "met", "nodes", "range_dependants", "ready", "record", "running",
        "satisfied", "slot_counts", "tasks", "to_recover", "unmet",
    )  # fmt: skip

    def __init__(self, record: Job, shelf: Shelf) -> None:
        self.record, self.key = record, record.id.lower()
        self.tasks = TaskTable(record.seq, shelf)
        self.ready: OrderedDict[int, int] = OrderedDict()
        """Active tasks that wait only for nodes, in queue order: number -> how many nodes it needs."""
        self.running: dict[int, Task] = {}
        self.unmet: dict[int, int] = {}
        """Task number -> how many of its dependencies are not satisfied."""
        self.dependants: dict[str, list[int]] = {}
        self.range_dependants: list[tuple[int, int, int]] = []
        self.gangs = False
        """Whether any of its tasks is a multi-instance task."""
        self.satisfied: set[str] = set()
        """Keys of tasks whose dependants can start."""
        self.met: list[str] = []
        """Those of them whose tasks were deleted."""
        self.to_recover: list[int] = []
        """Tasks to check when the emulator starts: under way, with dependencies, or with files on a node."""
        self.nodes: dict[str, JobNode] = {}
        """Its preparation and release tasks by node id; empty if it has none."""
        self.counts = dict.fromkeys(COUNTED, 0)
        self.slot_counts = dict.fromkeys(COUNTED, 0)

    @property
    def pool_id(self) -> str:
        """Its pool: the client's or the auto pool; empty as long as there is none."""
        return self.record.auto_pool or str(self.record.spec.get("poolInfo", {}).get("poolId", ""))

    @property
    def pool_key(self) -> str:
        return self.pool_id.lower()

    def count(self, task: TaskFacts, by: int) -> None:
        """Add a task (+1) to the counts of its state, or remove it (-1)."""
        for name in count_names(task):
            self.counts[name] += by
            self.slot_counts[name] += by * task.slots


COUNTED = ("active", "running", "completed", "succeeded", "failed")


def count_names(task: TaskFacts) -> tuple[str, ...]:
    """The counters of taskcounts for a task."""
    if task.state != "completed":
        return ("active",) if task.state == "active" else ("running",)
    return ("completed", "succeeded" if task.result == "success" else "failed")


class ScheduleEntry:
    """A job schedule and its jobs, in order."""

    __slots__ = ("jobs", "key", "record")

    def __init__(self, record: JobSchedule) -> None:
        self.record, self.key = record, record.id.lower()
        self.jobs: dict[str, JobEntry] = {}

    @property
    def active_job(self) -> JobEntry | None:
        """Its active job."""
        latest = next(reversed(self.jobs.values()), None)
        return latest if latest is not None and latest.record.state != "completed" else None
