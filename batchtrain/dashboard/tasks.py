"""One task: its files, its output, and why it failed."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from azure.batch import BatchClient

from batchtrain.dashboard.figures import Numbers
from batchtrain.dashboard.output import Numbered, Output
from batchtrain.diagnosis import diagnose
from batchtrain.metrics.extract import Pattern, patterns_of
from batchtrain.metrics.line_times import LineTimes, output_name
from batchtrain.metrics.stream import OWN, RECORDS
from batchtrain.records import Task, shown
from batchtrain.records.rank_end import RankEnd, by_rank, first_failure
from batchtrain.service import downloads, read
from batchtrain.service.failed import failed

STDOUT, STDERR = "stdout.txt", "stderr.txt"
SECONDS = {STDOUT: 5.0, STDERR: 10.0}
"""The time between two reads of a file on Azure."""
OTHER_SECONDS, ASKED_SECONDS, ENDED_SECONDS = 15.0, 30.0, 60.0
NEAR_EVERY = 0.05
"""The least time between two reads of a file on the emulator."""
TIMES_EVERY = {True: 1.0, False: 10.0}
"""The least time between two reads of the times of an output, on the emulator and on Azure."""
MOST_TIMES = 16
LIMIT = 256 << 10
"""Bytes of a log in one answer, unless the page asks for more."""
SAMPLES = "wd/ranks/node.metrics.jsonl"
"""The samples of the primary's node."""


class TaskOutputs:
    """The files of a task that are followed, and the numbers in them."""

    def __init__(self, reach: Callable[[], BatchClient], job_id: str, task_id: str, near: bool) -> None:
        self._reach, self._near = reach, near
        self._tree = downloads.task_tree(job_id, task_id)
        self.job_id, self.task_id = job_id, task_id
        self.numbers = Numbers(self._patterns)
        self._files: dict[str, Output] = {}
        self._times: dict[str, tuple[Output, LineTimes]] = {}
        """When the lines of a file were printed, with the topic that reads it."""
        self._asked = float("-inf")
        self._details: dict[str, Any] = {}
        self._task: Task | None = None
        """As it was read last."""
        self._ends: dict[int, RankEnd] | None = None
        """How its ranks failed."""

    def output(self, path: str) -> Output:
        """A file of the task, followed."""
        if path not in self._files:
            take, forget = self._readers.get(path, (None, lambda: None))
            size, read = functools.partial(self.size, path), functools.partial(self.read, path)
            seconds = SECONDS.get(path, OTHER_SECONDS)
            self._files[path] = Output(size, read, seconds, take, forget, NEAR_EVERY if self._near else seconds * 0.8)
        return self._files[path]

    @functools.cached_property
    def _readers(self) -> Mapping[str, tuple[Callable[[Sequence[str]], None], Callable[[], None]]]:
        """By file, what takes its lines, and what forgets them when it begins anew."""
        numbers = self.numbers
        return {
            STDOUT: (numbers.take_output, numbers.forget_output),
            RECORDS: (numbers.take_records, numbers.forget),
            OWN: (functools.partial(numbers.take_own, 0), numbers.forget_output),
            SAMPLES: (functools.partial(numbers.take_own, None), numbers.forget_samples),
        }

    def _patterns(self) -> tuple[Pattern, ...]:
        return patterns_of(read.fetch_settings(self._reach(), self.job_id, self.task_id).metrics)

    def ranks(self) -> Numbered:
        """The topic of the ranks."""
        return Numbered(self._advance, self.ranks_document, SECONDS[STDOUT])

    def ranks_document(self) -> dict[str, Any]:
        """The ranks; of a task that has ended, as they were at its end."""
        task = self._task
        if task is None or task.state != "completed":
            return self.numbers.ranks()
        return self.numbers.ranks(self._ends if task.failed else {}, ended=True)

    def metrics(self) -> Numbered:
        """The topic of the curves."""
        return Numbered(self._advance, self.numbers.metrics, SECONDS[STDOUT])

    def samples(self) -> Numbered:
        """The topic of what the primary's node measures."""
        return Numbered(self.output(SAMPLES).read, self.numbers.metrics, OTHER_SECONDS)

    def _advance(self) -> int:
        """Read what the task measures: the records of its gang, or its own file and its output; and the samples of the
        primary's node. For files that it does not have, the service is asked only now and then."""
        now = time.monotonic()
        is_due = now - self._asked >= (2.0 if self._near else ASKED_SECONDS)
        if is_due:
            self._asked = now
        requests = 0
        for path in (RECORDS, SAMPLES, OWN, STDOUT):
            if path in (OWN, STDOUT) and self.numbers.has_records:
                break
            if is_due or path == STDOUT or self.output(path).exists:
                requests += self.output(path).read()
        return requests

    def size(self, path: str) -> int:
        """The bytes of a file."""
        return downloads.size_of(self._reach(), self._tree, path).size

    def read(self, path: str, start: int, end: int) -> bytes:
        """Bytes of a file; empty behind its end."""
        return downloads.read(self._reach(), self._tree, path, start, end)

    # --- documents --------------------------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """The task, its nodes, and why it failed."""
        before, task = self._task, read.masked_task(self._reach(), self.job_id, self.task_id)
        self._task = task
        if before is not None and before.created != task.created:  # of a later job of the same id
            self.numbers.forget()
            self._files, self._times, self._ends = {}, {}, None
        if task.state == "completed":
            for file in self._files.values():
                file.seconds = ENDED_SECONDS
        key = f"{task.started} {task.state} {task.ended}"
        if key not in self._details:  # what changes only with the run of the task, and is read once for each
            self._details = {key: {"nodes": self._nodes(task), "cause": self._cause(task)}}
        return {**task_row(task), **self._details[key]}

    def _nodes(self, task: Task) -> list[dict[str, str]]:
        """The nodes of the task: n0 is the primary."""
        if not task.node:
            return []
        if (task.request.instances or 1) < 2:
            return [{"name": "n0", "id": task.node, "pool": task.pool}]
        places = read.task_nodes(self._reach(), self.job_id, self.task_id)
        return [{"name": f"n{number}", "id": node.node, "pool": node.pool} for number, node in enumerate(places)]

    def _cause(self, task: Task) -> dict[str, Any] | None:
        if task.state != "completed" or not task.failed:
            return None
        evidence, finding = diagnose.task(self._reach(), self.job_id, self.task_id)
        self._ends = by_rank(evidence.ends) or None
        error = failed(self.job_id, task, evidence.stderr, first_failure(evidence.ends))
        return {
            "message": str(error),
            "rank": error.rank,
            "node": error.node,
            "exit_code": error.code,
            "exception": error.cause,
            "raised": error.raised,
            "lines": list(error.lines),
            "card": finding.card() if finding else [],
        }

    def times(self, path: str, start: int, end: int) -> dict[str, Any]:
        """When a part of an output was printed."""
        if path not in self._times:
            output = output_name(path)
            if output is None or output.folder:
                return {"at": [], "time": []}
            while len(self._times) >= MOST_TIMES:
                self._times.pop(next(iter(self._times)))
            times = LineTimes(output)
            size, read = functools.partial(self.size, RECORDS), functools.partial(self.read, RECORDS)
            every = TIMES_EVERY[self._near]
            self._times[path] = Output(size, read, every, times.take, lambda: None, every), times
        records, times = self._times[path]
        records.read()
        return times.between(start, end)

    def files(self) -> list[dict[str, Any]]:
        """The files of the task on the node of its primary."""
        task_files = downloads.listed(self._reach(), self._tree)
        return [{"path": file.path, "size": file.size, "modified": file.modified} for file in task_files]


TASK = (
    "id", "state", "result", "exit_code", "node", "pool", "created", "started", "ended", "seconds", "failure",
    "retries", "requeues", "outcome",
)  # fmt: skip


def task_row(task: Task) -> dict[str, Any]:
    """A task with its times."""
    return {**shown(task, TASK), "instances": task.request.instances or 1, "command": task.request.command}
