"""Follows the output of the tasks of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from azure.batch import BatchClient

from batchtrain.errors import TaskFailed
from batchtrain.records import Counts, Task
from batchtrain.records.events import (
    Event,
    Output,
    OutputShown,
    RanksFailed,
    Stderr,
    Stdout,
    TaskFailure,
    TasksSeen,
)
from batchtrain.records.rank_end import ENDS, RankEnd
from batchtrain.service import files
from batchtrain.service.attempts import Attempts
from batchtrain.service.tasks import Glance

OUTPUT: Mapping[str, type[Output]] = {"stdout.txt": Stdout, "stderr.txt": Stderr}
"""The event of a line of each file."""
LINES_AT_ONCE = 10_000
"""Most lines of a followed file that are passed on together."""
FIRST, MOST_FAILED = 4, 20
"""Of a job with more than FEW tasks, how many are followed, and how many failures are shown."""


def together(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lines, LINES_AT_ONCE at a time. The lines before an error come before it."""
    some: list[str] = []
    try:
        for line in lines:
            some.append(line)
            if len(some) == LINES_AT_ONCE:
                yield some
                some = []
    except Exception:
        if some:
            yield some
        raise
    if some:
        yield some


class Followed(Protocol):
    """The job whose tasks are followed."""

    id: str

    def iter_tasks(self, state: str = "", *, limit: int | None = None) -> Iterator[Task]: ...

    def failure_of(self, task: Task) -> TaskFailed: ...


class Follow:
    """Shows the output of a job's tasks: events of kind `stdout` and `stderr`. Of a job with more than FEW tasks, it
    shows the output of the first ones while they run, and the end of stderr of the tasks that failed.
    """

    def __init__(
        self,
        batch: BatchClient,
        job: Followed,
        tell: Callable[[Event], None],
        *,
        lines: Callable[[str, str, str, Sequence[str]], None] = lambda *_: None,
        turns: int = 1,
    ) -> None:
        """turns: of so many looks, the last one reads stderr of the running tasks."""
        self._turns, self._turn = turns, 0
        self._batch, self._job, self._tell, self._lines = batch, job, tell, lines
        self._attempts = Attempts(batch, job.id)
        self._open: dict[str, list[tuple[str, files.Follower]]] = {}
        self._closed: set[str] = set()
        self._failures = 0
        self._large = False
        self._counts: Counts | None = None

    def look(self, seen: Glance) -> int:
        """Show the output since the last call; returns the number of requests that this took."""
        self._turn += 1
        if seen.counts != self._counts:
            self._counts = seen.counts
            self._tell(TasksSeen(self._job.id, counts=seen.counts))
        if seen.whole:
            return self._show_running(seen.first, named=len(seen.first) > 1)
        if not self._large:
            self._large = True
            self._tell(OutputShown(self._job.id, _which_output(self._job.id, seen.counts.total)))
        first = [task for number, task in enumerate(seen.first) if number < FIRST or task.id in self._open]
        return self._show_running(first, named=True) + self._show_failed(seen.counts.failed)

    def show_ended(self, tasks: Iterable[Task]) -> None:
        """Show the output of tasks that have ended, unless it was shown."""
        self._show_running(tasks, named=True)

    def _show_running(self, tasks: Iterable[Task], *, named: bool) -> int:
        requests = 0
        for task in tasks:
            if task.id in self._closed:
                continue
            requests += self._show_attempt(task)
            if task.state in ("running", "completed"):
                requests += self._show(task, named)
        return requests

    def _show_attempt(self, task: Task) -> int:
        """Tell what happened to the attempts of a task, before its output."""
        before = self._attempts.requests
        for event in self._attempts.look(task):
            self._tell(event)
        return self._attempts.requests - before

    def _show(self, task: Task, named: bool) -> int:
        ended = task.state == "completed"
        if task.id not in self._open:
            self._open[task.id] = self._followers(task.id)
        due = len(OUTPUT) if ended or self._turn % self._turns == 0 else 1
        for file, follower in self._open[task.id][:due]:
            for lines in together(follower.new_lines(task.node, last=ended)):
                self._lines(self._job.id, task.id, file.removesuffix(".txt"), lines)
                for line in lines:
                    text = f"{task.id}: {line}" if named else line
                    self._tell(OUTPUT[file](task.id, text))
        if not ended:
            return due
        self._closed.add(task.id)
        del self._open[task.id]
        if not task.failed:
            return due
        ends = files.records(self._batch, self._job.id, task.id, ENDS, RankEnd)
        if ends:
            self._tell(RanksFailed(task.id, ends=ends))
        return due + 1

    def _followers(self, task_id: str) -> list[tuple[str, files.Follower]]:
        return [(file, files.Follower(self._batch, self._job.id, task_id, file)) for file in OUTPUT]

    def _show_failed(self, count: int) -> int:
        """Show how the tasks ended that failed since the last call, up to MOST_FAILED in all."""
        if count <= self._failures or self._failures >= MOST_FAILED:
            return 0
        self._failures, requests = count, 1
        for task in self._job.iter_tasks("failed", limit=MOST_FAILED):
            if task.id not in self._closed and task.id not in self._open:
                self._closed.add(task.id)
                self._tell(TaskFailure(task.id, str(self._job.failure_of(task))))
                requests += 2
        if count >= MOST_FAILED:
            self._tell(OutputShown(self._job.id, _further_failures(self._job.id)))
        return requests


def _which_output(job_id: str, count: int) -> str:
    return (
        f"job {job_id} has {count:,} tasks: the output of the first {FIRST} and"
        f" the first {MOST_FAILED} failures are shown;"
        f" `batchtrain jobs logs {job_id} --task TASK` prints the output of any task"
    )


def _further_failures(job_id: str) -> str:
    return f"further failures are not shown; `batchtrain jobs tasks {job_id} --state failed` lists them"
