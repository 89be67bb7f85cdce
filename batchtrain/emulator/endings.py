"""How a task's run and a job end: the decision, the end of the last process, and what follows; pure."""

from __future__ import annotations

from batchtrain.emulator import documents, lines, states, wire
from batchtrain.emulator.indexes import JobEntry
from batchtrain.emulator.interface import UPLOAD_FAILED, Exit
from batchtrain.emulator.records import Document, Task
from batchtrain.emulator.world import Deadline, World, dependency_key, task_document


def task_ended(message: str = "The task was ended by user request.") -> Document:
    """The failure of a task that was ended by the user or the service."""
    return {"category": "UserError", "code": "TaskEnded", "message": message, "details": []}


def failed_to_run(code: str, message: str, category: str = "UserError") -> Document:
    """The failure of a task whose command never ran, or could not be observed."""
    return {"category": category, "code": code, "message": message, "details": [{"name": "Message", "value": message}]}


def failure_of(outcome: Exit) -> Document | None:
    """The failureInfo of a run's end; None after success."""
    if outcome.failure is not None:
        return failed_to_run(outcome.failure, outcome.message, outcome.category)
    if outcome.code == 0:
        return None
    return {
        "category": "UserError",
        "code": "FailureExitCode",
        "message": "The task exited with an exit code representing a failure",
        "details": [
            {"name": "Message", "value": outcome.message or "The task process exited with an unexpected exit code"},
            {"name": "AdditionalErrorCode", "value": "FailureExitCode"},
        ],
    }


def container_of(outcome: Exit) -> Document | None:
    """The containerInfo of a run's end; None if it ran without a container."""
    return None if outcome.container is None else dict(outcome.container)


def condemn(world: World, task: Task, verdict: str, now: int, failure: Document | None = None) -> None:
    """Decide how the current run ends; its processes are still running. The first decision is final, except that a task
    to be run again can still be terminated."""
    overrules = verdict == "terminate" and task.verdict in ("requeue", "retry", "unprepared")
    if task.state not in states.UNDER_WAY or (task.verdict and not overrules):
        return
    task.verdict = verdict
    if verdict == "terminate":
        task.failure = failure or task_ended()
        task.end = now
    world.save_task(task)


def condemn_all(world: World, entry: JobEntry, verdict: str, now: int) -> None:
    """End every running task of a job."""
    for task in tuple(entry.running.values()):
        condemn(world, task, verdict, now)


def leaves_outputs(entry: JobEntry, task: Task) -> bool:
    """Whether output files are uploaded after a run was ended: not of deleted tasks, nor before the task runs again."""
    return task.verdict == "terminate" and entry.tasks.has(task) and entry.record.state != "deleting"


def conclude(world: World, entry: JobEntry, task: Task, now: int) -> None:
    """The run has left nothing on any node: free the nodes, then retry, requeue or complete the task."""
    release(world, entry, task, now)
    verdict, task.verdict = task.verdict, ""
    if not entry.tasks.has(task):  # it was deleted; after a forced end its job and directories may be, too
        if world.jobs.get(entry.key) is entry:
            discard_files(world, entry, task)
        elif not entry.running:
            world.job_of.pop(entry.record.seq, None)
    elif verdict == "unprepared":
        _again(world, entry, task, now, first=True)
    elif verdict == "requeue":
        _again(world, entry, task, now, first=True)
        task.requeues += 1
        task.last_requeue = now
    elif verdict == "retry":
        task.retries += 1
        task.last_retry = now
        _again(world, entry, task, now, first=False)
    else:
        complete(world, entry, task, now, failure=task.failure, exit_code=task.exit_code)
    world.save_task(task)
    world.touch_job(entry.key)


def _again(world: World, entry: JobEntry, task: Task, now: int, *, first: bool) -> None:
    world.set_task_state(entry, task, "return", now)
    forget_run(task)
    delay = 0 if first else _rest(task)
    if delay:
        world.add_deadline(Deadline(now + delay, task.seq, "again", entry.key, task.id.lower(), task.run))
    else:
        lines.line_up(entry, task, first=first)


AT_ONCE = 5
LONGEST_REST = 60 * wire.SECOND


def _rest(task: Task) -> int:
    """Ticks until a task with unlimited retries is queued again: at once for the first retries, then after 1, 2, 4 … up
    to 60 seconds. A command that always fails therefore does not keep a node busy forever."""
    if task.max_retries >= 0 or task.retries <= AT_ONCE:
        return 0
    return min(wire.SECOND << min(task.retries - AT_ONCE - 1, 10), LONGEST_REST)


def rested(world: World, deadline: Deadline, now: int) -> None:
    """Queue a task again after its delay, if its state has not changed."""
    entry = world.jobs.get(deadline.key)
    task = entry.tasks.get(deadline.task) if entry else None
    if entry is None or task is None or (task.seq, task.run, task.state) != (deadline.seq, deadline.run, "active"):
        return
    if task.seq not in entry.ready and task.seq not in entry.unmet:
        lines.line_up(entry, task)
        world.touch_job(entry.key)


def forget_run(task: Task) -> None:
    """Remove the results of a run from the record before the next run."""
    task.start = task.end = 0
    task.exit_code = task.failure = None
    task.instances = []
    task.cleaned = False


def discard_files(world: World, entry: JobEntry, task: Task) -> None:
    """Delete the directories of a deleted task, once no process writes there."""
    if task.seq in entry.running:
        return
    directory = documents.task_directory(entry.record, task)
    for instance in task.instances:
        if (node := world.find_node(instance.node)) and node.root:
            world.rubbish.append((node.root, directory))


def release(world: World, entry: JobEntry, task: Task, now: int) -> None:
    """Release the slots of a run. Its nodes count it and list it as a recent task."""
    entry.running.pop(task.seq, None)
    for number, instance in enumerate(task.instances):
        pool = world.pool_of_node.get(instance.node)
        if pool is None or pool.running[instance.node].pop(task.seq, None) is None:
            continue
        node = pool.nodes[instance.node]
        if task.verdict != "unprepared":
            node.total_run += 1
            if task.verdict in ("exit", "retry"):
                node.losses = 0
            node.total_succeeded += task.verdict == "exit" and task.exit_code == 0 and task.failure is None
            recent = (entry.record.id, task.id, number)
            node.recent = [*(former for former in node.recent if former != recent), recent][-documents.RECENT_TASKS :]
        if node.state == "running" and not pool.running[node.id]:
            world.move(node, states.NODE, "free" if node.scheduling else "offline", now)
        world.save_node(node)


def complete(
    world: World, entry: JobEntry, task: Task, now: int, failure: Document | None, exit_code: int | None = None
) -> None:
    """A task is complete: update the tasks that depend on it, and its job."""
    result = "success" if failure is None and exit_code == 0 else "failure"
    task.end = task.end or now
    task.failure, task.exit_code = failure, exit_code
    entry.ready.pop(task.seq, None)
    entry.unmet.pop(task.seq, None)
    world.hints.pop(task.seq, None)
    world.set_task_state(entry, task, "end", now, result)
    document = task_document(task)
    options = exit_options(document.get("exitConditions", {}), exit_code, failure)
    task.satisfies = options["dependencyAction"] == "satisfy"
    if task.satisfies:
        lines.satisfy_key(entry, dependency_key(task.id))
    retain(world, entry, task)
    world.save_task(task)
    world.touch_job(entry.key)
    # A task that the user ended before it ran has not failed, so its job's exit conditions do not apply.
    withdrawn = not task.start and failure is not None and failure["code"] == "TaskEnded"
    if entry.record.spec["onTaskFailure"] == "performexitoptionsjobaction" and not withdrawn:
        if options["jobAction"] == "terminate":
            terminate(world, entry, "TaskFailed", now)
        elif options["jobAction"] == "disable" and states.allows(states.JOB, entry.record.state, "disable"):
            disable(world, entry, "requeue", now)
    if task.manager and entry.record.spec["jobManagerTask"]["killJobOnCompletion"]:
        terminate(world, entry, "JMComplete", now)


def retain(world: World, entry: JobEntry, task: Task) -> None:
    """Keep the files of a completed task for its retention time. Simulated nodes have no files."""
    pools = (world.pool_of_node.get(instance.node) for instance in task.instances)
    if task.cleaned or all(pool is None or pool.simulated for pool in pools):
        return
    at = task.end + wire.parse_duration(task_document(task)["constraints"]["retentionTime"])
    if at < wire.FOREVER:
        world.add_deadline(Deadline(at, task.seq, "files", entry.key, task.id.lower(), task.run))


def retained(world: World, deadline: Deadline, now: int) -> None:
    """Delete the directories of a task after its retention time."""
    entry = world.jobs.get(deadline.key)
    task = entry.tasks.get(deadline.task) if entry else None
    if entry is None or task is None or (task.seq, task.run, task.state) != (deadline.seq, deadline.run, "completed"):
        return
    discard_files(world, entry, task)
    task.cleaned = True
    world.save_task(task)


def exit_options(conditions: Document, exit_code: int | None, failure: Document | None) -> Document:
    """The action after an outcome: the task's own exit condition, or the service's default."""
    if exit_code == 0 and failure is None:
        standard = {"jobAction": "none", "dependencyAction": "satisfy"}
    else:
        standard = {"jobAction": "terminate", "dependencyAction": "block"}
    return {**standard, **_rule(conditions, exit_code, failure)}


def _rule(conditions: Document, exit_code: int | None, failure: Document | None) -> Document:
    default: Document = conditions.get("default", {})
    for mapping in conditions.get("exitCodes", []):
        if mapping["code"] == exit_code:
            return dict(mapping["exitOptions"])
    for mapping in conditions.get("exitCodeRanges", []):
        if exit_code is not None and mapping["start"] <= exit_code <= mapping["end"]:
            return dict(mapping["exitOptions"])
    if failure is not None and failure["code"].startswith(UPLOAD_FAILED):
        return dict(conditions.get("fileUploadError", default))
    if exit_code is None and failure is not None and failure["code"] != "TaskEnded":  # ended by the user: not a failure
        return dict(conditions.get("preProcessingError", default))
    return {} if exit_code == 0 else default


def delete(world: World, entry: JobEntry, now: int) -> None:
    """Delete a job with its tasks and their files; the caller saves it."""
    world.move(entry.record, states.JOB, "delete", now)
    condemn_all(world, entry, "terminate", now)


def terminate(world: World, entry: JobEntry, reason: str, now: int) -> None:
    """End the running tasks of a job. Active tasks stay active, as in the service."""
    if not states.allows(states.JOB, entry.record.state, "terminate"):
        return
    world.move(entry.record, states.JOB, "terminate", now)
    entry.record.reason = reason
    condemn_all(world, entry, "terminate", now)
    world.save_job(entry)


def disable(world: World, entry: JobEntry, action: str, now: int) -> None:
    """Requeue, terminate or wait for the running tasks of a job; a disabled job is not changed."""
    world.move(entry.record, states.JOB, "disable", now)
    if action != "wait":
        condemn_all(world, entry, action, now)
    world.save_job(entry)
