"""How a run went, in the order in which people ask: its state, metrics, cost and model. Views add only their layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from batchtrain.errors import counted, printable, shortened
from batchtrain.records import Counts, Task
from batchtrain.records.rates import is_rate
from batchtrain.runs import compare
from batchtrain.runs.directory import FileRecord, RunRecord
from batchtrain.service.retry import span

MOST_METRICS = 6
MODELS = (
    "bin", "ckpt", "h5", "joblib", "keras", "model", "msgpack", "npz", "onnx", "params", "pb", "pickle", "pkl", "pt",
    "pth", "safetensors",
)  # fmt: skip
"""Endings of the files in which programs keep a model."""


class Fact(NamedTuple):
    """What is known of a run under a name."""

    name: str
    text: str
    diverged: bool = False
    """Whether it is a metric whose last value is not finite."""


def title(record: RunRecord, attempts: int = 1) -> str:
    """The state and the time of a run."""
    seconds = compare.seconds(record)
    after = "" if seconds is None else f" after {span(seconds)}"
    tries = f", {counted(attempts, 'attempt')}" if attempts > 1 else ""
    return f"{record.job} {compare.state_of(record)}{after}{tries}"


def facts(
    record: RunRecord, tasks: Iterable[Task] = (), files: Iterable[FileRecord] = (), root: Path = Path()
) -> Iterator[Fact]:
    """The main results, the cost, and the file with the model. root: the directory that its path begins with."""
    parameters: dict[str, dict[str, Any]] = {}

    def noted() -> Iterator[Task]:  # the tasks of a job may be too many to hold
        for task in tasks:
            if task.parameters:
                parameters[task.id] = task.parameters
            yield task

    counts = Counts.of(noted())
    if counts.total > 1:
        yield Fact("tasks", str(counts))
    best = compare.best_of_tasks(record, parameters)
    if best:
        point = "".join(f", {name}={value}" for name, value in parameters.get(best.task, {}).items())
        text = f"best {best.value:.4g} of {counted(best.tasks, 'task')}: {best.task}"
        sharing = f"; {counted(best.sharing, 'task')} share it" if best.sharing > 1 else ""
        yield Fact(best.metric, text + printable(shortened(point)) + sharing)
    else:
        yield from metrics(record)
    if cost := compare.cost(record):
        yield Fact("cost", f"{cost}, {compare.node_hours(record)} node hours")
    if models := models_of(files):
        if len(models) > 1:
            best = best or compare.best_of_tasks(record, least=2)
        yield Fact("model", _model(models, best, root))


def metrics(record: RunRecord) -> Iterator[Fact]:
    """The metrics that matter, and the number of the others. The throughput stands for the rates it comes from."""
    is_known = "throughput" in record.summary
    ranked = [(name, metric) for name, metric in compare.ranked(record.summary) if not (is_known and is_rate(name))]
    for name, metric in ranked[:MOST_METRICS]:
        yield Fact(name, compare.value_text(metric), metric.last is None)
    if (more := len(ranked) - MOST_METRICS) > 0:
        yield Fact("more", counted(more, "metric"))


def models_of(files: Iterable[FileRecord]) -> dict[str, FileRecord]:
    """By task, the largest fetched file that can be a model."""
    models: dict[str, FileRecord] = {}
    for file in files:
        if file.fetched and PurePosixPath(file.fetched).suffix.removeprefix(".") in MODELS:
            models[file.task] = max(models.get(file.task, file), file, key=lambda other: other.size)
    return models


def _model(models: Mapping[str, FileRecord], best: compare.Best | None, root: Path) -> str:
    """The path of the model: of several tasks that of the best one, and no path if none is known as the best."""
    task = best.task if best and best.task in models else next(iter(models))
    path, of_best = root / models[task].fetched, f"the best {best.metric} is of {best.task}" if best else ""
    if len(models) == 1:
        return f"{path} ({of_best}, which has none)" if best and best.task != task else str(path)
    if best and best.task == task:
        return f"{path} (of {task}, the best {best.metric})"
    why = f"{of_best}, which has none" if best else "no metric says which is the best"
    return f"{len(models):,} tasks have one in {root / 'outputs'}; {why}"


def lines(rows: Iterable[Fact]) -> list[str]:
    """The facts as lines of text, names and values below each other."""
    every = list(rows)
    width = max((len(row.name) for row in every), default=0)
    return [f"  {row.name.ljust(width)}  {row.text}" for row in every]
