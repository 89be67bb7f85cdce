"""Follows the output of the tasks of a job."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from azure.batch import BatchClient

from batchtrain.errors import TaskFailed
from batchtrain.metrics.extract import patterns_of
from batchtrain.metrics.stream import OWN, RECORDS, Batch, MetricStream
from batchtrain.metrics.summary import metric_after, rank_of
from batchtrain.records import Counts, Metric, Rank, Task
from batchtrain.records.events import (
    Event,
    FailuresSeen,
    Output,
    OutputShown,
    RanksFailed,
    Stderr,
    Stdout,
    StillWaiting,
    TaskFailure,
    TasksSeen,
)
from batchtrain.records.gang import standstill
from batchtrain.records.rank_end import ENDS, RankEnd
from batchtrain.runs.results import Part, parts
from batchtrain.runs.sweep import so_far
from batchtrain.service import files, read
from batchtrain.service.attempts import Attempts
from batchtrain.service.statistics import by_cause, failed_by
from batchtrain.service.tasks import Glance

OUTPUT: Mapping[str, type[Output]] = {"stdout.txt": Stdout, "stderr.txt": Stderr}
"""The event of a line of each file."""
PRIMARY, MOST_RANKS = "n0", 8
"""The node whose files are those of the task; and how many chosen ranks are followed."""
LINES_AT_ONCE = 10_000
"""Most lines of a followed file that are passed on together."""
AGAIN_LOOKS = 12
"""A task that prints and has no file of what it measures is asked for one at every so many looks: a minute on Azure."""
FIRST, GROUPED, EXPLAINED = 2, 1000, 5
"""Of a job with more than FEW tasks, how many are followed, how many failures are grouped by their causes, and of how
many causes an example is read."""


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
    shows the output of the first ones while they run, and an example of each cause of failure.
    """

    def __init__(
        self,
        batch: BatchClient,
        job: Followed,
        tell: Callable[[Event], None],
        *,
        lines: Callable[[str, str, Sequence[str]], None] | None = None,
        turns: int = 1,
        output: bool = True,
        ranks: Iterable[int] = (),
    ) -> None:
        """lines: takes the output, to keep it: job, task, stdout or stderr, and lines. turns: of so many looks, the
        last one reads stderr of the running tasks. output: whether the output is shown, and not only the counts,
        the failures and what the tasks measure. ranks: of a gang, those whose output is shown; by default all."""
        self._turns, self._turn, self._output = turns, 0, output
        self._ranks = tuple(sorted(ranks))[:MOST_RANKS]
        self._pool: str | None = None
        self._examples: dict[str, str] = {}
        """The failure of an example of each cause."""
        self._batch, self._job, self._tell, self._lines = batch, job, tell, lines
        self._attempts = Attempts(batch, job.id)
        self._open: dict[str, _FollowedTask] = {}
        self._closed: set[str] = set()
        self._failures, self._named = 0, set[str]()
        self._large = False
        self._counts: Counts | None = None

    def look(self, glance: Glance) -> int:
        """Show the output since the last call; returns the number of requests that this took."""
        self._turn += 1
        requests = 0
        if self._pool is None and not glance.whole:
            self._pool, requests = read.job(self._batch, self._job.id).pool, 1
        if glance.counts != self._counts:
            self._counts = glance.counts
            self._tell(TasksSeen(self._job.id, counts=glance.counts, pool=self._pool or ""))
        if not self._output:
            requests += self._show_running(glance.first, is_named=True) if glance.whole else 0
            return requests + self._show_failed(glance.counts.failed)
        if glance.whole:
            requests += self._show_running(glance.first, is_named=len(glance.first) > 1)
            return requests + (self._show_failed(glance.counts.failed, few=True) if glance.counts.open else 0)
        if not self._large:
            self._large = True
            text = (
                f"job {self._job.id} has {glance.counts.total:,} tasks: the output of the first {FIRST} and"
                " an example of each cause of failure are shown;"
                f" `batchtrain jobs logs {self._job.id} --task TASK` prints the output of any task"
            )
            self._tell(OutputShown(self._job.id, text))
        first = [task for number, task in enumerate(glance.first) if number < FIRST or task.id in self._open]
        return requests + self._show_running(first, is_named=True) + self._show_failed(glance.counts.failed)

    def progress(self) -> str:
        """How far the first running tasks are."""
        now = time.time()
        return "; ".join(follower.progress(now) for follower in itertools.islice(self._open.values(), FIRST))

    def show_ended(self, tasks: Iterable[Task]) -> None:
        """Show the output of tasks that have ended, unless it was shown."""
        self._show_running(tasks, is_named=True)

    def _show_running(self, tasks: Iterable[Task], *, is_named: bool) -> int:
        requests = 0
        for task in tasks:
            if task.id in self._closed:
                continue
            before = self._attempts.requests
            for event in self._attempts.look(task):
                self._tell(event)
            requests += self._attempts.requests - before
            if task.state in ("running", "completed"):
                requests += self._show(task, is_named)
        return requests

    def _show(self, task: Task, is_named: bool) -> int:
        is_last = task.state == "completed"
        if task.id not in self._open:
            self._open[task.id] = _FollowedTask(self._batch, self._job.id, task, self._tell, self._ranks)
        follower = self._open[task.id]
        follower.task = task
        requests = follower.measure(task.node, last=is_last)
        if not is_last and (stall := follower.new_stall(time.time())):
            self._tell(StillWaiting(self._job.id, stall))
        file_count = len(OUTPUT) if is_last or self._turn % self._turns == 0 else 1
        waiting_lines = follower.waiting_lines if self._ranks and follower.is_gang else None
        for file, lines in follower.new_lines(task.node, file_count, last=is_last):
            if self._lines is not None:
                self._lines(task.id, file.removesuffix(".txt"), lines)
            if waiting_lines is None:
                self._show_lines(task.id, file, lines, is_named)
            else:
                waiting_lines.append((file, lines))
        requests += file_count
        if waiting_lines is not None:
            for file, lines in follower.lines_of_ranks(task.node, file_count, last=is_last):
                self._show_lines(task.id, file, lines, is_named)
            requests += follower.rank_requests
        if is_last:
            follower.end()
            self._closed.add(task.id)
            del self._open[task.id]
            if task.failed:
                requests += 1
                if ends := files.records(self._batch, self._job.id, task.id, ENDS, RankEnd):
                    self._tell(RanksFailed(task.id, ends=ends))
        return requests

    def _show_lines(self, task_id: str, file: str, lines: Iterable[str], is_named: bool) -> None:
        for line in lines if self._output else ():
            self._tell(OUTPUT[file](task_id, f"{task_id}: {line}" if is_named else line))

    def _show_failed(self, count: int, *, few: bool = False) -> int:
        """Group the failed tasks by their causes, and show an example of each; returns the number of requests. few:
        the others are named, too."""
        if count <= self._failures:
            return 0
        self._failures, requests = count, 1
        groups = by_cause(self._job.iter_tasks("failed", limit=GROUPED))
        for cause, tasks in groups.items():
            if cause not in self._examples and len(self._examples) < EXPLAINED:
                self._examples[cause] = str(self._job.failure_of(tasks[0]))
                self._tell(TaskFailure(tasks[0].id, self._examples[cause]))
                self._named.add(tasks[0].id)
                requests += 2
            for task in tasks if few else ():
                if task.id not in self._named:
                    self._tell(TaskFailure(task.id, f"task {self._job.id}/{task.id} did not succeed either ({cause})"))
                    self._named.add(task.id)
        self._tell(FailuresSeen(self._job.id, failed_by=failed_by(groups, self._examples)))
        return requests


class _FollowedTask:
    """The output of a task, and what it measures."""

    def __init__(
        self, batch: BatchClient, job_id: str, task: Task, tell: Callable[[Event], None], ranks: Sequence[int] = ()
    ) -> None:
        self._batch, self._job_id, self._task_id, self._tell, self._ranks = batch, job_id, task.id, tell, ranks
        self.task = task
        """As it was read last."""
        self._own_files: dict[tuple[int, str], files.Follower] = {}
        """The output of a rank in a file of its own."""
        self._parts: tuple[Part, ...] = ()
        self.waiting_lines: list[tuple[str, list[str]]] = []
        """The merged output of a gang, until its ranks are seen."""
        self.rank_requests = 0
        """The requests of the last `lines_of_ranks`."""
        self._files = [(file, files.Follower(batch, job_id, task.id, file)) for file in OUTPUT]
        self._records, self._own = (files.Follower(batch, job_id, task.id, path) for path in (RECORDS, OWN))
        self._found: files.Follower | None = None
        """Which of them there is."""
        self._stream: MetricStream | None = None
        self._node, self._has_printed, self._looks = "", False, 0
        self._judged, self._stands = 0.0, False
        self._last, self._line = dict[str, tuple[int, Metric]](), ""
        """The last value of each metric with its rank, the lowest one that has it, and the last line of the output."""

    def progress(self, now: float) -> str:
        """How far the task is, in a sentence."""
        assert self._stream is not None
        metrics = {name: metric for name, (_, metric) in self._last.items()}
        return so_far(self._job_id, self.task, self._stream, metrics, self._line, now)

    def new_stall(self, now: float) -> str:
        """How far the task is, once when ranks begin to stand still; empty otherwise. Looks once a second."""
        if self._stream is None or now < self._judged + 1:
            return ""
        self._judged, stood = now, self._stands
        self._stands = bool(standstill(self._stream.seen(), self._stream.judged_at(now)))
        return self.progress(now) if self._stands and not stood else ""

    def measure(self, node: str, *, last: bool) -> int:
        """Read what the task measures: the records of its gang, or else its file of $BATCHTRAIN_METRICS. Returns the
        number of requests. Once it has printed, a file that it does not have is asked for only now and then."""
        requests = 0
        if self._stream is None:
            settings, requests = read.fetch_settings(self._batch, self._job_id, self._task_id), 1
            self._stream = MetricStream(patterns_of(settings.metrics))
        if node != self._node:  # it begins, or runs again
            self._stream.begin_again()
            self._own_files, self._parts = {}, ()
            self._last, self._line = {}, ""
            self._node, self._found, self._has_printed, self._looks = node, None, False, 0
        look, self._looks = self._looks, self._looks + 1
        is_due = not self._has_printed or look % AGAIN_LOOKS < 2
        sources = ((self._records, self._stream.records), (self._own, self._stream.own))
        for number, (follower, take) in enumerate(sources):
            is_asked = last or (is_due and look % 2 == number)  # one of them at each look
            if self._found is follower or (is_asked and self._found is not self._records):
                requests += 1
                for lines in together(follower.new_lines(node, last=last)):
                    self._found = follower
                    self._see(take(lines, time.time()))
        return requests

    def new_lines(self, node: str, file_count: int, *, last: bool) -> Iterator[tuple[str, list[str]]]:
        """The new lines of the first `file_count` files of output."""
        assert self._stream is not None
        for file, follower in self._files[:file_count]:
            for lines in together(follower.new_lines(node, last=last)):
                self._has_printed = True
                self._line = next(filter(str.strip, reversed(lines)), self._line)
                self._see(self._stream.output(lines, time.time()))
                yield file, lines

    @functools.cached_property
    def is_gang(self) -> bool:
        """Whether it has several nodes; takes a request once."""
        return bool(read.task(self._batch, self._job_id, self._task_id, read.TIMED_TASK).request.instances)

    def lines_of_ranks(self, node: str, file_count: int, *, last: bool) -> list[tuple[str, list[str]]]:
        """The new lines of the chosen ranks, from their own files: an MPI merges output without the names of its ranks.
        Of a gang without such files, the merged output."""
        assert self._stream is not None
        self.rank_requests, output, exist = 0, list[tuple[str, list[str]]](), False
        ranks = [self._stream.ranks[number] for number in self._ranks if number in self._stream.ranks]
        for rank, file in itertools.product(ranks, tuple(OUTPUT)[:file_count]):
            follower, name = self._own_file(rank, file), f"[{rank.node.removeprefix('n')}:{rank.number}] "
            output.append((file, [name + line for line in follower.new_lines(node, last=last)]))
            self.rank_requests += 1
            exist = exist or follower.missing is None
        if not exist and not ranks and not last:
            return []
        merged_lines = self.waiting_lines.copy()
        self.waiting_lines.clear()
        return output if exist else merged_lines

    def _own_file(self, rank: Rank, file: str) -> files.Follower:
        if (rank.number, file) not in self._own_files:
            job_id, task_id, tree = self._job_id, self._task_id, None
            if rank.node != PRIMARY:
                if not self._parts:
                    self.rank_requests += 2
                    self._parts = parts(job_id, task_id, read.task_nodes(self._batch, job_id, task_id))
                tree = next((part.tree for part in self._parts if part.name == rank.node), None)
            path = f"wd/ranks/rank-{rank.number}.{file}"
            self._own_files[rank.number, file] = files.Follower(self._batch, job_id, task_id, path, tree)
        return self._own_files[rank.number, file]

    def _see(self, batch: Batch) -> None:
        assert self._stream is not None
        for name in tuple(self._last) if batch.again else batch.hidden:
            self._last.pop(name, None)
        for point in batch.points:
            rank = rank_of(point)
            for name, value in point.values.items() if not point.node else ():
                lowest, before = self._last.get(name, (rank, Metric(None, None)))
                if rank <= lowest:
                    self._last[name] = rank, metric_after(before, name, value, point)
        if any((*batch, self._stream.has_news)):
            self._tell(self._stream.event(self._job_id, self._task_id, batch))

    def end(self) -> None:
        """All has been read."""
        assert self._stream is not None
        self._tell(self._stream.event(self._job_id, self._task_id, ended=True))
