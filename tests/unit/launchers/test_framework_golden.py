"""The launches of every framework, as files to read. BATCHTRAIN_UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchtrain.frameworks.base import Fabric, Shape
from batchtrain.launchers import node_launcher
from batchtrain.launchers.launch import Launch
from tests.launching import launched
from tests.unit.launchers.test_mpi_golden import compare

GOLDEN = Path(__file__).parents[2] / "golden" / "frameworks"
COMMAND = "python -u train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output"
BENCHMARKS = "python tf_cnn_benchmarks.py --model=resnet50 --variable_update="

CPU = Shape(2, size="Standard_D4s_v5", family="Dsv5")
INFINIBAND = Shape(
    4, Fabric.SR_IOV, container=True, size="Standard_ND96asr_v4", family="ND A100 v4", gpus=8, gpu_vendor="nvidia"
)
SHAPES = {"cpu": CPU, "infiniband": INFINIBAND}


def usual(block: str, command: str = COMMAND, **options: Any) -> Callable[[Shape], Launch]:
    return lambda shape: launched(block, command, shape, pre_execution_command="source /opt/activate", **options)


ELASTIC = {"launcher": "torchrun", "rendezvous": "c10d", "max_restarts": 3, "min_instances": 1}
LAUNCHES: dict[str, Callable[[Shape], Launch]] = {
    "pytorch": usual("pytorch"),
    "pytorch-torchrun": usual("pytorch", **ELASTIC),
    "accelerate": usual("accelerate", mixed_precision="bf16", gradient_accumulation_steps=2),
    "deepspeed": usual("deepspeed"),
    "ray": usual("ray"),
    "jax": usual("jax"),
    "tensorflow-workers": usual("tensorflow"),
    "tensorflow-parameter-server": usual("tensorflow", mode="parameter_server", evaluator=True),
    "tensorflow-estimator": usual("tensorflow", mode="estimator"),
    "tensorflow-flags": usual("tensorflow", mode="flags"),
    "tf_cnn_benchmarks-distributed_all_reduce": usual(
        "tensorflow", f"{BENCHMARKS}distributed_all_reduce", mode="flags"
    ),
    "tf_cnn_benchmarks-collective_all_reduce": usual("tensorflow", f"{BENCHMARKS}collective_all_reduce", mode="flags"),
    "mxnet": usual("mxnet", rendezvous="ib0:IP_ADDRESS:29500"),
    "horovod-gloo": usual("horovod"),
    "horovod-mpi": usual("horovod", over="mpi"),
}


def read(launch: Launch) -> str:
    """What a person looks at: the text of the primary, gang.json, and every decision."""
    spec = [file.data.decode() for file in launch.files if file.name == node_launcher.SPEC]
    decided = sorted(f"{item.what} = {item.value}: {item.because} [{item.rule}]" for item in launch.implicit)
    return "\n".join([launch.application, *spec, *decided, ""])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", LAUNCHES)
def test_a_launch_is_as_it_was_read_last(name: str, shape: str) -> None:
    compare(GOLDEN / f"{name}.{shape}.txt", read(LAUNCHES[name](SHAPES[shape])))
