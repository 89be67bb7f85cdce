"""What the emulator remembers of a pool, a node, a job, a task and their like: one struct each, stored as it stands.

`spec` is the document the client gave, canonical and with the service's defaults; the rest is what happened since.
Times are ticks (see `wire`). Structs compare by identity: a record is a thing, not a value.
"""

from __future__ import annotations

from typing import Any

import msgspec

Document = dict[str, Any]


class Record(msgspec.Struct, omit_defaults=True, eq=False, kw_only=True, gc=False):
    """What every record has; `seq` orders records of a kind and is never used again."""

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
    """What becomes of the tasks on nodes that a resize takes away."""
    resize_errors: list[Document] = []
    core_time: int = 0
    """Ticks of dedicated cores that are gone."""
    autoscale_since: int = 0
    """When autoscale was last enabled."""
    autoscale_next: int = 0
    """When its formula is evaluated next."""
    autoscale_run: Document = {}
    """The wire's autoScaleRun."""
    logins: dict[str, str] = {}
    """Passwords of its registries, by server; no document has them."""


class Node(Record):
    """`phase` is what the machine is doing for it: down, unwiped (down, and its directory is to go), booting, up,
    starting (its start task), stopping, removing."""

    pool: str
    """Key of its pool."""
    address: str
    hostname: str
    dedicated: bool = True
    scheduling: bool = True
    phase: str = "down"
    leave: str = "requeue"
    """What becomes of its tasks when it leaves or reboots: requeue, terminate or taskcompletion."""
    not_before: int = 0
    """The moment before which it does not boot: allocation is slow, or it was preempted."""
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
    """The boot it belongs to."""
    errors: list[Document] = []
    recent: list[tuple[str, str, int]] = []
    """The last tasks run here: job id, task id, subtask."""
    total_run: int = 0
    total_succeeded: int = 0
    billed: int = 0
    """Since when its present life counts as used; 0 is since it was created."""
    place: int = 0
    """Its number in the pool, the lowest that was free: its frontend ports go by it."""
    hold: str = ""
    """Before it goes it waits: `retaineddata` until its tasks have ended, `holding` for what they retain."""
    users: dict[str, int] = {}
    """Names of its own user accounts -> when each expires."""


class Usage(Record):
    """The hours that nodes of one size had in a pool, kept when both are gone; `id` is the pool's."""

    vm_size: str
    cores: int = 1
    spans: dict[int, int] = {}
    """Begin of each interval -> ticks that nodes lived in it."""


class Job(Record):
    spec: Document
    started: int = 0
    ended: int = 0
    reason: str = ""
    tasks_action: str = "requeue"
    """What disabling does to running tasks."""
    schedule: int = 0
    """`seq` of the schedule it comes from; 0 for a job by itself."""
    auto_pool: str = ""
    """Id of the pool that was made for it."""
    error: Document | None = None
    """Why it could not be started: the wire's schedulingError."""
    forced: bool = False
    """It ends without waiting for its nodes."""
    logins: dict[str, str] | None = None
    """Passwords of its special tasks' registries, by server; no document has them."""


class JobSchedule(Record):
    """`spec` holds the client's schedule and jobSpecification."""

    spec: Document
    next_run: int = 0
    """The next moment at which a job is due; 0 when none is any more."""
    last_run: int = 0
    """The moment at which the latest job was due."""
    made: int = 0
    """How many jobs it has made; the latest is `ID:job-MADE`."""
    ended: int = 0
    auto_pool: str = ""
    """Id of the pool that its jobs share."""
    forced: bool = False
    logins: dict[str, str] | None = None
    """What its jobs have as theirs."""


class NodeRun(msgspec.Struct, omit_defaults=True, eq=False, kw_only=True, gc=False):
    """A job's preparation or release task on one node; `phase` is a key of `states.NODE_RUN`."""

    phase: str = "due"
    run: int = 0
    """Counts attempts; what a machine reports of an earlier one is stale."""
    boot: int = 0
    """The node's boot in which it last ran."""
    start: int = 0
    end: int = 0
    exit_code: int | None = None
    failure: Document | None = None
    retries: int = 0
    last_retry: int = 0
    container: Document | None = None


class JobNode(Record):
    """What a job did on a node beside its tasks: its preparation there, and its release. `id` is the node's."""

    job: int
    """`seq` of its job."""
    pool: str
    """Id of the node's pool."""
    preparation: NodeRun
    release: NodeRun | None = None


class Met(Record):
    """A dependency that stays met although its task was deleted; `id` is its key (see `world.dependency_key`)."""

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


class Task(Record):
    job: int
    """`seq` of its job."""
    spec: bytes
    """The document as JSON: a million tasks have to fit in memory."""
    slots: int = 1
    gang: int = 0
    """Instances of a multi-instance task; 0 for an ordinary one."""
    container: bool = False
    max_retries: int = 0
    wall_clock: int = 0
    """Longest run in ticks; 0 is no limit."""
    run: int = 0
    """Counts assignments to nodes; what a machine reports of an earlier run is stale."""
    instances: list[Instance] = []
    verdict: str = ""
    """How the current run is to end: exit, retry, requeue or terminate; empty while it may continue."""
    start: int = 0
    end: int = 0
    exit_code: int | None = None
    failure: Document | None = None
    result: str = ""
    retries: int = 0
    last_retry: int = 0
    requeues: int = 0
    last_requeue: int = 0
    satisfies: bool = False
    """Whether dependants may start."""
    node_pool: str = ""
    """Id of the pool it last ran on."""
    manager: bool = False
    """Whether it is its job's job manager task."""
    exclusive: bool = False
    """Whether nothing else runs on its node meanwhile."""
    logins: dict[str, str] | None = None
    """The password of its registry, by server; no document has it."""
    affinity: str = ""
    """Id of the node it would like best."""
    cleaned: bool = False
    """Whether its retention time is over and its files are gone."""
