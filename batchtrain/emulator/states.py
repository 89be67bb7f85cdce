"""The life cycles as tables: (state, event) -> next state. A transition that is not in a table is a bug; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

Table = Mapping[tuple[str, str], str]


def _table(rows: str) -> Table:
    """The table of rows `STATE...: EVENT -> NEXT STATE`. The states of a row may take several lines."""
    table: dict[tuple[str, str], str] = {}
    for states, event, after in re.findall(r"([\w\s]+): ([\w ]+) -> (\w+)", rows):
        table |= dict.fromkeys(((state, event) for state in states.split()), after)
    return table


POOL = _table("active: delete -> deleting")

ALLOCATION = _table("""
    steady: resize -> resizing
    resizing: stop -> stopping
    resizing stopping: settle -> steady
    steady resizing stopping: delete -> resizing
""")

NODE = _table("""
    creating unknown rebooting preempted reimaging starting: boot -> starting
    deallocated: start -> starting
    deallocating: down -> deallocated
    starting waitingforstarttask idle running offline starttaskfailed unknown: preempt -> preempted
    starting: up -> waitingforstarttask
    waitingforstarttask: ready -> idle
    waitingforstarttask: start task failed -> starttaskfailed
    idle: busy -> running
    running: free -> idle
    starting waitingforstarttask idle running offline starttaskfailed: lost -> unknown
    idle running starttaskfailed unusable offline waitingforstarttask: reboot -> rebooting
    idle running starttaskfailed unusable offline waitingforstarttask: reimage -> reimaging
    idle running starttaskfailed unusable offline waitingforstarttask: deallocate -> deallocating
    creating starting waitingforstarttask idle running offline starttaskfailed unusable unknown rebooting reimaging
        deallocating deallocated preempted: leave -> leavingpool
    creating starting rebooting reimaging unknown preempted: unusable -> unusable
    idle running: offline -> offline
    offline: online -> idle
""")

JOB = _table("""
    active enabling disabling: disable -> disabling
    disabling: settle -> disabled
    disabled disabling: enable -> enabling
    enabling: settle -> active
    terminating: settle -> completed
    disabled: disable -> disabled
    active disabling disabled enabling: terminate -> terminating
    active disabling disabled enabling terminating completed: delete -> deleting
""")

JOB_OVER: Mapping[str, str] = {
    "completed": "JobCompleted",
    "terminating": "JobBeingTerminated",
    "deleting": "JobBeingDeleted",
}
"""The refusal of a change to a completed job."""

SCHEDULE = _table("""
    active disabled: disable -> disabled
    disabled active: enable -> active
    active disabled: terminate -> terminating
    terminating: settle -> completed
    active disabled terminating completed: delete -> deleting
""")

SCHEDULE_OVER: Mapping[str, str] = {
    "completed": "JobScheduleCompleted",
    "terminating": "JobScheduleBeingTerminated",
    "deleting": "JobScheduleBeingDeleted",
}
"""The refusal of a change to a completed job schedule."""

TASK = _table("""
    active: assign -> running
    active: prepare -> preparing
    preparing: prepared -> running
    active preparing running: end -> completed
    preparing running: return -> active
    completed: reactivate -> active
""")

UNDER_WAY = ("preparing", "running")
"""A task's states while it has a node."""

INSTANCE = _table("""
    preparing: prepared -> assigned
    assigned: coordinate -> coordinating
    coordinating: exit -> coordinated
    assigned coordinated: run -> running
    running: exit -> exited
    coordinating coordinated running exited: end -> ending
    preparing assigned: end -> ended
    ending: ended -> ended
    preparing assigned coordinating coordinated running exited ending: lost -> ended
""")
"""One node's part in a task's run: it waits for the job's preparation of its node if necessary, then runs its commands
(the coordination command, then on the primary the application command), then ends all background processes."""

NODE_RUN = _table("""
    due: run -> running
    running: exit -> exited
    running exited: end -> ending
    ending: ended -> ended
    due running exited ending: lost -> lost
    ended lost: again -> due
""")
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
