"""Judges the requests of a plan by the table of what the service refuses, before any is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from batchtrain.catalog import meaning
from batchtrain.catalog.meaning import Refusal
from batchtrain.catalog.offer import Catalog
from batchtrain.errors import PlanError
from batchtrain.plan.step import Step

Document = Mapping[str, Any]


def judge(steps: Iterable[Step], catalog: Catalog) -> None:
    """Raise PlanError for the first request that the service would refuse. Of a large collection of tasks, the first
    and the last task of each factory are judged."""
    with_dependencies = False
    for step in steps:
        if step.action not in ("pool.add", "job.add", "schedule.add", "task.add"):
            continue
        document = step.document
        if step.action == "job.add":
            with_dependencies = document.get("usesTaskDependencies", False)
        for path, value, reason in _refusals(step, document, catalog, with_dependencies=with_dependencies):
            raise PlanError(
                f"Azure Batch would refuse {step.method} {step.path}: `{path}`{f' ({value})' if value != '' else ''}."
                f" {reason} Change what the recipe sets there; `batchtrain config plan` shows the request of a recipe"
                " that is right"
            )


def _refusals(step: Step, document: Document, catalog: Catalog, *, with_dependencies: bool) -> Iterator[Refusal]:
    match step.action:
        case "pool.add":
            yield from _pool(document, catalog)
        case "job.add":
            yield from _job(document, catalog)
        case "schedule.add":
            yield from meaning.display_name(document)
            yield from _below("jobSpecification", _job(document["jobSpecification"], catalog))
        case _:
            for task in document.get("value") or document.get("tasks") or (document,):
                yield from _below(task["id"], meaning.task(task, uses_dependencies=with_dependencies))


def _pool(document: Document, catalog: Catalog) -> Iterator[Refusal]:
    machine = document[meaning.VM]
    reference = machine["imageReference"]
    image = None
    if "publisher" in reference:
        image = catalog.image(reference["publisher"], reference["offer"], reference["sku"])
    if image is not None and image.retired:
        image = None  # it has to be replaced in any case: checks say so
    os = "windows" if "windows" in machine["nodeAgentSKUId"].lower() else "linux"
    return meaning.pool(document, image, os)


def _job(document: Document, catalog: Catalog) -> Iterator[Refusal]:
    yield from meaning.job(document)
    automatic = document["poolInfo"].get("autoPoolSpecification", {})
    if "pool" in automatic:
        yield from _below("poolInfo/autoPoolSpecification/pool", _pool(automatic["pool"], catalog))


def _below(prefix: str, refusals: Iterator[Refusal]) -> Iterator[Refusal]:
    return (Refusal(f"{prefix}/{path}", value, reason) for path, value, reason in refusals)
