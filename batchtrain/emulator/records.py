"""The records of the emulator: one struct per pool, node, job, task and so on, stored as it is.

`spec` is the client's document in canonical form with the service's defaults; the other fields are the later state.
Times are ticks (see `wire`). Structs compare by identity.
"""

from __future__ import annotations

from typing import Any

import msgspec

Document = dict[str, Any]


class Record(msgspec.Struct, omit_defaults=True, eq=False, kw_only=True, gc=False):
    """Fields of every record; `seq` orders the records of a kind and is never reused."""

    id: str
    seq: int
    state: str
    state_time: int
    etag: str = ""
    modified: int = 0
    created: int = 0
    previous: str = ""
    previous_time: int = 0


class Pool(Record):
    spec: Document
    allocation: str = "steady"
    allocation_time: int = 0
    target_dedicated: int = 0
    target_spot: int = 0
    deallocation: str = "requeue"
    """What happens to the tasks on nodes that a resize removes."""
    resize_errors: list[Document] = []
    resize_time: int = 0
    """The start of its last resize."""
    tags: dict[str, str] = {}
    """Resource Manager's tags."""
    core_time: int = 0
    """Ticks of dedicated cores of deleted nodes."""
    autoscale_since: int = 0
    """When autoscale was last enabled."""
    autoscale_next: int = 0
    """When its formula is evaluated next."""
    autoscale_run: Document = {}
    """The wire's autoScaleRun."""
    logins: dict[str, str] = {}
    """Passwords of its registries by server, which no document contains."""

    @property
    def node_size(self) -> str:
        """The VM size of its nodes; of several sizes the first by rank."""
        sizes = self.spec.get("vmSkuProfile", {}).get("vmSizes", [])
        first = min(sizes, key=lambda size: size.get("rank", 0), default={"name": self.spec["vmSize"]})
        return str(first["name"]).lower()


class Node(Record):
    """`phase` is the machine's current activity for the node: down, unwiped (down, and its directory must be deleted),
    booting, up, starting (its start task), stopping, removing."""

    pool: str
    """Key of its pool."""
    address: str
    hostname: str
    dedicated: bool = True
    scheduling: bool = True
    phase: str = "down"
    not_before: int = 0
    """The earliest time of its boot, if allocation is slow or it was preempted."""
    booted: int = 0
    boots: int = 0
    losses: int = 0
    root: str = ""
    root_inside: str = ""
    environment: dict[str, str] = {}
    isolation: str = ""
    start: Document = {}
    """The wire's startTaskInfo."""
    start_boot: int = 0
    """The boot to which it belongs."""
    errors: list[Document] = []
    recent: list[tuple[str, str, int]] = []
    """The last tasks that ran here: job id, task id, subtask."""
    total_run: int = 0
    total_succeeded: int = 0
    billed: int = 0
    """The start of the current usage interval; 0 for the node's creation."""
    number: int = msgspec.field(default=0, name="place")
    """Its number in the pool, the lowest free one: it determines the frontend ports."""
    hold: str = ""
    """What it waits for before it leaves: `retaineddata` for its tasks, then `holding` for their retained files."""
    users: dict[str, int] = {}
    """Names of its own user accounts -> when each expires."""


class Usage(Record):
    """The hours of nodes of one size in a pool, kept after both are deleted; `id` is the pool's."""

    vm_size: str
    cores: int = 1
    spans: dict[int, int] = {}
    """Start of each interval -> ticks of nodes in it."""


class Job(Record):
    spec: Document
    started: int = 0
    ended: int = 0
    reason: str = ""
    schedule: int = 0
    """`seq` of its job schedule; 0 for a job without one."""
    auto_pool: str = ""
    """Id of its auto pool."""
    error: Document | None = None
    """Why it could not start: the wire's schedulingError."""
    forced: bool = False
    """It ends without waiting for its nodes."""
    logins: dict[str, str] | None = None
    """Passwords of its special tasks' registries by server, which no document contains."""


class JobSchedule(Record):
    """`spec` holds the client's schedule and jobSpecification."""

    spec: Document
    next_run: int = 0
    """When the next job is due; 0 if no more jobs are due."""
    last_run: int = 0
    """When the latest job was due."""
    made: int = 0
    """The number of jobs it has created; the latest is `ID:job-MADE`."""
    ended: int = 0
    auto_pool: str = ""
    """Id of the pool that its jobs share."""
    forced: bool = False
    logins: dict[str, str] | None = None
    """Passwords of its jobs."""


class NodeRun(msgspec.Struct, omit_defaults=True, eq=False, kw_only=True, gc=False):
    """A job's preparation or release task on one node; `phase` is a key of `states.NODE_RUN`."""

    phase: str = "due"
    run: int = 0
    """Counts attempts; a report of an earlier attempt is ignored."""
    boot: int = 0
    """The boot of the node in which it last ran."""
    start: int = 0
    end: int = 0
    exit_code: int | None = None
    failure: Document | None = None
    retries: int = 0
    last_retry: int = 0
    container: Document | None = None


class JobNode(Record):
    """The preparation and release tasks of a job on a node. `id` is the node's."""

    job: int
    """`seq` of its job."""
    pool: str
    """Id of the node's pool."""
    preparation: NodeRun
    release: NodeRun | None = None


class Met(Record):
    """A satisfied dependency whose task was deleted; `id` is its key (see `world.dependency_key`)."""

    job: int


class Instance(msgspec.Struct, omit_defaults=True, eq=False, kw_only=True, gc=False):
    """One node's part in a run of a task; `phase` is a key of `states.INSTANCE`."""

    node: str
    phase: str = "assigned"
    phase_time: int = 0
    start: int = 0
    end: int = 0
    exit_code: int | None = None
    failure: Document | None = None
    container: Document | None = None
    """The wire's containerInfo."""


class TaskFacts(Record):
    """The facts about every task that are kept without the rest of its record."""

    job: int
    """`seq` of its job."""
    slots: int = 1
    gang: int = 0
    """Instances of a multi-instance task; 0 for a task without instances."""
    start: int = 0
    end: int = 0
    exit_code: int | None = None
    result: str = ""
    retries: int = 0
    satisfies: bool = False
    """Whether its dependants can start."""
    node_pool: str = ""
    """Id of the pool it last ran on."""
    cleaned: bool = False
    """Whether its retention time is over and its files are deleted."""


class Task(TaskFacts, kw_only=True):
    spec: bytes
    """The document as JSON."""
    container: bool = False
    max_retries: int = 0
    wall_clock: int = 0
    """Maximum run time in ticks; 0 for no limit."""
    run: int = 0
    """Counts assignments to nodes; a report of an earlier run is ignored."""
    instances: list[Instance] = []
    verdict: str = ""
    """How the current run must end: exit, retry, requeue or terminate; empty while it continues."""
    failure: Document | None = None
    last_retry: int = 0
    requeues: int = 0
    last_requeue: int = 0
    manager: bool = False
    """Whether it is its job's job manager task."""
    exclusive: bool = False
    """Whether it needs its node for itself."""
    logins: dict[str, str] | None = None
    """Passwords of its registry by server, which no document contains."""
    affinity: str = ""
    """Id of the node that it prefers."""
