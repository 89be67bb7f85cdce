"""The launches of every framework, as files to read. BATCHTRAIN_UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from batchtrain.frameworks.base import Fabric, Shape
from batchtrain.launchers import node_launcher
from batchtrain.launchers.launch import Launch
from tests.launching import launched
from tests.unit.launchers.test_mpi_golden import compare

GOLDEN = Path(__file__).parents[2] / "golden" / "frameworks"
COMMAND = "python -u train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output"
BENCHMARKS = "python tf_cnn_benchmarks.py --model=resnet50 --variable_update="
USUAL = {"pre_execution_command": "source /opt/activate"}

CPU = Shape(2, size="Standard_D4s_v5", family="Dsv5")
INFINIBAND = Shape(
    4, Fabric.SR_IOV, container=True, size="Standard_ND96asr_v4", family="ND A100 v4", gpus=8, gpu_vendor="nvidia"
)
SHAPES = {"cpu": CPU, "infiniband": INFINIBAND}


def flags(update: str) -> Callable[[Shape], Launch]:
    return lambda shape: launched("tensorflow", BENCHMARKS + update, shape, **USUAL, mode="flags")


LAUNCHES: dict[str, Callable[[Shape], Launch]] = {
    "pytorch": lambda shape: launched("pytorch", COMMAND, shape, **USUAL),
    "pytorch-torchrun": lambda shape: launched(
        "pytorch", COMMAND, shape, **USUAL, launcher="torchrun", rendezvous="c10d", max_restarts=3, min_instances=1
    ),
    "accelerate": lambda shape: launched(
        "accelerate", COMMAND, shape, **USUAL, mixed_precision="bf16", gradient_accumulation_steps=2
    ),
    "deepspeed": lambda shape: launched("deepspeed", COMMAND, shape, **USUAL),
    "ray": lambda shape: launched("ray", COMMAND, shape, **USUAL),
    "jax": lambda shape: launched("jax", COMMAND, shape, **USUAL),
    "tensorflow-workers": lambda shape: launched("tensorflow", COMMAND, shape, **USUAL),
    "tensorflow-parameter-server": lambda shape: launched(
        "tensorflow", COMMAND, shape, **USUAL, mode="parameter_server", evaluator=True
    ),
    "tensorflow-estimator": lambda shape: launched("tensorflow", COMMAND, shape, **USUAL, mode="estimator"),
    "tensorflow-flags": lambda shape: launched("tensorflow", COMMAND, shape, **USUAL, mode="flags"),
    "tf_cnn_benchmarks-distributed_all_reduce": flags("distributed_all_reduce"),
    "tf_cnn_benchmarks-collective_all_reduce": flags("collective_all_reduce"),
    "mxnet": lambda shape: launched("mxnet", COMMAND, shape, **USUAL, rendezvous="ib0:IP_ADDRESS:29500"),
    "horovod-gloo": lambda shape: launched("horovod", COMMAND, shape, **USUAL),
    "horovod-mpi": lambda shape: launched("horovod", COMMAND, shape, **USUAL, over="mpi"),
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
