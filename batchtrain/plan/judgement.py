"""Judges the requests of a plan by the table of what the service refuses, before any is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from batchtrain.catalog import meaning
from batchtrain.catalog.meaning import Refusal
from batchtrain.errors import PlanError
from batchtrain.plan.step import Step

Document = Mapping[str, Any]


def judge(steps: Iterable[Step]) -> None:
    """Raise PlanError for the first request that the service would refuse. Of a large collection of tasks, the first
    and the last task of each factory are judged."""
    with_dependencies = False
    for step in steps:
        if step.action not in ("pool.add", "job.add", "schedule.add", "task.add"):
            continue
        document = step.document
        if step.action == "job.add":
            with_dependencies = document.get("usesTaskDependencies", False)
        for path, value, reason in _refusals(step, document, with_dependencies=with_dependencies):
            raise PlanError(
                f"Azure Batch would refuse {step.method} {step.path}: `{path}`{f' ({value})' if value != '' else ''}."
                f" {reason} Change what the recipe sets there; `batchtrain config plan` shows the request of a recipe"
                " that is right"
            )


def _refusals(step: Step, document: Document, *, with_dependencies: bool) -> Iterator[Refusal]:
    match step.action:
        case "pool.add":
            yield from _pool(document)
        case "job.add":
            yield from _job(document)
        case "schedule.add":
            yield from meaning.display_name(document)
            yield from _below("jobSpecification", _job(document["jobSpecification"]))
        case _:
            for task in document.get("value") or document.get("tasks") or (document,):
                yield from _below(task["id"], meaning.task(task, uses_dependencies=with_dependencies))


def _pool(document: Document) -> Iterator[Refusal]:
    """Without the image: what a table says of it, a check says with a name by which it can be ignored."""
    os = "windows" if "windows" in document[meaning.VM]["nodeAgentSKUId"].lower() else "linux"
    return meaning.pool(document, None, os)


def _job(document: Document) -> Iterator[Refusal]:
    yield from meaning.job(document)
    automatic = document["poolInfo"].get("autoPoolSpecification", {})
    if "pool" in automatic:
        yield from _below("poolInfo/autoPoolSpecification/pool", _pool(automatic["pool"]))


def _below(prefix: str, refusals: Iterator[Refusal]) -> Iterator[Refusal]:
    return (Refusal(f"{prefix}/{path}", value, reason) for path, value, reason in refusals)
