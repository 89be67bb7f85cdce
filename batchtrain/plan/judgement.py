"""Judges the requests of a plan by the table of what the service refuses, before any is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from batchtrain.catalog import meaning
from batchtrain.catalog.meaning import Refusal
from batchtrain.config.unfilled import unfilled
from batchtrain.errors import PlanError
from batchtrain.plan.step import Step

Document = Mapping[str, Any]


def judge(steps: Iterable[Step]) -> None:
    """Raise PlanError for the first request that the service would refuse. Of a large collection of tasks, the first
    and the last task of each factory are judged."""
    job: Document = {}
    for step in steps:
        if step.action not in ("pool.add", "job.add", "schedule.add", "task.add"):
            continue
        document = step.document
        if step.action == "job.add":
            job = document
        for refusal in _refusals(step, document, job):
            if any(unfilled(refusal.value, ())):  # a placeholder, which is refused before anything is sent
                continue
            value = f" ({refusal.value})" if refusal.value != "" else ""
            raise PlanError(
                f"Azure Batch would refuse {step.method} {step.path}: `{refusal.path}`{value}."
                f" {refusal.reason} Change what the recipe sets there; `batchtrain config plan` shows the request of a"
                " recipe that is right"
            )


def _refusals(step: Step, document: Document, job: Document) -> Iterator[Refusal]:
    yield from meaning.identifier(document)
    match step.action:
        case "pool.add":
            yield from _pool(document)
        case "job.add":
            yield from _job(document)
        case "schedule.add":
            yield from meaning.display_name(document)
            yield from meaning.times(document["schedule"])
            yield from meaning.below("jobSpecification", _job(document["jobSpecification"], by_schedule=True))
        case _:
            for task in document.get("value") or document.get("tasks") or (document,):
                yield from meaning.below(task["id"], (*meaning.identifier(task), *meaning.task(task, job)))


def _pool(document: Document) -> Iterator[Refusal]:
    """Without the image: what a table says of it, a check says with a name by which it can be ignored."""
    os = "windows" if "windows" in document[meaning.VM]["nodeAgentSKUId"].lower() else "linux"
    yield from meaning.pool_parts(document)
    yield from meaning.pool(document, None, os)


def _job(document: Document, *, by_schedule: bool = False) -> Iterator[Refusal]:
    yield from meaning.job(document, by_schedule=by_schedule)
    automatic = document["poolInfo"].get("autoPoolSpecification", {})
    if "pool" in automatic:
        yield from meaning.below("poolInfo/autoPoolSpecification/pool", _pool(automatic["pool"]))
