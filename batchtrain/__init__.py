"""batchtrain: distributed training on Azure Batch. The public names of the Python API, and nothing else.

import batchtrain as bt
client = bt.connect()
result = client.run(bt.command(command="python train.py", source="src", instances=2, distribution=bt.PyTorch()))
result.plot("loss")

recipe = bt.load("recipes/mpi4py-MPICH")
client.plan(recipe)
client.pools.add(recipe)
job = client.jobs.add(recipe)
for line in job.logs(follow=True):
    print(line)
job.wait(timeout=600).tasks
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from batchtrain.version import __version__

if TYPE_CHECKING:
    from batchtrain import aio
    from batchtrain.client.client import Client, connect, load
    from batchtrain.client.job import Job
    from batchtrain.client.jobs import Jobs
    from batchtrain.client.pools import Pools
    from batchtrain.config.described import Mpi, MpiDistribution, PyTorchDistribution, TensorFlowDistribution, command
    from batchtrain.config.types import Recipe
    from batchtrain.errors import (
        AlreadyExists,
        BatchtrainError,
        ConfigError,
        Differs,
        LimitReached,
        NotAllowed,
        NotFound,
        PlanError,
        QuotaReached,
        ServiceError,
        TaskFailed,
        TasksRefused,
        TimedOut,
        Unreachable,
        UsageError,
    )
    from batchtrain.frameworks.accelerate import AccelerateBlock as Accelerate
    from batchtrain.frameworks.deepspeed import DeepSpeedBlock as DeepSpeed
    from batchtrain.frameworks.horovod import HorovodBlock as Horovod
    from batchtrain.frameworks.jax import JaxBlock as Jax
    from batchtrain.frameworks.mxnet import MxnetBlock as Mxnet
    from batchtrain.frameworks.pytorch import PyTorchBlock as PyTorch
    from batchtrain.frameworks.ray import RayBlock as Ray
    from batchtrain.frameworks.tensorflow import TensorFlowBlock as TensorFlow
    from batchtrain.functions.gangs import Returned, gang
    from batchtrain.plan.types import Plan
    from batchtrain.runs.finished import Comparison, Result, Run, Runs
    from batchtrain.scripts.recipe import script

_BLOCKS = ("Accelerate", "DeepSpeed", "Horovod", "Jax", "Mxnet", "PyTorch", "Ray", "TensorFlow")
"""Types of the blocks of `multi_instance`, whose classes end with `Block`."""
_HOMES = {
    **dict.fromkeys(_BLOCKS, "batchtrain.frameworks"),
    **dict.fromkeys(("Mpi", "MpiDistribution", "PyTorchDistribution", "TensorFlowDistribution", "command"),
        "batchtrain.config.described"),
    **dict.fromkeys(("Client", "connect", "load"), "batchtrain.client.client"),
    "Job": "batchtrain.client.job",
    "Jobs": "batchtrain.client.jobs",
    "Pools": "batchtrain.client.pools",
    **dict.fromkeys(("Returned", "gang"), "batchtrain.functions.gangs"),
    "Plan": "batchtrain.plan.types",
    "script": "batchtrain.scripts.recipe",
    **dict.fromkeys(("Comparison", "Result", "Run", "Runs"), "batchtrain.runs.finished"),
    "Recipe": "batchtrain.config.types",
    **dict.fromkeys(("AlreadyExists", "BatchtrainError", "ConfigError", "Differs", "LimitReached", "NotAllowed",
        "NotFound", "PlanError", "QuotaReached", "ServiceError", "TaskFailed", "TasksRefused", "TimedOut",
        "Unreachable", "UsageError"), "batchtrain.errors"),
}  # fmt: skip

__all__ = [
    "Accelerate", "AlreadyExists", "BatchtrainError", "Client", "Comparison", "ConfigError", "DeepSpeed", "Differs",
    "Horovod", "Jax", "Job", "Jobs", "LimitReached", "Mpi", "MpiDistribution", "Mxnet", "NotAllowed", "NotFound",
    "Plan", "PlanError", "Pools", "PyTorch", "PyTorchDistribution", "QuotaReached", "Ray", "Recipe", "Result",
    "Returned", "Run", "Runs", "ServiceError", "TaskFailed", "TasksRefused", "TensorFlow", "TensorFlowDistribution",
    "TimedOut", "Unreachable", "UsageError", "__version__", "aio", "command", "connect", "gang", "load", "script",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Names are imported at first use, because the command line must start without importing the SDK."""
    if name not in _HOMES and name != "aio":
        raise AttributeError(f"module 'batchtrain' has no attribute {name!r}")
    if name == "aio":
        return importlib.import_module("batchtrain.aio")
    value = getattr(importlib.import_module(_HOMES[name]), f"{name}Block" if name in _BLOCKS else name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for completion. For a misspelt name, Python suggests the nearest of them."""
    return __all__
