"""The numbers of a run: the place where the output of its tasks becomes metrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from batchtrain.config.types import Job
from batchtrain.runs.directory import Metric, RunDirectory


class Numbers(Protocol):
    """Makes metrics/TASK.jsonl of a run."""

    def line(self, task: str, stream: str, text: str) -> None:
        """A line of the merged output of a task, as it comes; its first words may be the rank's prefix."""

    def end(self, files: Mapping[str, tuple[Path, ...]]) -> dict[str, Metric]:
        """All output has come. files: the fetched files of $BATCHTRAIN_METRICS, by task. Gives the summary."""


class NoNumbers:
    """Keeps none."""

    def line(self, task: str, stream: str, text: str) -> None:
        pass

    def end(self, files: Mapping[str, tuple[Path, ...]]) -> dict[str, Metric]:
        return {}


def numbers_of(run: RunDirectory, job: Job | None) -> Numbers:
    """What makes the metrics of a run. job: its settings, if they are known."""
    return NoNumbers()
