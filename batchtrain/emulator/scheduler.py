"""What is due: looks at the records that changed and names what has to happen next; pure.

Nothing here changes the world. Each effect is first written down (`reports.begin`) and stored, then the machine acts
on those that need one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from batchtrain.emulator.records import Node, Task
from batchtrain.emulator.world import Deadline, JobBook, PoolBook, Touched, World


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


class BootNode(NamedTuple):
    pool: str
    node: str


class RunStartTask(NamedTuple):
    pool: str
    node: str


class ShutdownNode(NamedTuple):
    """Before a reboot."""

    pool: str
    node: str


class RemoveNode(NamedTuple):
    pool: str
    node: str


class Assign(NamedTuple):
    """A task gets its nodes, the primary's first."""

    job: str
    task: str
    nodes: tuple[str, ...]


class Refuse(NamedTuple):
    """A task that fails before it runs."""

    job: str
    task: str
    code: str
    message: str


class Hint(NamedTuple):
    """Why a task stays active, which the service never says."""

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


class TimeUp(NamedTuple):
    deadline: Deadline


class SettleJob(NamedTuple):
    job: str


class EndJob(NamedTuple):
    job: str
    reason: str


Effect = (
    CreateNodes
    | DropNodes
    | FailResize
    | SettlePool
    | ForgetPool
    | BootNode
    | RunStartTask
    | ShutdownNode
    | RemoveNode
    | Assign
    | Refuse
    | Hint
    | RunCoordination
    | RunApplication
    | EndScope
    | TimeUp
    | SettleJob
    | EndJob
)


def due(world: World, touched: Touched) -> tuple[Effect, ...]:
    """What follows from a change; applying it may make more due."""
    return (
        *(TimeUp(deadline) for deadline in touched.expired),
        *(effect for task in touched.tasks for effect in task_due(task)),
        *(effect for key in touched.jobs if key in world.jobs for effect in job_due(world.jobs[key])),
        *(effect for key in touched.pools if key in world.pools for effect in pool_due(world, world.pools[key])),
    )


# Tasks ---------------------------------------------------------------------------------------------------------------


def task_due(task: Task) -> Iterator[Effect]:
    """The commands to run or to end on the nodes of a task's run."""
    if task.verdict:
        yield from (
            EndScope(task, task.run, number)
            for number, instance in enumerate(task.instances)
            if instance.phase not in ("ending", "ended")
        )
        return
    if not task.instances or task.instances[0].phase == "ended":
        return
    ready = "coordinated" if task.gang else "assigned"
    if all(instance.phase == ready for instance in task.instances):
        yield RunApplication(task, task.run)
        return
    if task.gang:
        yield from (
            RunCoordination(task, task.run, number)
            for number, instance in enumerate(task.instances)
            if instance.phase == "assigned"
        )


# Jobs ----------------------------------------------------------------------------------------------------------------


def job_due(book: JobBook) -> Iterator[Effect]:
    """A job in passage settles when nothing of it runs; a job that ends with its tasks ends."""
    job = book.record
    if (job.state in ("disabling", "terminating", "deleting") and not book.running) or job.state == "enabling":
        yield SettleJob(book.key)
    elif job.state == "active" and job.spec.get("onAllTasksComplete") == "terminatejob" and all_complete(book):
        yield EndJob(book.key, "AllTasksComplete")


def all_complete(book: JobBook) -> bool:
    """Whether no task of a job waits or runs (true of a job without tasks)."""
    return book.counts["active"] == 0 and book.counts["running"] == 0


# Pools ---------------------------------------------------------------------------------------------------------------


def pool_due(world: World, book: PoolBook) -> Iterator[Effect]:
    resizing = tuple(_resize_due(world, book))
    yield from resizing
    if any(isinstance(effect, DropNodes | ForgetPool) for effect in resizing):
        return  # what else is due depends on the nodes that stay
    for node in book.nodes.values():
        yield from node_due(book, node)
    if book.record.state == "active":
        yield from assignments(world, book)


def _resize_due(world: World, book: PoolBook) -> Iterator[Effect]:
    pool = book.record
    if pool.allocation == "steady":
        return
    if pool.state == "deleting" and not book.nodes:
        yield ForgetPool(book.key)
        return
    if pool.allocation == "stopping":
        yield SettlePool(book.key)
        return
    missing = {
        True: pool.target_dedicated - book.current(dedicated=True),
        False: pool.target_spot - book.current(dedicated=False),
    }
    if extra := _surplus(book, missing):
        yield DropNodes(book.key, extra)
    elif any(count > 0 for count in missing.values()):
        yield _grow(world, book, max(missing[True], 0), max(missing[False], 0))
    elif not any(node.state in ("creating", "leavingpool") for node in book.nodes.values()):
        yield SettlePool(book.key)


def _grow(world: World, book: PoolBook, dedicated: int, spot: int) -> Effect:
    """As many nodes as the quota allows."""
    room = world.node_quota - len(world.pool_of_node)
    if room <= 0:
        message = f"The specified account has reached its quota of {world.node_quota} nodes."
        return FailResize(book.key, "AccountCoreQuotaReached", message)
    dedicated = min(dedicated, room)
    return CreateNodes(book.key, dedicated, min(spot, room - dedicated))


def _surplus(book: PoolBook, missing: dict[bool, int]) -> tuple[str, ...]:
    """The nodes a smaller target gives up: idle ones first, then the youngest."""
    chosen: list[str] = []
    for dedicated, count in missing.items():
        staying = [n for n in book.nodes.values() if n.dedicated == dedicated and n.state != "leavingpool"]
        staying.sort(key=lambda node: (bool(book.running[node.id]), -node.seq))
        chosen += [node.id for node in staying[: max(-count, 0)]]
    return tuple(chosen)


def node_due(book: PoolBook, node: Node) -> Iterator[Effect]:
    """The next thing the machine must do for a node."""
    busy = bool(book.running[node.id])
    match node.state, node.phase:
        case ("creating" | "rebooting" | "unknown" | "preempted", "down") if not node.not_before:
            yield BootNode(book.key, node.id)
        case ("rebooting", "up" | "starting") if not busy:
            yield ShutdownNode(book.key, node.id)
        case ("waitingforstarttask", "up"):
            yield RunStartTask(book.key, node.id)
        case ("leavingpool", "down" | "up" | "starting") if not busy:
            yield RemoveNode(book.key, node.id)


# Who runs where ------------------------------------------------------------------------------------------------------

USABLE = ("idle", "running")
LOOK_AHEAD = 32
"""Tasks per job that are looked at for a reason why they can never start, when every slot is taken."""


def assignments(world: World, book: PoolBook) -> Iterator[Effect]:
    """Give waiting tasks the free slots: jobs by priority, tasks in order; a gang gets all its nodes at once."""
    free = free_slots(book)
    for job in world.jobs_on(book.key):
        if job.record.state == "active":
            yield from _assign_job(world, book, job, free)


def free_slots(book: PoolBook) -> dict[str, int]:
    """Free slots of each node that takes tasks."""
    slots = int(book.record.spec["taskSlotsPerNode"])
    return {
        node.id: slots - book.used(node.id) for node in book.nodes.values() if node.state in USABLE and node.scheduling
    }


def _assign_job(world: World, book: PoolBook, job: JobBook, free: dict[str, int]) -> Iterator[Effect]:
    room = job.record.spec.get("maxParallelTasks", -1)
    room = len(job.ready) if room < 0 else room - len(job.running)
    open_slots = sum(free.values())
    ending = _ids_still_ending(job)
    for looked, task in enumerate(job.ready.values()):
        if open_slots <= 0 and looked >= LOOK_AHEAD:
            return
        if refusal := unfit_for_containers(book, job, task):
            yield refusal
            continue
        if reason := never_fits(book, task):
            if world.hints.get(task.seq) != reason:
                yield Hint(job.key, task.id.lower(), reason)
            continue
        if task.id.lower() in ending:
            continue
        if room <= 0:
            return
        if open_slots > 0 and (nodes := choose(book, task, free)):
            for node in nodes:
                free[node] -= task.slots
            open_slots -= task.slots * len(nodes)
            room -= 1
            yield Assign(job.key, task.id.lower(), nodes)


def _ids_still_ending(job: JobBook) -> set[str]:
    """Deleted tasks whose runs are ending: one made anew under such an id would share their directory."""
    ids = ((task, task.id.lower()) for task in job.running.values())
    return {task_id for task, task_id in ids if job.tasks.get(task_id) is not task}


def choose(book: PoolBook, task: Task, free: dict[str, int]) -> tuple[str, ...]:
    """The nodes for one task, or none: `gang` idle ones, or the emptiest (spread) or fullest (pack) with room."""
    if task.gang:
        idle = [node for node, slots in free.items() if slots > 0 and not book.running[node]]
        return tuple(idle[: task.gang]) if len(idle) >= task.gang else ()
    fitting = [node for node, slots in free.items() if slots >= task.slots]
    if not fitting:
        return ()
    pack = book.record.spec["taskSchedulingPolicy"]["nodeFillType"] == "Pack"
    best = min(fitting, key=free.__getitem__) if pack else max(fitting, key=free.__getitem__)
    return (best,)


def never_fits(book: PoolBook, task: Task) -> str:
    """Why a task cannot start on this pool as it is; the service leaves it active without a word."""
    pool, spec = book.record, book.record.spec
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
    wanted = pool.target_dedicated + pool.target_spot
    if task.gang > wanted:
        return f"it needs {task.gang} nodes at once, and pool {pool.id} is to have {wanted}"
    return ""


def unfit_for_containers(book: PoolBook, job: JobBook, task: Task) -> Refuse | None:
    """Container settings must be on a task if, and only if, the pool runs containers."""
    wants = "containerConfiguration" in book.record.spec["virtualMachineConfiguration"]
    if task.container == wants:
        return None
    message = (
        "The task has container settings, but its pool has no container configuration."
        if task.container
        else "The task has no container settings, but its pool has a container configuration."
    )
    return Refuse(job.key, task.id.lower(), "ContainerInvalidSettings", message)
