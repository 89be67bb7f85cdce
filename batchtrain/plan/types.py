"""A plan is a value: an ordered tuple of exact requests that can be printed, compared and stored."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from batchtrain import markup
from batchtrain.config.travel import AnySource, LargeSource
from batchtrain.config.types import Secret
from batchtrain.errors import Problem
from batchtrain.launchers.launch import Implicit
from batchtrain.plan import render
from batchtrain.plan.step import Step
from batchtrain.plan.wire import TaskCreate

Sources = Mapping[str, AnySource]
"""The files of each `source` directory, by its name as written; reading them is the caller's."""


class Upload(NamedTuple):
    """What a step of action `blob.upload` carries; kept out of the printed plan."""

    path: str
    data: bytes | LargeSource

    @property
    def size(self) -> int:
        """Bytes, of a large source before it is packed."""
        return self.data.size if isinstance(self.data, LargeSource) else len(self.data)


class PlanDifference(tuple[tuple[str, str], ...]):
    """The lines of two plans that differ, as pairs of texts: a tuple that prints as text and displays as HTML."""

    def __str__(self) -> str:
        pairs = ((mark, text) for pair in self for mark, text in zip("-+", pair, strict=True) if text)
        lines = (f"{mark} {line}" for mark, text in pairs for line in text.split("\n"))
        return "\n".join(lines) or "the plans are equal"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if not self:
            return "<i>the plans are equal</i>"
        return markup.table(("this plan", "the other"), self)


class Plan(NamedTuple):
    """The requests in order, with warnings and implicit settings.

    launch: for each task (as JOB/TASK, or TASK where that is unique) the shell text its nodes run.
    """

    steps: tuple[Step, ...] = ()
    warnings: tuple[Problem, ...] = ()
    implicit: tuple[Implicit, ...] = ()
    launch: tuple[tuple[str, str], ...] = ()
    uploads: tuple[Upload, ...] = ()
    hidden: tuple[Secret, ...] = ()
    """Secrets of the credentials, so that no rendering shows them wherever they were written."""

    def __str__(self) -> str:
        return render.as_text(self)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return render.as_html(self)

    def difference(self, other: Plan) -> PlanDifference:
        """What differs in the requests and the launch texts of another plan."""
        lines, others = str(self).splitlines(), str(other).splitlines()
        changes = difflib.SequenceMatcher(None, lines, others, autojunk=False).get_opcodes()
        return PlanDifference(
            ("\n".join(lines[a:b]), "\n".join(others[c:d])) for kind, a, b, c, d in changes if kind != "equal"
        )

    def joined(self, *others: Plan) -> Plan:
        """The steps of this plan, then those of the others; duplicates are removed from everything else."""
        plans = (self, *others)
        return Plan(
            steps=tuple(step for plan in plans for step in plan.steps),
            warnings=tuple(dict.fromkeys(warning for plan in plans for warning in plan.warnings)),
            implicit=tuple(dict.fromkeys(item for plan in plans for item in plan.implicit)),
            launch=tuple(item for plan in plans for item in plan.launch),
            uploads=tuple({upload.path: upload for plan in plans for upload in plan.uploads}.values()),
        )


class PoolFacts(NamedTuple):
    """The properties of an existing pool."""

    id: str
    vm_size: str
    dedicated: int
    low_priority: int
    inter_node: bool
    slots: int


class Facts(NamedTuple):
    """What was looked up before deciding; empty when planning offline."""

    pool: PoolFacts | None = None
    listings: Mapping[str, Iterable[str]] = {}
    """The blobs' names by `link/container/prefix`, for tasks made of files; a prefix that was not listed is missing.
    Many names are listed anew by each iteration."""
    made: Mapping[tuple[str, int], Iterable[tuple[Any, ...]]] = {}
    """What custom factories give, by job id and the task's number in it. Many tasks are made anew by each iteration."""
    blob_store: str = ""
    """Where the service itself keeps the files of tasks that do not fit into a request; Azure does not."""
    results: str = ""
    """`link/container` to which the service uploads what a task leaves behind; empty while a client fetches it."""
    project: str = ""
    """The id of the recipe's project, below which its checkpoints are; empty: derived from the path of the recipe."""
    former: bool = True
    """Whether checkpoints that batchtrain before 2026-11 wrote may be those of this project."""


OFFLINE = Facts()


class Built(NamedTuple):
    """A planned task; `text` is what its nodes run, for the user."""

    body: TaskCreate
    text: str
    implicit: tuple[Implicit, ...]
    warnings: tuple[Problem, ...]
    uploads: tuple[Upload, ...]
