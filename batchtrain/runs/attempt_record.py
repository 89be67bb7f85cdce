"""What a run directory keeps of the attempts of its tasks: what was seen while they ran, and what they left."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from msgspec.structs import replace

from batchtrain.metrics import line_times
from batchtrain.metrics.stream import Line
from batchtrain.records import Attempt, AttemptEvent, Node, Task
from batchtrain.records.attempt import attempts_of, has_begun, number_of, possible, with_reasons
from batchtrain.runs.directory import RunDirectory, line_of, points_of
from batchtrain.service.files import local_records

STREAMS = ("stdout", "stderr")
LATE = 60.0
"""Seconds after the start of a task."""
COPIED = 1 << 20
"""Bytes that are copied at once."""


class AttemptOutput(NamedTuple):
    """A file with the output of an attempt, and the position where that output begins."""

    attempt: int
    path: Path
    start: int = 0


class AttemptRecord:
    """Writes attempts.jsonl, and keeps the output of each attempt that is followed: its node may be lost with it.

    The output is kept where it is fetched to at the end. It is moved aside when the next attempt begins.
    """

    def __init__(self, run: RunDirectory, forget: Callable[[str], None] = lambda task_id: None) -> None:
        """forget: called before the output of a task is moved aside."""
        self._run, self._forget = run, forget
        self._seen: dict[str, dict[int, Attempt]] = {}
        for attempt in run.attempts():
            self._seen.setdefault(attempt.task, {})[attempt.number] = attempt
        self._kept: dict[tuple[str, str], BinaryIO] = {}
        """By task and file."""
        self._noted: dict[tuple[str, str], tuple[float, float]] = {}
        """The first and the last time that was noted of an output."""
        self._starts: dict[tuple[str, str], int] = {}
        """Where the output of the last attempt begins in its fetched file."""
        self._before: dict[str, int] = {}
        """By task, how many attempts ran before its job was added again."""
        self._shifts: dict[str, int] = {}
        """By task, how many attempts ran before the one that its last node calls 1."""
        self.attempts: dict[str, tuple[Attempt, ...]] = {}
        """The attempts of the tasks that ran more than once, after `conclude`."""

    # --- while the tasks run ----------------------------------------------------------------------------------------

    def current(self, task_id: str) -> int:
        """The number of the attempt that was seen last."""
        return max(self._seen.get(task_id, {1: None}))

    def see(self, attempt: Attempt) -> None:
        """An attempt has begun, or is over."""
        attempt = replace(attempt, number=attempt.number + self._before.get(attempt.task, 0))
        if attempt.number > self.current(attempt.task):
            self._set_aside(attempt.task)
            before = self._seen.get(attempt.task, {}).get(self.current(attempt.task))
            if before is None or before.nodes != attempt.nodes or before.reason not in ("", "exit code"):
                self._shifts.pop(attempt.task, None)  # no retry: the files of its node are new
        self._seen.setdefault(attempt.task, {})[attempt.number] = attempt
        self._run.add_attempt(attempt)

    def restart(self, before: Mapping[str, int] | None = None) -> None:
        """The job is added again: the service counts the attempts of its tasks anew. before: how many there were
        by task; by default those that were seen."""
        self._before |= {task_id: self.current(task_id) for task_id in self._seen} if before is None else before

    def _counted(self, task: Task) -> Task:
        """The task with the attempts before its job was added again as requeues."""
        return replace(task, requeues=task.requeues + self._before.get(task.id, 0))

    def shift(self, task_id: str, attempt_numbers: Iterable[int] = ()) -> int:
        """What the numbers of attempts in the files of a task's node lack: without a volume, each node counts from 1.
        attempt_numbers: those in its records that have come. A retry may leave some of the attempt before."""
        if highest := max(attempt_numbers, default=0):
            current = self.current(task_id)
            if self._primary(task_id, highest) == self._primary(task_id, current) != ():
                self._shifts.setdefault(task_id, 0)  # its node stays, and counts on
            else:
                shift = max(current - highest, 0)
                self._shifts[task_id] = min(self._shifts.get(task_id, shift), shift)
        return self._shifts.get(task_id, 0)

    def _primary(self, task_id: str, number: int) -> tuple[str, ...]:
        """The primary's node of an attempt; empty if it is unknown."""
        attempt = self._seen.get(task_id, {}).get(number)
        return attempt.nodes[:1] if attempt else ()

    def last(self, task_id: str) -> int:
        """The number of the last attempt of a task, after `conclude`."""
        return len(self.attempts.get(task_id, (None,)))

    def keep(self, task_id: str, stream: str, lines: Sequence[str]) -> None:
        """Keep lines of the output of the current attempt."""
        file = self._file(task_id, f"{stream}.txt", "wb")
        self._note_time(task_id, stream, file.tell())
        file.write("".join(f"{line}\n" for line in lines).encode())
        file.flush()

    def _file(self, task_id: str, name: str, how: str) -> BinaryIO:
        key = task_id, name
        if key not in self._kept:
            self._kept[key] = self._run.open(self._run.logs(task_id) / name, how)
        return self._kept[key]

    def _note_time(self, task_id: str, stream: str, position: int) -> None:
        """Once a second, and more rarely the longer the task runs. What a client that follows late reads first was
        printed before."""
        now = time.time()
        if (task_id, stream) not in self._noted:
            attempt = self._seen.get(task_id, {}).get(self.current(task_id))
            is_late = attempt is not None and attempt.started and now - attempt.started.timestamp() > LATE
            self._noted[task_id, stream] = now, now if is_late else 0.0
        first, last = self._noted[task_id, stream]
        if now - last >= 1 + (now - first) / 10_000:
            self._noted[task_id, stream] = first, now
            file = self._file(task_id, line_times.FILE, "ab")
            file.write(line_of(Line(time=round(now, 3), file=stream, at=position)))
            file.flush()

    def _set_aside(self, task_id: str) -> None:
        """Move the output that was kept to the directory of its attempt."""
        for name in (*(f"{stream}.txt" for stream in STREAMS), line_times.FILE):
            if file := self._kept.pop((task_id, name), None):
                file.close()
            self._noted.pop((task_id, name.removesuffix(".txt")), None)
            path = self._run.logs(task_id) / name
            if path.exists():
                self._forget(task_id)
                self._run.move(path, self._run.logs(task_id, self.current(task_id)) / path.name)

    def close(self) -> None:
        """No more output comes: it is fetched to the same files next."""
        for file in self._kept.values():
            file.close()
        self._kept.clear()

    # --- at their end -----------------------------------------------------------------------------------------------

    def prepare(self, tasks: Iterable[Task]) -> None:
        """Before the output of tasks is fetched: what was kept of an attempt whose end was not seen is moved aside."""
        self.close()
        for task in tasks:
            if task.id in self._seen and number_of(self._counted(task)) > self.current(task.id):
                self._set_aside(task.id)

    def conclude(self, tasks: Iterable[Task], addresses: Mapping[str, str], nodes: Collection[Node] = ()) -> None:
        """After the output of tasks was fetched: find their attempts. addresses: the ids of nodes by address. nodes:
        those that their pool has now."""
        for task in map(self._counted, tasks):
            attempts = self._seen.get(task.id, {})
            if number_of(task) == 1 and len(attempts) <= 1:
                continue
            path = self._run.logs(task.id) / "ranks" / "attempts.jsonl"
            events = possible(task, local_records(path, AttemptEvent))
            self.attempts[task.id] = with_reasons(attempts_of(task, attempts.values(), events, addresses), nodes)
            begun = [event for event in events if event.event == "began"]
            if begun:
                is_current = has_begun(task, events)
                last = len(self.attempts[task.id]) - (not is_current)
                self._shifts[task.id] = last - max(event.attempt for event in begun)
                for stream in STREAMS:
                    self._part(task.id, stream, begun, is_whole=not is_current and begun[-1].node == task.node)

    def _part(self, task_id: str, stream: str, begun: Sequence[AttemptEvent], *, is_whole: bool) -> None:
        """Copy the output of earlier attempts on the last node from the file that has the output of all of them.
        is_whole: the file has nothing of the current attempt, or no one knows from where on."""
        path = self._run.logs(task_id) / f"{stream}.txt"
        if not path.exists():
            return
        shift, size = self._shifts[task_id], path.stat().st_size
        starts = [
            (event.attempt + shift, min(max(event.starts[stream], 0), size))
            for event in begun
            if event.node == begun[-1].node
        ]
        if is_whole:
            starts.append((starts[-1][0] + 1, size))
        for (number, start), (_, end) in itertools.pairwise(starts):
            if end > start:
                target = self._run.logs(task_id, number) / path.name
                self._run.replace_lines(target, _pieces(path, start, end))
        self._starts[task_id, stream] = starts[-1][1]
        if starts[-1][1]:  # positions were noted from there on
            (path.parent / line_times.FILE).unlink(missing_ok=True)

    def outputs(self, task_id: str, stream: str) -> Iterator[AttemptOutput]:
        """The files with the output of a task, in the order of its attempts."""
        last = self.last(task_id)
        for number in range(1, last):
            if (path := self._run.logs(task_id, number) / f"{stream}.txt").exists():
                yield AttemptOutput(number, path)
        if (path := self._run.logs(task_id) / f"{stream}.txt").exists():
            yield AttemptOutput(last, path, self._starts.get((task_id, stream), 0))

    def write(self) -> None:
        """Write attempts.jsonl of the tasks that ran more than once. The last step of one is that of its metrics."""
        all_attempts: list[Attempt] = []
        for task_id, attempts in self.attempts.items():
            steps: dict[int, int] = {}
            for point in points_of(self._run.metrics_file(task_id)):
                if (last_step := point.counted_step) is not None:
                    steps[point.attempt] = max(last_step, steps.get(point.attempt, last_step))
            all_attempts += (replace(attempt, step=steps.get(attempt.number, attempt.step)) for attempt in attempts)
        self._run.write_attempts(all_attempts)


def _pieces(path: Path, start: int, end: int) -> Iterator[bytes]:
    """The bytes of a file from `start` up to but excluding `end`."""
    with path.open("rb") as file:
        file.seek(start)
        while content := file.read(min(COPIED, end - start)):
            yield content
            start += len(content)
