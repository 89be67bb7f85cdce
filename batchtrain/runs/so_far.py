"""A run without an end, as its directory has it so far."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from batchtrain import state_files
from batchtrain.metrics.summary import Summary
from batchtrain.records import RanksRecord
from batchtrain.runs.directory import RunDirectory, RunRecord, points_in

NEWEST = 64 << 10
"""Bytes at the end of a file of metrics from which the last values come."""


def so_far(run: RunDirectory, record: RunRecord) -> tuple[RunRecord, str]:
    """The record with the last metrics, and how far it is, of a run without an end that has one task; else the record
    alone."""
    files = list((run.path / "metrics").glob("*.jsonl")) if record.ended is None else []
    if len(files) != 1:
        return record, ""
    ranks = state_files.cached(files[0].with_suffix(".ranks.json"), RanksRecord)
    progress = ranks.progress if ranks else None
    summary = {**record.summary, **_last_values(files[0]).metrics()}
    step = f"{progress.unit} {progress.at}/{progress.of}" if progress else ""
    return msgspec.structs.replace(record, summary=summary), step


def _last_values(path: Path) -> Summary:
    summary = Summary()
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(path.stat().st_size - NEWEST, 0))
        for point in points_in(file):  # the first line may be cut
            summary.add(point)
    return summary
