"""What the tasks of a run with checkpoints learn about it: its name, its commit, which run it continues. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

VARIABLE = "BATCHTRAIN_LINEAGE"
"""The variable of a job whose tasks keep checkpoints."""


class Commit(msgspec.Struct, frozen=True):
    """The git commit of the recipe, and whether files differed from it."""

    id: str
    dirty: bool


class Resume(NamedTuple):
    """A run whose checkpoints are continued, also if it belongs to another project."""

    run: str
    training: str
    """`PROJECT/JOB`: where the checkpoints of its tasks are."""
    job: str
    """The job that continues it; other jobs continue their own checkpoints."""


class Lineage(NamedTuple):
    """Where the tasks of a run begin."""

    jobs: frozenset[str]
    """The jobs whose tasks keep checkpoints."""
    commit: str = ""
    dirty: bool = False
    """Whether files differ from the commit."""
    fresh: bool = False
    """The checkpoints of earlier runs are not continued."""
    resume: Resume | None = None

    def value(self, run: str, job: str) -> str:
        """The value of the variable for a job of a run; empty for a job without checkpoints."""
        if job not in self.jobs:
            return ""
        items: dict[str, Any] = {"run": run, **({"fresh": True} if self.fresh else {})}
        if self.commit:
            items |= {"commit": self.commit, "dirty": self.dirty}
        if self.resume and self.resume.job == job:
            items["resume"] = {"run": self.resume.run, "training": self.resume.training}
        return msgspec.json.encode(items).decode()
