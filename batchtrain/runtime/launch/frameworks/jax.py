"""JAX: its processes find their coordinator on the primary."""

from ..environment import own_gpus
from ..spec import Gang, Process, Values
from .base import Framework, sockets


class Jax(Framework):
    gpus = "each"

    def variables(self, gang: Gang, process: Process) -> Values:
        """`jax.distributed.initialize()` without arguments reads the address of the coordinator and its own devices. It
        reads the number of processes and its own only from variables of Open MPI. With the address given, the uri only
        needs to exist."""
        size, rank = str(len(gang.ranked)), str(process.rank)
        devices = own_gpus(gang, process) if process.node.gpus and process.role.gpus else ["0"]
        return {
            "JAX_COORDINATOR_ADDRESS": f"{gang.address}:{gang.port}",
            "JAX_NUM_PROCESSES": size,
            "JAX_PROCESS_ID": rank,
            "JAX_LOCAL_DEVICE_IDS": ",".join(str(index) for index in range(len(devices))),
            "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{gang.address}:{gang.port}",
            "OMPI_COMM_WORLD_SIZE": size,
            "OMPI_COMM_WORLD_RANK": rank,
            "OMPI_COMM_WORLD_LOCAL_RANK": str(process.local_rank),
        }

    def defaults(self, gang: Gang, process: Process) -> Values:
        values = sockets(gang, process)
        if not process.node.real_gpus:
            values["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "gloo"
        return values


FRAMEWORK = Jax()
