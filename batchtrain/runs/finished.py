"""Runs as objects of the Python API: what one left behind, all of them, and several beside one another."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from azure.batch import BatchClient

from batchtrain import markup, state_files
from batchtrain.errors import LimitReached, NotFound, TaskFailed, UsageError, printable
from batchtrain.records import MOST_ROWS, Attempt, Table, Task, aligned
from batchtrain.records.jobs import ENDED_BY_TASKS
from batchtrain.records.rank_end import ENDS, RankEnd, first_failure
from batchtrain.runs import compare, directory, report, restore
from batchtrain.runs.continuations import LineageRecord, continuations
from batchtrain.runs.curves import Plot
from batchtrain.runs.directory import RunDirectory, RunRecord
from batchtrain.service import read
from batchtrain.service.failed import SEARCHED_LINES, ended_early, explained, failed, summary, unfinished
from batchtrain.service.files import local_records

MOST_CURVES = 12
"""Tasks or runs in one figure."""
_Curves = dict[str, dict[str, list[markup.Point]]]
"""By task or run, the curve of each metric."""
LAST_LINES, END_BYTES = 200, 2**18
"""Lines of a log that a notebook shows; bytes of a stderr that are searched for a cause."""

MOST_LOG = 64 << 20
"""Bytes of a log that are read."""


class Lines(tuple[str, ...]):
    """The lines of a log: a tuple that prints as text."""

    def __str__(self) -> str:
        return "\n".join(map(printable, self))

    def __repr__(self) -> str:
        cut = max(len(self) - LAST_LINES, 0)
        note = [f"… the last {LAST_LINES} of {len(self):,} lines; print() shows all"] if cut else []
        return "\n".join([*note, *map(printable, self[cut:])])

    def _repr_html_(self) -> str:
        cut = len(self) - LAST_LINES
        note = f"<i>the last {LAST_LINES} of {len(self):,} lines</i>" if cut > 0 else ""
        return note + markup.pre("\n".join(self[max(cut, 0) :])) if self else "<i>no lines</i>"


class Metrics(dict[str, list[Any]]):
    """Metrics as columns by name, one row for each step that a rank reported. `pandas.DataFrame(metrics)` takes it."""

    def rows(self, most: int) -> list[dict[str, Any]]:
        """The first rows for a display, without the time and columns that have no value."""
        nonempty_names = (name for name, column in self.items() if any(value not in (None, "") for value in column))
        several = any(number > 1 for number in self.get("attempt", ()))
        names = [name for name in nonempty_names if name != "t" and (name != "attempt" or several)]
        count = min(most, len(self["t"]) if self else 0)
        rows = ({name: self[name][row] for name in names} for row in range(count))
        return [{name: markup.short(v) if isinstance(v, float) else v for name, v in row.items()} for row in rows]

    def __str__(self) -> str:
        more = len(self.get("t", ())) - MOST_ROWS
        note = [f"… and {more:,} more rows"] if more > 0 else []
        return "\n".join([*aligned(self.rows(MOST_ROWS), []), *note]) if self.rows(1) else "no metrics"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        more = len(self.get("t", ())) - MOST_ROWS
        return Table(self.rows(MOST_ROWS))._repr_html_() + (f"<i>and {more:,} more rows</i>" if more > 0 else "")


class FetchedRow(NamedTuple):
    """A file of a task: where it is, or why it was not fetched."""

    path: str
    task: str
    size: int
    reason: str


class Run:
    """What one job left behind: its record, metrics, curves, logs and files, read from its run directory."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory

    @property
    def directory(self) -> RunDirectory:
        """The run directory with its files as values."""
        return self._directory

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.directory.path

    @property
    def record(self) -> RunRecord:
        """run.json: state, times, account, commit, summary and failure."""
        return self.directory.record()

    @property
    def id(self) -> str:
        """The name of the run, as `client.runs.get` takes it."""
        return self.record.id

    @property
    def state(self) -> str:
        """`running`, `completed`, `failed`, `interrupted` or `fetched`."""
        return self.record.state

    @property
    def tasks(self) -> Table[Task]:
        """The tasks at their end."""
        return in_words(Table(self.directory.each_task()), (self.directory,))

    @property
    def attempts(self) -> Table[Attempt]:
        """The attempts of the tasks that ran more than once."""
        return Table(self.directory.attempts())

    @property
    def metrics(self) -> Metrics:
        """Every value of every metric."""
        return Metrics(self.directory.metrics().table())

    @property
    def summary(self) -> Table[compare.MetricRow]:
        """The last and the best value of each metric."""
        return Table(compare.metric_rows(self.record))

    def plot(self, *names: str) -> Plot:
        """The curves of metrics, by default of all; those of several tasks over each other."""
        tasks, record = [task.id for task in self.directory.tasks()[:MOST_CURVES]], self.record
        curves = {task: report.points(self.directory, task) for task in tasks}
        return _plot(curves, names, {task: compare.not_finite(record, task) for task in tasks})

    def logs(self, task: str | None = None, *, rank: int | None = None, file: str = "stdout") -> Lines:
        """The output of a task (by default the first), of all ranks or of one: its last 64 MiB. A task without ranks is
        rank 0. file: `stdout` or `stderr`.

        Raises NotFound if it was not fetched.
        """
        folder = self.directory.logs(task or self._first())
        is_whole = rank is None or (rank == 0 and not any(folder.glob("ranks/*.txt")))
        path = folder / (f"{file}.txt" if is_whole else f"ranks/{rank}.{file}.txt")
        try:
            with state_files.opened(path) as content:
                left_out = max(content.seek(0, os.SEEK_END) - MOST_LOG, 0)
                content.seek(left_out)
                lines = content.read(MOST_LOG).decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            raise NotFound(f"{path} does not exist; `run.files` says what was fetched") from None
        return Lines([f"… {left_out:,} bytes before, in {path}", *lines] if left_out else lines)

    @property
    def files(self) -> Table[FetchedRow]:
        """The files of the tasks, as paths in the run directory; with the reason if one was not fetched."""
        return Table(FetchedRow(f.fetched or f.path, f.task, f.size, f.reason) for f in self.directory.files())

    @property
    def output(self) -> Path:
        """The directory with the results of the first task: what it wrote to `output`."""
        return self.directory.outputs(self._first())

    @property
    def lineage(self) -> dict[str, LineageRecord]:
        """By task with checkpoints, the run that it continued."""
        return continuations(self.directory)

    def restore(self, directory: str | Path) -> restore.Restored:
        """Write a recipe that runs this run again to a new directory. Raises UsageError for a run without a copy of its
        source."""
        return restore.restore(self.directory, Path(directory))

    def _first(self) -> str:
        for task in self.directory.tasks():
            return task.id
        raise NotFound(f"{self.path} has no tasks")

    def __repr__(self) -> str:
        record = self.record
        row = compare.row(record)
        results = f"{', ' if record.summary else ''}{row.results}"
        return printable(f"{type(self).__name__}({record.id}, {row.state}{results})")

    def _repr_html_(self) -> str:
        record = self.record
        parts, (figures, after) = report.sections(self.directory, record), self.plot()
        names = compare.by_meaning(figures)[:MOST_CURVES]
        curves = Plot({name: figures[name] for name in names}, after)._repr_html_() if names else ""
        more = f"<i>and {len(figures) - MOST_CURVES:,} more curves</i>" if len(figures) > MOST_CURVES else ""
        folds = [markup.fold(name, parts[name]) for name in ("Tasks", "Attempts", "Files", "About") if name in parts]
        return markup.card(
            markup.head(record.job, compare.state_of(record), record.id),
            report.failure(record),
            parts.get("Numbers", ""),
            markup.columns(curves) + more,
            *folds,
        )


def in_words(tasks: Table[Task], directories: Iterable[RunDirectory]) -> Table[Task]:
    """Tasks that are shown with the causes of their failures, from the output in the directories of their runs."""

    def reason(task: Task) -> str:
        lines = next(filter(None, (stderr_end(run.logs(task.id)) for run in directories)), ())
        return summary(task, lines, RankEnd())

    tasks.in_words = functools.partial(explained, reason_of=reason)
    return tasks


def stderr_end(folder: Path) -> tuple[str, ...]:
    """The last lines of the stderr of a task; none if it was not fetched."""
    try:
        with state_files.opened(folder / "stderr.txt") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - END_BYTES, 0))
            return tuple(file.read().decode("utf-8", "replace").splitlines()[-SEARCHED_LINES:])
    except OSError:
        return ()


def failure_of(batch: BatchClient, run: RunDirectory, job_id: str) -> TaskFailed | None:
    """Why the first task that failed did so, from the fetched files, or what ended the job before its tasks had; None
    if all tasks succeeded."""
    job, count, first = read.job(batch, job_id, read.EXAMINED_JOB), 0, None
    for task in run.each_task():
        count += 1
        if task.outcome != "succeeded":
            if job.is_ended_early and task.is_cut_short:
                return ended_early(job)
            first = first or task
    if first is None:
        return None if job.reason in ENDED_BY_TASKS or count >= _planned_tasks(run) else ended_early(job)
    if first.state != "completed":
        return unfinished(job_id, first)
    logs = run.logs(first.id)
    ends = local_records(logs / ENDS.removeprefix("wd/"), RankEnd)
    return failed(job_id, first, stderr_end(logs), first_failure(ends))


class _PlanBody(msgspec.Struct, frozen=True):
    """What the body of a request in plan.json says of the number of tasks."""

    value: list[Any] | None = None
    commandLine: str | None = None
    jobManagerTask: dict[str, Any] | None = None


class _PlanStep(msgspec.Struct, frozen=True):
    action: str
    body: _PlanBody = _PlanBody()

    @property
    def tasks(self) -> float:
        if self.action == "job.add":
            return self.body.jobManagerTask is not None
        if self.action != "task.add":
            return 0
        return len(self.body.value) if self.body.value is not None else 1 if self.body.commandLine else math.inf


class _Plan(msgspec.Struct, frozen=True):
    steps: list[_PlanStep]


def _planned_tasks(run: RunDirectory) -> float:
    """The number of tasks in the plan of a run, with its job manager; infinite if they are made only while they are
    added, and if the plan cannot be read."""
    plan = state_files.cached(run.config / "plan.json", _Plan)
    return sum(step.tasks for step in plan.steps) if plan else math.inf


class Result(Run):
    """The result of `client.run`: a run for each job. With one job, it is the run of this job.

    failure: why the first failed task failed, or the limit of the run; only with `check=False`, otherwise it is raised.
    """

    def __init__(
        self, tasks: Table[Task], runs: Iterable[RunDirectory], failure: TaskFailed | LimitReached | None = None
    ) -> None:
        self._tasks, self.runs, self.failure = tasks, tuple(map(Run, runs)), failure

    @property
    def directory(self) -> RunDirectory:
        """The directory of the only run. Raises UsageError if there are several."""
        if len(self.runs) != 1:
            raise UsageError(f"this recipe has {len(self.runs)} jobs; use result.runs[0], result.runs[1], …")
        return self.runs[0].directory

    @property
    def tasks(self) -> Table[Task]:
        """The tasks of all jobs at their end."""
        return in_words(self._tasks, [run.directory for run in self.runs])

    def __repr__(self) -> str:
        return super().__repr__() if len(self.runs) == 1 else "\n".join(map(repr, self.runs))

    def _repr_html_(self) -> str:
        return "".join(run._repr_html_() for run in self.runs)


class Comparison:
    """Runs beside one another: the settings that differ, their metrics, and their curves over each other."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = tuple(runs)
        self._records = [run.record for run in runs]

    @property
    def rows(self) -> Table[dict[str, str]]:
        """The differences: a column for each run."""
        ids = [record.id for record in self._records]
        rows = compare.compare([run.directory for run in self.runs])
        return Table({"name": row.name, **dict(zip(ids, row.values, strict=True))} for row in rows)

    @property
    def source(self) -> Lines:
        """How the source of each other run differs from that of the first one, as a unified difference."""
        first, *others = (run.directory for run in self.runs)
        return Lines("".join(restore.difference(first, other) for other in others).splitlines())

    def plot(self, *names: str) -> Plot:
        """The curves of the first task of each run over each other."""
        firsts = [(run, run.record, run._first()) for run in self.runs[:MOST_CURVES]]
        curves = {record.id: report.points(run.directory, task) for run, record, task in firsts}
        return _plot(curves, names, {record.id: compare.not_finite(record, task) for _, record, task in firsts})

    def __repr__(self) -> str:
        return str(self.rows)

    def _repr_html_(self) -> str:
        curves = markup.columns(self.plot()._repr_html_())
        return markup.card(markup.head(f"{len(self.runs)} runs"), self.rows._repr_html_(), curves)


class Runs:
    """The runs of a directory. They need no account."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def get(self, name: str | Path | Run | compare.RunRow = directory.LATEST) -> Run:
        """A run by its name, the beginning or the end of its name, its path, its row of `list()`, or `latest`. Raises
        NotFound."""
        if isinstance(name, Run):
            return name
        text = name.id if isinstance(name, compare.RunRow) else name
        if not isinstance(text, (str, Path)):
            raise UsageError(f"this call takes a run: its name, or a row of `list()`; this is a {type(name).__name__}")
        return Run(directory.find(self.root, str(text)))

    def list(self) -> Table[compare.RunRow]:
        """All runs that can be read, the oldest first."""
        rows = []
        for run in directory.runs(self.root):
            with contextlib.suppress(UsageError):  # `batchtrain runs list` names it
                rows.append(compare.row(run.record(), run.labels_or_none()))
        return Table(rows)

    def compare(self, *runs: str | Path | Run | compare.RunRow) -> Comparison:
        """Two or more runs beside one another. Raises NotFound."""
        if len(runs) < 2:
            raise UsageError("name at least two runs; `client.runs.list()` lists them")
        return Comparison([self.get(run) for run in runs])

    def _repr_html_(self) -> str:
        return self.list()._repr_html_()


def _plot(curves: _Curves, names: Sequence[str], not_finite: Mapping[str, Mapping[str, str]]) -> Plot:
    """A figure for each metric. not_finite: by task or run, the metrics whose last value is not finite, in words."""
    choices = dict.fromkeys(name for metrics in curves.values() for name in metrics)
    if unknown := [name for name in names if name not in choices]:
        why = next((f": {texts[unknown[0]]}" for texts in not_finite.values() if unknown[0] in texts), "")
        raise NotFound(
            f"there is no curve of {unknown[0]}{why}; the metrics with curves are {', '.join(choices) or 'none'}"
        )
    alone = len(curves) == 1
    return Plot(
        {
            name: {name if alone else owner: metrics[name] for owner, metrics in curves.items() if name in metrics}
            for name in names or choices
        },
        {
            name: {name if alone else owner: texts[name] for owner, texts in not_finite.items() if name in texts}
            for name in names or choices
        },
    )
