"""A job's queue: which active tasks wait for nodes, and which wait for other tasks; pure."""

from __future__ import annotations

from batchtrain.emulator.indexes import JobEntry
from batchtrain.emulator.records import Document, Task
from batchtrain.emulator.world import dependency_key


def enqueue(entry: JobEntry, task: Task, spec: Document) -> None:
    """Put an active task into the queue, or on the lists of the tasks it depends on."""
    if (depends := spec.get("dependsOn")) and (unmet := _register(entry, task, depends)):
        entry.unmet[task.seq] = unmet
    else:
        line_up(entry, task)


def enqueue_again(entry: JobEntry, task: Task, spec: Document) -> None:
    """Queue a task again. It is listed at most once: it may have been ended while it waited."""
    for key in map(dependency_key, spec.get("dependsOn", {}).get("taskIds", [])):
        if waiting := entry.dependants.get(key):
            entry.dependants[key] = [seq for seq in waiting if seq != task.seq]
    entry.range_dependants = [span for span in entry.range_dependants if span[2] != task.seq]
    enqueue(entry, task, spec)


def line_up(entry: JobEntry, task: Task, *, first: bool = False) -> None:
    """Append to the job's queue. A task that lost its node goes to the front."""
    entry.ready[task.seq] = max(task.gang, 1)
    entry.ready.move_to_end(task.seq, last=not first)


def _register(entry: JobEntry, task: Task, depends: Document) -> int:
    unmet = 0
    for key in {dependency_key(task_id) for task_id in depends.get("taskIds", [])}:
        if key not in entry.satisfied:
            entry.dependants.setdefault(key, []).append(task.seq)
            unmet += 1
    for span in depends.get("taskIdRanges", []):
        start, end = span["start"], span["end"]
        met = sum(start <= int(key) <= end for key in entry.satisfied if key.isdigit())
        missing = end - start + 1 - met
        if missing:
            entry.range_dependants.append((start, end, task.seq))
            unmet += missing
    return unmet


def satisfy_key(entry: JobEntry, key: str) -> None:
    """A dependency is satisfied: tasks without further dependencies are queued. Most jobs have no dependencies."""
    if key in entry.satisfied or not entry.record.spec.get("usesTaskDependencies"):
        return
    entry.satisfied.add(key)
    waiting = entry.dependants.pop(key, [])
    if key.isdigit():
        waiting += [seq for start, end, seq in entry.range_dependants if start <= int(key) <= end]
    for seq in waiting:
        if seq not in entry.unmet:
            continue
        entry.unmet[seq] -= 1
        if not entry.unmet[seq]:
            del entry.unmet[seq]
            line_up(entry, entry.tasks.at(seq))
    entry.range_dependants = [span for span in entry.range_dependants if span[2] in entry.unmet]
