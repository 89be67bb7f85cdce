"""How a task's run and a job end: from the decision, over the last process gone, to what follows; pure."""

from __future__ import annotations

from typing import Any

from batchtrain.emulator import documents, lines, states
from batchtrain.emulator.records import Task
from batchtrain.emulator.world import JobBook, World, task_document

Document = dict[str, Any]

RECENT_TASKS = 10
"""Tasks a node remembers."""


def task_ended(message: str = "The task was ended by user request.") -> Document:
    """The failure of a task that was stopped from outside."""
    return {"category": "UserError", "code": "TaskEnded", "message": message, "details": []}


def failed_to_run(code: str, message: str, category: str = "UserError") -> Document:
    """The failure of a task whose command never ran (or could not be followed)."""
    return {
        "category": category,
        "code": code,
        "message": message,
        "details": [{"name": "Message", "value": message}],
    }


def exited_with(code: int) -> Document:
    """The failure of a command that exited with a code other than 0."""
    return {
        "category": "UserError",
        "code": "FailureExitCode",
        "message": "The task exited with an exit code representing a failure",
        "details": [
            {"name": "Message", "value": "The task process exited with an unexpected exit code"},
            {"name": "AdditionalErrorCode", "value": "FailureExitCode"},
        ],
    }


def condemn(world: World, task: Task, verdict: str, now: int, failure: Document | None = None) -> None:
    """Decide how the current run is to end; its processes still have to be ended.

    The first decision stands, but a task that was to run again can still be terminated.
    """
    overruled = verdict == "terminate" and task.verdict in ("requeue", "retry")
    if task.state != "running" or (task.verdict and not overruled):
        return
    task.verdict = verdict
    if verdict == "terminate":
        task.failure = failure or task_ended()
        task.end = now
    world.save_task(task)
    world.touch_task(task)


def condemn_all(world: World, book: JobBook, verdict: str, now: int) -> None:
    """End every running task of a job."""
    for task in tuple(book.running.values()):
        condemn(world, task, verdict, now)


def conclude(world: World, book: JobBook, task: Task, now: int) -> None:
    """Nothing of the run is left on any node: free the nodes, then retry, requeue or complete the task."""
    release(world, book, task, now)
    verdict, task.verdict = task.verdict, ""
    if book.tasks.get(task.id.lower()) is not task:
        discard_files(world, book, task)
    elif verdict == "requeue":
        _again(world, book, task, now, first=True)
        task.requeues += 1
        task.last_requeue = now
    elif verdict == "retry":
        _again(world, book, task, now, first=False)
        task.retries += 1
        task.last_retry = now
    else:
        complete(world, book, task, now, failure=task.failure, exit_code=task.exit_code)
    world.save_task(task)
    world.touch_job(book.key)


def _again(world: World, book: JobBook, task: Task, now: int, *, first: bool) -> None:
    world.set_task_state(book, task, "return", now)
    forget_run(task)
    lines.line_up(book, task, first=first)


def forget_run(task: Task) -> None:
    """What a run left in the record, before the next one."""
    task.start = task.end = 0
    task.exit_code = task.failure = None
    task.instances = []


def discard_files(world: World, book: JobBook, task: Task) -> None:
    """A deleted task's directories go, once nothing writes there any more."""
    if task.seq in book.running:
        return
    directory = documents.task_directory(book.record, task)
    for instance in task.instances:
        pool = world.pool_of_node.get(instance.node)
        if pool is not None and pool.nodes[instance.node].root:
            world.rubbish.append((pool.nodes[instance.node].root, directory))


def release(world: World, book: JobBook, task: Task, now: int) -> None:
    """Give a run's slots back."""
    book.running.pop(task.seq, None)
    for number, instance in enumerate(task.instances):
        pool = world.pool_of_node.get(instance.node)
        if pool is None or pool.running[instance.node].pop(task.seq, None) is None:
            continue
        node = pool.nodes[instance.node]
        node.total_run += 1
        if task.verdict in ("exit", "retry"):
            node.losses = 0
        node.total_succeeded += task.verdict == "exit" and task.exit_code == 0 and task.failure is None
        entry = (book.record.id, task.id, number)
        node.recent = [*(one for one in node.recent if one != entry), entry][-RECENT_TASKS:]
        if node.state == "running" and not pool.running[node.id]:
            world.move(node, states.NODE, "free" if node.scheduling else "offline", now)
        world.save_node(node)


def complete(
    world: World,
    book: JobBook,
    task: Task,
    now: int,
    *,
    failure: Document | None = None,
    exit_code: int | None = None,
) -> None:
    """A task is over; its dependants and its job take notice."""
    result = "success" if failure is None and exit_code == 0 else "failure"
    task.end = task.end or now
    task.failure, task.exit_code = failure, exit_code
    book.ready.pop(task.seq, None)
    book.unmet.pop(task.seq, None)
    world.hints.pop(task.seq, None)
    world.set_task_state(book, task, "end", now, result)
    options = exit_options(task_document(task).get("exitConditions", {}), exit_code, failure)
    task.satisfies = options["dependencyAction"] == "satisfy"
    if task.satisfies:
        lines.satisfy(book, task)
    world.save_task(task)
    world.touch_job(book.key)
    if result == "failure" and book.record.spec["onTaskFailure"] == "performexitoptionsjobaction":
        _act_on_job(world, book, options["jobAction"], now)


def exit_options(conditions: Document, exit_code: int | None, failure: Document | None) -> Document:
    """What follows from an outcome: the task's own rule for it, else the service's."""
    succeeded = exit_code == 0 and failure is None
    standard = (
        {"jobAction": "none", "dependencyAction": "satisfy"}
        if succeeded
        else {"jobAction": "terminate", "dependencyAction": "block"}
    )
    return {**standard, **_rule(conditions, exit_code, failure)}


def _rule(conditions: Document, exit_code: int | None, failure: Document | None) -> Document:
    default: Document = conditions.get("default", {})
    if exit_code is None:
        if failure is not None and failure["code"] == "TaskEnded":  # by a user: no error of the task's
            return default
        return dict(conditions.get("preProcessingError", default))
    for mapping in conditions.get("exitCodes", []):
        if mapping["code"] == exit_code:
            return dict(mapping["exitOptions"])
    for mapping in conditions.get("exitCodeRanges", []):
        if mapping["start"] <= exit_code <= mapping["end"]:
            return dict(mapping["exitOptions"])
    return {} if exit_code == 0 else default


def _act_on_job(world: World, book: JobBook, action: str, now: int) -> None:
    if action == "terminate":
        terminate(world, book, "TaskFailed", now)
    elif action == "disable" and states.allows(states.JOB, book.record.state, "disable"):
        disable(world, book, "requeue", now)


def terminate(world: World, book: JobBook, reason: str, now: int) -> None:
    """Running tasks are ended; active ones stay active for good, as in the service."""
    if not states.allows(states.JOB, book.record.state, "terminate"):
        return
    world.move(book.record, states.JOB, "terminate", now)
    book.record.reason = reason
    condemn_all(world, book, "terminate", now)
    world.save_job(book)


def disable(world: World, book: JobBook, action: str, now: int) -> None:
    """Running tasks are requeued, terminated, or waited for."""
    world.move(book.record, states.JOB, "disable", now)
    book.record.tasks_action = action
    if action != "wait":
        condemn_all(world, book, action, now)
    world.save_job(book)
