"""How a run went, in the order in which people ask: its state, metrics, cost and model. Views add only their layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from batchtrain.errors import counted
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


def facts(record: RunRecord, tasks: Iterable[Task] = (), files: Iterable[FileRecord] = ()) -> Iterator[Fact]:
    """The main results, the cost, and the file with the model in the run directory."""
    counts = Counts.of(tasks)
    if counts.total > 1:
        yield Fact("tasks", str(counts))
    if best := compare.best_of_tasks(record):
        yield Fact(best.metric, f"best {best.value:.4g} of {counted(best.tasks, 'task')}")
    else:
        yield from metrics(record)
    if cost := compare.cost(record):
        yield Fact("cost", f"{cost}, {compare.node_hours(record)} node hours")
    if model := model_of(files):
        yield Fact("model", model)


def metrics(record: RunRecord) -> Iterator[Fact]:
    """The metrics that matter, and the number of the others. The throughput stands for the rates it comes from."""
    is_known = "throughput" in record.summary
    ranked = [(name, metric) for name, metric in compare.ranked(record.summary) if not (is_known and is_rate(name))]
    for name, metric in ranked[:MOST_METRICS]:
        yield Fact(name, compare.value_text(metric), metric.last is None)
    if (more := len(ranked) - MOST_METRICS) > 0:
        yield Fact("more", counted(more, "metric"))


def model_of(files: Iterable[FileRecord]) -> str:
    """The largest fetched file that can be a model; empty without one."""
    models = (file for file in files if file.fetched and PurePosixPath(file.fetched).suffix.removeprefix(".") in MODELS)
    largest = max(models, key=lambda file: file.size, default=None)
    return largest.fetched if largest else ""


def lines(rows: Iterable[Fact]) -> list[str]:
    """The facts as lines of text, names and values below each other."""
    every = list(rows)
    width = max((len(row.name) for row in every), default=0)
    return [f"  {row.name.ljust(width)}  {row.text}" for row in every]
