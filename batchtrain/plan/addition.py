"""The wall clock of a job that ends without a client, while its tasks are added. Pure.

Until the last task is added, the job has a short wall clock, so that a killed command leaves no nodes behind. The
request that lets the job end with its tasks sets the planned wall clock, which counts from the creation of the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from batchtrain.config.types import span_of
from batchtrain.plan.types import Plan
from batchtrain.plan.wire_times import duration

SECONDS = 600.0
"""The wall clock of a job without all of its tasks; each extension of it counts from then."""


def short(constraints: Mapping[str, Any], age: float = 0.0) -> dict[str, Any]:
    """The constraints of a job of this age without all of its tasks. constraints: the planned ones."""
    planned = msgspec.convert(constraints["maxWallClockTime"], timedelta).total_seconds()
    return {**constraints, "maxWallClockTime": duration(span_of(min(planned, age + SECONDS)))}


def planned_constraints(plan: Plan, job_id: str) -> dict[str, Any]:
    """What the completion of a job sets after its last task; empty for a job that has its wall clock from the start."""
    bodies = (step.document for step in plan.steps if (step.action, step.subject) == ("job.complete", job_id))
    return next((body["constraints"] for body in bodies if "constraints" in body), {})
