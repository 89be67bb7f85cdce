"""Compares runs: the settings that differ, and the values of their metrics."""

from __future__ import annotations

import re
import shlex
import statistics
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from batchtrain import state_files
from batchtrain.catalog.prices import money
from batchtrain.config import document
from batchtrain.config.schema import FIELDS
from batchtrain.errors import UsageError, shortened
from batchtrain.markup import in_words
from batchtrain.metrics.programs.base import plain
from batchtrain.records import Attempt, Metric
from batchtrain.records.metric import LEARNING_RATES, MAIN
from batchtrain.runs import source_copy
from batchtrain.runs.directory import Labels, RunDirectory, RunRecord
from batchtrain.runs.phases import PHASES
from batchtrain.runtime.batchtrain_sweep import lower_is_better
from batchtrain.service.connect import loopback
from batchtrain.service.statistics import p95


class RunRow(NamedTuple):
    """A run in `runs list`."""

    run: str
    state: str
    started: datetime
    seconds: float | None
    nodes: int
    vm_size: str
    node_hours: float | None
    cost: str
    labels: str
    """Its tags and its note."""
    results: str

    @property
    def id(self) -> str:
        """The name of the run, as `Run.id`."""
        return self.run


class MetricRow(NamedTuple):
    """A metric in `runs show`."""

    metric: str
    last: str
    best: str
    step: int | None
    unit: str


class Best(NamedTuple):
    """The best value of a metric over the tasks of a run."""

    tasks: int
    metric: str
    value: float
    task: str
    """The first of the tasks that have it."""
    sharing: int
    """How many tasks have it."""


SECTIONS = {
    name: FIELDS[name] for name in ("batchtrain", "global_resources", "pool_specification", "job_specifications")
}
"""The sections of effective.yaml, with their fields of a recipe."""
MANY = 4
"""Tasks of a run that are shown as their number and the best value."""


class Packages(msgspec.Struct, frozen=True):
    """logs/TASK/packages.json."""

    python: str
    packages: dict[str, str]


class Difference(NamedTuple):
    """A setting or metric in `runs compare`: one value for each run."""

    name: str
    values: tuple[str, ...]
    diverged: tuple[bool, ...] = ()
    """Of a metric, whether its last value is not finite."""


class Listed(NamedTuple):
    """A run of a list: its record, how far it is while it runs, and what the user calls it."""

    record: RunRecord
    progress: str
    labels: Labels


def row(record: RunRecord, labels: Labels | None = None, progress: str = "") -> RunRow:
    """A run as one row. progress: how far it is, while it runs."""
    best = best_of_tasks(record, least=2)
    results = [f"{name} {metric.text(4)}" for name, metric in ranked(record.summary)][:3]
    results = [progress, *results] if progress else results
    return RunRow(
        record.id,
        state_of(record),
        record.started,
        seconds(record),
        record.nodes,
        record.vm_size,
        record.node_hours,
        cost(record),
        str(labels or ""),
        f"{best.tasks} tasks, best last {best.metric} {best.value:.4g}" if best else ", ".join(results),
    )


def by_metric(runs: Iterable[Listed], name: str) -> list[Listed]:
    """The runs that have a metric, the best last value first and values that are not finite last. Raises UsageError if
    no run has it."""
    every = tuple(runs)
    measured = [run for run in every if name in run.record.summary]
    if not measured:
        names = listed({n for run in every for n in run.record.summary})
        raise UsageError(f"no run has a metric `{name}`; {f'there are {names}' if names else 'none has any'}")
    is_lower_better = lower_is_better(name)
    return sorted(measured, key=lambda run: best_first(run.record.summary[name].last, is_lower_better=is_lower_better))


def best_first(value: float | None, *, is_lower_better: bool) -> tuple[bool, float]:
    """The key that sorts last values of a metric: the best one first, those without one last."""
    value_or_zero = value or 0.0
    return value is None, value_or_zero if is_lower_better else -value_or_zero


def state_of(record: RunRecord) -> str:
    """The state of a run in words; `completed` alone would not say that it succeeded."""
    is_stopped = record.is_stopped and record.goes_on
    state = "succeeded" if record.state == "completed" else "stopped" if is_stopped else record.state
    return in_words(state, has_diverged=bool(diverged(record)))


def diverged(record: RunRecord) -> str:
    """The metrics whose last value is not finite, in words; empty without one."""
    return ", ".join(f"{name} is {metric.text()}" for name, metric in ranked(record.summary) if metric.last is None)


def not_finite(record: RunRecord, task: str) -> dict[str, str]:
    """The metrics of a task whose last value is not finite, in words."""
    before = f"{task}/" if record.is_by_task else ""
    return {
        name.removeprefix(before): metric.text()
        for name, metric in record.summary.items()
        if metric.last is None and name.startswith(before)
    }


def best_of_tasks(record: RunRecord, swept: Collection[str] = (), least: int = MANY) -> Best | None:
    """The best last value of the most common metric of at least so many tasks, as `jobs sweep` ranks them; None
    without, or if no value of that metric is finite. A parameter of the tasks that they print is no metric of theirs.
    swept: the tasks with parameters; only they count, and two are enough."""
    if record.is_by_task is False:
        return None
    parameters = {_setting(name) for name in record.parameters}
    values: dict[str, dict[str, float | None]] = {}
    for name, metric in sorted(record.summary.items()):
        task, _, metric_name = name.partition("/")
        is_setting = _setting(metric_name) in LEARNING_RATES | parameters
        if task and metric_name and not is_setting and (not swept or task in swept):
            values.setdefault(metric_name, {})[task] = metric.last
    many = [name for name, of_tasks in values.items() if len(of_tasks) >= (2 if swept else least)]
    name = min(many, key=_rank, default="")
    finite = {task: value for task, value in values.get(name, {}).items() if value is not None}
    if not finite:
        return None
    best = (min if lower_is_better(name) else max)(finite.values())
    tasks = [task for task, value in finite.items() if value == best]
    return Best(len(values[name]), name, best, tasks[0], len(tasks))


def _setting(name: str) -> str:
    """The name of a parameter as a program prints it: `weight-decay` is `weight_decay`."""
    return plain(name).replace("-", "_")


def sweep_command(run: RunDirectory, record: RunRecord) -> str:
    """Lists the tasks of a sweep, or of a run with many, by their most common metric; of a sweep without one, by a
    NAME that the user chooses. Empty for another run. One that has ended is named itself: its job may be of another."""
    swept = {task.id for task in run.each_task() if task.parameters}
    best = best_of_tasks(record, swept)
    metric = best.metric if best else "NAME" if len(swept) > 1 else ""
    local = ("--local",) if loopback(record.endpoint) else ()
    source = (run.name, "--metric", metric) if record.ended else (record.job, "--metric", metric, *local)
    return shlex.join(("batchtrain", "jobs", "sweep", *source)) if metric else ""


def seconds(record: RunRecord) -> float | None:
    """How long a run took."""
    return (record.ended - record.started).total_seconds() if record.ended else None


def cost(record: RunRecord) -> str:
    """What a run cost; empty if that is unknown."""
    amount = record.cost
    return money(amount.run, amount.currency) if amount is not None and amount.run is not None else ""


def node_hours(record: RunRecord) -> str:
    """The hours of its nodes; empty if they are unknown."""
    least = "at least " if record.is_node_hours_least else ""
    return "" if record.node_hours is None else f"{least}{record.node_hours:.2f}"


_NUMBER = re.compile(r"(\d+)")


def ranked(summary: dict[str, Metric]) -> list[tuple[str, Metric]]:
    """The most common metrics first, then the others."""
    return [(name, summary[name]) for name in by_meaning(summary)]


def by_meaning(names: Iterable[str]) -> list[str]:
    """The names of metrics, the most common ones first."""
    return sorted(names, key=_rank)


def listed(names: Iterable[str]) -> str:
    """The names of metrics in a sentence."""
    return textwrap.shorten(", ".join(by_meaning(names)), 200, placeholder=" …")


def _rank(name: str) -> tuple[Any, ...]:
    """The usual metrics first, then the others by name and number: `m2` is before `m10`."""
    parts = [(len(part), part) if part.isdecimal() else (0, part) for part in _NUMBER.split(name)]
    return MAIN.index(name) if name in MAIN else len(MAIN), parts


def metric_rows(record: RunRecord) -> list[MetricRow]:
    """All metrics of a run."""
    return [
        MetricRow(name, metric.text(), "" if metric.best is None else f"{metric.best:.6g}", metric.step, metric.unit)
        for name, metric in ranked(record.summary)
    ]


class AttemptRow(NamedTuple):
    """An attempt in `runs show`."""

    task: str
    attempt: int
    nodes: tuple[str, ...]
    started: datetime | None
    seconds: float | None
    ended_by: str
    last_step: int | None
    next_from: str
    node_hours: float | None
    cost: str


def attempt_rows(record: RunRecord, attempts: Sequence[Attempt]) -> list[AttemptRow]:
    """The attempts of the tasks that ran more than once."""
    following = {(attempt.task, attempt.number - 1): attempt for attempt in attempts}
    return [_attempt_row(record, attempt, following.get((attempt.task, attempt.number))) for attempt in attempts]


def _attempt_row(record: RunRecord, attempt: Attempt, following: Attempt | None) -> AttemptRow:
    loss_reason = f" ({shortened(attempt.lost)})" if attempt.lost else ""
    code = f" {attempt.exit_code}" if attempt.exit_code else ""
    cost, hours, cost_text = record.cost, attempt.node_hours, ""
    if cost is not None and hours is not None and attempt.dedicated is not None:
        price = cost.dedicated if attempt.dedicated else cost.spot
        cost_text = "" if price is None else money(price * hours, cost.currency)
    return AttemptRow(
        attempt.task,
        attempt.number,
        attempt.nodes,
        attempt.started,
        attempt.seconds,
        f"{attempt.reason}{code}{loss_reason}",
        attempt.step,
        following.checkpoint if following else "",
        attempt.node_hours,
        cost_text,
    )


class PhaseRow(NamedTuple):
    """A part of a run in `runs show`."""

    phase: str
    seconds: float
    content: str


def phase_rows(record: RunRecord) -> list[PhaseRow]:
    """The parts of a run in their order."""
    return [PhaseRow(name, record.phases[name], text) for name, text in PHASES.items() if name in record.phases]


class PlacementRow(NamedTuple):
    """An attempt to get the nodes of the pool in `runs show`."""

    candidate: str
    seconds: float
    result: str


def placement_rows(record: RunRecord) -> list[PlacementRow]:
    """Where the nodes of the pool were looked for, in order."""
    return [
        PlacementRow(
            attempt.candidate,
            round((attempt.ended - attempt.began).total_seconds(), 1),
            attempt.code or "it had the nodes",
        )
        for attempt in record.candidates
    ]


def events(run: RunDirectory) -> Iterator[tuple[str, float]]:
    """The events of a run with the seconds since its start."""
    started = run.record().started
    for event in run.events():
        yield event.text, (event.t - started).total_seconds()


def compare(runs: Sequence[RunDirectory]) -> list[Difference]:
    """The settings that differ, the seconds of each phase, and all metrics with their last values."""
    records = [run.record() for run in runs]
    rows = [Difference(name, tuple(map(read_setting, records))) for name, read_setting in _SETTINGS.items()]
    effective = [dict(leaves(effective_of(run))) for run in runs]
    if not all(effective):  # a run without its recipe would differ in everything
        effective = [{} for _ in runs]
    # the effective recipe has what the options of the command set
    settings = [values or dict(record.settings) for record, values in zip(records, effective, strict=True)]
    packages = [_packages(run) for run in runs]
    if not all(packages):  # as above
        packages = [{} for _ in runs]
    for values, run, versions in zip(settings, runs, packages, strict=True):
        values |= source_copy.short_digests(run) | versions
    names = dict.fromkeys(name for values in settings for name in values)
    rows += [Difference(name, tuple(values.get(name, "") for values in settings)) for name in names]
    differing = [row for row in rows if len(set(row.values)) > 1]
    metrics = dict.fromkeys(name for record in records for name, _ in ranked(record.summary))
    differing += [
        Difference(
            f"{name} (s)", tuple(f"{record.phases[name]:.1f}" if name in record.phases else "" for record in records)
        )
        for name in PHASES
        if any(name in record.phases for record in records)
    ]
    return differing + [_metric(name, [record.summary.get(name) for record in records]) for name in metrics]


def _metric(name: str, of_runs: Sequence[Metric | None]) -> Difference:
    diverged = tuple(metric is not None and metric.last is None for metric in of_runs)
    return Difference(name, tuple("" if metric is None else value_text(metric) for metric in of_runs), diverged)


def effective_of(run: RunDirectory) -> dict[str, Any]:
    """The sections of effective.yaml; empty if it cannot be read."""
    path = run.config / "effective.yaml"
    try:
        yaml, problems = document.parse(str(path), state_files.content(path))
    except OSError:
        return {}
    return yaml.data if isinstance(yaml.data, dict) and not problems else {}


def _packages(run: RunDirectory) -> dict[str, str]:
    """The package versions of the first task that recorded them, with that of Python."""
    for path in sorted(run.path.glob("logs/*/packages.json")):
        if record := state_files.cached(path, Packages):
            versions = {"python": record.python, **record.packages}
            return {f"package {name}": version for name, version in versions.items()}
    return {}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The scalars of a document, and its lists of scalars, with their paths, as `--set` writes them."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value and not any(isinstance(item, (dict, list)) for item in value):
        yield path, f"[{', '.join(map(_scalar, value))}]"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    elif value is not None:
        yield path, _scalar(value)


def _scalar(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


_SETTINGS: dict[str, Any] = {
    "state": state_of,
    "job": lambda record: record.job,
    "nodes": lambda record: str(record.nodes),
    "vm_size": lambda record: record.vm_size,
    "commit": lambda record: record.commit.id[:12] if record.commit else "",
    "seconds": lambda record: f"{seconds(record):.1f}" if record.ended else "",
    "node_hours": node_hours,
    "cost": cost,
}


def value_text(metric: Metric) -> str:
    """The last value of a metric, and the best if it differs."""
    best = "" if metric.best in (None, metric.last) else f" (best {metric.best:.4g})"
    return f"{metric.text(4)} {metric.unit}".rstrip() + best


# --- statistics ------------------------------------------------------------------------------------------------------


class Statistics(NamedTuple):
    """Statistics of the values of a metric in one run, without the first value, which contains the warm-up."""

    mean: float
    median: float
    p95: float
    deviation: float


def statistics_of(values: Iterable[float]) -> Statistics | None:
    """None if there is no value."""
    every = list(values)
    sample = sorted(every[1:] or every)
    if not sample:
        return None
    return Statistics(statistics.fmean(sample), statistics.median(sample), p95(sample), statistics.pstdev(sample))
