"""Ways to launch a gang, one file each; the fields of `Launches` are the registry."""

from typing import Annotated, get_args

from batchtrain.frameworks.accelerate import AccelerateBlock
from batchtrain.frameworks.base import Block, Nodes, says
from batchtrain.frameworks.deepspeed import DeepSpeedBlock
from batchtrain.frameworks.horovod import HorovodBlock
from batchtrain.frameworks.jax import JaxBlock
from batchtrain.frameworks.mpi import MpiBlock
from batchtrain.frameworks.mxnet import MxnetBlock
from batchtrain.frameworks.pytorch import PyTorchBlock
from batchtrain.frameworks.ray import RayBlock
from batchtrain.frameworks.tensorflow import TensorFlowBlock


class Launches(Block, frozen=True, kw_only=True):
    """One field for each way to launch; a recipe sets at most one."""

    mpi: Annotated[MpiBlock | None, says("Launch the command with an MPI.")] = None
    pytorch: Annotated[PyTorchBlock | None, says("Launch it as PyTorch's processes.")] = None
    tensorflow: Annotated[TensorFlowBlock | None, says("Launch it in the roles of a TensorFlow cluster.")] = None
    mxnet: Annotated[MxnetBlock | None, says("Launch it as MXNet's scheduler, servers and workers.")] = None
    horovod: Annotated[HorovodBlock | None, says("Launch it as Horovod's processes.")] = None
    deepspeed: Annotated[DeepSpeedBlock | None, says("Launch it as DeepSpeed's processes.")] = None
    accelerate: Annotated[AccelerateBlock | None, says("Launch it as Accelerate's processes.")] = None
    jax: Annotated[JaxBlock | None, says("Launch it as JAX's processes.")] = None
    ray: Annotated[RayBlock | None, says("Launch it once, against a Ray cluster of all nodes.")] = None

    @property
    def launches(self) -> tuple[tuple[str, MpiBlock | Nodes], ...]:
        """Every block that sets how the command is launched, by name. A task has at most one; without one, the command
        is started directly."""
        blocks = ((name, getattr(self, name)) for name in Launches.__struct_fields__)
        return tuple((name, block) for name, block in blocks if block is not None)


FRAMEWORKS: dict[str, type[Nodes]] = {
    name: get_args(get_args(kind)[0])[0] for name, kind in Launches.__annotations__.items() if name != "mpi"
}
"""Types of the blocks that batchtrain's own node launcher starts, by name."""
