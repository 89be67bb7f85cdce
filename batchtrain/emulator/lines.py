"""A job's queue: which active tasks wait for nodes, and which wait for other tasks; pure."""

from __future__ import annotations

from typing import Any

from batchtrain.emulator.books import JobBook
from batchtrain.emulator.records import Task
from batchtrain.emulator.world import dependency_key

Document = dict[str, Any]


def enqueue(book: JobBook, task: Task, spec: Document, *, first: bool = False) -> None:
    """Put an active task into the queue, or on the lists of the tasks it depends on."""
    depends = spec.get("dependsOn")
    unmet = _register(book, task, depends) if depends else 0
    if unmet:
        book.unmet[task.seq] = unmet
        return
    line_up(book, task, first=first)


def enqueue_again(book: JobBook, task: Task, spec: Document) -> None:
    """Queue a task again. It is listed at most once: it may have been ended while it waited."""
    for key in map(dependency_key, spec.get("dependsOn", {}).get("taskIds", [])):
        if waiting := book.dependants.get(key):
            book.dependants[key] = [seq for seq in waiting if seq != task.seq]
    book.range_dependants = [entry for entry in book.range_dependants if entry[2] != task.seq]
    enqueue(book, task, spec)


def line_up(book: JobBook, task: Task, *, first: bool = False) -> None:
    """Append to the job's queue. A task that lost its node goes to the front."""
    book.ready[task.seq] = max(task.gang, 1)
    book.ready.move_to_end(task.seq, last=not first)


def _register(book: JobBook, task: Task, depends: Document) -> int:
    unmet = 0
    for key in {dependency_key(task_id) for task_id in depends.get("taskIds", [])}:
        if key not in book.satisfied:
            book.dependants.setdefault(key, []).append(task.seq)
            unmet += 1
    for span in depends.get("taskIdRanges", []):
        start, end = span["start"], span["end"]
        met = sum(start <= int(key) <= end for key in book.satisfied if key.isdigit())
        missing = end - start + 1 - met
        if missing:
            book.range_dependants.append((start, end, task.seq))
            unmet += missing
    return unmet


def satisfy(book: JobBook, task: Task) -> None:
    """A task completes the dependencies of other tasks."""
    satisfy_key(book, dependency_key(task.id))


def satisfy_key(book: JobBook, key: str) -> None:
    """A dependency is satisfied: tasks without further dependencies are queued. Most jobs have no dependencies."""
    if key in book.satisfied or not book.record.spec.get("usesTaskDependencies"):
        return
    book.satisfied.add(key)
    waiting = book.dependants.pop(key, [])
    if key.isdigit():
        waiting += [seq for start, end, seq in book.range_dependants if start <= int(key) <= end]
    for seq in waiting:
        if seq not in book.unmet:
            continue
        book.unmet[seq] -= 1
        if not book.unmet[seq]:
            del book.unmet[seq]
            line_up(book, book.tasks.at(seq))
    if book.range_dependants:
        book.range_dependants = [entry for entry in book.range_dependants if entry[2] in book.unmet]
