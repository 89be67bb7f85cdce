"""The scheduler: reads the changed records and names the next effects; pure.

It does not change the world. Each effect is first recorded (`reports.begin`) and stored, then the machine acts on those
that need one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from batchtrain.emulator import applications, job_preparation, quotas, recurrence
from batchtrain.emulator.indexes import JobEntry, PoolEntry, ScheduleEntry
from batchtrain.emulator.records import JobNode, Node, Task
from batchtrain.emulator.world import USABLE, Deadline, Touched, World, task_document


class CreateNodes(NamedTuple):
    pool: str
    dedicated: int
    spot: int


class DropNodes(NamedTuple):
    pool: str
    nodes: tuple[str, ...]


class FailResize(NamedTuple):
    pool: str
    code: str
    message: str


class SettlePool(NamedTuple):
    pool: str


class ForgetPool(NamedTuple):
    pool: str


class _OfNode(NamedTuple):
    pool: str
    node: str


class BootNode(_OfNode):
    """Boot a node."""


class RunStartTask(_OfNode):
    """Run the start task of a node."""


class ShutdownNode(_OfNode):
    """Shut a node down, before a reboot or for deallocation."""


class WipeNode(_OfNode):
    """Shut a node down and delete its directory, before a reimaged node boots."""


class HoldNode(_OfNode):
    """Remove a node whose tasks have ended when their retention times are over."""


class RemoveNode(_OfNode):
    """Delete a leaving node."""


class Assign(NamedTuple):
    """Assign nodes to a task, the primary first."""

    job: str
    task: str
    nodes: tuple[str, ...]


class Refuse(NamedTuple):
    """Fail a task before it runs."""

    job: str
    task: str
    code: str
    message: str


class Hint(NamedTuple):
    """Record why a task stays active, which the service does not report."""

    job: str
    task: str
    reason: str


class RunCoordination(NamedTuple):
    task: Task
    run: int
    instance: int


class RunApplication(NamedTuple):
    task: Task
    run: int
    instance: int = 0


class EndScope(NamedTuple):
    task: Task
    run: int
    instance: int


class Preempt(NamedTuple):
    """Preempt a task for a job of higher priority."""

    task: Task
    run: int


class RunOnNode(NamedTuple):
    """Run a job's preparation or release task (`kind`) on one node."""

    job_node: JobNode
    kind: str


class EndOnNode(NamedTuple):
    """End the background processes of a preparation or release task."""

    job_node: JobNode
    kind: str
    run: int


class ReleaseJob(NamedTuple):
    """Release an ending job's nodes."""

    job: str


class MakeJob(NamedTuple):
    """Create the next job of a job schedule."""

    schedule: str


class EndSchedule(NamedTuple):
    """Complete a job schedule."""

    schedule: str


class SettleSchedule(NamedTuple):
    schedule: str


class TimeUp(NamedTuple):
    deadline: Deadline


class SettleJob(NamedTuple):
    job: str


class EndJob(NamedTuple):
    job: str
    reason: str


Effect = (
    CreateNodes | DropNodes | FailResize | SettlePool | ForgetPool | BootNode | RunStartTask | ShutdownNode | WipeNode
    | HoldNode | RemoveNode | Assign | Refuse | Hint | RunCoordination | RunApplication | EndScope | Preempt |
    RunOnNode | EndOnNode | ReleaseJob | MakeJob | EndSchedule | SettleSchedule | TimeUp | SettleJob | EndJob
)  # fmt: skip


def due(world: World, changes: Touched) -> tuple[Effect, ...]:
    """The effects of a change; applying them may cause more."""
    effects = (
        *(TimeUp(deadline) for deadline in changes.expired),
        *(effect for task in changes.tasks for effect in task_due(task)),
        *(effect for job_node in changes.job_nodes for effect in job_node_due(job_node)),
        *(effect for key in changes.jobs if key in world.jobs for effect in job_due(world, world.jobs[key])),
        *(
            effect
            for key in changes.schedules
            if key in world.schedules
            for effect in schedule_due(world.schedules[key], changes.now)
        ),
    )
    settling = _auto_pools(world, effects)
    keys = (key for key in changes.pools if key in world.pools and key not in settling)
    return (*effects, *(effect for key in keys for effect in pool_due(world, world.pools[key])))


def _auto_pools(world: World, effects: tuple[Effect, ...]) -> set[str]:
    """The auto pools of jobs and job schedules that settle: they may be deleted by it, and are checked after it."""
    jobs = (world.jobs[effect.job].record.auto_pool for effect in effects if isinstance(effect, SettleJob))
    schedules = (
        world.schedules[effect.schedule].record.auto_pool for effect in effects if isinstance(effect, SettleSchedule)
    )
    return {pool_id.lower() for pool_id in (*jobs, *schedules)}


def task_due(task: Task) -> Iterator[Effect]:
    """The commands to run or to end on the nodes of a task's run."""
    if task.verdict:
        for number, instance in enumerate(task.instances):
            if instance.phase not in ("ending", "ended"):
                yield EndScope(task, task.run, number)
        return
    if not task.instances or task.instances[0].phase == "ended" or task.state == "preparing":
        return
    ready = "coordinated" if task.gang else "assigned"
    if all(instance.phase == ready for instance in task.instances):
        yield RunApplication(task, task.run)
    elif task.gang:
        for number, instance in enumerate(task.instances):
            if instance.phase == "assigned":
                yield RunCoordination(task, task.run, number)


def job_due(world: World, entry: JobEntry) -> Iterator[Effect]:
    """The next step of a job in transition, which settles when no task runs, or of one that ends with its tasks."""
    job, all_complete = entry.record, not entry.counts["active"] and not entry.counts["running"]
    if job.state in ("terminating", "deleting"):
        if job.forced:
            yield SettleJob(entry.key)
        elif not entry.running:  # its tasks have ended: release every node that it was prepared on
            steps = {job_preparation.next_step(world, entry, job_node) for job_node in entry.nodes.values()}
            if steps & {"stop", "start"}:
                yield ReleaseJob(entry.key)
            elif "wait" not in steps:
                yield SettleJob(entry.key)
    elif (job.state == "disabling" and not entry.running) or job.state == "enabling":
        yield SettleJob(entry.key)
    elif job.state in ("active", "disabled") and job.spec.get("onAllTasksComplete") == "terminatejob" and all_complete:
        yield EndJob(entry.key, "AllTasksComplete")


def job_node_due(job_node: JobNode) -> Iterator[Effect]:
    """The preparation or release task to run on a node, or to end there."""
    for kind, run in job_preparation.runs_of(job_node):
        if run.phase == "due":
            yield RunOnNode(job_node, kind)
        elif run.phase == "exited":
            yield EndOnNode(job_node, kind, run.run)


def schedule_due(entry: ScheduleEntry, now: int) -> Iterator[Effect]:
    """The next step of a job schedule: create a job, end, or be deleted after its last job."""
    key, state = entry.key, entry.record.state
    if (state == "terminating" and entry.active_job is None) or (state == "deleting" and not entry.jobs):
        yield SettleSchedule(key)
    elif state == "active" and entry.active_job is None:
        match recurrence.next_step(entry.record, now):
            case "make":
                yield MakeJob(key)
            case "end":
                yield EndSchedule(key)


def pool_due(world: World, entry: PoolEntry) -> Iterator[Effect]:
    resizing = tuple(_resize_due(world, entry))
    yield from resizing
    if any(isinstance(effect, DropNodes | ForgetPool) for effect in resizing):
        return  # what else is due depends on the nodes that stay
    capacity = quotas.capacity_left(world, entry)
    for node in entry.nodes.values():
        if node.state != "preempted" or capacity > 0:
            due = tuple(node_due(entry, node))
            capacity -= node.state == "preempted" and bool(due)
            yield from due
    if entry.record.state == "active":
        yield from assignments(world, entry)


def _resize_due(world: World, entry: PoolEntry) -> Iterator[Effect]:
    pool = entry.record
    if pool.allocation == "steady":
        return
    if pool.state == "deleting" and not entry.nodes:
        yield ForgetPool(entry.key)
        return
    if pool.allocation == "stopping":
        yield SettlePool(entry.key)
        return
    missing = {
        True: pool.target_dedicated - entry.current(dedicated=True),
        False: pool.target_spot - entry.current(dedicated=False),
    }
    if extra := _surplus(entry, missing):
        yield DropNodes(entry.key, extra)
    elif any(count > 0 for count in missing.values()):
        room = quotas.room(world, entry)
        dedicated, spot = quotas.allowed(room, max(missing[True], 0), max(missing[False], 0))
        if dedicated + spot > 0:
            yield CreateNodes(entry.key, dedicated, spot)
        else:
            yield FailResize(entry.key, *quotas.reached(world, room, dedicated=missing[True] > 0))
    elif not any(node.state in ("creating", "leavingpool") for node in entry.nodes.values()):
        yield SettlePool(entry.key)


def _surplus(entry: PoolEntry, missing: dict[bool, int]) -> tuple[str, ...]:
    """The nodes that a smaller target removes: idle nodes first, then the youngest."""
    node_ids: list[str] = []
    for dedicated, count in missing.items():
        staying = [n for n in entry.nodes.values() if n.dedicated == dedicated and n.state != "leavingpool"]
        staying.sort(key=lambda node: (bool(entry.running[node.id]), -node.seq))
        node_ids += [node.id for node in staying[: max(-count, 0)]]
    return tuple(node_ids)


GOING = ("leavingpool", "rebooting", "reimaging", "deallocating")


def node_due(entry: PoolEntry, node: Node) -> Iterator[Effect]:
    """The machine's next step for a node."""
    busy = bool(entry.running[node.id])
    if node.hold and node.state in GOING:
        if node.hold == "retaineddata" and not busy:
            yield HoldNode(entry.key, node.id)
        return
    match node.state, node.phase:
        case ("creating" | "rebooting" | "reimaging" | "unknown" | "preempted" | "starting", "down") if (
            not node.not_before
        ):
            yield BootNode(entry.key, node.id)
        case ("rebooting", "up" | "starting") | ("deallocating", "up" | "starting" | "down") if not busy:
            yield ShutdownNode(entry.key, node.id)
        case ("reimaging", "up" | "starting" | "unwiped") if not busy:
            yield WipeNode(entry.key, node.id)
        case ("waitingforstarttask", "up"):
            yield RunStartTask(entry.key, node.id)
        case ("leavingpool", "down" | "up" | "starting" | "unwiped") if not busy:
            yield RemoveNode(entry.key, node.id)


# Who runs where ------------------------------------------------------------------------------------------------------

LOOK_AHEAD = 32
"""The number of tasks per job that are checked for a reason why they can never start, if every slot is taken."""


MISSES = 256
"""The number of tasks per job without room after which the tasks behind them wait unchecked."""


class Free:
    """The free slots of a pool's nodes during assignment."""

    def __init__(self, slots: dict[str, int]) -> None:
        self.slots = slots
        self.open = sum(slots.values())
        self.given: set[int] = set()
        """Numbers of the tasks that got slots."""
        self.leaving: set[int] = set()
        """Numbers of the tasks to preempt."""
        self.used: set[str] = set()
        """The nodes with slots that were assigned or reserved."""
        self._coming: dict[str, int] = {}
        self._levels: dict[int, dict[str, None]] = {}
        for node, count in slots.items():
            self._levels.setdefault(count, {})[node] = None

    def take(self, task: Task, nodes: tuple[str, ...]) -> None:
        """Assign its slots to a task."""
        for node in nodes:
            self._leave(node, 0 if task.exclusive else self.slots[node] - task.slots)
        self.given.add(task.seq)

    def coming(self, entry: PoolEntry, node: str) -> int:
        """Slots of a node that will become free and are not reserved."""
        if node not in self._coming:
            self._coming[node] = sum(task.slots for task in entry.running[node].values() if task.verdict)
        return self._coming[node]

    def claim(self, task: Task, node: str, victims: list[Task]) -> None:
        """Reserve slots of a node for a task: the free ones, and those that will become free."""
        at_once = min(self.slots[node], task.slots)
        self._leave(node, self.slots[node] - at_once)
        self._coming[node] += sum(victim.slots for victim in victims) - (task.slots - at_once)
        self.leaving |= {victim.seq for victim in victims}

    def _leave(self, node: str, slots: int) -> None:
        self.used.add(node)
        count = self.slots[node]
        del self._levels[count][node]
        self.slots[node] = slots
        self._levels.setdefault(slots, {})[node] = None
        self.open -= count - slots

    def fitting(self, slots: int, *, pack: bool) -> Iterator[str]:
        """The nodes with this many free slots: the emptiest first, or (pack) the fullest."""
        for level in sorted(self._levels, reverse=not pack):
            if level >= slots:
                yield from self._levels[level]


def assignments(world: World, entry: PoolEntry) -> Iterator[Effect]:
    """Assign free slots: jobs by priority, tasks in order; a multi-instance task gets all its nodes at once."""
    jobs = world.waiting_jobs(entry.key)
    if not jobs:
        return
    free = Free(free_slots(entry))
    # The jobs of a pool whose tasks can be preempted
    on_pool = world.jobs_of_pool.get(entry.key, {}).values()
    yielding = [job for job in on_pool if job.record.spec.get("allowTaskPreemption") and (job.running or job.ready)]
    for rank in _ranks(entry, jobs):
        yield from _in_turns([_assign_job(world, entry, job, free) for job in rank])
        for job in rank if yielding else ():
            yield from _claims(entry, job, yielding, free)


def _ranks(entry: PoolEntry, jobs: list[JobEntry]) -> Iterator[list[JobEntry]]:
    """Jobs that share the nodes evenly: those of one priority, unless the pool prefers the oldest job."""
    if entry.record.spec["taskSchedulingPolicy"].get("jobDefaultOrder") == "creationtime":
        yield from ([job] for job in jobs)
        return
    ranks: dict[int, list[JobEntry]] = {}
    for job in jobs:
        ranks.setdefault(job.record.spec.get("priority", 0), []).append(job)
    for rank in ranks.values():
        yield sorted(rank, key=lambda job: (len(job.running), job.record.seq))


def _in_turns(lines: list[Iterator[Effect]]) -> Iterator[Effect]:
    """One assignment of each job in turn."""
    waiting = deque(lines)
    while waiting:
        line = waiting.popleft()
        for effect in line:
            yield effect
            if waiting and isinstance(effect, Assign):
                waiting.append(line)
                break


def free_slots(entry: PoolEntry) -> dict[str, int]:
    """Free slots of each node that accepts tasks."""
    slots = int(entry.record.spec["taskSlotsPerNode"])
    return {
        node.id: max(slots - entry.claimed(node.id), 0)
        for node in entry.nodes.values()
        if node.state in USABLE and node.scheduling
    }


def _assign_job(world: World, entry: PoolEntry, job: JobEntry, free: Free) -> Iterator[Effect]:
    room = job.record.spec.get("maxParallelTasks", -1)
    room = len(job.ready) if room < 0 else room - len(job.running)
    # A new task with the id of a deleted one, whose run is ending, would share its directory.
    ending = {task.id.lower() for task in job.running.values() if not job.tasks.has(task)}
    misses = 0
    for position, seq in enumerate(job.ready):
        if (free.open <= 0 and position >= LOOK_AHEAD) or misses >= MISSES:
            return
        task = job.tasks.at(seq)
        if reason := never_fits(entry, task):
            if world.hints.get(task.seq) != reason:
                yield Hint(job.key, task.id.lower(), reason)
            continue
        if task.id.lower() in ending:
            continue
        if room <= 0:
            return
        if free.open <= 0:
            continue
        if nodes := choose(entry, job, task, free):
            if refusal := unfit(entry, job, task) or _without_package(world, job, task):
                yield refusal
                continue
            free.take(task, nodes)
            room -= 1
            yield Assign(job.key, task.id.lower(), nodes)
        elif task.gang and _could_have(entry, job, task, free):
            free.open = 0  # otherwise a stream of smaller tasks would delay it forever
        else:
            misses += 1


def choose(entry: PoolEntry, job: JobEntry, task: Task, free: Free) -> tuple[str, ...]:
    """The nodes for one task, or none. A multi-instance task gets idle nodes; another task gets the node of its
    affinity, otherwise the emptiest (spread) or fullest (pack) with room."""
    takes = _taker(entry, job, task, free)
    if task.gang:
        idle = [node for node in free.fitting(1, pack=False) if not entry.running[node] and takes(node)]
        return tuple(idle[: task.gang]) if len(idle) >= task.gang else ()
    if free.slots.get(task.affinity, 0) >= task.slots and takes(task.affinity):
        return (task.affinity,)
    pack = entry.record.spec["taskSchedulingPolicy"]["nodeFillType"] == "Pack"
    return next(((node,) for node in free.fitting(task.slots, pack=pack) if takes(node)), ())


def _taker(entry: PoolEntry, job: JobEntry, task: Task, free: Free) -> Callable[[str], bool]:
    """Whether a node with room may run a task."""
    dedicated = task.manager and not job.record.spec.get("jobManagerTask", {}).get("allowLowPriorityNode", True)
    if not (job.nodes or task.exclusive or dedicated):
        return lambda node: True

    def takes(node: str) -> bool:
        if dedicated and not entry.nodes[node].dedicated:
            return False
        if task.exclusive and (entry.running[node] or node in free.used):
            return False
        return not job_preparation.barred(job, entry.nodes[node])

    return takes


def _could_have(entry: PoolEntry, job: JobEntry, task: Task, free: Free) -> bool:
    """Whether the pool has enough nodes for a gang, idle or not. A job manager may wait for it: its node is out."""
    takes = _taker(entry, job, task, free)
    manager_nodes = {node for node in free.slots if any(running.manager for running in entry.running[node].values())}
    return sum(takes(node) for node in free.slots if node not in manager_nodes) >= task.gang


# Who gives way -------------------------------------------------------------------------------------------------------


def _claims(entry: PoolEntry, job: JobEntry, yielding: list[JobEntry], free: Free) -> Iterator[Effect]:
    """Preempt tasks of lower-priority jobs for a waiting job. The slots that become free are reserved for it; otherwise
    the lower-priority job would get them back."""
    lower = {other.record.seq: other for other in yielding if _priority(other) < _priority(job)}
    if not lower:
        return
    # How many more of its tasks may run
    room, most = LOOK_AHEAD, job.record.spec.get("maxParallelTasks", -1)
    if most >= 0:
        room = most - len(job.running) - sum(seq in free.given for seq in job.ready)
    for seq in tuple(islice(job.ready, len(free.given) + LOOK_AHEAD)):
        if seq in free.given:
            continue
        task = job.tasks.at(seq)
        if never_fits(entry, task) or unfit(entry, job, task):
            continue
        offers = _offers(entry, job, task, lower, free)
        if room <= 0 or offers is None:
            return
        room -= 1
        for node, victims in offers.items():
            free.claim(task, node, victims)
            yield from (Preempt(victim, victim.run) for victim in victims)


def _priority(job: JobEntry) -> int:
    return int(job.record.spec.get("priority", 0))


def _offers(
    entry: PoolEntry, job: JobEntry, task: Task, lower: dict[int, JobEntry], free: Free
) -> dict[str, list[Task]] | None:
    """The nodes on which a task can start, each with the tasks to requeue there; None if even that is not enough."""
    takes, count = _taker(entry, job, task, free), task.gang or 1
    offers = {
        node: victims
        for node in free.slots
        if takes(node) and (victims := _victims(entry, node, task.slots, lower, free)) is not None
    }
    nodes = sorted(offers, key=lambda node: len(offers[node]))[:count]
    return {node: offers[node] for node in nodes} if len(nodes) == count else None


def _victims(entry: PoolEntry, node: str, slots: int, lower: dict[int, JobEntry], free: Free) -> list[Task] | None:
    """The tasks of a node to requeue for so many slots: lowest priority first, then latest start."""
    missing = slots - free.slots[node] - free.coming(entry, node)
    if missing <= 0:
        return []
    candidates = [
        task
        for task in entry.running[node].values()
        if task.job in lower and not task.verdict and not task.manager and task.seq not in free.leaving
    ]
    candidates.sort(key=lambda task: (_priority(lower[task.job]), -task.start))
    for count, task in enumerate(candidates, 1):
        missing -= task.slots
        if missing <= 0:
            return candidates[:count]
    return None


def never_fits(entry: PoolEntry, task: Task) -> str:
    """Why a task can never start on this pool; the service leaves it active without a message."""
    pool, spec = entry.record, entry.record.spec
    if task.slots > spec["taskSlotsPerNode"]:
        return f"it needs {task.slots} slots, and a node of pool {pool.id} has {spec['taskSlotsPerNode']}"
    if not task.gang:
        return ""
    if not spec["enableInterNodeCommunication"]:
        return f"a multi-instance task needs a pool with enableInterNodeCommunication, and pool {pool.id} has none"
    if spec["taskSlotsPerNode"] > 1:
        return (
            f"a multi-instance task needs a pool with taskSlotsPerNode 1,"
            f" and pool {pool.id} has {spec['taskSlotsPerNode']}"
        )
    target = pool.target_dedicated + pool.target_spot
    if task.gang > target:
        return f"it needs {task.gang} nodes at once, and pool {pool.id} is to have {target}"
    return ""


def _without_package(world: World, job: JobEntry, task: Task) -> Refuse | None:
    """Why a task fails before it is processed: an application without a default version. The code is from memory."""
    if b'"applicationPackageReferences"' not in task.spec:
        return None
    references = task_document(task)["applicationPackageReferences"]
    if not (name := applications.without_default(world, references)):
        return None
    message = f"The application {name} has no default version, and the task names none."
    return Refuse(job.key, task.id.lower(), "ApplicationPackageError", message)


def unfit(entry: PoolEntry, job: JobEntry, task: Task) -> Refuse | None:
    """Why a task would fail on a node: its user is missing, or only one of task and pool uses containers."""
    # Few tasks name an account, so few are decoded.
    identity = task_document(task).get("userIdentity", {}) if b'"username"' in task.spec else {}
    accounts = (account["name"] for account in entry.record.spec.get("userAccounts", []))
    if (user := identity.get("username")) and user not in accounts:
        message = f"The command could not be launched: the pool has no user account {user}."
        return Refuse(job.key, task.id.lower(), "CommandLaunchFailed", message)
    wants = "containerConfiguration" in entry.record.spec["virtualMachineConfiguration"]
    if task.container == wants:
        return None
    code, message = (
        # recorded: the container tests of azure-sdk-for-net
        ("ContainerPoolNotSupported", "The task has container settings, but its pool has no container configuration.")
        if task.container
        else ("ContainerInvalidSettings", "The task has no container settings, but its pool has some.")
    )
    return Refuse(job.key, task.id.lower(), code, message)
