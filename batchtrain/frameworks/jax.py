"""JAX: processes that find their coordinator on the primary; one process uses all GPUs of its node.

Source: JAX, Multi-process programming (jax.distributed.initialize and its cluster detection).
"""

from typing import ClassVar

from batchtrain.frameworks.base import SOCKETS, Nodes, Scripts, Variable


class JaxBlock(Nodes, frozen=True, kw_only=True):
    """JAX: `jax.distributed.initialize()` finds its coordinator; one process uses all GPUs of its node."""

    name: ClassVar[str] = "jax"
    source: ClassVar[str] = "JAX: jax.distributed.initialize"
    scripts: ClassVar[Scripts] = Scripts(
        imports=("jax", "flax", "optax"), image="jax", packages=("jax",),
        keras_backend="jax",
        joined_by=("distributed", "process_index", "RANK", "WORLD_SIZE", "JAX_PROCESS_ID"),
    )  # fmt: skip
    waits: ClassVar[bool] = True
    variables: ClassVar[tuple[Variable, ...]] = (
        Variable("JAX_COORDINATOR_ADDRESS", "the primary's address and a free port",
                 "jax.distributed.initialize() reads it"),
        Variable("JAX_PROCESS_ID, JAX_NUM_PROCESSES", "0 on the primary; processes of all nodes",
                 "for programs that pass them on"),
        Variable("OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK", "the same",
                 "JAX reads rank and size only in the variables of Open MPI"),
        Variable("OMPI_MCA_orte_hnp_uri", "the coordinator's address", "JAX takes it for a sign of Open MPI"),
        Variable("JAX_LOCAL_DEVICE_IDS", "the process's own GPUs", "a process uses only its own GPUs"),
        Variable("JAX_CPU_COLLECTIVES_IMPLEMENTATION", "gloo on nodes without GPUs",
                 "without it processes on CPUs cannot exchange data", keeps=True),
        *SOCKETS,
    )  # fmt: skip
