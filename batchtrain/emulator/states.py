"""The life cycles as tables: (state, event) -> next state. What is not in a table cannot happen; pure."""

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
        (state, "reboot"): "rebooting"
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
            "preempted",
        )
    },
    **{(state, "unusable"): "unusable" for state in ("creating", "starting", "rebooting", "unknown", "preempted")},
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
    **{(state, "terminate"): "terminating" for state in ("active", "disabling", "disabled", "enabling")},
    **{
        (state, "delete"): "deleting"
        for state in ("active", "disabling", "disabled", "enabling", "terminating", "completed")
    },
}

TASK: Table = {
    ("active", "assign"): "running",
    ("active", "end"): "completed",
    ("running", "end"): "completed",
    ("running", "return"): "active",
    ("completed", "reactivate"): "active",
}

INSTANCE: Table = {
    ("assigned", "coordinate"): "coordinating",
    ("coordinating", "exit"): "coordinated",
    ("assigned", "run"): "running",
    ("coordinated", "run"): "running",
    ("running", "exit"): "exited",
    **{(phase, "end"): "ending" for phase in ("coordinating", "coordinated", "running", "exited")},
    ("assigned", "end"): "ended",
    ("ending", "ended"): "ended",
    **{
        (phase, "lost"): "ended" for phase in ("assigned", "coordinating", "coordinated", "running", "exited", "ending")
    },
}
"""One node's part in a task's run: its commands (coordination, then on the primary the application), then the end of
all it left behind."""

SUBTASK_STATE: Mapping[str, str] = {"assigned": "preparing", "ended": "completed"}
"""What the wire calls an instance's phase; all others are `running`."""


def after(table: Table, state: str, event: str) -> str:
    """The next state; raises KeyError naming both when there is none."""
    try:
        return table[state, event]
    except KeyError:
        raise KeyError(f"no {event!r} in state {state!r}") from None


def allows(table: Table, state: str, event: str) -> bool:
    """Whether the event can happen in this state."""
    return (state, event) in table
