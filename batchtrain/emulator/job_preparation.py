"""Job preparation and release tasks; pure.

A node runs the preparation task before its first task of the job, and the release task after the last. A task waits in
state `preparing` until the preparation of its node has ended. Release tasks run on all these nodes when the job ends,
before the job is `completed` or deleted.
"""

from __future__ import annotations

from collections.abc import Iterator

from batchtrain.emulator import endings, states, wire
from batchtrain.emulator.indexes import JobEntry
from batchtrain.emulator.interface import Exit
from batchtrain.emulator.records import Document, JobNode, Node, NodeRun, Task
from batchtrain.emulator.world import Deadline, World

PREPARATION, RELEASE = "preparation", "release"
SPECS = {PREPARATION: "jobPreparationTask", RELEASE: "jobReleaseTask"}
UP = ("idle", "running", "offline")
"""Node states in which the release task can run."""
COMING = ("creating", "starting", "waitingforstarttask", "unknown", "rebooting", "reimaging")
"""Node states that lead to one of those, so the release task waits."""


def spec_of(entry: JobEntry, kind: str) -> Document | None:
    """The job's preparation or release task as the client gave it."""
    spec: Document | None = entry.record.spec.get(SPECS[kind])
    return spec


def run_of(job_node: JobNode, kind: str) -> NodeRun:
    """The preparation or release task of one node; a release task must have been started."""
    run = job_node.preparation if kind == PREPARATION else job_node.release
    if run is None:
        raise LookupError(f"nothing of {kind} on node {job_node.id}")
    return run


def runs_of(job_node: JobNode) -> Iterator[tuple[str, NodeRun]]:
    yield PREPARATION, job_node.preparation
    if job_node.release is not None:
        yield RELEASE, job_node.release


# Before a task -------------------------------------------------------------------------------------------------------


def prepared(entry: JobEntry, node: Node) -> bool:
    """Whether a task of the job may start on a node now."""
    if (spec := spec_of(entry, PREPARATION)) is None:
        return True
    job_node = entry.nodes.get(node.id)
    if job_node is None or not _passed(entry, job_node.preparation):
        return False
    # It runs again after a reboot; a failed one always does.
    again = spec.get("rerunOnNodeRebootAfterSuccess", True) or job_node.preparation.failure is not None
    return job_node.preparation.boot == node.boots or not again


def barred(entry: JobEntry, node: Node) -> bool:
    """Whether the preparation failed on a node since its last boot. No task of the job runs there."""
    job_node = entry.nodes.get(node.id)
    if job_node is None:
        return False
    run = job_node.preparation
    return run.phase == "ended" and run.boot == node.boots and not _passed(entry, run)


def _passed(entry: JobEntry, run: NodeRun) -> bool:
    spec = spec_of(entry, PREPARATION) or {}
    return run.phase == "ended" and (run.failure is None or not spec.get("waitForSuccess", True))


def request(world: World, entry: JobEntry, node: Node, now: int) -> None:
    """A task waits on a node for its preparation, which becomes due unless it is running."""
    job_node = entry.nodes.get(node.id)
    if job_node is None:
        job_node = JobNode(
            id=node.id,
            seq=world.new_seq(),
            state="",
            state_time=now,
            created=now,
            job=entry.record.seq,
            pool=world.pool_of_node[node.id].record.id,
            preparation=NodeRun(),
        )
        world.add_job_node(entry, job_node)
    elif job_node.preparation.phase in ("ended", "lost"):
        _again(job_node.preparation)
        job_node.preparation.retries = job_node.preparation.last_retry = 0
        world.save_job_node(job_node)


def _again(run: NodeRun) -> None:
    run.phase = states.after(states.NODE_RUN, run.phase, "again")
    run.start = run.end = 0
    run.exit_code = run.failure = run.container = None


# After the last task -------------------------------------------------------------------------------------------------


def next_step(world: World, entry: JobEntry, job_node: JobNode) -> str:
    """The next step of a node for an ending job: `stop` the preparation, `wait`, `start` the release, `done`."""
    before, after = job_node.preparation, job_node.release
    if before.phase in ("due", "running"):
        return "stop"
    if before.phase in ("exited", "ending"):
        return "wait"
    if spec_of(entry, RELEASE) is None or not before.start:
        return "done"
    if after is not None and after.phase != "lost":
        return "done" if after.phase == "ended" else "wait"
    node = world.pool_of_node[job_node.id].nodes[job_node.id]
    return "start" if node.state in UP else "wait" if node.state in COMING else "done"


def release(world: World, entry: JobEntry, now: int) -> None:
    """Take the next step on every node of an ending job."""
    for job_node in entry.nodes.values():
        step = next_step(world, entry, job_node)
        if step == "stop":
            _stop(job_node.preparation, now)
        elif step == "start" and job_node.release is None:
            job_node.release = NodeRun()
        elif step == "start":
            _again(run_of(job_node, RELEASE))
        else:
            continue
        world.save_job_node(job_node)


def _stop(run: NodeRun, now: int) -> None:
    if run.phase == "due":
        run.phase = states.after(states.NODE_RUN, run.phase, "lost")
        return
    run.phase = states.after(states.NODE_RUN, run.phase, "exit")
    run.end, run.failure = now, endings.task_ended()


# Runs begin and end --------------------------------------------------------------------------------------------------


def begin(world: World, job_node: JobNode, kind: str, now: int) -> None:
    """The command is about to start."""
    entry, run = world.job_of[job_node.job], run_of(job_node, kind)
    run.phase = states.after(states.NODE_RUN, run.phase, "run")
    run.run += 1
    run.boot = world.pool_of_node[job_node.id].nodes[job_node.id].boots
    run.start = now
    spec = spec_of(entry, kind) or {}
    wall = spec.get("maxWallClockTime") or spec.get("constraints", {}).get("maxWallClockTime", wire.INFINITE)
    if limit := wire.limit(wall):
        world.add_deadline(Deadline(now + limit, job_node.seq, "noderun", job_node.id, kind, run.run))
    world.save_job_node(job_node)


def time_up(world: World, deadline: Deadline, now: int) -> None:
    """A preparation or release task exceeded its wall clock time: it is ended as failed."""
    for job_node in world.jobs_of_node.get(deadline.key, {}).values():
        if job_node.seq == deadline.seq:
            run = run_of(job_node, deadline.task)
            if (run.run, run.phase) == (deadline.run, "running"):
                _stop(run, now)
                world.save_job_node(job_node)
            return


def _current(world: World, job_node: JobNode, kind: str, run_number: int, phase: str) -> NodeRun | None:
    """The run of a report; None unless it belongs to the current attempt, node and job."""
    run = run_of(job_node, kind)
    current = world.jobs_of_node.get(job_node.id, {}).get(job_node.job) is job_node
    return run if current and (run.run, run.phase) == (run_number, phase) else None


def ended(world: World, job_node: JobNode, kind: str, run_number: int, outcome: Exit, now: int) -> None:
    """Records that the command of a run has ended."""
    if (run := _current(world, job_node, kind, run_number, "running")) is None:
        return
    run.phase = states.after(states.NODE_RUN, run.phase, "exit")
    run.end, run.exit_code, run.failure = now, outcome.code, endings.failure_of(outcome)
    run.container = endings.container_of(outcome)
    world.save_job_node(job_node)


def end_scope(world: World, job_node: JobNode, kind: str, run_number: int) -> None:
    """Its background processes are being ended."""
    if run := _current(world, job_node, kind, run_number, "exited"):
        run.phase = states.after(states.NODE_RUN, run.phase, "end")
        world.save_job_node(job_node)


def scope_ended(world: World, job_node: JobNode, kind: str, run_number: int, now: int) -> None:
    """All its processes on the node have ended."""
    if (run := _current(world, job_node, kind, run_number, "ending")) is None:
        return
    entry = world.job_of[job_node.job]
    run.phase = states.after(states.NODE_RUN, run.phase, "ended")
    if kind == PREPARATION:
        _conclude(world, entry, job_node, now)
    world.save_job_node(job_node)
    world.touch_job(entry.key)


def _conclude(world: World, entry: JobEntry, job_node: JobNode, now: int) -> None:
    """Retry it; otherwise start or requeue the tasks that wait for it."""
    run = job_node.preparation
    most = (spec_of(entry, PREPARATION) or {}).get("constraints", {}).get("maxTaskRetryCount", 0)
    failed = run.failure is not None and run.exit_code is not None
    if failed and (most < 0 or run.retries < most) and entry.record.state not in states.JOB_OVER:
        _again(run)
        run.retries += 1
        run.last_retry = now
        return
    for task, number in waiting(world, entry, job_node.id):
        if _passed(entry, run):
            _admit(world, entry, task, number, now)
        else:
            endings.condemn(world, task, "unprepared", now)


def waiting(world: World, entry: JobEntry, node_id: str) -> Iterator[tuple[Task, int]]:
    """The job's tasks that wait on a node for its preparation, each with its instance there."""
    for task in tuple(world.pool_of_node[node_id].running[node_id].values()):
        for number, instance in enumerate(task.instances):
            if (instance.node, instance.phase, task.job) == (node_id, "preparing", entry.record.seq):
                yield task, number


def _admit(world: World, entry: JobEntry, task: Task, number: int, now: int) -> None:
    instance = task.instances[number]
    instance.phase = states.after(states.INSTANCE, instance.phase, "prepared")
    instance.phase_time = now
    if (
        entry.tasks.has(task)
        and task.state == "preparing"
        and all(item.phase != "preparing" for item in task.instances)
    ):
        world.set_task_state(entry, task, "prepared", now)
        started(world, entry, task, now)
    world.save_task(task)


def started(world: World, entry: JobEntry, task: Task, now: int) -> None:
    """A task starts running, and with it its wall clock time."""
    task.start = now
    if task.wall_clock:
        world.add_deadline(Deadline(now + task.wall_clock, task.seq, "task", entry.key, task.id.lower(), task.run))


# Nodes die -----------------------------------------------------------------------------------------------------------


def node_lost(world: World, node_id: str) -> None:
    """A node died or is shut down: its preparation and release tasks are lost, and run again when they are needed."""
    for job_node in world.jobs_of_node.get(node_id, {}).values():
        for kind, _ in runs_of(job_node):
            lost(world, job_node, kind)


def lost(world: World, job_node: JobNode, kind: str, run_number: int | None = None, now: int = 0) -> None:
    """One of them was lost with its node."""
    run = run_of(job_node, kind)
    if run_number not in (None, run.run) or run.phase in ("ended", "lost"):
        return
    run.phase = states.after(states.NODE_RUN, run.phase, "lost")
    world.save_job_node(job_node)
    if entry := world.job_of.get(job_node.job):
        world.touch_job(entry.key)
