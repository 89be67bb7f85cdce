"""What a client does with one job."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from batchtrain import markup, records
from batchtrain.client import logins, stacks
from batchtrain.client.session import Session
from batchtrain.client.shown_progress import SHOW, Tell, displayed
from batchtrain.client.watching import until_ended
from batchtrain.config.types import Job as JobSettings
from batchtrain.config.types import Recipe
from batchtrain.diagnosis import diagnose
from batchtrain.diagnosis.evidence import Evidence
from batchtrain.diagnosis.finding import Diagnosis
from batchtrain.display.progress import Card, line
from batchtrain.errors import BatchtrainError, Finding, NotFound, ServiceError, TaskFailed, UsageError
from batchtrain.life import intents, rules
from batchtrain.life.endings import cause_of
from batchtrain.life.rules import Decision
from batchtrain.records import MOST_ROWS, Table, Task
from batchtrain.records.events import TasksChanged
from batchtrain.records.rank_end import RankEnd
from batchtrain.records.stacks import Stack
from batchtrain.runs import source_copy
from batchtrain.runs.directory import RunDirectory, root_of
from batchtrain.runs.finished import Run
from batchtrain.runs.log_follower import together
from batchtrain.runs.recording import QUIET, Origin, Progress, Recording, adopt, recorded_job
from batchtrain.runs.sweep import SweepRow, progress, sweep
from batchtrain.runs.task_files import FileRow, GotRow, TaskFiles
from batchtrain.service import (
    deletion,
    files,
    job_actions,
    observe,
    read,
    statistics,
    submit,
    task_actions,
    tasks,
    watch,
)
from batchtrain.service.deadlines import GONE_SECONDS, JOB_SECONDS
from batchtrain.service.downloads import task_tree
from batchtrain.service.failed import ended_early, explained, failed, summary, unfinished
from batchtrain.service.register import Thing
from batchtrain.service.statistics import Stats
from batchtrain.service.task_actions import Action, Changed
from batchtrain.service.tasks import FEW, Glance

GROUPED = 1000
"""Failed tasks among which the most frequent cause is looked for: those of one request."""
FEW_RUNNING = 4
"""Running tasks whose progress is read; if none runs, `jobs show` reads that of one that has ended."""
EXPLAINED = 5
"""The causes of failures for which the stderr of an example is read."""


class Job:
    """One job: its state, tasks and logs."""

    def __init__(self, client: Session, job_id: str) -> None:
        self._client, self.id = client, job_id

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def _repr_html_(self) -> str:
        try:
            seen, rows = self.seen, Table(self.explained(self.iter_tasks(limit=MOST_ROWS)))
            step = self.reason_to_wait(seen)
        except ServiceError as error:  # a job that is gone is still a value
            return markup.card(markup.head(f"job {self.id}", note=str(error)))
        counts = f"{seen.active} active, {seen.running} running, {seen.succeeded} succeeded, {seen.failed} failed"
        note = f"pool {seen.pool}: {counts}" + (f"; {step.text}" if step else "")
        return markup.card(markup.head(f"job {self.id}", seen.state, note), rows._repr_html_())

    @property
    def seen(self) -> records.Job:
        """The job now, with the counts of its tasks. Raises NotFound."""
        return read.counted_job(self._client.batch, self.id)

    @property
    def tasks(self) -> Table[Task]:
        """All its tasks now. Of a large job, `iter_tasks` gives a part."""
        tasks = Table(self.iter_tasks())
        tasks.in_words = self.explained
        return tasks

    @property
    def open(self) -> bool:
        """Whether a task runs, or may still start."""
        return observe.has_work(self._client.batch, self.id)

    def iter_tasks(self, state: str = "", *, limit: int | None = None) -> Iterator[Task]:
        """Its tasks, page by page.

        state: only those that are `active`, `running`, `completed`, `succeeded` or `failed`. limit: the maximum number.
        """
        where = tasks.filter_of(state)
        return read.tasks(self._client.batch, self.id, where=where, select=read.TIMED_TASK, limit=limit)

    def last_tasks(self, count: int, state: str = "") -> Table[Task]:
        """The tasks whose state changed last, in the order of the changes. state: as for `iter_tasks`."""
        return Table(tasks.last(self._client.batch, self.id, count, tasks.filter_of(state)))

    def glance(self, most: int = FEW) -> Glance:
        """Its first tasks and the counts of all: one request for a job of up to `most` tasks, otherwise two."""
        return tasks.glance(self._client.batch, self.id, most)

    @displayed("interrupted; only the waiting ends, the job continues")
    def wait(self, *, timeout: float = JOB_SECONDS, check: bool = True, tell: Tell = SHOW) -> Job:
        """Wait until every task has ended. Raises TaskFailed for the first failed task (unless `check` is off)."""
        intent = intents.WATCH if tell is line or isinstance(tell, Card) else intents.WAIT_QUIETLY
        until_ended(self._client, self, intent, watch.Deadline(timeout, watch.tasks_of(self.id), tell))
        if check:
            self.raise_failed()
        return self

    def raise_failed(self, known: Iterable[Task] | None = None, *, run: RunDirectory | None = None) -> None:
        """Raise TaskFailed, with its last lines and its cause, for the first task that failed by the most frequent
        cause. known: all its tasks, if they are listed already. run: the run directory that keeps their output."""
        if error := self.first_failure(known, run=run):
            raise error

    def first_failure(
        self, known: Iterable[Task] | None = None, *, run: RunDirectory | None = None
    ) -> TaskFailed | None:
        """What `raise_failed` raises; None if all tasks succeeded."""
        if known is None:
            still_open = read.tasks(self._client.batch, self.id, where=tasks.OPEN, limit=1)
            known = itertools.chain(self.iter_tasks("failed", limit=GROUPED), still_open)
        not_done = [task for task in known if task.outcome != "succeeded"]
        if any(task.is_cut_short for task in not_done):
            job = read.job(self._client.batch, self.id, read.EXAMINED_JOB)
            if job.is_ended_early:
                return ended_early(job)
        if not not_done:
            return None
        failures = statistics.by_cause(task for task in not_done if task.failed).values()
        task = max(failures, key=len, default=not_done)[0]
        error = self.failure_of(task)
        with contextlib.suppress(BatchtrainError):  # the failure itself matters more
            error.finding = self._examined(task.id, run, logs=str(run.path / "logs") if run else "").first
            step = self.reason_to_wait() if any(task.state == "active" for task in not_done) else None
            if step is not None and step.rule.exit_code == rules.FAILED:
                error.args = (f"{error}; {step.reason.text}",)
        return error

    def reason_to_wait(self, seen: records.Job | None = None) -> Decision | None:
        """Why its tasks wait: by `rule.name`, and in words as `text`. None while one runs, and if none is left. Raises
        NotFound.

        seen: the job with the counts of its tasks, if it was read already.
        """
        job = seen or self.seen
        return rules.decide(observe.look(self._client.batch, self.id, job.counts, job).seen) if job.active else None

    def failure_of(self, task: Task) -> TaskFailed:
        """Why a task failed or did not finish, with the last lines of its stderr."""
        if task.state != "completed":
            return unfinished(self.id, task)
        return failed(self.id, task, *self._end_of(task.id))

    def _end_of(self, task_id: str) -> tuple[tuple[str, ...], RankEnd]:
        where = self._client.batch, self.id, task_id
        return files.stderr_end(*where), files.first_end(*where)

    def explained(self, rows: Iterable[Task]) -> Iterator[Task]:
        """Tasks for a list, with the causes of failures; those of exit codes cost two or three requests each."""
        return explained(rows, self.reason_of)

    def reason_of(self, task: Task) -> str:
        """The cause of a task's failure in a few words, as far as its output tells it; otherwise empty."""
        return summary(task, *self._end_of(task.id))

    def read(self, task_id: str | None = None, *, file: str = "stdout.txt") -> bytes:
        """The bytes of a file of a task (by default stdout of the first task). Raises NotFound."""
        return b"".join(self.blocks(task_id, file=file))

    def blocks(self, task_id: str | None = None, *, file: str = "stdout.txt") -> Iterator[bytes]:
        """The bytes of a file of a task as `read` returns them, but 8 MiB at a time. Raises NotFound."""
        return files.blocks(self._client.batch, task_tree(self.id, task_id or self._first_task()), file)

    def logs(
        self,
        task_id: str | None = None,
        *,
        file: str = "stdout.txt",
        follow: bool = False,
        timeout: float = JOB_SECONDS,
        tell: Tell = SHOW,
    ) -> Iterator[str]:
        """Lines of the output of a task (by default stdout of the first task); with `follow` until the task has ended.

        Raises NotFound if the task does not exist, TimedOut if following takes longer than `timeout`.
        """
        if not follow:
            yield from files.lines_of(self.blocks(task_id, file=file))
            return
        deadline = watch.Deadline(timeout, f"the end of {file} of {task_id or 'the first task'} of job {self.id}", tell)
        with deadline:
            name = task_id or self._first_task()
        follower = files.Follower(self._client.batch, self.id, name, file)
        while True:
            with deadline:
                task = self.seen_task(name)
                state = task.state
                new = follower.new_lines(task.node, last=state == "completed")
            for lines in _read(new, deadline):
                yield from lines
                deadline.news()
            if state == "completed" and follower.missing:
                raise follower.missing
            if state == "completed":
                return
            deadline.pause(self._client.pace.first * 2, f"the task is {state}")

    def _first_task(self) -> str:
        for task in self.iter_tasks(limit=1):
            return task.id
        raise NotFound(f"job {self.id} has no tasks")

    def seen_task(self, task_id: str | None = None) -> Task:
        """A task now (by default the first task). Raises NotFound."""
        return read.task(self._client.batch, self.id, task_id or self._first_task(), read.TIMED_TASK)

    def task(self, task_id: str | None = None) -> TaskFiles:
        """The files of a task (by default the first task): `files`, `get` and `open`."""
        return TaskFiles(self._client.files, self.id, task_id or self._first_task())

    def files(self, task_id: str | None = None, *, node: str | None = None, all_nodes: bool = False) -> Table[FileRow]:
        """The files of a task (by default the first task). node: another node of its gang."""
        return self.task(task_id).files(node=node, all_nodes=all_nodes)

    def get(
        self,
        *patterns: str,
        task_id: str | None = None,
        directory: str | Path = ".",
        node: str | None = None,
        all_nodes: bool = False,
        progress: Progress = QUIET,
    ) -> Table[GotRow]:
        """Fetch files of a task (by default the first task) to a directory."""
        return self.task(task_id).get(*patterns, directory=directory, node=node, all_nodes=all_nodes, progress=progress)

    def fetch(
        self,
        origin: Origin,
        *,
        settings: JobSettings | None = None,
        everything: bool = False,
        progress: Progress = QUIET,
    ) -> tuple[Recording, tuple[str, ...]]:
        """Fetch logs and results into the run directory of the job, and say why some files are missing.

        settings: the job as its recipe has it, for the `results` of its tasks. everything: without a limit of size.
        """
        recording = adopt(self._client.batch, self._client.account, self.id, origin, settings)
        try:
            tasks = self.tasks
            recording.fetch(tasks, all_tasks=True, everything=everything, progress=progress)
            is_open = any(task.state != "completed" for task in tasks)
            is_open = not tasks or (is_open and not read.job(self._client.batch, self.id).is_ended_early)
            failure = None if is_open else self.first_failure(tasks, run=recording.run)
            recording.end("fetched" if is_open else cause_of(failure).state, failure)
        finally:
            recording.release()
        return recording, (*recording.unsaved, *recording.lost)

    def result(self, *, runs_dir: str | Path | None = None) -> Run:
        """Fetch the logs and results of the tasks that have run into the run directory of the job, and read it.

        runs_dir: where run directories are; by default BATCHTRAIN_RUNS_DIR or `runs`.
        """
        recording, _ = self.fetch(Origin(root_of(runs_dir, os.environ)))
        return Run(recording.run)

    def exec(self, command: str, task_id: str | None = None, *, recipe: Recipe | None = None) -> int:
        """Run a shell command in the working directory and with the environment of a running task (by default the first
        that runs), on the node of its primary; in its container, if it has one. Returns the exit code of the command.

        recipe: the files with the login of the pool (`ssh`), which a node of Azure needs. Raises NotFound, UsageError.
        """
        task = self._running(task_id)
        primary = read.task_nodes(self._client.batch, self.id, task.id)[0]
        target = logins.login(self._client.account, self._client.batch, primary.pool, primary.node, recipe)
        return logins.run(target, logins.inside(primary.directory, command))

    def stacks(self, task_id: str | None = None, *, recipe: Recipe | None = None) -> tuple[list[Stack], list[str]]:
        """What the Python processes of a running task (by default the first that runs) do now, on all its nodes, and
        why nodes did not answer. By py-spy where a process has it on its PATH; else the ranks of a gang write it.

        recipe: as for `exec`. Raises NotFound, UsageError.
        """
        task = self._running(task_id)
        return stacks.stacks(self._client.account, self._client.batch, self.id, task.id, recipe)

    def _running(self, task_id: str | None) -> Task:
        runs = None if task_id else read.tasks(self._client.batch, self.id, where="state eq 'running'", limit=1)
        task = self.seen_task(task_id or next((task.id for task in runs or ()), None))
        if task.state != "running":
            raise UsageError(
                f"task {self.id}/{task.id} is {task.state}, not running; `batchtrain jobs files {self.id} {task.id}`"
                " lists the files that it has left"
            )
        return task

    def terminate_tasks(self, *task_ids: str, tell: Tell = SHOW) -> Changed:
        """Terminate tasks. Raises ServiceError at the end if some were refused."""
        return self._change("term", task_ids, tell or SHOW)

    def delete_tasks(self, *task_ids: str, tell: Tell = SHOW) -> Changed:
        """Delete tasks with their files. Raises NotFound or ServiceError at the end if some were refused."""
        return self._change("del", task_ids, tell or SHOW)

    def reactivate_tasks(self, *task_ids: str, tell: Tell = SHOW) -> Changed:
        """Run failed tasks again. Raises ServiceError at the end if some were refused, and for a job that is over."""
        return self._change("reactivate", task_ids, tell or SHOW)

    def _change(self, name: str, task_ids: Sequence[str], tell: watch.Tell) -> Changed:
        action = task_actions.ACTIONS[name]
        progress = self._progress(action.past, len(task_ids), tell)
        return self._checked(action, task_actions.change(self._client.batch, self.id, action, task_ids, progress))

    def _checked(self, action: Action, changed: Changed) -> Changed:
        if changed.refused:
            raise task_actions.refusal(self.id, action, changed)
        return changed

    def _progress(self, past: str, count: int | None, tell: watch.Tell) -> Callable[[int], None]:
        of = f" of {count:,}" if count is not None else ""
        return lambda number: tell(TasksChanged(self.id, f"{past} {number:,}{of} tasks"))

    def resubmit_failed(self, *, tell: Tell = SHOW) -> Changed:
        """Run the failed tasks again. Raises ServiceError for a job that is over, and if some were refused."""
        action = task_actions.ACTIONS["reactivate"]
        progress = self._progress(action.past, None, tell or SHOW)
        return self._checked(action, job_actions.resubmit_failed(self._client.batch, self.id, progress))

    def migrate(
        self, pool_id: str, *, running: str = "requeue", timeout: float = GONE_SECONDS, tell: Tell = SHOW
    ) -> None:
        """Move the job to another pool: disable it, change its pool, enable it.

        running: what happens to running tasks (`requeue`, `terminate`, `wait`). Raises NotFound, PlanError for a job
        with an auto pool, ServiceError for a job that is over, TimedOut if the job is not disabled in time.
        """
        deadline = watch.Deadline(timeout, f"job {self.id} to be disabled", tell)
        job_actions.migrate(self._client.batch, self.id, pool_id, running, deadline, self._client.pace, tell or SHOW)

    def stats(self) -> Stats:
        """Its tasks in numbers: times, node hours, the slowest, and the failed ones by cause. Lists every task once."""
        pool_id = read.job(self._client.batch, self.id).pool
        pool = read.pool_or_none(self._client.batch, pool_id) if pool_id else None
        collector = statistics.Collector(pool.slots if pool else 1)
        for item in read.tasks(self._client.batch, self.id, select=read.COUNTED_TASK):
            collector.add(item)
        examples = itertools.islice(collector.examples().items(), EXPLAINED)
        return collector.stats({cause: str(self.failure_of(task)) for cause, task in examples})

    def sweep(
        self, metric: str, *, highest: bool | None = None, runs_dir: str | Path | None = None, tell: Tell = SHOW
    ) -> Table[SweepRow]:
        """The tasks of the job with their named parameters and the last value of a metric, best first.

        highest: whether the highest value is the best; by default the name of the metric decides. runs_dir: where the
        run directory of the job is; by default BATCHTRAIN_RUNS_DIR or `runs`. Raises NotFound.
        """
        root = root_of(runs_dir, os.environ)
        return sweep(self._client.batch, self._client.account, root, self.id, metric, tell or SHOW, highest=highest)

    def progress(self, task: Task) -> str:
        """How far a task is or came, in a sentence: how long it runs, its step, its main metrics, its ranks and its
        last line; empty if nothing of it can be read."""
        return progress(self._client.batch, self.id, task, time.time())

    def diagnose(
        self, task_id: str | None = None, *, hints: tuple[str, ...] = (), runs_dir: str | Path | None = None
    ) -> Diagnosis:
        """Why the job, or one task of it, fails or waits. Of a job that is gone, what its newest run directory says.

        hints: why its tasks wait, as far as the emulator knows it. runs_dir: by default BATCHTRAIN_RUNS_DIR or `runs`.
        """
        try:
            run = self.recorded(runs_dir)
            return self._examined(task_id, run, hints=hints)
        except NotFound as error:
            run = self.recorded(runs_dir) if error.code == "JobNotFound" else None
            if run is None:
                raise
            return _kept_diagnosis(run, task_id)

    def recorded(self, runs_dir: str | Path | None = None) -> RunDirectory | None:
        """Its newest run directory, also of a job that is gone; None if there is none. runs_dir: as for `diagnose`."""
        return recorded_job(root_of(runs_dir, os.environ), self._client.account, self.id, None)

    def _examined(
        self, task_id: str | None, run: RunDirectory | None, *, hints: tuple[str, ...] = (), logs: str = ""
    ) -> Diagnosis:
        seen, left_out = (run.attempts(), source_copy.left_out(run)) if run else ((), ())
        diagnosis = diagnose.job(self._client.batch, self.id, task_id, hints, logs, seen, left_out)
        evidence = diagnosis.evidence
        running = [each.task for each in evidence.tasks if each.task.state == "running"][:FEW_RUNNING]
        progress = tuple(filter(None, map(self.progress, running)))
        return dataclasses.replace(diagnosis, evidence=evidence._replace(progress=progress))

    def disable(self, *, running: str = "requeue") -> None:
        """Disable the job: it starts no more tasks. running: what happens to running tasks (`requeue`, `terminate`,
        `wait`)."""
        submit.disable_job(self._client.batch, self.id, running)

    def enable(self) -> None:
        """Enable the job after `disable`."""
        submit.enable_job(self._client.batch, self.id)

    def terminate(self) -> None:
        """Terminate the tasks of the job. The job is not deleted."""
        submit.terminate(self._client.batch, Thing("job", self.id))

    @displayed("interrupted; the deletion continues", quiet=True)
    def delete(self, *, wait: bool = True, timeout: float = GONE_SECONDS, tell: Tell = SHOW) -> None:
        """Delete the job with its tasks. Raises NotFound."""
        deletion.request_named(self._client.batch, Thing("job", self.id), tell, seconds=timeout)
        if wait:
            self.gone(timeout=timeout, tell=tell)

    @displayed("interrupted; the deletion continues", quiet=True)
    def gone(self, *, timeout: float = GONE_SECONDS, tell: Tell = SHOW) -> None:
        """Wait until the deletion of the job has finished."""
        deletion.gone(self._client.batch, Thing("job", self.id), self._client.pace, tell, timeout)


def _kept_diagnosis(run: RunDirectory, task_id: str | None) -> Diagnosis:
    """What a run directory says about a job that is gone, or about one task of it."""
    record, failure, logs = run.record(), run.record().failure, run.path / "logs"
    if failure and task_id and failure.task != f"{record.job}/{task_id}":
        failure = None  # of another task
    finding = failure.found.after_deletion() if failure and failure.found else None
    if failure and not finding:
        finding = Finding("unknown", f"job {record.job}", failure.message, "", f"read its output in {logs}")
    state = f"{record.state}; the job is gone, and this is from {run.path}"
    return Diagnosis(f"job {record.job}", state, "", (finding,) if finding else (), (), Evidence())


def _read(lines: Iterator[str], deadline: watch.Deadline) -> Iterator[list[str]]:
    """Lines, many at a time. The deadline covers only the reading: who takes the lines may make requests too."""
    parts = together(lines)
    while True:
        with deadline:
            part = next(parts, None)
        if part is None:
            return
        yield part
