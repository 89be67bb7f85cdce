"""Records the start of each effect and the reports of runs; pure. The reports of nodes are in `node_reports`.

A report names its run. A late report, of a run that was given up, changes nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from batchtrain.emulator import autoscale, endings, job_preparation, quotas, scheduler, schedules, states, users, wire
from batchtrain.emulator.documents import job_directory
from batchtrain.emulator.indexes import JobEntry, PoolEntry
from batchtrain.emulator.interface import UPLOAD_FAILED, Exit
from batchtrain.emulator.launching import end_pool
from batchtrain.emulator.nodes import leave, retained_until
from batchtrain.emulator.records import Instance, Node, Task
from batchtrain.emulator.world import USABLE, Deadline, World, job_wall_clock, resize_end

# Effects begin -------------------------------------------------------------------------------------------------------


def begin(world: World, effect: scheduler.Effect, now: int) -> None:
    """Record that an effect has started, or is done if it needs no machine."""
    _BEGIN[type(effect)](world, effect, now)


def _create_nodes(world: World, effect: scheduler.CreateNodes, now: int) -> None:
    entry = world.pools[effect.pool]
    path = f"pools/{entry.record.id}"
    if struck := world.injections.strike(("allocation-refused",), path):
        code = struck.code if struck.code != "ServerBusy" else "AllocationFailed"
        _fail_resize(world, scheduler.FailResize(effect.pool, code, NOT_ALLOCATED), now)
        return
    room = quotas.room(world, entry)  # another pool may have grown since the decision
    dedicated, spot = quotas.allowed(room, effect.dedicated, effect.spot)
    world.touch_pool(effect.pool)
    partly = world.injections.strike(("allocation-partial",), path)
    if partly:
        dedicated, spot = int(dedicated * partly.fraction), int(spot * partly.fraction)
    slow = world.injections.strike(("allocation-slow",), path)
    delay = slow.seconds if slow else world.pace.allocation
    _make_nodes(world, entry, (*(True,) * dedicated, *(False,) * spot), now, delay)
    if partly:
        message = f"{NOT_ALLOCATED} as the resize timeout was reached"
        _fail_resize(world, scheduler.FailResize(effect.pool, "AllocationTimedOut", message), now)


NOT_ALLOCATED = "Desired number of dedicated nodes could not be allocated"


def _make_nodes(world: World, entry: PoolEntry, kinds: Iterable[bool], now: int, delay: float) -> None:
    """Add nodes, dedicated where a kind is true. They boot at once, or after `delay` seconds."""
    not_before = now + int(delay * wire.SECOND) if delay else 0
    if not_before:
        world.add_deadline(Deadline(not_before, entry.record.seq, "boot", entry.key))
    used_numbers = {node.number for node in entry.nodes.values()}
    numbers = (number for number in itertools.count() if number not in used_numbers)
    for dedicated, number, address in zip(kinds, numbers, world.free_addresses(), strict=False):
        seq = world.new_seq()
        node_id = world.new_node_id(seq, dedicated=dedicated)
        node = Node(
            id=node_id,
            seq=seq,
            state="creating",
            state_time=now,
            created=now,
            pool=entry.key,
            address=address,
            hostname=f"{node_id[:16].replace('_', '-')}{node_id[-2:].replace('_', '-')}",
            dedicated=dedicated,
            not_before=not_before,
            number=number,
        )
        world.add_node(entry, node)


def _drop_nodes(world: World, effect: scheduler.DropNodes, now: int) -> None:
    entry = world.pools[effect.pool]
    for node_id in effect.nodes:
        leave(world, entry, entry.nodes[node_id], entry.record.deallocation, now)


def _settle_pool(world: World, effect: scheduler.SettlePool, now: int) -> None:
    entry = world.pools[effect.pool]
    if entry.record.allocation == "stopping":
        entry.record.target_dedicated = entry.current(dedicated=True)
        entry.record.target_spot = entry.current(dedicated=False)
    entry.record.allocation = states.after(states.ALLOCATION, entry.record.allocation, "settle")
    entry.record.allocation_time = now
    world.save_pool(entry)


def _fail_resize(world: World, effect: scheduler.FailResize, now: int) -> None:
    """Stop resizing: the pool keeps what it has."""
    entry = world.pools[effect.pool]
    entry.record.resize_errors = [{"code": effect.code, "message": effect.message}]
    entry.record.allocation, entry.record.allocation_time = "steady", now
    world.save_pool(entry)


def _boot_node(world: World, effect: scheduler.BootNode, now: int) -> None:
    node = world.pools[effect.pool].nodes[effect.node]
    world.move(node, states.NODE, "boot", now)
    node.phase = "booting"
    node.boots += 1
    world.save_node(node)


def _run_start_task(world: World, effect: scheduler.RunStartTask, now: int) -> None:
    node = world.pools[effect.pool].nodes[effect.node]
    node.phase = "starting"
    retries = node.start["retryCount"] + 1 if node.start and node.start_boot == node.boots else 0
    node.start_boot = node.boots
    node.start = {"state": "running", "startTime": wire.timestamp(now), "retryCount": retries}
    if retries:
        node.start["lastRetryTime"] = wire.timestamp(now)
    world.save_node(node)


def _shutdown_node(world: World, effect: scheduler.ShutdownNode, now: int) -> None:
    job_preparation.node_lost(world, effect.node)
    set_phase(world, effect.pool, effect.node, "stopping")


def _wipe_node(world: World, effect: scheduler.WipeNode, now: int) -> None:
    """The node's disk is lost: files of its tasks, and its users."""
    node = world.pools[effect.pool].nodes[effect.node]
    node.users, node.recent = {}, []
    world.forget_preparations(node.id)
    set_phase(world, effect.pool, effect.node, "stopping")


def _hold_node(world: World, effect: scheduler.HoldNode, now: int) -> None:
    """Remove a node whose retained files are no longer needed."""
    node = world.pools[effect.pool].nodes[effect.node]
    until = retained_until(world, node)
    node.hold = "holding" if until > now else ""
    if node.hold:
        world.add_deadline(Deadline(until, node.seq, "hold", node.id))
    world.save_node(node)


def set_phase(world: World, pool: str, node_id: str, phase: str) -> None:
    node = world.pools[pool].nodes[node_id]
    node.phase = phase
    world.save_node(node)


def _assign(world: World, effect: scheduler.Assign, now: int) -> None:
    entry = world.jobs[effect.job]
    task = entry.tasks[effect.task]
    # The job or node may have ended by an earlier effect
    usable = all(world.pool_of_node[node_id].nodes[node_id].state in USABLE for node_id in effect.nodes)
    if not (usable and entry.record.state == "active" and task.state == "active"):
        world.touch_job(entry.key)
        return
    entry.ready.pop(task.seq, None)
    world.hints.pop(task.seq, None)
    task.run += 1
    task.start = task.end = 0
    task.exit_code = task.failure = None
    task.instances = [_instance(world, entry, node_id, now) for node_id in effect.nodes]
    if any(instance.phase == "preparing" for instance in task.instances):
        world.set_task_state(entry, task, "prepare", now)
    else:
        world.set_task_state(entry, task, "assign", now)
        job_preparation.started(world, entry, task, now)
    entry.running[task.seq] = task
    for node_id in effect.nodes:
        pool = world.pool_of_node[node_id]
        task.node_pool = pool.record.id
        pool.running[node_id][task.seq] = task
        node = pool.nodes[node_id]
        if node.state == "idle":
            world.move(node, states.NODE, "busy", now)
        world.save_node(node)
    world.save_task(task)


def _instance(world: World, entry: JobEntry, node_id: str, now: int) -> Instance:
    """Start one node's part; it waits if the job is not prepared there yet."""
    node = world.pool_of_node[node_id].nodes[node_id]
    if job_preparation.prepared(entry, node):
        return Instance(node=node_id, phase_time=now)
    job_preparation.request(world, entry, node, now)
    return Instance(node=node_id, phase="preparing", phase_time=now)


def _refuse(world: World, effect: scheduler.Refuse, now: int) -> None:
    entry = world.jobs[effect.job]
    failure = endings.failed_to_run(effect.code, effect.message)
    endings.complete(world, entry, entry.tasks[effect.task], now, failure=failure)


def _hint(world: World, effect: scheduler.Hint, now: int) -> None:
    world.hints[world.jobs[effect.job].tasks[effect.task].seq] = effect.reason


def _run_coordination(world: World, effect: scheduler.RunCoordination, now: int) -> None:
    _step(world, effect.task, effect.instance, "coordinate", now)
    effect.task.instances[effect.instance].start = now


def _run_application(world: World, effect: scheduler.RunApplication, now: int) -> None:
    """From here on, the subtasks run no command of their own."""
    _step(world, effect.task, effect.instance, "run", now)
    instance = effect.task.instances[effect.instance]
    instance.start = instance.start or now


def _end_scope(world: World, effect: scheduler.EndScope, now: int) -> None:
    if effect.run == effect.task.run and effect.task.instances:
        _step(world, effect.task, effect.instance, "end", now)
        conclude_if_over(world, effect.task, now)


def _preempt(world: World, effect: scheduler.Preempt, now: int) -> None:
    if effect.task.run == effect.run:
        endings.condemn(world, effect.task, "requeue", now)


def _settle_schedule(world: World, effect: scheduler.SettleSchedule, now: int) -> None:
    entry = world.schedules[effect.schedule]
    world.touch_pool(entry.record.auto_pool.lower())
    schedules.settle(world, entry, now)


def _job_time_up(world: World, deadline: Deadline, now: int) -> None:
    entry = world.jobs.get(deadline.key)
    if entry is None or entry.record.seq != deadline.seq:
        return
    wall = job_wall_clock(entry.record)
    if wall and entry.record.created + wall <= now:
        endings.terminate(world, entry, "MaxWallClockTimeExpiry", now)


def _task_time_up(world: World, deadline: Deadline, now: int) -> None:
    entry = world.jobs.get(deadline.key)
    task = entry.tasks.get(deadline.task) if entry else None
    if task is None or (task.seq, task.run) != (deadline.seq, deadline.run):
        return
    if task.wall_clock and task.start + task.wall_clock <= now:  # the limit may have changed
        message = "The task exceeded its maximum wall clock time and was ended."
        endings.condemn(world, task, "terminate", now, endings.task_ended(message))


def _resize_time_up(world: World, deadline: Deadline, now: int) -> None:
    """A resize exceeded its timeout: nodes that are not allocated yet are given up."""
    entry = world.pools.get(deadline.key)
    if entry is None or entry.record.seq != deadline.seq or entry.record.state != "active":
        return
    if entry.record.allocation != "resizing" or resize_end(entry.record) > now:
        return
    for node in tuple(entry.nodes.values()):
        if node.state == "creating" and node.phase == "down":
            leave(world, entry, node, "requeue", now)
    message = f"{NOT_ALLOCATED} as the resize timeout was reached"
    _fail_resize(world, scheduler.FailResize(entry.key, "AllocationTimedOut", message), now)


def _hold_over(world: World, deadline: Deadline, now: int) -> None:
    if (node := world.find_node(deadline.key)) and node.hold == "holding":
        node.hold = "retaineddata"  # the retention may have changed: check again
        world.save_node(node)


def _may_boot(world: World, deadline: Deadline, now: int) -> None:
    entry = world.pools.get(deadline.key)
    for node in tuple(entry.nodes.values()) if entry else ():
        if 0 < node.not_before <= now:
            node.not_before = 0
            world.save_node(node)


_TIME_UP: dict[str, Callable[[World, Deadline, int], None]] = {
    "job": _job_time_up,
    "task": _task_time_up,
    "again": endings.rested,
    "files": endings.retained,
    "noderun": job_preparation.time_up,
    "schedule": schedules.time_up,
    "boot": _may_boot,
    "resize": _resize_time_up,
    "hold": _hold_over,
    "autoscale": autoscale.time_up,
    "user": users.time_up,
}


def _settle_job(world: World, effect: scheduler.SettleJob, now: int) -> None:
    entry = world.jobs[effect.job]
    job = entry.record
    world.touch_pool(job.auto_pool.lower())
    if job.state == "deleting":
        directory = job_directory(job) if job.schedule else f"workitems/{job.id}"
        for pool in world.pools.values():
            world.rubbish += [(node.root, directory) for node in pool.nodes.values() if node.root]
        end_pool(world, entry, now)
        world.drop_job(entry)
        return
    previous = job.previous, job.previous_time
    world.move(job, states.JOB, "settle", now)
    # The service hides the transition: after `disabled` the previous state is `active`.
    job.previous, job.previous_time = previous
    if job.state == "completed":
        job.ended = now
        end_pool(world, entry, now)
        if schedule := world.schedule_of.get(job.schedule):
            world.touch_schedule(schedule.key)
    world.save_job(entry)


_BEGIN: dict[type, Callable[[World, Any, int], None]] = {
    scheduler.CreateNodes: _create_nodes, scheduler.DropNodes: _drop_nodes, scheduler.FailResize: _fail_resize,
    scheduler.SettlePool: _settle_pool, scheduler.BootNode: _boot_node, scheduler.RunStartTask: _run_start_task,
    scheduler.ShutdownNode: _shutdown_node, scheduler.WipeNode: _wipe_node, scheduler.HoldNode: _hold_node,
    scheduler.Assign: _assign, scheduler.Refuse: _refuse, scheduler.Hint: _hint,
    scheduler.RunCoordination: _run_coordination, scheduler.SettleJob: _settle_job,
    scheduler.RunApplication: _run_application, scheduler.EndScope: _end_scope, scheduler.Preempt: _preempt,
    scheduler.SettleSchedule: _settle_schedule,
    scheduler.ForgetPool: lambda world, effect, now: world.drop_pool(world.pools[effect.pool]),
    scheduler.RemoveNode: lambda world, effect, now: set_phase(world, effect.pool, effect.node, "removing"),
    scheduler.RunOnNode: lambda world, effect, now: job_preparation.begin(world, effect.job_node, effect.kind, now),
    scheduler.EndOnNode: lambda world, effect, now: job_preparation.end_scope(world, *effect),
    scheduler.ReleaseJob: lambda world, effect, now: job_preparation.release(world, world.jobs[effect.job], now),
    scheduler.MakeJob: lambda world, effect, now: schedules.make_job(world, world.schedules[effect.schedule], now),
    scheduler.EndSchedule: lambda world, effect, now: schedules.end(world, world.schedules[effect.schedule], now),
    scheduler.TimeUp: lambda world, effect, now: _TIME_UP[effect.deadline.what](world, effect.deadline, now),
    scheduler.EndJob: lambda world, effect, now: endings.terminate(world, world.jobs[effect.job], effect.reason, now),
}  # fmt: skip


# Runs report ---------------------------------------------------------------------------------------------------------


def coordination_ended(world: World, task: Task, run: int, number: int, outcome: Exit, now: int) -> None:
    """One instance's coordination command ended; any failure fails the whole task."""
    if is_stale(task, run, number, "coordinating"):
        return
    _step(world, task, number, "exit", now)
    instance = task.instances[number]
    instance.exit_code, instance.failure = outcome.code, endings.failure_of(outcome)
    instance.container = endings.container_of(outcome)
    if instance.failure is None:
        if number == 0:
            instance.exit_code = None
        return
    instance.end = now
    failure = instance.failure
    if number:
        failure = {**failure, "message": f"The coordination command of instance {number} failed: {failure['message']}"}
    _end_run(world, task, outcome.code if number == 0 else None, failure, outcome.code is not None, now)


def application_ended(world: World, task: Task, run: int, outcome: Exit, now: int) -> None:
    """The primary's command ended: its exit code is the task's, and the subtasks end with it."""
    if is_stale(task, run, 0, "running"):
        return
    _step(world, task, 0, "exit", now)
    primary = task.instances[0]
    primary.exit_code, primary.failure, primary.end = outcome.code, endings.failure_of(outcome), now
    primary.container = endings.container_of(outcome)
    _end_run(world, task, outcome.code, primary.failure, outcome.code is not None, now)


def _end_run(world: World, task: Task, code: int | None, failure: dict[str, Any] | None, ran: bool, now: int) -> None:
    """The result of a command for the task. Only a command that ran and failed is retried."""
    if task.verdict:
        return
    if failure is not None and failure["code"].startswith(UPLOAD_FAILED):
        ran = False  # its output files could not be uploaded: a retry does not help
    retry = failure is not None and ran and (task.max_retries < 0 or task.retries < task.max_retries)
    task.verdict = "retry" if retry else "exit"
    task.exit_code, task.failure, task.end = code, failure, now
    world.save_task(task)


def scope_ended(world: World, task: Task, run: int, number: int, now: int) -> None:
    """One instance has ended on its node."""
    if is_stale(task, run, number, "ending"):
        return
    _step(world, task, number, "ended", now)
    conclude_if_over(world, task, now)


def run_lost(world: World, task: Task, run: int, number: int, now: int) -> None:
    """The node died during a run."""
    if run != task.run or not task.instances or task.instances[number].phase == "ended":
        return
    _step(world, task, number, "lost", now)
    endings.condemn(world, task, "requeue", now)
    conclude_if_over(world, task, now)


def _step(world: World, task: Task, number: int, event: str, now: int) -> None:
    instance = task.instances[number]
    instance.phase = states.after(states.INSTANCE, instance.phase, event)
    instance.phase_time = now
    if instance.phase == "ended":
        instance.end = instance.end or now
    world.save_task(task)


def gone(instance: Instance, now: int) -> None:
    """The node of an instance died."""
    if instance.phase != "ended":
        instance.phase, instance.phase_time = "ended", now
        instance.end = instance.end or now


def is_stale(task: Task, run: int, number: int, phase: str) -> bool:
    """Whether this run of an instance is not in this phase any more."""
    return run != task.run or len(task.instances) <= number or task.instances[number].phase != phase


def conclude_if_over(world: World, task: Task, now: int) -> None:
    entry = world.job_of.get(task.job)
    if entry is None or task.seq not in entry.running:
        return
    if task.verdict and all(instance.phase == "ended" for instance in task.instances):
        endings.conclude(world, entry, task, now)
