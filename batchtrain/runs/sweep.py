"""The tasks of a sweep with their parameters and a metric, best first."""

from __future__ import annotations

import contextlib
import contextvars
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from azure.batch import BatchClient
from msgspec.structs import replace

from batchtrain.config.types import FetchSettings
from batchtrain.errors import BatchtrainError, NotFound, printable, shortened
from batchtrain.markup import in_words
from batchtrain.metrics.extract import NAMED_NUMBER, Pattern, patterns_of
from batchtrain.metrics.programs.base import plain
from batchtrain.metrics.stream import OWN, RECORDS, MetricStream
from batchtrain.metrics.summary import Summary
from batchtrain.records import Metric, Table, Task
from batchtrain.records.events import Event, SweepCut
from batchtrain.records.gang import stall
from batchtrain.runs.compare import best_first, listed, ranked
from batchtrain.runs.directory import RunDirectory, points_of
from batchtrain.runs.recording import recorded_job
from batchtrain.runtime.batchtrain_sweep import lower_is_better
from batchtrain.service import files, read, retry, tasks
from batchtrain.service.connect import Account
from batchtrain.service.downloads import task_tree

MOST_READ = 500
"""Most tasks whose output is read from their nodes."""
END, RECORDS_END = 64 * 1024, 1024 * 1024
"""Bytes of the end of stdout, and of the records of all ranks of a gang, that are read."""
THREADS = 8
LONGEST_LINE = 200
"""Characters of a line of output in a sentence."""


class SweepRow(NamedTuple):
    """A task of a sweep with the last value of the metric."""

    task: str
    state: str
    parameters: dict[str, Any]
    value: float | None


def sweep(
    client: BatchClient,
    account: Account,
    root: Path,
    job_id: str,
    metric: str,
    tell: Callable[[Event], None],
    *,
    highest: bool | None = None,
) -> Table[SweepRow]:
    """The tasks of a job with the values of a metric, best first. Values come from the run directory of the job below
    `root`, or else from the end of the task's output. A job that is gone is read from its run directory.

    highest: whether the highest value is the best; by default the name of the metric decides. Raises NotFound if there
    is no such job, or no value of the metric.
    """
    job = read.job_or_none(client, job_id, f"{read.JOB},metadata")
    run = recorded_job(root, account, job_id, job)
    if job:
        parameters = tasks.parameters(client, job_id)
        every = [replace(task, parameters=parameters.get(task.id)) for task in read.tasks(client, job_id)]
    elif run:
        every = list(run.tasks())
    else:
        raise NotFound(
            f"there is no job {job_id} and no run of it here; `batchtrain jobs list` and `batchtrain runs list` show"
            " what there is",
            operation=f"look at job {job_id}",
            code="JobNotFound",
        )
    swept_tasks = _swept(every)
    summaries = {task.id: _summary(run, task.id, metric) for task in swept_tasks} if run else {}
    if job:
        missing = [task for task in swept_tasks if _of(summaries.get(task.id, {}), metric) is None]
        summaries.update(_read(client, job_id, metric, missing, tell))
    return _ranked(job_id, swept_tasks, summaries, metric, highest)


def of_run(run: RunDirectory, metric: str, *, highest: bool | None = None) -> Table[SweepRow]:
    """The same of a run that has ended, from its directory alone."""
    swept_tasks = _swept(run.tasks())
    summaries = {task.id: _summary(run, task.id, metric) for task in swept_tasks}
    return _ranked(run.record().job, swept_tasks, summaries, metric, highest)


def _swept(every: Sequence[Task]) -> Sequence[Task]:
    """The tasks with parameters, without others such as a merge task; all of them if none has parameters."""
    return [task for task in every if task.parameters] or every


def _ranked(
    job_id: str,
    swept_tasks: Iterable[Task],
    summaries: Mapping[str, Mapping[str, Metric]],
    metric: str,
    highest: bool | None,
) -> Table[SweepRow]:
    if not any(_of(metrics, metric) for metrics in summaries.values()):
        names = listed({name for metrics in summaries.values() for name in metrics})
        hint = f"its metrics are {names}" if names else "no task has printed one; see `batchtrain help metrics`"
        fault = f"job {job_id} has no metric {metric}" if metric else f"name a metric of job {job_id}"
        raise NotFound(f"{fault}; {hint}", operation=f"sweep of job {job_id}")
    is_lower_better = lower_is_better(metric) if highest is None else not highest
    rows = []
    for task in swept_tasks:
        last = _of(summaries.get(task.id, {}), metric)
        has_diverged = last is not None and last.last is None
        state = in_words(task.outcome, has_diverged=has_diverged and not task.failed)
        rows.append(SweepRow(task.id, state, task.parameters or {}, last.last if last else None))
    return Table(sorted(rows, key=lambda row: best_first(row.value, is_lower_better=is_lower_better)))


def _of(metrics: Mapping[str, Metric], metric: str) -> Metric | None:
    """The metric with this name, which may be written as a program prints it, such as `Test accuracy`."""
    return metrics.get(metric) or metrics.get(plain(metric))


def _summary(run: RunDirectory, task_id: str, metric: str) -> Mapping[str, Metric]:
    summary = Summary()
    for point in points_of(run.metrics_file(task_id)):
        summary.add(point)
    metrics = summary.metrics()
    stdout = run.logs(task_id) / "stdout.txt"
    if _of(metrics, metric) or not stdout.is_file():
        return metrics
    with stdout.open("rb") as file:
        file.seek(max(stdout.stat().st_size - END, 0))
        return {**_measured({"stdout.txt": file.read()}, (), metric), **metrics}


def _read(
    client: BatchClient, job_id: str, metric: str, missing: Sequence[Task], tell: Callable[[Event], None]
) -> Iterator[tuple[str, Mapping[str, Metric]]]:
    """The metrics at the end of the output of tasks that have run."""
    ran = [task.id for task in missing if task.state not in ("active", "preparing")]
    settings = read.all_fetch_settings(client, job_id) if ran else {}
    if len(ran) > MOST_READ:
        text = f"the output of {len(ran) - MOST_READ:,} tasks was not read; `batchtrain jobs fetch {job_id}` does"
        tell(SweepCut(job_id, text))
    contexts = [contextvars.copy_context() for _ in ran[:MOST_READ]]
    with ThreadPoolExecutor(THREADS) as workers:
        ends = workers.map(lambda task_id, context: context.run(ends_of, client, job_id, task_id), ran, contexts)
        for task_id, contents in zip(ran, ends, strict=False):
            patterns = patterns_of(settings.get(task_id, FetchSettings()).metrics)
            yield task_id, _measured(contents, patterns, metric)


def ends_of(client: BatchClient, job_id: str, task_id: str) -> Mapping[str, bytes]:
    """The ends of the files that say what a task measured: the records of its gang, or else its own file and its
    output. Nothing of a task that never ran, or whose node is gone."""
    tree, contents = task_tree(job_id, task_id), dict[str, bytes]()
    for path, size in ((RECORDS, RECORDS_END), (OWN, END), ("stdout.txt", END)):
        if RECORDS not in contents:
            with contextlib.suppress(BatchtrainError):
                contents[path] = files.end_of(client, tree, path, size)
    return contents


def _measured(contents: Mapping[str, bytes], patterns: Iterable[Pattern], metric: str) -> Mapping[str, Metric]:
    """What a task measured last. In lines that no program reads, the metric is found as `NAME=VALUE`, `NAME: VALUE`
    and `NAME VALUE`, unless a word stands before its name. A line that is a name and a number has another metric."""
    name = re.escape(metric).replace("_", "[_ ]")
    by_name = rf"(?i)(?<![a-z] )(?<![\w/.-]){name}[\"']?(?:\s*[=:]|\s)\s*([-+]?(?:\d[\w.+-]*|nan\b|inf\b))"
    otherwise = [Pattern(metric, by_name), NAMED_NUMBER] if metric else [NAMED_NUMBER]
    return read_ends(contents, MetricStream(patterns, otherwise, watched=False))


def read_ends(contents: Mapping[str, bytes], stream: MetricStream, now: float = 0.0) -> Mapping[str, Metric]:
    """The metrics at the ends of the files of a task, which the stream reads. now: when they were read."""
    summary = Summary()
    takes = {RECORDS: stream.records, OWN: stream.own, "stdout.txt": stream.output}
    for path, content in contents.items():
        for point in takes[path](content.decode("utf-8", "replace").splitlines(), now).points:
            summary.add(point)
    return summary.metrics()


def progress(client: BatchClient, job_id: str, task: Task, now: float) -> str:
    """How far a task is or came, in the words of `so_far`; empty if nothing of it can be read."""
    stream, contents = MetricStream(), ends_of(client, job_id, task.id)
    metrics = read_ends(contents, stream, now)
    lines = contents.get("stdout.txt", b"").decode("utf-8", "replace").replace("\r", "\n").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return so_far(job_id, task, stream, metrics, last, now) if contents else ""


def so_far(job_id: str, task: Task, stream: MetricStream, metrics: Mapping[str, Metric], line: str, now: float) -> str:
    """How far a task is, in a sentence: how long it runs, its step, its main metrics, the ranks that stand, and the
    last line of its ranks, or else of its output. line: the last line of its output."""
    ranks, training, main = stream.seen(), stream.progress, ranked(dict(metrics))[:2]
    parts = list[str]()
    if task.state == "running" and task.started:
        parts.append(f"running for {retry.span(max(now - task.started.timestamp(), 0))}")
    if training:
        parts.append(f"{training.unit} {training.at}/{training.of}")
    elif main and main[0][1].step is not None:
        parts.append(f"step {main[0][1].step}")
    parts += [f"{name} {metric.text(4)}" for name, metric in main]
    if task.state == "running" and (text := stall(ranks, stream.judged_at(now))):
        parts.append(f"{text} (`{shlex.join(('batchtrain', 'jobs', 'stacks', job_id, task.id))}` shows where)")
    newest = max(ranks, key=lambda rank: rank.heard, default=None)
    printer, last = (f"rank {newest.number}", newest.last) if newest and newest.last else ("it", line)
    if last := printable(last.strip()):
        parts.append(f"{printer} printed `{shortened(last[:LONGEST_LINE])}`")
    nothing = "it printed nothing" if task.state == "completed" else "it has printed nothing yet"
    return f"{task.id}: {', '.join(parts) or nothing}"


def flat(rows: Iterable[SweepRow], metric: str) -> list[dict[str, Any]]:
    """The rows with a column for each parameter and one for the metric."""
    sweep_rows = list(rows)
    names = dict.fromkeys(name for row in sweep_rows for name in row.parameters)
    return [
        {"task": row.task, metric: row.value, **{name: row.parameters.get(name) for name in names}, "state": row.state}
        for row in sweep_rows
    ]
