"""What a launcher is given and what it gives back; values only."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Fabric(enum.Enum):
    """How the nodes of a pool talk: plain Ethernet, InfiniBand with SR-IOV, or the old Network Direct."""

    ETHERNET = "ethernet"
    SR_IOV = "sr-iov"
    NETWORK_DIRECT = "network-direct"


class Shape(NamedTuple):
    """What is known of the gang while planning."""

    instances: int
    """Nodes the task runs on, one instance each."""
    fabric: Fabric = Fabric.ETHERNET
    container: bool = False
    """The task runs inside a container (as root, with the image's sshd on port 23), whoever runs that: Batch on a
    native container pool, or the node's own engine."""
    size: str = ""
    """The VM size, and its family below, as the catalogue names them; empty where it does not know them."""
    family: str = ""
    gpus: int = 0
    """GPUs of one node that the task may use."""
    gpu_vendor: str = ""
    """nvidia, amd, or empty without a GPU."""


class Mpi(NamedTuple):
    """The `multi_instance.mpi` block with `pre_execution_command`, as the launcher needs it."""

    runtime: str
    """One of intelmpi, intelmpi-ofa, openmpi, mpich, mvapich."""
    executable_path: str = "mpirun"
    options: tuple[str, ...] = ()
    processes_per_node: int | str | None = None
    """Ranks a node: a number, `auto` (its GPUs, else 1), or a shell command the primary evaluates; None means 1."""
    pre_execution_command: str | None = None
    coordination_command: str | None = None
    inside: str = ""
    """What stands before the ranks' command to run it inside an image (`apptainer.CALL`)."""
    environment: tuple[str, ...] = ()
    """Shell words NAME=VALUE, each for a variable without a value yet."""
    own: frozenset[str] = frozenset()
    """Names of variables that the task or its job sets: their values stand, and no rule is named for them."""
    preflight: bool = True
    """The nodes are looked at before anything is started."""
    cntk: bool = False
    """The program is CNTK, which works with the MPI alone that it was built on; it has no use for mpi4py."""
    misses_mpi4py: bool = True
    """A Python without mpi4py is worth a word; programs of Horovod never need it."""


class Nodes(NamedTuple):
    """What every framework's block says of its processes, as the launchers need it."""

    processes_per_node: int | str | None = None
    """A number, `auto` (GPUs of the node, else 1), or a shell command run on each node; None is the framework's own."""
    processes: int | None = None
    """Of all nodes together, in place of the above."""
    binding: str = "auto"
    interface: str | None = None
    port: int | None = None
    barrier_seconds: float = 120
    grace_seconds: float = 5
    leave_unset: tuple[str, ...] = ()
    """Variables that are not set though a rule would."""
    own: frozenset[str] = frozenset()
    """Names of variables that the task or its job sets: their values stand, and no rule is named for them."""
    pre_execution_command: str | None = None
    coordination_command: str | None = None
    preflight: bool = True
    """The nodes are looked at before anything is started."""
    inside: str = ""
    """What stands before a command to run it inside an image (`apptainer.CALL`)."""


class PyTorch(NamedTuple):
    """`multi_instance.pytorch`."""

    nodes: Nodes = Nodes()
    launcher: str = "env"
    rendezvous: str = "static"
    max_restarts: int = 0
    min_instances: int | None = None
    backend: str = "auto"


class DeepSpeed(NamedTuple):
    """`multi_instance.deepspeed`."""

    nodes: Nodes = Nodes()
    backend: str = "auto"
    accelerator: str = "auto"


class TensorFlow(NamedTuple):
    """`multi_instance.tensorflow`."""

    nodes: Nodes = Nodes()
    mode: str = "multi_worker_mirrored"
    parameter_servers: int | None = None
    chief_name: str = "chief"
    evaluator: bool = False


class Mxnet(NamedTuple):
    """`multi_instance.mxnet`."""

    nodes: Nodes = Nodes()
    servers: int | None = None
    server_command: str | None = None
    rendezvous: str | None = None
    verbose: int = 0


class Horovod(NamedTuple):
    """`multi_instance.horovod`; the last three are for its launch over an MPI."""

    nodes: Nodes = Nodes()
    over: str = "gloo"
    runtime: str = "openmpi"
    executable_path: str = "mpirun"
    options: tuple[str, ...] = ()


class Jax(NamedTuple):
    """`multi_instance.jax`."""

    nodes: Nodes = Nodes()


class File(NamedTuple):
    """One file that travels with the task; `name` is relative to AZ_BATCH_TASK_SHARED_DIR."""

    name: str
    data: bytes
    mode: int = 0o644


class Implicit(NamedTuple):
    """Something the product switched on by itself: what, its value, because of what, by which of `rules.RULES`, and
    where (the path of the block in the configuration it was decided for; set by the planner)."""

    what: str
    value: str
    because: str
    rule: str
    where: str = ""


class Launch(NamedTuple):
    """What the nodes run.

    coordination: bash text run once on every instance, after `files` are in place; it must come back with 0.
    application: bash text run on the primary alone, when every instance's coordination has come back.
    files: what both need beside them, below `.batchtrain/` of AZ_BATCH_TASK_SHARED_DIR.
    implicit: what the launcher decided by itself.
    """

    coordination: str
    application: str
    files: tuple[File, ...] = ()
    implicit: tuple[Implicit, ...] = ()
