"""Writes the run directory of one job, from its start to its end."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml
from azure.batch import BatchClient
from msgspec.structs import replace

from batchtrain import state_files
from batchtrain.catalog.prices import Price
from batchtrain.config.factories import PARAMETERS
from batchtrain.config.masking import (
    masked_document,
    masked_setting,
    masked_text,
    masked_words,
    masked_yaml,
    secrets_in,
    secrets_sent,
)
from batchtrain.config.projects import project_of
from batchtrain.config.task_results import MOST_TASKS, for_job, names_all, settings_of
from batchtrain.config.types import FetchSettings, Recipe, Secret, StorageOutput
from batchtrain.config.types import Job as JobSettings
from batchtrain.config.types import Task as TaskSettings
from batchtrain.config.types.secret import masked
from batchtrain.errors import (
    BatchtrainError,
    Finding,
    NotFound,
    ResultsLeft,
    ServiceError,
    TaskFailed,
    TerminalClosed,
    Terminated,
    UsageError,
    counted,
    printable,
)
from batchtrain.metrics.stream import RECORDS
from batchtrain.metrics.summary import Summary
from batchtrain.plan import render
from batchtrain.plan.cost import hour_of
from batchtrain.plan.marks import marks_of
from batchtrain.plan.outputs import patterns
from batchtrain.plan.types import Plan, Sources
from batchtrain.records import Failure, Job, Metric, Node, Task, events, least_node_hours, node_cost, node_hours, shown
from batchtrain.records.gang import standstill
from batchtrain.runs import compare, directory, lease, outcome, report, results, source_copy
from batchtrain.runs.attempt_record import STREAMS, AttemptRecord
from batchtrain.runs.beginnings import commit_of, training_jobs
from batchtrain.runs.continuations import continuations
from batchtrain.runs.directory import (
    Cost,
    EventRecord,
    FileRecord,
    Labels,
    RunDirectory,
    RunFailure,
    RunNode,
    RunRecord,
)
from batchtrain.runs.numbers import MetricsFile, Recorded
from batchtrain.runs.phases import Moments, phases
from batchtrain.service import read, tasks
from batchtrain.service.connect import Account, loopback, patience
from batchtrain.service.local_files import status_below
from batchtrain.version import __version__

MANY = 20
"""Of a job with more tasks, `run` fetches only the logs of those that failed, and of those that have `results`."""
MANY_OF_SWEEP = 200
"""The same limit for tasks with named parameters, whose metrics are compared."""
AT_ONCE, LONGEST = 1000, 1 << 18
"""Lines of a file that are searched for metrics at once; characters of a line. A longer line is read as several."""
NAMED = 3
"""Files with the same reason that the last lines of a command name; files.jsonl names all."""
ENDED = frozenset({"completed", "failed"})
_RANK = re.compile(r"logs/[^/]+/ranks/(\d{1,9})\.stdout\.txt")
_EARLIER = re.compile(r"^wd/ranks/attempt-(\d{1,9})/")


class Origin(NamedTuple):
    """How a run was started."""

    root: Path
    """The directory of all runs."""
    command: tuple[str, ...] = ()
    settings: Mapping[str, str] = {}
    files: Mapping[str, bytes] = {}
    """The configuration files as given."""
    labels: Labels = Labels()


class Progress(NamedTuple):
    """Callbacks that receive the progress of fetching, from several threads."""

    begin: Callable[[int, int], None] = lambda files, size: None
    """Called before the files of a task, with their number and bytes."""
    moved: Callable[[int], None] = lambda size: None
    """Called with the number of bytes that came."""


QUIET = Progress()


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(timezone.utc)


class Recording:
    """Writes a run directory while its job runs."""

    def __init__(
        self,
        client: BatchClient,
        account: Account,
        run: RunDirectory,
        record: RunRecord,
        job: JobSettings | None = None,
        *,
        job_ended: datetime | None = None,
        kept_kinds: tuple[str, ...] | None = None,
        secrets: tuple[Secret, ...] = (),
    ) -> None:
        """job: its settings; by default the settings with which its tasks were added. job_ended: when it ended, if it
        did. kept_kinds: the kinds of things that the run does not delete, for a new run. secrets: masked in everything
        that is recorded."""
        self.run = run
        self._lease = lease.take(run.path, kept_kinds)
        self._unwritten: OSError | None = None
        self._client, self._patience, self._record = client, patience(account.endpoint), record
        self._job, self._job_ended, self._secrets = job, job_ended, secrets
        self._moments, self._fetching = Moments(record.started), 0.0
        self._waits: Finding | None = None
        """What keeps all open tasks from starting, until a user or another client acts."""
        self._stopped: datetime | None = None
        """When the tasks were left, and their results fetched."""
        self.metrics: dict[str, dict[str, Metric]] = {}
        """The metrics of each task, at the end."""
        self._finished = False
        """Whether the run had ended before, and its tasks have not run since."""
        self._nodes: dict[str, Node] = {}
        self._files = {(file.task, file.node, file.path): file for file in run.files()}
        self._places: dict[str, str] = {}
        """The nodes on which tasks ran, each with its pool."""
        self.unkept = ""
        """Why no copy of the source is kept; empty if there is one, or no source."""
        self._results: Mapping[tuple[str, str, str], FileRecord] = {}
        """Those that were here before the last fetch."""
        self._again: dict[tuple[str, str, str], str] = {}
        self._unnamed: Mapping[str, Sequence[str]] = {}
        """Files that programs created, and that nothing names, by the reason why they were not fetched."""
        self._too_large: set[tuple[str, str, str]] = set()
        self._left = 0
        """How many tasks' logs were not fetched because the job has many."""
        self._tasks = self._named_only = 0
        """The tasks, and of a job with too many: how many of them may have created files that nothing names."""
        self._interrupted = False
        """Whether a fetch did not come to its end."""
        self.has_fetched = self.has_ended = False
        """Whether a fetch came to its end; whether the tasks of the followed job have ended."""
        self.failure: TaskFailed | None = None
        """Of its first failed task, or of its job that a user terminated."""
        self._attempts = AttemptRecord(run, self._forget_logs)
        self._addresses: dict[str, str] = {}
        """The ids of the nodes that were seen, by address."""
        self._numbers = Recorded(run, lambda task_id: self._settings(task_id).metrics)

    @property
    def job_id(self) -> str:
        return self._record.job

    def of(self, recipe: Recipe, plan: Plan, origin: Origin) -> Recording:
        """Record the settings of the job."""
        for path, content in origin.files.items():
            if Path(path).stem != "credentials":
                if path.endswith(".json"):  # one value per line, without tabs and surrogates, which YAML refuses
                    content = msgspec.json.format(msgspec.json.encode(msgspec.json.decode(content)))
                masked_content = masked_yaml(content.decode("utf-8-sig"), self._secrets).encode()
                self.run.replace(self.run.config / Path(path).name, masked_content)
        settings = masked_document(effective(recipe), self._secrets)
        text: str = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
        self.run.replace(self.run.config / "effective.yaml", text.encode())
        self._write_plan(plan)
        return self

    # --- while it runs ----------------------------------------------------------------------------------------------

    def tell(self, event: events.Event) -> None:
        """Record an event: of the output of a task only what it measures."""
        if isinstance(event, (events.NodeReady, events.PoolReused)):
            self._moments = self._moments._replace(ready=now())
        elif isinstance(event, events.TasksWait) and event.subject == self.job_id:
            self._waits = event.finding
        elif isinstance(event, events.ResultsFetching):
            self._stopped = self._stopped or now()
        elif isinstance(event, events.NodesSeen):
            self._addresses.update((node.address, node.id) for node in event.nodes)
        elif isinstance(event, (events.AttemptSeen, events.AttemptEnded)):
            with self._written():
                self._attempts.see(event.attempt)
        elif isinstance(event, events.MetricsSeen) and event.job == self.job_id:
            with self._written():
                attempt = self._attempts.current(event.subject)  # that prints; for records, the one that they call 1
                if event.has_records:
                    attempt = 1 + self._attempts.shift(event.subject, (point.attempt for point in event.points))
                self._numbers.see(event, attempt)
                if event.warnings:
                    self._warn()
                    self.run.write(self._record)
        elif isinstance(event, events.CandidateTried) and event.attempt is not None:
            candidate = replace(event.attempt, reason=masked_text(event.attempt.reason, self._secrets))
            with self._written():
                self._update(candidates=(*self._record.candidates, candidate))
        if event.text and not isinstance(event, events.Output):
            text = masked_text(event.text, self._secrets)
            with self._written():
                self.run.add_event(EventRecord(now(), event.kind, event.subject, text))

    def _update(self, **changes: Any) -> None:
        self._record = replace(self._record, **changes)
        self.run.write(self._record)

    def _warn(self) -> None:
        """Take what may have made the run slow."""
        warnings = dict.fromkeys((*self._record.warnings, *self._numbers.warnings))
        self._record = replace(self._record, warnings=tuple(warnings))

    def lines(self, task: str, stream: str, lines: Sequence[str]) -> None:
        """Lines of the output of a task, which are kept as its node may be lost."""
        with self._written():
            self._attempts.keep(task, stream, lines)

    @contextlib.contextmanager
    def _written(self) -> Iterator[None]:
        """Something is written while the tasks run: a full disk ends no training, and is reported at its end."""
        lease.touch()
        try:
            yield
        except OSError as error:
            self._unwritten = self._unwritten or error

    def job_ended(self, failure: TaskFailed | None) -> None:
        """The tasks of the job have ended now. failure: of the first failed task."""
        self._job_ended, self.has_ended, self.failure = self._job_ended or now(), True, failure

    # --- at its end -------------------------------------------------------------------------------------------------

    def fetch(
        self,
        ended_tasks: Iterable[Task],
        *,
        all_tasks: bool = False,
        everything: bool = False,
        progress: Progress = QUIET,
        free: Callable[[Path], int] = lambda directory: shutil.disk_usage(directory).free,
    ) -> None:
        """Fetch the results of tasks that have run, and their logs. all_tasks: also the logs of many. everything:
        results of any size. free: the free bytes of a disk."""
        began, tasks = now(), tuple(ended_tasks)

        def moved(size: int) -> None:
            lease.touch()
            progress.moved(size)

        self._finished = self._record.state in ENDED and _same(self.run.each_task(), self._records(tasks))
        self.run.write_tasks(self._records(tasks))
        self._attempts.prepare(tasks)
        fetcher = results.Fetcher(
            self._client,
            self.run,
            self.job_id,
            everything=everything,
            patience=self._patience,
            begin=progress.begin,
            report=moved,
            free=free,
        )
        self._count(tasks)
        self._interrupted, self._again, self._too_large = True, {}, set()
        self._results = self._outputs()
        self._files = {key: file for key, file in self._files.items() if file.fetched}
        try:
            with_logs = self._with_logs(tasks, all_tasks=all_tasks)
            others = [task for task in tasks if task.node and task.id not in with_logs]
            for result in fetcher.bring(
                [self._task(task_id) for task_id in with_logs], [self._task(task.id, logs=False) for task in others]
            ):
                lease.touch()
                self._bring(result)
            self._interrupted = False
        except NotFound:  # the job was deleted, and its files with it
            self._interrupted = False
            raise
        finally:
            self._unnamed = fetcher.unnamed if len(tasks) <= MOST_TASKS else {}
            for task in tasks:
                self._places.update({node.node: node.pool for node in fetcher.places.get(task.id, ())})
            self.run.write_files(self._files.values())
            self._write_nodes()
            self._attempts.conclude(tasks, self._addresses, self._nodes.values())
            self._fetching += (now() - began).total_seconds()
        self.has_fetched = True

    def _count(self, tasks: Sequence[Task]) -> None:
        self._tasks, has_many = len(tasks), len(tasks) > MOST_TASKS
        self._named_only = sum(not names_all(self._settings(task.id).results) for task in tasks) if has_many else 0

    def _bring(self, file: results.Brought) -> None:
        """Record a file. A result that an earlier fetch brought, and this one could not, is still here."""
        key = file.record.task, file.record.node, file.record.path
        earlier = self._results.get(key) if not file.record.fetched else None
        self._files[key] = replace(earlier, reason=file.record.reason) if earlier else file.record
        if file.again:
            self._again[key] = file.record.reason
        if file.is_too_large:
            self._too_large.add(key)

    def _outputs(self) -> dict[tuple[str, str, str], FileRecord]:
        return {key: file for key, file in self._files.items() if file.fetched.startswith("outputs/")}

    def _forget_logs(self, task_id: str) -> None:
        """The output of a task belongs to an attempt before: no record says any more that it was fetched."""
        folder = self.run.logs(task_id).relative_to(self.run.path)
        kept = {key: file for key, file in self._files.items() if Path(file.fetched).parent != folder}
        if len(kept) < len(self._files):
            self._files = kept
            self.run.write_files(kept.values())

    def _records(self, tasks: Iterable[Task]) -> Iterator[Task]:
        for task in tasks:
            parameters = masked_document(self._parameters.get(task.id) or None, self._secrets)
            failure = task.failure
            if failure:
                failure = msgspec.convert(masked_document(msgspec.to_builtins(failure), self._secrets), Failure)
            yield replace(task, parameters=parameters, failure=failure)

    def _task(self, task_id: str, *, logs: bool = True) -> results.FetchTask:
        return results.FetchTask(task_id, for_job(self._settings(task_id), self._tasks), logs)

    def _with_logs(self, tasks: tuple[Task, ...], *, all_tasks: bool) -> dict[str, None]:
        """The tasks whose logs are fetched, too."""
        ran = tuple(task for task in tasks if task.node)
        if all_tasks or len(ran) <= (MANY_OF_SWEEP if self._parameters else MANY):
            return dict.fromkeys(task.id for task in ran)
        task_ids = [task.id for task in ran if task.failed or self._settings(task.id).results is not None]
        self._left = len(ran) - len(task_ids)
        return dict.fromkeys(task_ids)

    def _settings(self, task_id: str) -> FetchSettings:
        """The `results` and `metrics` of a task. A generated task has those of its template."""
        if self._job is None:
            return self._settings_of_service.get(task_id, FetchSettings())
        task = self._task_settings(task_id)
        return settings_of(task) if task else FetchSettings()

    def _task_settings(self, task_id: str) -> TaskSettings | None:
        return self._settings_by_id.get(task_id) or self._settings_by_id.get(None)

    @functools.cached_property
    def _settings_by_id(self) -> dict[str | None, TaskSettings | None]:
        """The settings of tasks by id; under None those of the task from which others are generated."""
        tasks = self._job.tasks if self._job else ()
        templates = [task for task in tasks if task.id is None] or [task for task in tasks if task.task_factory]
        return {None: next(iter(templates), None)} | {task.id: task for task in reversed(tasks) if task.id}

    @functools.cached_property
    def _parameters(self) -> dict[str, dict[str, Any]]:
        """The named parameters of the tasks; only factories and the user's variables set parameters."""
        if self._job is None or any(
            task.task_factory or PARAMETERS in task.environment_variables for task in self._job.tasks
        ):
            return tasks.parameters(self._client, self.job_id)
        return {}

    @functools.cached_property
    def _settings_of_service(self) -> Mapping[str, FetchSettings]:
        """The settings with which the tasks were added."""
        return read.all_fetch_settings(self._client, self.job_id)

    def _write_nodes(self) -> None:
        """Name the nodes n0, n1, … in the order in which the tasks name them."""
        if not self._places:
            return
        self._read_nodes(self._places.values())
        nodes = self._nodes
        self.run.write_nodes(
            RunNode(
                f"n{number}",
                node,
                pool,
                nodes[node].address if node in nodes else "",
                self._record.vm_size,
                self._ranks(node),
            )
            for number, (node, pool) in enumerate(self._places.items())
        )

    def _read_nodes(self, pools: Iterable[str]) -> None:
        for pool in dict.fromkeys(pools):
            with contextlib.suppress(ServiceError):  # the pool is gone, but the ids are known
                self._nodes.update({node.id: node for node in read.nodes(self._client, pool, read.LOST_NODE)})
        self._addresses.update((node.address, node.id) for node in self._nodes.values())

    def _ranks(self, node: str) -> dict[str, tuple[int, ...]]:
        ranks_of: dict[str, list[int]] = {}
        for record in self._files.values():
            match = _RANK.fullmatch(record.fetched) if record.node == node else None
            if match:
                ranks_of.setdefault(record.task, []).append(int(match[1]))
        return {task: tuple(sorted(ranks)) for task, ranks in ranks_of.items()}

    def end(self, state: str, error: BaseException | None = None, ended: datetime | None = None) -> None:
        """Write the end of the run, its summary and the report. A run that had already ended keeps its end, and one
        that another process still records is left to it. ended: when its tasks did, if its nodes stayed until now."""
        if self._lease is None:
            return
        self.failure = self.failure or (error if isinstance(error, TaskFailed) else None)
        if self._finished:  # add the metrics of tasks that were fetched after the end of the run
            tasks = (task.id for task in self.run.each_task())
            measured_tasks = frozenset(task_id for task_id in tasks if self.run.metrics_file(task_id).exists())
            self._read_lines(measured_tasks)
            before, (is_by_task, summary) = self._record, self._summary(measured_tasks)
            is_any_by_task = is_by_task or before.is_by_task
            self._record = replace(before, summary=before.summary | summary, is_by_task=is_any_by_task)
        else:
            self._record = replace(self._record, summary={})
            self._read_lines(frozenset())
            end_time = None if state == "fetched" else self._job_ended or now()
            self._record = replace(
                self._record,
                state=state,
                ended=ended or end_time,
                failure=_failure(error, self._secrets, self._standstill(), self._waits) if error is not None else None,
                **self._spent(end_time),
                phases=phases(
                    self._moments, self.run.each_task(), self._preparation(), self._fetching, self._attempts.attempts
                ),
            )
            is_by_task, summary = self._summary(frozenset())
            self._record = replace(self._record, summary=summary, is_by_task=is_by_task)
            self._attempts.write()
        self._warn()
        complete = self.has_fetched and self.missing is None
        self._record = replace(self._record, results="complete" if complete else "partial")
        self._finish(self._lease)

    def _standstill(self) -> str:
        """Which ranks stood still when the run was stopped."""
        at = (self._stopped or now()).timestamp()
        tasks = self._numbers.tasks
        return "; ".join(filter(None, (standstill(self.run.ranks(task).ranks, at) for task in sorted(tasks))))

    def close(self, state: str) -> None:
        """Write the end of a run whose job is gone, from what its directory has. It ended with its last event."""
        if self._lease is None:
            return
        summaries: dict[str, Summary] = {}
        for task, point in self.run.points():
            summaries.setdefault(task, Summary()).add(point)
        last_event = max((event.t for event in self.run.events()), default=now())
        metrics = {task: summary.metrics() for task, summary in summaries.items()}
        is_by_task, summary = joined(metrics)
        self._record = replace(self._record, state=state, ended=last_event, summary=summary, is_by_task=is_by_task)
        self._finish(self._lease)

    def _finish(self, run_lease: lease.Lease) -> None:
        try:
            names = {name for task in self.run.each_task() for name in task.parameters or ()}
            self._record = replace(self._record, parameters=tuple(sorted(names)))
            self.run.write(self._record)
            self.run.replace(self.run.report, report.html(self.run).encode())
        finally:
            run_lease.release()
        if self._unwritten is not None:
            raise self._unwritten

    def take(self, tasks: Iterable[Task], files: Iterable[results.Brought], before: Mapping[str, int]) -> None:
        """Record the tasks of a detached run, and what came of their files in storage. before: by task, how many
        attempts ran before its job was added again."""
        tasks = tuple(tasks)
        self._finished = self._record.state in ENDED
        self._count(tasks)
        self._attempts.restart(before)
        self.run.write_tasks(self._records(tasks))
        self._attempts.prepare(tasks)
        self._read_nodes(task.pool for task in tasks if task.pool)
        self._results = self._outputs()
        self._files = {key: file for key, file in self._files.items() if not file.task}  # of the run itself
        self._again = {}
        for file in files:
            self._bring(file)
        self.run.write_files(self._files.values())
        self._attempts.conclude(tasks, self._addresses)
        self.has_fetched = True
        if self._job_ended is not None:  # the same time for every client
            self._numbers.at(self._job_ended.timestamp())

    def move(self, client: BatchClient, account: Account, recipe: Recipe, plan: Plan) -> None:
        """The pool of the run is to be created from another candidate."""
        self._client, self._patience = client, patience(account.endpoint)
        self._update(**_place_of(recipe, account))
        self._write_plan(plan)

    def restart(self) -> None:
        """The job is to be added again, at another candidate."""
        self._attempts.restart()

    def _write_plan(self, plan: Plan) -> None:
        document = render.as_document(plan._replace(hidden=self._secrets))
        plan_json = msgspec.json.format(msgspec.json.encode(document))
        self.run.replace(self.run.config / "plan.json", plan_json)

    def detach(self) -> None:
        """Leave the run to the service: no process records it once it is released."""
        self._update(state="detached")

    def leave(self, leaver: str) -> None:
        """Leave the end of the run, which continues, to a later command. leaver: `user` or `terminal`."""
        with self._written():
            self._update(left_by=leaver)
        self.release()

    def release(self) -> None:
        """Leave the end of the run to another command."""
        if self._lease is not None:
            self._lease.release()

    @property
    def is_ours(self) -> bool:
        """Whether this process records the run, and no other one of this host."""
        return self._lease is not None

    def _spent(self, end_time: datetime | None) -> dict[str, Any]:
        """The hours of its nodes and their cost, as fields of the record. The nodes that its pool still has tell them,
        or else, as the least, the times of its tasks. The cost is unknown then: a node may have been a spot node."""
        if end_time is None:
            return {"node_hours": None}
        nodes, since, cost = tuple(self._nodes.values()), self._record.started, self._record.cost
        hours, least = node_hours(nodes, end_time, since=since), least_node_hours(self.run.each_task())
        if cost is not None:
            price = Price(self._record.vm_size, cost.region, cost.currency, cost.dedicated, cost.spot)
            cost = replace(cost, run=node_cost(nodes, price, end_time, since=since) if hours >= least else None)
        return {"node_hours": max(hours, least), "is_node_hours_least": least > hours, "cost": cost}

    def _preparation(self) -> float | None:
        """The seconds of the slowest start task of the nodes that started in this run."""
        new_nodes = (node for node in self._nodes.values() if node.allocated and node.allocated >= self._record.started)
        return max((node.prepared for node in new_nodes if node.prepared is not None), default=None)

    def _summary(self, measured_tasks: Set[str]) -> tuple[bool, dict[str, Metric]]:
        """The summary of all tasks except the measured ones, as `joined` makes it."""
        self.metrics = self._numbers.end(self._metrics_files(measured_tasks))
        return joined(self.metrics, several=bool(self._record.summary))

    def _read_lines(self, measured_tasks: Set[str]) -> None:
        """Read what the tasks measured that this command did not follow to their ends: their output, and then the
        records of a gang, which replace that of its attempts. measured_tasks: those that already have metrics."""
        tasks_with_logs = {record.task: None for record in self._files.values() if record.fetched.startswith("logs/")}
        for task in tasks_with_logs:
            if task in measured_tasks or self._numbers.is_whole(task):
                continue
            first = self._first_unrecorded(task)
            for stream in STREAMS:
                for output in self._attempts.outputs(task, stream):
                    if output.attempt >= first:  # what was seen of earlier ones knows more
                        for lines in _line_groups(output.path, output.start):
                            self._numbers.lines(task, stream, lines, output.attempt)
            records = self.run.logs(task) / RECORDS.removeprefix("wd/")
            for lines in _line_groups(records) if records.is_file() else ():
                self._numbers.records(task, lines, 1 + self._attempts.shift(task))

    def _first_unrecorded(self, task: str) -> int:
        """The first attempt without metrics, or else the current one."""
        current = self._attempts.current(task)
        if current == 1:
            return 1
        recorded_attempts = {point.attempt for point in directory.points_of(self.run.metrics_file(task))}
        return next((number for number in range(1, current) if number not in recorded_attempts), current)

    def _metrics_files(self, measured_tasks: Set[str]) -> dict[str, tuple[MetricsFile, ...]]:
        files_of: dict[str, list[MetricsFile]] = {}
        for record in self._files.values():
            if record.task not in measured_tasks and record.fetched.startswith("metrics/"):
                match, path = _EARLIER.search(record.path), self.run.path / record.fetched
                earlier = int(match[1]) + self._attempts.shift(record.task) if match else None
                attempt = earlier or self._attempts.last(record.task)
                if status_below(self.run.path, path):
                    files_of.setdefault(record.task, []).append(MetricsFile(attempt, path))
        return {task: tuple(sorted(files)) for task, files in files_of.items()}

    # --- the events -----------------------------------------------------------------------------------------------

    @property
    def unsaved(self) -> tuple[str, ...]:
        """The reasons why files that are still on their nodes were not fetched, without duplicates. Nothing is deleted
        while there are some."""
        cut = ("the fetching was interrupted",) if self._interrupted else ()
        return (*cut, *dict.fromkeys(self._again.values()))

    @property
    def exceeds_limit(self) -> bool:
        """Whether all files that were not fetched, and are still on their nodes, exceed a limit of `results`."""
        return not self._interrupted and bool(self._again) and self._again.keys() <= self._too_large

    @property
    def is_on_nodes_alone(self) -> bool:
        """Whether a node has the only copy of a result: no output of its task has sent it to storage."""
        if self._interrupted or not self._again:
            return True
        tasks_by_id = {task.id: task for task in self.run.each_task()}
        return not all(self._is_in_storage(tasks_by_id.get(key[0]), *key) for key in self._again)

    def _is_in_storage(self, task: Task | None, task_id: str, node: str, path: str) -> bool:
        settings = self._task_settings(task_id)
        if settings is None or task is None or task.node != node:  # the service uploads from the primary
            return False
        outcome = "taskfailure" if task.failed else "tasksuccess"
        return any(
            output.condition in ("taskcompletion", outcome) and _uploads(output, path)
            for output in settings.output_data.azure_storage
            if not output.is_file_share
        )

    @property
    def lost(self) -> tuple[str, ...]:
        """The reasons why files cannot be fetched any more, such as a node that is gone."""
        reasons = (file.reason for key, file in self._files.items() if not file.fetched and key not in self._again)
        return tuple(dict.fromkeys(reasons))

    @property
    def missing(self) -> ResultsLeft | None:
        """The error of a command whose results are not all here."""
        reasons = (*self.unsaved, *self.lost)
        if not reasons:
            return None
        why = f"{reasons[0]}{f'; {len(reasons) - 1:,} other reasons are above' if len(reasons) > 1 else ''}"
        return ResultsLeft(f"files of job {self.job_id} were not fetched: {why}")

    def conclusion(self) -> str:
        """The last lines of a command: where the results are, and what is missing."""
        outputs = list(self._outputs().values())
        size = f"{counted(len(outputs), 'file')}, {results.size(sum(record.size for record in outputs))} in outputs/"
        lines = [f"results: {self.run.path}{f': {size}' if outputs else ''}"]
        reasons: dict[str, list[str]] = {}
        for key, record in self._files.items():
            if not record.fetched or key in self._again:
                suffix = f" ({results.size(record.size)})" if key in self._too_large else ""
                reasons.setdefault(record.reason, []).append(f"{record.path}{suffix}")
        for reason, paths in reasons.items():
            what = _named(sorted(paths)) if paths[0] else f"the files of {counted(len(paths), 'task')} were"
            lines.append(f"{what} not fetched: {reason}")
        if self.lost and self._job is not None and self._job.loses_files:
            lines.append(
                "the service deleted the `auto_pool` of the job with all files, because of its `auto_complete`"
            )
        if self._left:
            what = counted(self._left, "task")
            lines.append(
                f"the logs of {what} that succeeded were not fetched; a task with `results: {{}}` keeps its logs"
            )
        lines += [f"{_named(sorted(paths))} not fetched: {reason}" for reason, paths in self._unnamed.items()]
        if self._named_only:
            lines.append(
                f"the job has more than {MOST_TASKS:,} tasks, so only `output` was fetched of {self._named_only:,} of"
                " them; `results: {include: [...]}` names other files"
            )
        if self.unkept:
            lines.append(f"no copy of the source was kept: {self.unkept}")
        if self._record.is_node_hours_least:
            hours = compare.node_hours(self._record)
            lines.append(f"the run used {hours} node hours, the time of its tasks: its nodes were gone")
        if self._unwritten is not None:
            lines.append(f"the record of this run is incomplete: {self._unwritten.strerror or self._unwritten}")
        lines += [*(f"warning: {text}" for text in self._record.warnings), *self._numbers.notes]
        if self._record.is_over and self._record.state != "completed" and continuations(self.run):
            lines.append(f"continue from its checkpoints: batchtrain run --resume {self.run.name}")
        return "\n  ".join(lines)

    def outcome(self) -> events.Results:
        """How the run went, and where its results are."""
        record, attempts = self._record, max((attempt.number for attempt in self.run.attempts()), default=1)
        facts = outcome.facts(record, self.run.each_task(), self._files.values(), self.run.path)
        lines = (outcome.title(record, attempts), *outcome.lines(facts), self.conclusion())
        return events.Results(self.job_id, "\n".join(lines), compare.state_of(record))


def _uploads(output: StorageOutput, path: str) -> bool:
    """Whether an output sends a file of a task to storage. No wildcard matches a name that begins with a dot."""
    name = path.removeprefix("wd/") if path.startswith("wd/") else f"../{path}"
    is_hidden = any(part.startswith(".") and part != ".." for part in name.split("/"))
    whole = (pattern.removeprefix("../wd/") for pattern in patterns(output))
    return not is_hidden and any(results.selects((pattern,), name) or pattern == "../**/*" for pattern in whole)


def _line_groups(path: Path, start: int = 0) -> Iterator[list[str]]:
    """The lines of a file from a position on, AT_ONCE at a time."""
    with io.TextIOWrapper(state_files.opened(path), encoding="utf-8", errors="replace") as file:
        file.seek(start)
        lines = state_files.pieces(file, LONGEST)
        while some := [line.rstrip("\n") for line in itertools.islice(lines, AT_ONCE)]:
            yield some


def joined(metrics: Mapping[str, dict[str, Metric]], *, several: bool = False) -> tuple[bool, dict[str, Metric]]:
    """The summaries of tasks as one, and whether their names begin with the task, as they do for several."""
    if len(metrics) == 1 and not several:
        return False, next(iter(metrics.values()))
    return bool(metrics), {
        f"{task}/{name}": metric for task, of_task in metrics.items() for name, metric in of_task.items()
    }


def _named(paths: Sequence[str]) -> str:
    """Files as the subject of a sentence: some names, and the number of the others."""
    names = [printable(path) for path in paths[:NAMED]]
    if len(paths) > NAMED:
        names.append(counted(len(paths) - NAMED, "other file"))
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) + (" was" if len(paths) == 1 else " were")


_STOPPED = {TerminalClosed: "stopped because its terminal was closed", Terminated: "stopped by SIGTERM"}
"""What ended a command that its user did not end with Ctrl-C."""


def _failure(
    error: BaseException, secrets: tuple[Secret, ...], standing: str = "", waits: Finding | None = None
) -> RunFailure:
    """Why a run ended. standing: which ranks stood still then. waits: what kept the open tasks from starting."""
    failure: dict[str, Any] = {"message": str(error) or type(error).__name__}
    if isinstance(error, KeyboardInterrupt):
        doing = standing or (waits.cause if waits else "")
        reason = _STOPPED.get(type(error), "stopped by the user") + (f" while {doing}" if doing else "")
        next_step = "read the output of that rank" if standing else waits.next_step if waits else "run it again"
        finding = Finding("stopped", "the run", reason, "", next_step)
        failure |= {"message": reason, "cause": reason, "finding": finding._asdict()}
    if isinstance(error, TaskFailed):
        failure |= {name: getattr(error, name) for name in ("task", "rank", "node", "code", "cause")}
    if isinstance(error, BatchtrainError) and error.finding:
        failure["finding"] = error.finding._asdict()
    return msgspec.convert(masked_document(failure, secrets), RunFailure)


# --- beginnings -----------------------------------------------------------------------------------------------------


def begin(
    client: BatchClient,
    account: Account,
    recipe: Recipe,
    job: JobSettings,
    plan: Plan,
    origin: Origin,
    kept_kinds: tuple[str, ...] = (),
    sources: Sources | None = None,
    blobs: source_copy.Blobs | None = None,
    name: str = "",
) -> Recording:
    """Make the run directory of a job that is about to be added. Raises UsageError if it cannot be made.
    kept_kinds: the kinds of things that the run does not delete. sources: the files of each `source`, of which a copy
    is kept. blobs: lists the input data in storage accounts, for its digests. name: of the run;
    by default a new one."""
    pool = recipe.pool
    secrets = secrets_in(recipe, origin.settings)
    run = directory.make(origin.root, job.id, started := now(), name)
    record = RunRecord(
        id=run.name,
        state="running",
        started=started,
        **_place_of(recipe, account),
        pool=pool.id if pool and job.auto_pool is None else "",
        job=job.id,
        user=lease.user(),
        command=tuple(masked_words(origin.command, secrets)),
        settings={path: masked_setting(path, text, secrets) for path, text in origin.settings.items()},
        versions={"batchtrain": __version__, "python": sys.version.split()[0]},
        commit=commit_of(Path(recipe.directory)),
        project=project_of(recipe.directory).id if job.id in training_jobs(recipe) else "",
    )
    try:
        recording = Recording(client, account, run, record, job, kept_kinds=kept_kinds, secrets=secrets)
        recording.of(recipe, plan, origin)
        try:
            recording.unkept = source_copy.keep(
                run,
                recipe,
                job,
                sources or {},
                secrets=secrets,
                config_files=tuple(origin.files),
                dirty=record.commit is not None and record.commit.dirty,
                blobs=blobs,
            )
        except (OSError, ValueError) as error:  # a fault of the copy stops no run
            recording.unkept = str(error)
        if origin.labels != Labels():
            run.write_labels(origin.labels)
        run.write(record)
        return recording
    except OSError as error:
        raise UsageError(f"{run.path} cannot be written: {error.strerror or error}") from None


def _place_of(recipe: Recipe, account: Account) -> dict[str, Any]:
    """Where a recipe runs, as fields of a record."""
    pool, hour, cost = recipe.pool, hour_of(recipe, account.region), None
    if hour is not None and hour.price is not None:
        _, region, currency, dedicated, spot = hour.price
        cost = Cost(currency=currency, region=region, dedicated=dedicated, spot=spot, hour=hour.cost)
    return {
        "account": account.name,
        "endpoint": account.endpoint,
        "vm_size": pool.vm_size if pool else "",
        "nodes": pool.vm_count.total if pool else 0,
        "cost": cost,
    }


def adopt(
    client: BatchClient, account: Account, job_id: str, origin: Origin, settings: JobSettings | None = None
) -> Recording:
    """The run directory for a job that another command started: the existing one, or a new one. Raises NotFound if
    there is no such job."""
    job = read.job(client, job_id, f"{read.JOB},metadata")
    secrets = (*secrets_in(None, origin.settings), *secrets_of_job(client, job_id))
    if existing := _recorded(origin.root, lambda record: _is_of(record, job, account)):
        return Recording(client, account, *existing, settings, job_ended=job.ended, secrets=secrets)
    pool = read.pool_or_none(client, job.pool) if job.pool else None
    run = directory.make(origin.root, job_id, now())
    record = RunRecord(
        id=run.name,
        state="running",
        started=job.created or now(),
        account=account.name,
        endpoint=account.endpoint,
        pool=job.pool,
        job=job_id,
        vm_size=pool.vm_size if pool else "",
        nodes=pool.nodes if pool else 0,
        command=tuple(masked_words(origin.command, secrets)),
        versions={"batchtrain": __version__, "python": sys.version.split()[0]},
    )
    recording = Recording(client, account, run, record, settings, job_ended=job.ended, secrets=secrets)
    run.write(record)
    return recording


def _recorded(root: Path, fits: Callable[[RunRecord], bool]) -> tuple[RunDirectory, RunRecord] | None:
    """The newest matching run directory with its record; None if there is none."""
    for run in reversed(tuple(directory.runs(root))):
        record = run.record_or_none()
        if record and fits(record):
            return run, record
    return None


def recorded_job(root: Path, account: Account, job_id: str, job: Job | None) -> RunDirectory | None:
    """The newest run directory of a job; for a job that is gone, the newest with its id."""

    def fits(record: RunRecord) -> bool:
        return _is_of(record, job, account) if job else (record.job, record.account) == (job_id, account.name)

    existing = _recorded(root, fits)
    return existing[0] if existing else None


def is_of_account(record: RunRecord, account: Account) -> bool:
    """Whether a run was made on this account. An emulator may have another port after each start."""
    same_service = account.emulated and loopback(record.endpoint)
    return record.account == account.name and (same_service or record.endpoint == account.endpoint)


def _is_of(record: RunRecord, job: Job, account: Account) -> bool:
    """Whether a run directory belongs to this job, and not to an earlier one with the same id."""
    if record.job != job.id or not is_of_account(record, account):
        return False
    if record.state == "fetched":  # it began with the job
        return job.created is None or record.started == job.created
    if record.ended is None and (run := marks_of(job.metadata).run):  # of a lost or detached run, only the mark tells
        return record.id == run
    return job.created is None or record.ended is None or record.ended >= job.created


def _same(tasks: Iterable[Task], others: Iterable[Task]) -> bool:
    """Whether the same tasks ended in the same way."""
    names = (*Task.columns, "parameters")
    return all(a and b and shown(a, names) == shown(b, names) for a, b in itertools.zip_longest(tasks, others))


def secrets_of_job(client: BatchClient, job_id: str) -> tuple[Secret, ...]:
    """The values of the secret variables of a job and of its first tasks, which its output may contain."""
    with contextlib.suppress(NotFound):
        tasks = itertools.islice(read.task_documents(client, job_id, "id,environmentSettings"), read.PAGE)
        return secrets_sent(read.job_document(client, job_id), list(tasks))
    return ()


def effective(recipe: Recipe) -> dict[str, Any]:
    """The configuration with the values of `--set`, without credentials and defaults."""
    sections = {name: getattr(recipe, field) for name, field in compare.SECTIONS.items()}
    return {name: msgspec.to_builtins(part, enc_hook=masked) for name, part in sections.items() if part is not None}
