"""The launches of every framework, as files to read. BATCHTRAIN_UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from batchtrain.launchers import deepspeed, horovod, jax, mxnet, nodes, pytorch, tensorflow
from batchtrain.launchers.types import (
    DeepSpeed,
    Fabric,
    Horovod,
    Jax,
    Launch,
    Mxnet,
    Nodes,
    PyTorch,
    Shape,
    TensorFlow,
)
from tests.unit.launchers.test_mpi_golden import compare

GOLDEN = Path(__file__).parents[2] / "golden" / "frameworks"
COMMAND = "python -u train.py --outputdir $AZ_BATCH_TASK_WORKING_DIR/output"
BENCHMARKS = "python tf_cnn_benchmarks.py --model=resnet50 --variable_update="
USUAL = Nodes(pre_execution_command="source /opt/activate")

CPU = Shape(2, size="Standard_D4s_v5", family="Dsv5")
INFINIBAND = Shape(
    4, Fabric.SR_IOV, container=True, size="Standard_ND96asr_v4", family="ND A100 v4", gpus=8, gpu_vendor="nvidia"
)
SHAPES = {"cpu": CPU, "infiniband": INFINIBAND}


def flags(update: str) -> Callable[[Shape], Launch]:
    return lambda shape: tensorflow.launch(TensorFlow(USUAL, "flags"), BENCHMARKS + update, shape)


LAUNCHES: dict[str, Callable[[Shape], Launch]] = {
    "pytorch": lambda shape: pytorch.launch(PyTorch(USUAL), COMMAND, shape),
    "pytorch-torchrun": lambda shape: pytorch.launch(
        PyTorch(USUAL, "torchrun", "c10d", max_restarts=3, min_instances=1), COMMAND, shape
    ),
    "deepspeed": lambda shape: deepspeed.launch(DeepSpeed(USUAL), COMMAND, shape),
    "jax": lambda shape: jax.launch(Jax(USUAL), COMMAND, shape),
    "tensorflow-workers": lambda shape: tensorflow.launch(TensorFlow(USUAL), COMMAND, shape),
    "tensorflow-parameter-server": lambda shape: tensorflow.launch(
        TensorFlow(USUAL, "parameter_server", evaluator=True), COMMAND, shape
    ),
    "tensorflow-estimator": lambda shape: tensorflow.launch(TensorFlow(USUAL, "estimator"), COMMAND, shape),
    "tensorflow-flags": lambda shape: tensorflow.launch(TensorFlow(USUAL, "flags"), COMMAND, shape),
    "tf_cnn_benchmarks-distributed_all_reduce": flags("distributed_all_reduce"),
    "tf_cnn_benchmarks-collective_all_reduce": flags("collective_all_reduce"),
    "mxnet": lambda shape: mxnet.launch(Mxnet(USUAL, rendezvous="ib0:IP_ADDRESS:29500"), COMMAND, shape),
    "horovod-gloo": lambda shape: horovod.launch(Horovod(USUAL), COMMAND, shape),
    "horovod-mpi": lambda shape: horovod.launch(Horovod(USUAL, "mpi"), COMMAND, shape),
}


def read(launch: Launch) -> str:
    """What a person looks at: the text of the primary, gang.json, and every decision."""
    spec = [file.data.decode() for file in launch.files if file.name == nodes.SPEC]
    decided = [f"{item.what} = {item.value}: {item.because} [{item.rule}]" for item in launch.implicit]
    return "\n".join([launch.application, *spec, *decided, ""])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", LAUNCHES)
def test_a_launch_is_as_it_was_read_last(name: str, shape: str) -> None:
    compare(GOLDEN / f"{name}.{shape}.txt", read(LAUNCHES[name](SHAPES[shape])))
