"""Reads a line of JSON with the values of one moment; the units of metrics. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import msgspec

from batchtrain.records import Point

COUNTERS = {"step": "step", "global_step": "step", "iteration": "step", "batch": "step", "epoch": "epoch"}
"""Keys of a JSON line that give its position, with the name of the counter."""
UNITS = {
    "images_per_second": "images/s", "total_images_per_second": "images/s", "samples_per_second": "samples/s",
    "total_samples_per_second": "samples/s", "tokens_per_second": "tokens/s", "iterations_per_second": "iterations/s",
    "results.throughput": "images/s", "results.time": "ms", "error_percent": "%", "acc1": "%", "acc5": "%", "mfu": "%",
    "step_ms": "ms", "step_time": "s", "time_cost": "s", "batch_seconds": "s", "busbw": "GB/s", "average_busbw": "GB/s",
    "cpu_percent": "%", "gpu_percent": "%", "memory_gib": "GiB", "gpu_memory_gib": "GiB", "network_in_mb": "MB/s",
    "network_out_mb": "MB/s",
}  # fmt: skip
_FIELDS = {**COUNTERS, "t": "t", "rank": "rank", "node": "node"}
_RECORDED_FIELDS = {**_FIELDS, "attempt": "attempt"}
_WHOLE = frozenset({"step", "rank", "attempt"})
MOST_NAME = 250
"""Characters of the name of a metric: as many as MLflow takes."""


def metric_name(name: str, most: int = MOST_NAME) -> str:
    """The name of a metric, as it is recorded and shown: one longer than `most` characters is cut, with a digest of the
    whole name at its end."""
    if len(name) <= most:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: most - 9]}~{digest}"


def named(point: Point) -> Point:
    """A point whose metrics have the names that are recorded."""
    if max(map(len, point.values), default=0) <= MOST_NAME:
        return point
    return point._replace(values={metric_name(name): value for name, value in point.values.items()})


def of_json(line: str | bytes, rank: int | None = None, *, recorded: bool = False) -> Point | None:
    """A line of $BATCHTRAIN_METRICS; None for an empty one. rank: that of its file, for a line that names no rank and
    no node. recorded: a line of metrics/TASK.jsonl, which has an attempt. Raises ValueError if it is not a JSON object
    with a number."""
    if not line.strip():
        return None
    try:
        document = msgspec.json.decode(line)
    except msgspec.DecodeError:
        document = json.loads(line)  # Python writes NaN and Infinity, which are not valid JSON
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    names = _RECORDED_FIELDS if recorded else _FIELDS
    fields: dict[str, Any] = {}
    values: dict[str, float | None] = {}
    for name, value in document.items():
        field = names.get(name, "")
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if field and (isinstance(value, str) if field == "node" else is_number and finite(value) is not None):
            fields[field] = metric_name(value) if field == "node" else int(value) if field in _WHOLE else value
        elif value is None or is_number:
            values[name] = None if value is None else finite(value)
    if not values:
        raise ValueError("it has no number")
    point = named(Point(values, **fields))
    return point if point.rank is not None or point.node else point._replace(rank=rank)


def finite(value: float | str) -> float | None:
    """A number, which may have commas between its thousands; None for NaN, an infinite value, and other text."""
    try:
        number = float(value.replace(",", "") if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
