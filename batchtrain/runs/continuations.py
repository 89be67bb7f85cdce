"""Which run each task of a run continued, as its node recorded it in logs/TASK/lineage.json."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from batchtrain import state_files
from batchtrain.runs.directory import RunDirectory


class Continuation(msgspec.Struct, frozen=True):
    """The checkpoint that a task began with."""

    run: str
    """The run that wrote it; empty if that is unknown."""
    step: int | None = None
    """None for files that only the program understands."""
    commit: str = ""
    dirty: bool = False
    finished: bool = False
    """Whether that run had finished the training."""
    files: tuple[str, ...] = ()
    """The files of the source that changed since then."""
    settings: tuple[str, ...] = ()
    """What else changed: `command`, `image`, `environment`."""
    nodes: tuple[int | None, int | None] = (None, None)
    """Before and now."""
    ranks: tuple[int | None, int | None] = (None, None)


class LineageRecord(msgspec.Struct, frozen=True):
    """lineage.json."""

    run: str
    training: str
    """The directory of the training on its volume."""
    line: int
    """The number of the line of checkpoints."""
    continues: Continuation | None = None


class ContinuationRow(NamedTuple):
    """A task that continued a run, in `runs show`."""

    task: str
    continues: str
    step: int | None
    commit: str
    changed: str


def continuations(run: RunDirectory) -> dict[str, LineageRecord]:
    """The records of the tasks with checkpoints, as far as they were fetched."""
    records = {}
    for path in sorted(run.path.glob("logs/*/lineage.json")):
        if record := state_files.cached(path, LineageRecord):
            records[path.parent.name] = record
    return records


def continuation_rows(run: RunDirectory) -> list[ContinuationRow]:
    """The tasks that continued a run."""
    rows = []
    for task, record in continuations(run).items():
        if continues := record.continues:
            counts = {"nodes": continues.nodes, "ranks": continues.ranks}
            numbers = [f"{name} {before} → {now}" for name, (before, now) in counts.items() if before and before != now]
            commit = f"{continues.commit[:12]}{'+' if continues.dirty else ''}"
            changed = ", ".join((*continues.files, *continues.settings, *numbers))
            rows.append(ContinuationRow(task, continues.run, continues.step, commit, changed))
    return rows
