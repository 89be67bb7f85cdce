"""What batchtrain writes into pools, jobs and job schedules about the run that adds them: metadata with its name, user
and host, the state of a job's addition, and for jobs with checkpoints the lineage of the run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from batchtrain.plan import lineage
from batchtrain.plan.lineage import Lineage
from batchtrain.plan.step import Step
from batchtrain.plan.types import Plan

RUN, USER, HOST = "batchtrain:run", "batchtrain:user", "batchtrain:host"
DIGEST = "batchtrain:plan"
"""The digest of a job's plan, which is added when the job is sent."""
COMPLETE = "batchtrain:tasks"
"""The number of tasks of a large job, which is added when all of them exist."""
CONTROLS = "batchtrain:controls"
"""The run whose job a job moves among the candidates of its pool."""
VARIABLE = "BATCHTRAIN_RUN"
"""The run as a variable of a job's tasks. It separates their attempts from those of an earlier job of the same id."""
MAX_PRICE = "batchtrain:max-price"
"""The limit of the price of a detached run, on its pool: the wall clock of its job counts the nodes of the plan."""
ENDS_WITH, USED_BY = "batchtrain:ends-with", "batchtrain:used-by"
"""The run that deletes it at its end, or LAST_USER; the run that began last to use a pool of another one."""
LAST_USER = "its-last-user"
"""The run that added a pool has ended, and the last run that uses the pool deletes it."""
OWN = frozenset({RUN, USER, HOST, ENDS_WITH, USED_BY, DIGEST, COMPLETE, VARIABLE, lineage.VARIABLE})
MARKED = frozenset({"pool.add", "job.add", "schedule.add"})
"""The actions whose requests carry marks."""

Document = Mapping[str, Any]


class Marks(NamedTuple):
    """Which run adds something. user, host: empty if the configuration leaves them out. lineage: None without
    checkpoints. ends_with: the run that deletes it, or LAST_USER; empty for what stays."""

    run: str
    user: str = ""
    host: str = ""
    lineage: Lineage | None = None
    ends_with: str = ""

    @property
    def metadata(self) -> list[dict[str, str]]:
        """The items of a request's metadata."""
        items = {RUN: self.run, USER: self.user, HOST: self.host, ENDS_WITH: self.ends_with}
        return [{"name": name, "value": value} for name, value in items.items() if value]


SHOWN = "(the name of the run)"
"""Shown in a plan in place of the run, which has no name yet."""


def values_of(metadata: Iterable[Document]) -> dict[str, str]:
    """The values of metadata by their names."""
    return {item.get("name", ""): item.get("value", "") for item in metadata}


def is_controller(metadata: Iterable[Document]) -> bool:
    """Whether a job with this metadata controls a run."""
    return CONTROLS in values_of(metadata)


def marks_of(metadata: Iterable[Document]) -> Marks:
    """The marks in the metadata of an answer; an empty `run` if batchtrain did not add the object."""
    items = values_of(metadata)
    return Marks(items.get(RUN, ""), items.get(USER, ""), items.get(HOST, ""), ends_with=items.get(ENDS_WITH, ""))


def marked(action: str, document: Document, marks: Marks) -> dict[str, Any]:
    """A request with its marks; those of a job are also given to the automatic pool and the jobs that it creates."""
    if action not in MARKED:
        return dict(document)
    if action == "pool.add":
        return _with(document, marks)
    variable_value = marks.lineage.value(marks.run, document["id"]) if marks.lineage else ""
    if action == "job.add":
        return _of_job(document, marks, variable_value)
    return _with({**document, "jobSpecification": _of_job(document["jobSpecification"], marks, variable_value)}, marks)


def marked_plan(plan: Plan, marks: Marks) -> Plan:
    """A plan for display: its requests with their marks."""
    steps = (
        Step(step.action, step.subject, marked(step.action, step.document, marks)) if step.action in MARKED else step
        for step in plan.steps
    )
    return plan._replace(steps=tuple(steps))


def _of_job(job: Document, marks: Marks, variable_value: str) -> dict[str, Any]:
    pool_info = job.get("poolInfo", {})
    if automatic := pool_info.get("autoPoolSpecification"):
        automatic = {**automatic, "pool": _with(automatic["pool"], marks)}
        job = {**job, "poolInfo": {**pool_info, "autoPoolSpecification": automatic}}
    own = [{"name": VARIABLE, "value": marks.run}]
    if variable_value:
        own.append({"name": lineage.VARIABLE, "value": variable_value})
    return _with({**job, "commonEnvironmentSettings": [*job.get("commonEnvironmentSettings", ()), *own]}, marks)


def _with(document: Document, marks: Marks) -> dict[str, Any]:
    return {**document, "metadata": [*document.get("metadata", ()), *marks.metadata]}
