"""JAX: processes that find their coordinator on the primary; one drives all GPUs of its node.

Source: JAX, Multi-process programming (jax.distributed.initialize and its cluster detection).
"""

from __future__ import annotations

from batchtrain.launchers import nodes, pytorch
from batchtrain.launchers.environment import Variable
from batchtrain.launchers.nodes import Framework, Role
from batchtrain.launchers.types import Jax, Launch, Shape

_RULE = "framework-environment"
_TOLD = (
    Variable("JAX_COORDINATOR_ADDRESS", "the primary's address and a free port",
             "jax.distributed.initialize() reads it", _RULE),
    Variable("JAX_PROCESS_ID, JAX_NUM_PROCESSES", "0 on the primary; processes of all nodes",
             "for programs that pass them on", _RULE),
    Variable("OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK", "the same",
             "JAX reads number and count only as Open MPI says them", _RULE),
    Variable("OMPI_MCA_orte_hnp_uri", "the coordinator's address", "JAX takes it for a sign of Open MPI", _RULE),
    Variable("JAX_LOCAL_DEVICE_IDS", "the process's own GPUs", "a process takes no other's", _RULE),
    Variable("JAX_CPU_COLLECTIVES_IMPLEMENTATION", "gloo on nodes without GPUs",
             "without it processes on CPUs cannot exchange data", _RULE),
)  # fmt: skip


def launch(options: Jax, command: str, shape: Shape) -> Launch:
    """The launch with a `jax` block."""
    framework = Framework(
        name="jax",
        roles=(Role("worker", command),),
        options={},
        each=1,
        waits=True,
        told=(*_TOLD, *pytorch.sockets(options.nodes, shape)),
    )
    return nodes.launch(framework, options.nodes, command, shape)
