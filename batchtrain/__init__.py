"""batchtrain: distributed training on Azure Batch. The public names of the Python API, and nothing else.

import batchtrain as bt
client = bt.connect()
recipe = bt.load("recipes/mpi4py-MPICH")
client.plan(recipe)
client.pools.add(recipe)
job = client.jobs.add(recipe)
for line in job.logs(follow=True):
    print(line)
job.wait(timeout=600).tasks
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from batchtrain.version import __version__

if TYPE_CHECKING:
    from batchtrain.client import Client, connect, load
    from batchtrain.config.types import Recipe
    from batchtrain.errors import (
        AlreadyExists,
        BatchtrainError,
        ConfigError,
        NotAllowed,
        NotFound,
        PlanError,
        QuotaReached,
        ServiceError,
        TaskFailed,
        TimedOut,
        Unreachable,
        UsageError,
    )
    from batchtrain.operations import Job, Jobs, Pools
    from batchtrain.plan.types import Plan

_HOMES = {
    **dict.fromkeys(("Client", "connect", "load"), "batchtrain.client"),
    **dict.fromkeys(("Job", "Jobs", "Pools"), "batchtrain.operations"),
    "Plan": "batchtrain.plan.types",
    "Recipe": "batchtrain.config.types",
    **dict.fromkeys(
        (
            "AlreadyExists",
            "BatchtrainError",
            "ConfigError",
            "NotAllowed",
            "NotFound",
            "PlanError",
            "QuotaReached",
            "ServiceError",
            "TaskFailed",
            "TimedOut",
            "Unreachable",
            "UsageError",
        ),
        "batchtrain.errors",
    ),
}

__all__ = [
    "AlreadyExists",
    "BatchtrainError",
    "Client",
    "ConfigError",
    "Job",
    "Jobs",
    "NotAllowed",
    "NotFound",
    "Plan",
    "PlanError",
    "Pools",
    "QuotaReached",
    "Recipe",
    "ServiceError",
    "TaskFailed",
    "TimedOut",
    "Unreachable",
    "UsageError",
    "__version__",
    "connect",
    "load",
]


def __getattr__(name: str) -> Any:
    """Names are imported at first use, because the command line must start without importing the SDK."""
    if name not in _HOMES:
        raise AttributeError(f"module 'batchtrain' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
