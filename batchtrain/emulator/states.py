"""The life cycles as tables: (state, event) -> next state. A transition that is not in a table is a bug; pure."""

from __future__ import annotations

from collections.abc import Mapping

Table = Mapping[tuple[str, str], str]

POOL: Table = {("active", "delete"): "deleting"}

ALLOCATION: Table = {
    ("steady", "resize"): "resizing",
    ("resizing", "stop"): "stopping",
    ("resizing", "settle"): "steady",
    ("stopping", "settle"): "steady",
    ("steady", "delete"): "resizing",
    ("resizing", "delete"): "resizing",
    ("stopping", "delete"): "resizing",
}

NODE: Table = {
    ("creating", "boot"): "starting",
    ("unknown", "boot"): "starting",
    ("rebooting", "boot"): "starting",
    ("preempted", "boot"): "starting",
    ("reimaging", "boot"): "starting",
    ("starting", "boot"): "starting",
    ("deallocated", "start"): "starting",
    ("deallocating", "down"): "deallocated",
    **{
        (state, "preempt"): "preempted"
        for state in ("starting", "waitingforstarttask", "idle", "running", "offline", "starttaskfailed", "unknown")
    },
    ("starting", "up"): "waitingforstarttask",
    ("waitingforstarttask", "ready"): "idle",
    ("waitingforstarttask", "start task failed"): "starttaskfailed",
    ("idle", "busy"): "running",
    ("running", "free"): "idle",
    **{
        (state, "lost"): "unknown"
        for state in ("starting", "waitingforstarttask", "idle", "running", "offline", "starttaskfailed")
    },
    **{
        (state, event): passage
        for event, passage in (("reboot", "rebooting"), ("reimage", "reimaging"), ("deallocate", "deallocating"))
        for state in ("idle", "running", "starttaskfailed", "unusable", "offline", "waitingforstarttask")
    },
    **{
        (state, "leave"): "leavingpool"
        for state in (
            "creating",
            "starting",
            "waitingforstarttask",
            "idle",
            "running",
            "offline",
            "starttaskfailed",
            "unusable",
            "unknown",
            "rebooting",
            "reimaging",
            "deallocating",
            "deallocated",
            "preempted",
        )
    },
    **{
        (state, "unusable"): "unusable"
        for state in ("creating", "starting", "rebooting", "reimaging", "unknown", "preempted")
    },
    ("idle", "offline"): "offline",
    ("running", "offline"): "offline",
    ("offline", "online"): "idle",
}

JOB: Table = {
    ("active", "disable"): "disabling",
    ("enabling", "disable"): "disabling",
    ("disabling", "settle"): "disabled",
    ("disabled", "enable"): "enabling",
    ("disabling", "enable"): "enabling",
    ("enabling", "settle"): "active",
    ("terminating", "settle"): "completed",
    ("disabling", "disable"): "disabling",
    ("disabled", "disable"): "disabled",
    **{(state, "terminate"): "terminating" for state in ("active", "disabling", "disabled", "enabling")},
    **{
        (state, "delete"): "deleting"
        for state in ("active", "disabling", "disabled", "enabling", "terminating", "completed")
    },
}

JOB_OVER: Mapping[str, str] = {
    "completed": "JobCompleted",
    "terminating": "JobBeingTerminated",
    "deleting": "JobBeingDeleted",
}
"""The refusal of a change to a completed job."""

SCHEDULE: Table = {
    ("active", "disable"): "disabled",
    ("disabled", "disable"): "disabled",
    ("disabled", "enable"): "active",
    ("active", "enable"): "active",
    **{(state, "terminate"): "terminating" for state in ("active", "disabled")},
    ("terminating", "settle"): "completed",
    **{(state, "delete"): "deleting" for state in ("active", "disabled", "terminating", "completed")},
}

SCHEDULE_OVER: Mapping[str, str] = {
    "completed": "JobScheduleCompleted",
    "terminating": "JobScheduleBeingTerminated",
    "deleting": "JobScheduleBeingDeleted",
}
"""The refusal of a change to a completed job schedule."""

TASK: Table = {
    ("active", "assign"): "running",
    ("active", "prepare"): "preparing",
    ("preparing", "prepared"): "running",
    ("active", "end"): "completed",
    **{(state, "end"): "completed" for state in ("preparing", "running")},
    **{(state, "return"): "active" for state in ("preparing", "running")},
    ("completed", "reactivate"): "active",
}

UNDER_WAY = ("preparing", "running")
"""A task's states while it has a node."""

INSTANCE: Table = {
    ("preparing", "prepared"): "assigned",
    ("assigned", "coordinate"): "coordinating",
    ("coordinating", "exit"): "coordinated",
    ("assigned", "run"): "running",
    ("coordinated", "run"): "running",
    ("running", "exit"): "exited",
    **{(phase, "end"): "ending" for phase in ("coordinating", "coordinated", "running", "exited")},
    ("preparing", "end"): "ended",
    ("assigned", "end"): "ended",
    ("ending", "ended"): "ended",
    **{
        (phase, "lost"): "ended"
        for phase in ("preparing", "assigned", "coordinating", "coordinated", "running", "exited", "ending")
    },
}
"""One node's part in a task's run: it waits for the job's preparation of its node if necessary, then runs its commands
(the coordination command, then on the primary the application command), then ends all background processes."""

NODE_RUN: Table = {
    ("due", "run"): "running",
    ("running", "exit"): "exited",
    ("running", "end"): "ending",
    ("exited", "end"): "ending",
    ("ending", "ended"): "ended",
    **{(phase, "lost"): "lost" for phase in ("due", "running", "exited", "ending")},
    **{(phase, "again"): "due" for phase in ("ended", "lost")},
}
"""A preparation or release task on one node: the command, then the end of its background processes."""

SUBTASK_STATE: Mapping[str, str] = {"preparing": "preparing", "assigned": "preparing", "ended": "completed"}
"""The wire's words for an instance's phase; all other phases are `running`."""


def after(table: Table, state: str, event: str) -> str:
    """The next state. Raises KeyError with both names if there is none."""
    try:
        return table[state, event]
    except KeyError:
        raise KeyError(f"no {event!r} in state {state!r}") from None


def allows(table: Table, state: str, event: str) -> bool:
    """Whether the event can happen in this state."""
    return (state, event) in table
