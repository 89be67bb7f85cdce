"""What the emulator remembers of a pool, a node, a job and a task: one struct each, stored as it stands.

`spec` is the document the client gave, canonical and with the service's defaults; the rest is what happened since.
Times are ticks (see `wire`). Structs compare by identity: a record is a thing, not a value.
"""

from __future__ import annotations

from typing import Any

import msgspec

Document = dict[str, Any]


class Record(msgspec.Struct, omit_defaults=True, eq=False, kw_only=True):
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


class Node(Record):
    """`phase` is what the machine is doing for it: down, booting, up, starting (its start task), removing."""

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


class Job(Record):
    spec: Document
    started: int = 0
    ended: int = 0
    reason: str = ""
    tasks_action: str = "requeue"
    """What disabling does to running tasks."""


class Instance(msgspec.Struct, omit_defaults=True, eq=False, kw_only=True):
    """One node's part in a run of a task; `phase` is a key of `states.INSTANCE`."""

    node: str
    phase: str = "assigned"
    phase_time: int = 0
    start: int = 0
    end: int = 0
    exit_code: int | None = None
    failure: Document | None = None


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
    """How the current run is to end: exit, retry, requeue or terminate; empty while it may go on."""
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
